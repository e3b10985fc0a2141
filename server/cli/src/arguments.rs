//! The arguments of `serve` and `work`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tileforge::{Placement, SessionOptions};
use tileforge_server::{Limits, TlsFiles};
use tileforge_terminal::{Placing, Verbosity, whole};

use crate::log::LogFormat;

/// Serve engines until Ctrl-C or SIGTERM.
///
/// The addresses are printed to standard output, and the log goes to standard error. SIGHUP reads the configuration
/// again, and looks for engines again. SIGTERM and Ctrl-C end the server when the requests that it has accepted have
/// ended.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tileforge-server serve --engines engines/cpu
  tileforge-server serve --model-name photo=oci://registry.example/compact-x4:1.0 --grpc off
  tileforge-server serve --engines /srv/engines --http 0.0.0.0:8000 --grpc 0.0.0.0:8001 --log text")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) engines: Engines,
    /// Where HTTP is served: ADDRESS:PORT, or `off`. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", value_parser = place)]
    pub(crate) http: Place,
    /// Where gRPC is served: ADDRESS:PORT, or `off`. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8001", value_parser = place)]
    pub(crate) grpc: Place,
    /// A certificate in PEM, with those between it and its authority: both protocols are encrypted. It is read again
    /// when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Safety")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The certificate's private key in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help_heading = "Safety")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A file of keys, of which clients have to show one; `tileforge-server key` makes its lines. SIGHUP reads it
    /// again.
    #[arg(long, value_name = "FILE", help_heading = "Safety")]
    pub(crate) keys: Option<PathBuf>,
    /// A name that clients may call the server by, beside those of this machine, where it listens on a loopback address
    /// without keys: such as the name of a proxy. Can be given several times.
    #[arg(long, value_name = "NAME", help_heading = "Safety")]
    pub(crate) allow_host: Vec<String>,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) load: Load,
    /// Most pictures of one request.
    #[arg(long, value_name = "NUMBER", default_value = "10", help_heading = "Limits",
        value_parser = whole::<usize>(..))]
    pub(crate) max_pictures: usize,
    /// Jobs that wait, run, or have a result that is kept.
    #[arg(long, value_name = "NUMBER", default_value = "256", help_heading = "Limits",
        value_parser = whole::<usize>(..))]
    pub(crate) max_jobs: usize,
    /// Most bytes of all results of jobs together.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = bytes, help_heading = "Limits")]
    pub(crate) max_results: u64,
    /// Seconds that a job is kept after its end.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds, help_heading = "Limits")]
    pub(crate) result_time: Duration,
    /// Requests for work that are in the server at the same time.
    #[arg(long, value_name = "NUMBER", default_value = "256", help_heading = "Limits",
        value_parser = whole::<usize>(..))]
    pub(crate) max_requests: usize,
    /// Requests that wait in front of each engine.
    #[arg(long, value_name = "NUMBER", default_value = "64", help_heading = "Limits",
        value_parser = whole::<usize>(..))]
    pub(crate) queue: usize,
    /// Open connections of each protocol.
    #[arg(long, value_name = "NUMBER", default_value = "1024", help_heading = "Limits",
        value_parser = whole::<usize>(..))]
    pub(crate) max_connections: usize,
    /// Seconds in which the head of a request has to come.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds, help_heading = "Limits")]
    pub(crate) header_timeout: Duration,
    /// Seconds in which the body of a request has to come.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, help_heading = "Limits")]
    pub(crate) body_timeout: Duration,
    /// Seconds that a client may read nothing of its answer.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, help_heading = "Limits")]
    pub(crate) write_timeout: Duration,
    /// Seconds that a request may take.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds, help_heading = "Limits")]
    pub(crate) request_timeout: Duration,
    /// Seconds that accepted requests may go on after SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, help_heading = "Shutdown")]
    pub(crate) grace: Duration,
    /// Seconds that requests are still accepted after SIGTERM, while the server says that it is not ready.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds, help_heading = "Shutdown")]
    pub(crate) drain: Duration,
}

/// Arguments of every command.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// The ONNX Runtime library, or the folder that holds it.
    ///
    /// Without it: the environment variable ORT_DYLIB_PATH, then beside this executable, then ../lib/tileforge (where
    /// releases have it), then ../lib, then .onnxruntime/lib of the source tree that it was built in (where `make
    /// setup` puts it).
    #[arg(long, global = true, value_name = "PATH", help_heading = "Libraries")]
    pub(crate) ort_lib: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

