//! State that all requests share.

use std::sync::Arc;

use parking_lot::RwLock;
use tileforge::{Cancel, Host};

use crate::admission::Admission;
use crate::budget::Budget;
use crate::coding::Coding;
use crate::jobs::Jobs;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::origin::Names;
use crate::repository::Repository;
use crate::sdapi::State;
use crate::settings::Limits;
use crate::tls::Tls;

/// The name of this server in its metadata.
pub(crate) const NAME: &str = "tileforge-server";

/// Its version in its metadata.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The only version of each model.
pub(crate) const MODEL_VERSION: &str = "1";

/// The parts of the protocol beyond its core.
pub(crate) const EXTENSIONS: [&str; 2] = ["binary_tensor_data", "model_repository"];

/// The platform of a model in its metadata.
pub(crate) const PLATFORM: &str = "tileforge";

/// State that all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) repository: Repository,
    pub(crate) admission: Arc<Admission>,
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) coding: Coding,
    /// `None`: clients need no key.
    pub(crate) keys: RwLock<Option<Arc<Keys>>>,
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) jobs: Jobs,
    pub(crate) sdapi: State,
    pub(crate) names: Names,
    /// Cancels all requests when the grace time is over.
    pub(crate) cancel: Cancel,
}
