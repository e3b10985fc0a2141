//! Engines of image models behind HTTP and gRPC.
//!
//! A [`Server`] holds the engines of a folder, and others that are named, on one [`Host`](tileforge::Host). Clients
//! speak the Open Inference Protocol, version 2, to it, over REST and gRPC. Scheduling, batches and the memory of
//! sessions are the host's; what is here is protocols, limits, and a shutdown that loses nothing.
//!
//! | module | holds |
//! |---|---|
//! | `server`, `settings` | [`Server`]: from settings to its end |
//! | `repository`, `model`, `fingerprint` | the engines by name, what one is opened as, and when it was exchanged |
//! | `rest`, `grpc` | the Open Inference Protocol over HTTP and gRPC |
//! | `routes` | everything over HTTP |
//! | `pictures`, `coding` | pictures in and out |
//! | `openai` | pictures as OpenAI's clients ask for them |
//! | `jobs` | long work that is looked at while it runs, and fetched when it is done |
//! | `worker` | the same work as jobs of a broker, with pictures in object stores |
//! | `sdapi` | the part of AUTOMATIC1111's API that other programs call |
//! | `page` | the web page |
//! | `caller`, `size` | who asks, and sizes as clients write them |
//! | `generate` | pictures from texts, whatever interface they were asked for by |
//! | `watcher`, `events` | how far a request has come, and server-sent events |
//! | `inference`, `datatype` | a request for tensors, whatever protocol it came by |
//! | `keys`, `tls`, `origin` | who may ask, certificates, and which web pages may ask |
//! | `trust` | TLS of this program's own requests |
//! | `connections`, `protocol`, `watched` | sockets with their limits, and what is spoken on them |
//! | `admission`, `body`, `budget` | which requests are taken, and how much memory their bodies get |
//! | `context` | what is done with each request: its id, its log line, its figures |
//! | `few` | JSON that stays small in memory |
//! | `failure` | why a request failed, as a status of each protocol |
//! | `metrics`, `traces` | what is counted, and where the time of a request goes |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod admission;
mod app;
mod body;
mod budget;
mod caller;
mod coding;
mod connections;
mod context;
mod datatype;
mod events;
mod failure;
mod few;
mod fingerprint;
mod generate;
mod grpc;
mod inference;
mod jobs;
mod keys;
mod metrics;
mod model;
mod openai;
mod origin;
mod page;
mod pictures;
mod protocol;
mod repository;
mod rest;
mod routes;
mod sdapi;
mod server;
mod settings;
mod size;
mod tls;
mod traces;
mod trust;
mod watched;
mod watcher;
mod worker;

pub use keys::new_key;
pub use server::{Error, Handle, Result, Server};
pub use settings::{Limits, NamedModel, Settings, TlsFiles, WorkSettings};
pub use traces::TARGET as TRACES;
pub use trust::client_tls;
