//! How much runs at the same time: less than at the start where memory did not suffice.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

/// What memory allowed to run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Sessions.
    pub streams: usize,
    /// Most images in one run.
    pub batch: usize,
}

/// What may run at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) streams: usize,
    pub(super) batch: usize,
}

/// What may still run at the same time.
pub(super) struct Allowed {
    streams: AtomicUsize,
    batch: AtomicUsize,
}

impl Allowed {
    pub(super) fn new(limits: Limits) -> Self {
        Self { streams: AtomicUsize::new(limits.streams), batch: AtomicUsize::new(limits.batch) }
    }

    /// Streams that may go on.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    /// Most images in a run.
    pub(super) fn batch(&self) -> usize {
        self.batch.load(Ordering::SeqCst)
    }

    pub(super) fn at_most_batch(&self, batch: usize) {
        self.batch.fetch_min(batch, Ordering::SeqCst);
    }

    /// Returns whether there were more.
    pub(super) fn at_most_streams(&self, streams: usize) -> bool {
        self.streams.fetch_min(streams, Ordering::SeqCst) > streams
    }
}
