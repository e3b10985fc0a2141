//! Counts a request in the host's metrics.

use std::mem::replace;
use std::sync::Arc;
use std::time::Instant;

use super::shared::Shared;
use super::stages::Stages;

/// A request's entry in the metrics, from its acceptance to its answer or drop.
pub(super) struct Counted {
    shared: Arc<Shared>,
    task: &'static str,
    /// When it was accepted, or when its turn came.
    since: Instant,
    /// Once its turn has come.
    stages: Option<Arc<Stages>>,
}

impl Counted {
    /// A request that waits for its turn.
    pub(super) fn new(shared: &Arc<Shared>, task: &'static str) -> Self {
        shared.lock().counters.tasks.entry(task).or_default().waiting += 1;
        Self { shared: shared.clone(), task, since: Instant::now(), stages: None }
    }

    /// Its turn has come.
    pub(super) fn begin(mut self, stages: &Arc<Stages>) -> Self {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let counters = state.counters.tasks.entry(self.task).or_default();
        counters.waited += now - replace(&mut self.since, now);
        counters.waiting -= 1;
        counters.serving += 1;
        drop(state);
        self.stages = Some(stages.clone());
        self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let now = Instant::now();
        let served = self.stages.as_ref().map(|stages| stages.took(self.since, now));
        let mut state = self.shared.lock();
        let counters = state.counters.tasks.entry(self.task).or_default();
        if let Some(took) = served {
            counters.serving -= 1;
            counters.served += 1;
            counters.took.preparing += took.preparing;
            counters.took.on_device += took.on_device;
            counters.took.finishing += took.finishing;
        } else {
            counters.waiting -= 1;
            counters.waited += now - self.since;
        }
    }
}
