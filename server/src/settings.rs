//! The settings of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tileforge::Placement;

/// An engine with a name, from any kind of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// The name that clients use: one component of a path.
    pub name: String,
    /// A folder, an archive, or `oci://HOST/NAME:TAG`.
    pub source: String,
    /// Where it runs.
    pub placement: Placement,
}

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with the intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key, without a password.
    pub key: PathBuf,
}

/// The engines of a server, and its addresses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder whose engines are served under the names of their folders.
    pub engines: Option<PathBuf>,
    /// Where those engines run.
    pub placement: Placement,
    /// Engines from other places. They take precedence over engines of the folder with the same name.
    pub models: Vec<NamedModel>,
    /// Where HTTP is served; `None`: not at all.
    pub http: Option<SocketAddr>,
    /// Where gRPC is served; `None`: not at all.
    pub grpc: Option<SocketAddr>,
    /// The interval at which the folders are scanned for new, exchanged and removed engines.
    pub poll: Duration,
    /// With these, both protocols are encrypted. The files are read again when they change.
    pub tls: Option<TlsFiles>,
    /// A file of keys: with it, clients have to show one for everything except health. [`Handle::reload`] reads it
    /// again.
    ///
    /// [`Handle::reload`]: crate::Handle::reload
    pub keys: Option<PathBuf>,
    /// Additional names by which clients may call the server, if it listens on a loopback address without keys.
    pub hosts: Vec<String>,
    /// Where a worker takes jobs from; `None` for a server. With this, HTTP serves only health and metrics.
    pub work: Option<WorkSettings>,
    /// How much clients may ask for.
    pub limits: Limits,
}

/// Where a worker takes jobs from, and where their pictures are.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkSettings {
    /// The URL of the broker: `nats://` or `tls://` for NATS, `redis://` or `rediss://` for Celery's protocol. It may
    /// have a user and a password.
    pub broker: String,
    /// The name of the queue: letters, digits, `_` and `-`.
    pub queue: String,
    /// The URLs below which jobs may name objects.
    pub stores: Vec<String>,
    /// Names and values of the environment variables of the stores' own tools, such as `AWS_ACCESS_KEY_ID`.
    pub store_options: Vec<(String, String)>,
    /// How long requests to a failing store are repeated.
    pub store_patience: Duration,
    /// Jobs at the same time.
    pub at_once: usize,
    /// How often a job is delivered before it becomes a dead letter.
    pub tries: u64,
    /// How long a worker may be silent before its job goes to another worker.
    pub lease: Duration,
    /// The time until the second try; it doubles with each further try.
    pub retry_delay: Duration,
}

impl fmt::Debug for WorkSettings {
    /// Leaves out values that may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WorkSettings")
            .field("queue", &self.queue)
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

/// How much clients may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a request's body.
    pub body_bytes: u64,
    /// Most bytes of all bodies together. A request that would exceed this is refused for the moment (429).
    pub memory_bytes: u64,
    /// Most pixels of a picture, in millions.
    pub megapixels: u32,
    /// Most steps of a picture that is made from a text.
    pub steps: usize,
    /// Most pictures of one request.
    pub pictures: usize,
    /// Jobs that wait, run, or have a result that is kept.
    pub jobs: usize,
    /// Most bytes of all results of jobs together.
    pub result_bytes: u64,
    /// How long a job is kept after its end.
    pub result_time: Duration,
    /// Requests for work that are in the server at the same time.
    pub requests: usize,
    /// Requests that wait for their turn in front of each engine.
    pub waiting: usize,
    /// Connections that are open at the same time, for each protocol.
    pub connections: usize,
    /// How long a client may take to send the head of a request, and how long a connection may be idle.
    pub header_time: Duration,
    /// How long a client may take to send a body.
    pub body_time: Duration,
    /// How long a client may read nothing of an answer.
    pub write_time: Duration,
    /// How long a request may take, unless the client wants it sooner.
    pub request_time: Duration,
    /// How long requests may go on after the server was asked to end.
    pub grace: Duration,
    /// How long requests are still accepted after the server was asked to end and reports that it is not ready. A load
    /// balancer has to notice that within this time.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            memory_bytes: 1 << 30,
            megapixels: 16,
            steps: 150,
            pictures: 10,
            jobs: 256,
            result_bytes: 256 << 20,
            result_time: Duration::from_secs(600),
            requests: 256,
            waiting: 64,
            connections: 1024,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(60),
            write_time: Duration::from_secs(60),
            request_time: Duration::from_secs(300),
            grace: Duration::from_secs(30),
            drain: Duration::ZERO,
        }
    }
}
