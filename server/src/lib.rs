//! Engines of image models behind HTTP and gRPC.
//!
//! A [`Server`] holds the engines of a folder, and others that are named, on one [`Host`](tileforge::Host). Clients
//! speak the Open Inference Protocol, version 2, to it, over REST and gRPC. Scheduling, batches and the memory of
//! sessions are the host's; what is here is protocols, limits, and a shutdown that loses nothing.
//!
//! | module | holds |
//! |---|---|
//! | `server`, `settings` | [`Server`]: from settings to its end |
//! | `repository`, `model` | the engines by name, and what one is opened as |
//! | `rest`, `grpc` | the Open Inference Protocol over HTTP and gRPC |
//! | `routes` | everything over HTTP |
//! | `pictures`, `coding` | pictures in and out |
//! | `inference`, `datatype` | a request for tensors, whatever protocol it came by |
//! | `keys`, `tls` | who may ask, and certificates |
//! | `connections`, `watched` | sockets with their limits |
//! | `admission`, `body`, `budget` | which requests are taken, and how much memory their bodies get |
//! | `context` | what is done with each request: its id, its log line, its figures |
//! | `failure` | why a request failed, as a status of each protocol |
//! | `metrics` | what is counted |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod admission;
mod app;
mod body;
mod budget;
mod coding;
mod connections;
mod context;
mod datatype;
mod failure;
mod grpc;
mod inference;
mod keys;
mod metrics;
mod model;
mod pictures;
mod repository;
mod rest;
mod routes;
mod server;
mod settings;
mod tls;
mod watched;

pub use keys::new_key;
pub use server::{Error, Handle, Result, Server};
pub use settings::{Limits, NamedModel, Settings, TlsFiles};
