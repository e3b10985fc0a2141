//! Counts a request in the host's metrics.

use std::mem::replace;
use std::sync::Arc;
use std::time::Instant;

use super::shared::Shared;

/// A request's entry in the metrics, from its acceptance to its answer or drop.
pub(super) struct Counted {
    shared: Arc<Shared>,
    task: &'static str,
    /// When its stage began.
    since: Instant,
    is_served: bool,
}

impl Counted {
    /// A request that waits for its turn.
    pub(super) fn new(shared: &Arc<Shared>, task: &'static str) -> Self {
        shared.lock().counters.tasks.entry(task).or_default().waiting += 1;
        Self { shared: shared.clone(), task, since: Instant::now(), is_served: false }
    }

    /// Its turn has come.
    pub(super) fn begin(mut self) -> Self {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let counters = state.counters.tasks.entry(self.task).or_default();
        counters.waited += now - replace(&mut self.since, now);
        counters.waiting -= 1;
        counters.serving += 1;
        drop(state);
        self.is_served = true;
        self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        let mut state = self.shared.lock();
        let counters = state.counters.tasks.entry(self.task).or_default();
        if self.is_served {
            counters.serving -= 1;
            counters.served += 1;
            counters.took += took;
        } else {
            counters.waiting -= 1;
            counters.waited += took;
        }
    }
}
