//! The streams: each takes batches and does nothing but run them, so that the engine is never kept waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::{Mutex, MutexGuard};

use super::batch::Batch;
use super::model::Model;
use super::models::Models;
use crate::executor::{Closed, Failure, PATIENCE, StageResult};

/// What the streams share.
pub(super) struct Streams<'s> {
    /// Another stage may have failed.
    failure: &'s Failure,
    /// Streams that have not ended.
    alive: AtomicUsize,
    /// Batches that are running, and streams that look for one.
    running: AtomicUsize,
    /// Batches on their way to a stream or in it.
    ahead: AtomicUsize,
    /// Batches that a stream gave back when it ended.
    returned: Mutex<Vec<Batch>>,
    models: &'s Models,
}

impl<'s> Streams<'s> {
    pub(super) fn new(failure: &'s Failure, models: &'s Models) -> Self {
        let count = AtomicUsize::new;
        let (alive, running, ahead) = (count(models.limits.streams), count(0), count(0));
        Self { failure, alive, running, ahead, returned: Mutex::default(), models }
    }

    /// A batch is on its way.
    pub(super) fn expect_one(&self) {
        self.ahead.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a stream has nothing to do.
    pub(super) fn is_one_idle(&self) -> bool {
        self.ahead.load(Ordering::SeqCst) < self.models.allowed.streams()
    }

    fn returned(&self) -> MutexGuard<'_, Vec<Batch>> {
        self.returned.lock()
    }

    /// Runs batches until there are no more.
    pub(super) fn work(&self, stream: usize, batches: &Receiver<Batch>, finished: &Sender<Batch>) -> StageResult<()> {
        let result = self.take_all(stream, batches, finished);
        self.alive.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn take_all(&self, stream: usize, batches: &Receiver<Batch>, finished: &Sender<Batch>) -> StageResult<()> {
        loop {
            if self.failure.is_set() {
                return Ok(());
            }
            if stream >= self.models.allowed.streams() {
                self.models.opened().iter().for_each(|model| model.close(stream));
                return Ok(());
            }
            // Before a batch is taken, so that there is none that nobody counts.
            self.running.fetch_add(1, Ordering::SeqCst);
            let returned = self.returned().pop();
            let taken = returned.map_or_else(|| batches.recv_timeout(PATIENCE), Ok);
            let none_follows = matches!(taken, Err(RecvTimeoutError::Disconnected));
            let result = taken.map_or(Ok(()), |batch| self.run(batch, stream, finished));
            self.running.fetch_sub(1, Ordering::SeqCst);
            result?;
            if none_follows {
                if self.running.load(Ordering::SeqCst) == 0 && self.returned().is_empty() {
                    return Ok(());
                }
                // A stream that is running may still give its batch back.
                thread::sleep(PATIENCE / 10);
            }
        }
    }

    /// Runs one batch. A batch that fails goes on with its error: only the pictures of its tiles end.
    fn run(&self, mut batch: Batch, stream: usize, finished: &Sender<Batch>) -> StageResult<()> {
        while !batch.is_over() {
            let most = self.models.allowed.batch();
            match batch.run(stream, most) {
                Ok(()) => {
                    tracing::debug!("stream {stream} ran batch {} of {} tiles", batch.number, batch.slots.len());
                    break;
                }
                Err(error) if error.is_out_of_memory() => {
                    // Tiles of other shapes may come again, and can be opened again.
                    let others = |model: &&Arc<Model>| !Arc::ptr_eq(model, &batch.model);
                    self.models.opened().iter().filter(others).for_each(|model| model.close(stream));
                    if let Some(smaller) = batch.model.smaller_than(most.min(batch.model.batch())) {
                        self.models.allowed.at_most_batch(smaller);
                        tracing::warn!("out of memory: goes on with {smaller} images in a run");
                    } else if self.alive.load(Ordering::SeqCst) > 1 {
                        self.halve_streams();
                        if !self.wait_for_others(stream)? {
                            self.returned().push(batch);
                            return Ok(());
                        }
                    } else {
                        let smaller = self.models.run_in_parts(&batch.model, stream);
                        match smaller.and_then(|tile| tile.ok_or(error)) {
                            Ok(tile) => tracing::warn!("out of memory: goes on with tiles of {tile}"),
                            Err(error) => {
                                batch.failed = Some(Arc::new(error));
                                break;
                            }
                        }
                    }
                }
                Err(error) => {
                    batch.failed = Some(Arc::new(error));
                    break;
                }
            }
        }
        self.ahead.fetch_sub(1, Ordering::SeqCst);
        Ok(finished.send(batch)?)
    }

    fn halve_streams(&self) {
        let halved = (self.alive.load(Ordering::SeqCst) / 2).max(1);
        if self.models.allowed.at_most_streams(halved) {
            tracing::warn!("out of memory: goes on with {halved} streams");
        }
    }

    /// Until those that may not go on have given their memory back; false if this is one of them.
    fn wait_for_others(&self, stream: usize) -> StageResult<bool> {
        loop {
            let (alive, allowed) = (self.alive.load(Ordering::SeqCst), self.models.allowed.streams());
            if alive <= allowed || alive == 1 {
                return Ok(true);
            }
            if stream >= allowed {
                return Ok(false);
            }
            if self.failure.is_set() {
                return Err(Closed);
            }
            thread::sleep(PATIENCE / 10);
        }
    }
}