/// How others see what the program does.
#[derive(clap::Args)]
pub(crate) struct Watching {
    /// How the log is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    pub(crate) log: LogFormat,
    /// A collector of OpenTelemetry that traces are sent to by OTLP over HTTP, such as http://127.0.0.1:4318. Without
    /// it: the environment variable OTEL_EXPORTER_OTLP_ENDPOINT; without both, nothing is sent.
    #[arg(long, value_name = "URL")]
    pub(crate) traces: Option<String>,
}

/// Which engines there are.
#[derive(clap::Args)]
pub(crate) struct Engines {
    /// The folder whose engines are served, under the names of their folders. New, exchanged and removed engines are
    /// noticed.
    #[arg(long, value_name = "DIR", help_heading = "Engines")]
    pub(crate) engines: Option<PathBuf>,
    /// An engine under a name: a folder, an archive, or oci://HOST/NAME:TAG. Can be given several times.
    #[arg(long, value_name = "NAME=SOURCE", value_parser = name_and_source, help_heading = "Engines")]
    pub(crate) model_name: Vec<(String, String)>,
    /// A TOML file whose table `models` has more sources by name, and where each of them runs; SIGHUP reads it again.
    #[arg(long, value_name = "FILE", help_heading = "Engines")]
    pub(crate) config: Option<PathBuf>,
    /// Seconds between two looks at the folders.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, help_heading = "Engines")]
    pub(crate) poll: Duration,
    #[command(flatten)]
    placing: Placing,
}

impl Engines {
    /// The default placement of engines.
    pub(crate) fn placement(&self) -> Placement {
        let Placing { provider, strict, devices, streams, threads } = self.placing.clone();
        let session = SessionOptions { strict, threads, ..SessionOptions::default() };
        Placement { provider: provider.0, streams: streams.map(usize::from), devices, session }
    }

    /// Whether any source of engines is given.
    pub(crate) fn are_named(&self) -> bool {
        self.engines.is_some() || !self.model_name.is_empty() || self.config.is_some()
    }
}

/// How large the work may be, wherever it comes from.
#[derive(clap::Args)]
pub(crate) struct Load {
    /// Bytes of this machine's memory that open engines may take, such as 4G. Without it: what the system gives.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits")]
    pub(crate) memory: Option<u64>,
    /// Most bytes of the body of a request.
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes, help_heading = "Limits")]
    pub(crate) max_body: u64,
    /// Most bytes of all bodies together.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes, help_heading = "Limits")]
    pub(crate) max_bodies: u64,
    /// Most pixels of a picture, in millions.
    #[arg(long, value_name = "NUMBER", default_value = "16", help_heading = "Limits", value_parser = whole::<u32>(..))]
    pub(crate) max_megapixels: u32,
    /// Most steps of a picture that is made from a text.
    #[arg(long, value_name = "NUMBER", default_value = "150", help_heading = "Limits",
        value_parser = whole::<usize>(..))]
    pub(crate) max_steps: usize,
}

impl Load {
    /// The limits that are set here.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            body_bytes: self.max_body,
            memory_bytes: self.max_bodies,
            megapixels: self.max_megapixels,
            steps: self.max_steps,
            ..Limits::default()
        }
    }
}

impl Serve {
    /// The files of the certificate.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles { certificate: self.tls_certificate.clone()?, key: self.tls_key.clone()? })
    }

    /// How much clients may ask for.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            pictures: self.max_pictures,
            jobs: self.max_jobs,
            result_bytes: self.max_results,
            result_time: self.result_time,
            requests: self.max_requests,
            waiting: self.queue,
            connections: self.max_connections,
            header_time: self.header_timeout,
            body_time: self.body_timeout,
            write_time: self.write_timeout,
            request_time: self.request_timeout,
            grace: self.grace,
            drain: self.drain,
            ..self.load.limits()
        }
    }
}

