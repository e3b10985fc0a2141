//! A server, from its settings to its end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tileforge::{Cancel, Host, OpenOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::Admission;
use crate::app::App;
use crate::budget::Budget;
use crate::coding::Coding;
use crate::connections::{Listener, Stage};
use crate::grpc::Health;
use crate::jobs::{Jobs, Keep};
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::origin::Names;
use crate::protocol::Protocol;
use crate::repository::{Repository, is_name};
use crate::settings::{NamedModel, Settings};
use crate::tls::Tls;
use crate::worker::{Lane, OpenError};
use crate::{grpc, routes, sdapi};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address cannot be served.
    #[error("cannot serve {address}")]
    Address {
        /// Which one.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The folder of the engines is not there.
    #[error("{}: expected a folder of engines", .0.display())]
    Folder(PathBuf),
    /// A model cannot have this name.
    #[error("{0}: expected a name of 1 to 128 letters, digits, `.`, `_` and `-`, of which the first is no `.`")]
    Name(String),
    /// Two models have this name.
    #[error("{0}: two models have this name")]
    Twice(String),
    /// A file of keys cannot be read.
    #[error("{}: not a file of keys: {problem}", path.display())]
    Keys {
        /// Which one.
        path: PathBuf,
        /// What was expected.
        problem: String,
    },
    /// A certificate, or its key, cannot be read.
    #[error("{}: not a certificate with its key: {problem}", path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// A queue cannot have this name.
    #[error("the name of the queue: expected letters, digits, `_` and `-`")]
    Queue,
    /// The broker's URL, which may have a password, and is not shown.
    #[error("not the URL of a broker: {0}")]
    Broker(String),
    /// An object store cannot be used.
    #[error("{prefix}: not an object store: {problem}")]
    Store {
        /// The prefix that was given.
        prefix: String,
        /// Why.
        problem: String,
    },
    /// Figures cannot be counted.
    #[error("cannot count figures")]
    Metrics(#[from] prometheus::Error),
}

/// How long ending requests may take after the grace time is over.
const LAST: Duration = Duration::from_secs(2);

/// A server whose sockets are open.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    listeners: Vec<Listener>,
    lane: Option<Lane>,
    addresses: Vec<(Protocol, SocketAddr)>,
    health: Health,
    poll: Duration,
    keys: Option<PathBuf>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Listener").field(&self.address()).finish()
    }
}

/// A handle to a running server.
#[derive(Clone, Debug)]
pub struct Handle {
    app: Arc<App>,
    keys: Option<PathBuf>,
}

impl Handle {
    /// Reads keys and certificates again, replaces the named engines, and scans for engines again; also retries
    /// engines that could not be opened.
    ///
    /// # Errors
    /// A name or a file is invalid: then it and everything after it in this order stays unchanged.
    pub async fn reload(&self, models: Vec<NamedModel>) -> Result<()> {
        check_names(&models)?;
        let keys = read_keys(self.keys.as_deref())?;
        if let Some(tls) = &self.app.tls {
            tls.read_again().map_err(|(path, problem)| Error::Certificate { path, problem })?;
        }
        *self.app.keys.write() = keys;
        let change = move |repository: &Repository| {
            repository.rename(models);
            repository.scan(true);
            repository.warn_if_empty();
        };
        in_repository(&self.app, change).await;
        Ok(())
    }
}

