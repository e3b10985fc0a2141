//! State that is kept between the requests of a caller.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::caller::Caller;
use crate::watcher::Seen;

/// State that is kept between the requests of a caller.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The engine that a caller has chosen. There are at most as many callers as keys.
    pub(super) chosen: Mutex<HashMap<Caller, String>>,
    pub(super) running: Mutex<Vec<Arc<Running>>>,
}

/// A request that waits or runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) caller: Caller,
    pub(super) kind: &'static str,
    pub(super) seen: watch::Receiver<Seen>,
    pub(super) interrupted: watch::Sender<bool>,
}