/// Work on jobs of a broker until Ctrl-C or SIGTERM.
///
/// A message names the kind of a job, its pictures as URLs in object stores, and the URL that the result is written to.
/// Jobs whose worker dies are given to another one, and each result is written once. docs/worker.md says how messages
/// look. SIGHUP reads the configuration again. SIGTERM and Ctrl-C end the worker when its jobs have ended or were given
/// back.
///
/// Stores read their credentials from the environment: AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT and so on, GOOGLE_…,
/// AZURE_….
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tileforge-server work --engines engines/cpu --broker nats://127.0.0.1:4222 --store s3://pictures/jobs
  tileforge-server work --engines engines/cpu --broker redis://127.0.0.1:6379/0 --store file:///srv/pictures
  TILEFORGE_BROKER=nats://worker:secret@broker.example tileforge-server work --engines /engines --store s3://pictures")]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) engines: Engines,
    /// The broker: nats://HOST:PORT or tls://HOST:PORT for NATS JetStream, redis://HOST:PORT/DATABASE or rediss:// for
    /// Celery's tasks. Without it: the environment variable TILEFORGE_BROKER, which other users do not see.
    #[arg(long, value_name = "URL", help_heading = "Jobs")]
    pub(crate) broker: Option<String>,
    /// The name of the queue.
    #[arg(long, value_name = "NAME", default_value = "tileforge", help_heading = "Jobs")]
    pub(crate) queue_name: String,
    /// A URL below which jobs may read and write objects: s3://BUCKET/…, gs://BUCKET/…, az://CONTAINER/…, or
    /// file:///FOLDER. Can be given several times.
    #[arg(long, value_name = "URL", required = true, help_heading = "Jobs")]
    pub(crate) store: Vec<String>,
    /// Jobs at the same time.
    #[arg(long, value_name = "NUMBER", default_value = "4", value_parser = number::<256>, help_heading = "Jobs")]
    pub(crate) at_once: u64,
    /// How often a job is delivered before it becomes a dead letter.
    #[arg(long, value_name = "NUMBER", default_value = "5", value_parser = number::<1000>, help_heading = "Jobs")]
    pub(crate) tries: u64,
    /// Seconds after which the jobs of a worker that says nothing go to another one. The same for all workers.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = lease, help_heading = "Jobs")]
    pub(crate) lease: Duration,
    /// Seconds until the second try of a job; they double with each.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds, help_heading = "Jobs")]
    pub(crate) retry_delay: Duration,
    /// Seconds that a store which fails is asked again before the job is given back.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, help_heading = "Jobs")]
    pub(crate) store_timeout: Duration,
    /// Where health and figures are served over HTTP: ADDRESS:PORT, or `off`. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", value_parser = place)]
    pub(crate) http: Place,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) load: Load,
    /// Most bytes of a result.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = bytes, help_heading = "Limits")]
    pub(crate) max_result: u64,
    /// Seconds that one try of a job may compute.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds, help_heading = "Limits")]
    pub(crate) job_timeout: Duration,
    /// Seconds that jobs may go on after SIGTERM, before they are given back.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, help_heading = "Shutdown")]
    pub(crate) grace: Duration,
}

impl Work {
    /// How much jobs may ask for.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            result_bytes: self.max_result,
            request_time: self.job_timeout,
            grace: self.grace,
            ..self.load.limits()
        }
    }
}

/// Where a protocol is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) Option<SocketAddr>);

fn place(text: &str) -> Result<Place, String> {
    match text {
        "off" => Ok(Place(None)),
        text => text.parse().map(|address| Place(Some(address))).map_err(|_| "expected ADDRESS:PORT, or `off`".into()),
    }
}

fn name_and_source(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, source)| !name.is_empty() && !source.is_empty());
    let (name, source) = parts.ok_or("expected NAME=SOURCE")?;
    Ok((name.into(), source.into()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "expected seconds, from 0 to 86400".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=86400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

/// A number from 1.
fn number<const MOST: u64>(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {MOST}"))
}

/// The time of a lease, with a minimum, because a lease is renewed three times within it.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = seconds(text)?;
    if lease.as_secs() < 1 { Err("expected at least 1 second".into()) } else { Ok(lease) }
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(unit)).ok_or_else(|| "expected bytes, as in 64M, 4G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_units() {
        assert_eq!([bytes("12"), bytes("3K"), bytes("1G")], [Ok(12), Ok(3072), Ok(1 << 30)]);
        assert!(
            ["", "K", "-1", "1T", "99999999999999999999", "18446744073709551615G"]
                .into_iter()
                .all(|text| bytes(text).is_err())
        );
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["", "-1", "NaN", "inf", "1e9"].into_iter().all(|text| seconds(text).is_err()));
        assert!(["", "=", "a=", "=b", "a"].into_iter().all(|text| name_and_source(text).is_err()));
    }
}