impl Server {
    /// Opens the sockets. Connections wait until [`Server::run`] is called.
    ///
    /// # Errors
    /// An address is in use, or the settings contradict each other.
    pub async fn open(host: &Host, settings: Settings) -> Result<Self> {
        let Settings { engines, placement, models, http, grpc, poll, tls, keys, hosts, work, limits } = settings;
        check_names(&models)?;
        if let Some(folder) = engines.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Error::Folder(folder.clone()));
        }
        let known = read_keys(keys.as_deref())?;
        let tls = tls.map(Tls::read).transpose().map_err(|(path, problem)| Error::Certificate { path, problem })?;
        let metrics = Arc::new(Metrics::new()?);
        let options = OpenOptions { waiting: limits.waiting, ..OpenOptions::default() };
        let app = Arc::new(App {
            host: host.clone(),
            repository: Repository::new(host, engines, placement, models, options, metrics.clone()),
            admission: Arc::new(Admission::new(limits.requests)),
            limits,
            budget: Budget::new(limits.memory_bytes),
            coding: Coding::new(limits.megapixels),
            keys: RwLock::new(known),
            tls,
            metrics,
            jobs: Jobs::new(Keep { jobs: limits.jobs, bytes: limits.result_bytes, time: limits.result_time }),
            sdapi: sdapi::State::default(),
            names: Names::new(http, hosts),
            cancel: Cancel::new(),
        });
        let lane = work.map(|work| Lane::open(app.clone(), work)).transpose()?;
        let http_router = if lane.is_some() { routes::watching(&app) } else { routes::http(&app) };
        let (health, grpc_router) = grpc::router(&app);
        let mut listeners = Vec::new();
        for (address, protocol, router) in [(http, Protocol::Http, http_router), (grpc, Protocol::Grpc, grpc_router)] {
            let Some(address) = address else { continue };
            let listener = Listener::open(address, protocol, router, app.clone()).await;
            listeners.push((protocol, listener.map_err(|source| Error::Address { address, source })?));
        }
        let addresses =
            listeners.iter().filter_map(|(protocol, listener)| Some((*protocol, listener.address().ok()?))).collect();
        let listeners = listeners.into_iter().map(|(_, listener)| listener).collect();
        Ok(Self { app, listeners, lane, addresses, health, poll, keys })
    }

    /// Where HTTP is served.
    pub fn http(&self) -> Option<SocketAddr> {
        self.address(Protocol::Http)
    }

    /// Where gRPC is served.
    pub fn grpc(&self) -> Option<SocketAddr> {
        self.address(Protocol::Grpc)
    }

    fn address(&self, protocol: Protocol) -> Option<SocketAddr> {
        self.addresses.iter().find(|(other, _)| *other == protocol).map(|(_, address)| *address)
    }

    /// A handle to use while the server runs.
    pub fn handle(&self) -> Handle {
        Handle { app: self.app.clone(), keys: self.keys.clone() }
    }

    /// Serves until `end` completes, and then until accepted requests have ended, for [`Limits::grace`] at most. Calls
    /// `ready` when all engines are open, and `ending` when `end` has completed. Returns false if requests had to be
    /// cancelled.
    ///
    /// [`Limits::grace`]: crate::Limits::grace
    pub async fn run(self, end: impl Future<Output = ()>, ready: impl FnOnce(), ending: impl FnOnce()) -> bool {
        let Self { app, listeners, lane, health, poll, .. } = self;
        let (stage, stages) = watch::channel(Stage::Serving);
        let mut serving = JoinSet::new();
        for listener in listeners {
            serving.spawn(listener.serve(stages.clone()));
        }
        let opening = async {
            let open = |repository: &Repository| {
                repository.scan(false);
                repository.warn_if_empty();
            };
            in_repository(&app, open).await;
            app.admission.set_ready(true);
            health.set(true).await;
            ready();
            // Jobs are taken only when the engines are open.
            if let Some(lane) = lane {
                serving.spawn(lane.serve(stages));
            }
            look(&app, poll).await;
        };
        tokio::select! {
            () = end => {}
            () = opening => {}
        }
        ending();
        app.admission.begin_to_end();
        health.set(false).await;
        let limits = app.limits;
        tracing::info!(requests = app.admission.count(), "ending: not ready");
        tokio::time::sleep(limits.drain).await;
        // Requests on open connections are still taken; each connection ends with its next answer.
        stage.send_replace(Stage::Closing);
        let mut closed = pin!(async { while serving.join_next().await.is_some() {} });
        // Connections of silent clients delay the end only up to the grace time.
        let _ = tokio::time::timeout(limits.grace, closed.as_mut()).await;
        app.admission.close();
        let whole = app.admission.count() == 0;
        if !whole {
            tracing::warn!(requests = app.admission.count(), "the grace time is over: ends what is left");
            app.admission.close();
            app.cancel.cancel();
            // Gives the answers time to reach their clients: a finished answer is not yet sent.
            let _ = tokio::time::timeout(LAST, closed).await;
        }
        stage.send_replace(Stage::Ended);
        tracing::info!("ended");
        whole
    }
}

/// Polls for changed engines and certificates.
async fn look(app: &Arc<App>, poll: Duration) {
    loop {
        tokio::time::sleep(poll).await;
        renew(app);
        app.jobs.tidy();
        in_repository(app, |repository| repository.scan(false)).await;
    }
}

/// Reads changed certificates again, for example renewed ones.
fn renew(app: &App) {
    let Some(tls) = app.tls.as_ref().filter(|tls| tls.has_changed()) else { return };
    match tls.read_again() {
        Ok(()) => tracing::info!("the certificate was read again"),
        Err((path, problem)) => {
            let path = path.display().to_string();
            tracing::error!(path, problem, "the certificate cannot be read again, and stays as it was");
        }
    }
}

/// The keys of a file.
fn read_keys(path: Option<&Path>) -> Result<Option<Arc<Keys>>> {
    let Some(path) = path else { return Ok(None) };
    let failed = |problem| Error::Keys { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Ok(Some(Arc::new(Keys::parse(&text).map_err(failed)?)))
}

/// Calls `work` with the engines, on a thread that may read files.
async fn in_repository(app: &Arc<App>, work: impl FnOnce(&Repository) + Send + 'static) {
    let app = app.clone();
    // A panic there has told so, and the server goes on.
    let _ = tokio::task::spawn_blocking(move || work(&app.repository)).await;
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Queue => Self::Queue,
            OpenError::Broker(problem) => Self::Broker(problem),
            OpenError::Store(prefix, problem) => Self::Store { prefix, problem },
            OpenError::Figures(error) => Self::Metrics(error),
        }
    }
}

fn check_names(models: &[NamedModel]) -> Result<()> {
    for (place, model) in models.iter().enumerate() {
        if !is_name(&model.name) {
            return Err(Error::Name(model.name.clone()));
        }
        if models.iter().take(place).any(|other| other.name == model.name) {
            return Err(Error::Twice(model.name.clone()));
        }
    }
    Ok(())
}
