//! Engines of image models behind HTTP and gRPC.
//!
//! A [`Server`] holds the engines of a folder, and named ones, on one [`Host`](tileforge::Host). Clients use the Open
//! Inference Protocol, version 2, over REST and gRPC. The host is responsible for scheduling, batches and the memory
//! of sessions; this crate is responsible for protocols, limits, and a shutdown that loses no request.
//!
//! | module | holds |
//! |---|---|
//! | `server`, `settings` | [`Server`]: from its settings to its end |
//! | `repository`, `model`, `fingerprint` | the engines by name, an engine's services, and noticing an exchange |
//! | `rest`, `grpc` | the Open Inference Protocol over HTTP and gRPC |
//! | `routes` | all HTTP routes |
//! | `pictures`, `coding` | pictures in and out |
//! | `openai` | pictures by OpenAI's image API |
//! | `jobs` | long work that is observed while it runs, and fetched when it is done |
//! | `worker` | the same work as jobs of a broker, with pictures in object stores |
//! | `sdapi` | the part of AUTOMATIC1111's API that other programs call |
//! | `page` | the web page |
//! | `caller`, `size` | callers, and sizes as clients write them |
//! | `generate` | pictures from texts, for every interface |
//! | `watcher`, `events` | the progress of a request, and server-sent events |
//! | `inference`, `datatype` | a request for tensors, for every protocol |
//! | `keys`, `tls`, `origin` | keys of clients, certificates, and allowed web pages |
//! | `trust` | TLS of this program's own requests |
//! | `connections`, `protocol`, `watched` | sockets with their limits and protocols |
//! | `admission`, `body`, `budget` | which requests are accepted, and how much memory their bodies get |
//! | `context` | the handling that all requests share: id, log line, metrics |
//! | `bounded_json` | JSON that stays small in memory |
//! | `failure` | why a request failed, as a status of each protocol |
//! | `metrics`, `traces` | metrics, and spans that show where the time of a request goes |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod admission;
mod app;
mod body;
mod bounded_json;
mod budget;
mod caller;
mod coding;
mod connections;
mod context;
mod datatype;
mod events;
mod failure;
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
