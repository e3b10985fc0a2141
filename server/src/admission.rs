//! Which requests for work are accepted, and waiting for their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::failure::{Failure, FailureKind, Result};

/// Decides which requests for work are accepted.
#[derive(Debug)]
pub(crate) struct Admission {
    room: Arc<Semaphore>,
    most: usize,
    ready: AtomicBool,
    ending: AtomicBool,
    closed: AtomicBool,
    /// The number of accepted requests.
    count: watch::Sender<usize>,
}

/// An accepted request, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Accepted {
    admission: Arc<Admission>,
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(most)),
            most,
            ready: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            count: watch::Sender::new(0),
        }
    }

    /// Accepts a request for work.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Accepted> {
        let permit = self.room.clone().try_acquire_owned().map_err(|_| {
            let message =
                format!("{} requests are in the server, and no more are taken; send it again later", self.most);
            Failure::new(FailureKind::Busy, message)
        })?;
        // Counted before the check for the server's end: so either the shutdown sees this request, or the request sees
        // the shutdown.
        self.count.send_modify(|count| *count += 1);
        let accepted = Accepted { admission: self.clone(), _permit: permit };
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::new(FailureKind::NotReady, "the server is ending; send it to another one"));
        }
        Ok(accepted)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::SeqCst);
    }

    /// The server was asked to end.
    pub(crate) fn begin_to_end(&self) {
        self.set_ready(false);
        self.ending.store(true, Ordering::SeqCst);
    }

    /// Whether the server was asked to end: connections should not be used again.
    pub(crate) fn is_closing(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Accepts no more requests.
    pub(crate) fn close(&self) {
        self.set_ready(false);
        self.closed.store(true, Ordering::SeqCst);
    }

    /// The number of accepted requests.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.admission.count.send_modify(|count| *count -= 1);
    }
}
