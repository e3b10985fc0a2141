//! Limits how many long requests are open at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::queue::Priority;
use super::sync::{Condvar, Mutex};
use crate::error::{Error, Result};

/// How long a request waits before it checks again whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How many long requests are served at the same time: one that runs, and one that is prepared meanwhile.
pub(super) const LONG_MAXIMUM: usize = 2;

/// The slots of a service: as many requests as it has are served at the same time. A long one gives its slot to others,
/// so that these never wait for its end.
pub(super) trait Slots: Send + Sync {
    /// The slot of a request goes to others.
    fn give(self: Arc<Self>);

    /// The request is about to end.
    fn take_back(&self);
}

/// A slot that was given to others.
struct Given(Arc<dyn Slots>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.take_back();
    }
}

/// The long requests that are open or wait to be, by the order of their turns.
#[derive(Default)]
pub(super) struct LongRequests {
    open: Mutex<BTreeMap<u64, Priority>>,
    ended: Condvar,
}

/// A request's place among long ones.
pub(super) struct LongTurn {
    long: Arc<LongRequests>,
    slots: Arc<dyn Slots>,
    number: u64,
    priority: Priority,
}

impl LongTurn {
    pub(super) fn new(long: &Arc<LongRequests>, slots: Arc<dyn Slots>, number: u64, priority: Priority) -> Self {
        Self { long: long.clone(), slots, number, priority }
    }

    /// Gives the slot of the request to others, and waits while too many long requests of the same or higher priority
    /// with earlier turns are open. It never waits for later requests: they may need the result of this one.
    pub(super) fn begin(&self, is_over: impl Fn() -> bool) -> Result<OpenLong> {
        self.slots.clone().give();
        let given = Given(self.slots.clone());
        let mut open = self.long.open.lock();
        open.insert(self.number, self.priority);
        let long = OpenLong { long: self.long.clone(), number: self.number, _given: given };
        let before = |open: &BTreeMap<u64, Priority>| {
            open.range(..self.number).filter(|(_, priority)| **priority >= self.priority).count()
        };
        while before(&open) >= LONG_MAXIMUM {
            if is_over() {
                drop(open);
                drop(long);
                return Err(Error::Cancelled);
            }
            self.long.ended.wait_for(&mut open, POLL_INTERVAL);
        }
        Ok(long)
    }
}

/// A long request that is open.
pub(crate) struct OpenLong {
    long: Arc<LongRequests>,
    number: u64,
    _given: Given,
}

impl Drop for OpenLong {
    fn drop(&mut self) {
        self.long.open.lock().remove(&self.number);
        self.long.ended.notify_all();
    }
}
