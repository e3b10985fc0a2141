//! What all requests share.

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

/// The one version of each model.
pub(crate) const MODEL_VERSION: &str = "1";

/// The parts of the protocol beyond its core.
pub(crate) const EXTENSIONS: [&str; 2] = ["binary_tensor_data", "model_repository"];

/// What clients read as the kind of a model.
pub(crate) const PLATFORM: &str = "tileforge";

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) repository: Repository,
    pub(crate) admission: Arc<Admission>,
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) coding: Coding,
    /// `None`: everybody may ask.
    pub(crate) keys: RwLock<Option<Arc<Keys>>>,
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) jobs: Jobs,
    pub(crate) sdapi: State,
    pub(crate) names: Names,
    /// Ends all requests, when the time to end them in peace is over.
    pub(crate) cancel: Cancel,
}
