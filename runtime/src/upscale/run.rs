//! The streams: each takes batches and does nothing but run them, so that the engine is never kept waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::{Mutex, MutexGuard};

use super::model::{Batch, Limits, Model};
use super::stages::{StageResult, Stop};
use super::{Cancel, Models, PATIENCE};
use crate::error::Error;

/// What the streams of a run share.
pub(super) struct Streams<'s> {
    cancel: &'s Cancel,
    /// Another stage has failed.
    stop: &'s Stop,
    /// Most images in a run: less than at the start where memory did not hold more.
    batch: AtomicUsize,
    /// Streams that may go on.
    allowed: AtomicUsize,
    /// Streams that have not ended.
    alive: AtomicUsize,
    /// Batches that are running.
    running: AtomicUsize,
    /// Batches that a stream gave back when it ended.
    returned: Mutex<Vec<Batch>>,
    models: &'s Models,
}

impl<'s> Streams<'s> {
    pub(super) fn new(limits: Limits, cancel: &'s Cancel, stop: &'s Stop, models: &'s Models) -> Self {
        let count = |number: usize| AtomicUsize::new(number);
        let (batch, allowed, alive, running) =
            (count(limits.batch), count(limits.streams), count(limits.streams), count(0));
        Self { cancel, stop, batch, allowed, alive, running, returned: Mutex::default(), models }
    }

    /// What is in use now.
    pub(super) fn limits(&self) -> Limits {
        let most = self.batch.load(Ordering::SeqCst);
        let largest = self.models.opened().iter().map(|model| model.largest_run(most)).max();
        Limits { streams: self.allowed.load(Ordering::SeqCst), batch: largest.unwrap_or(most) }
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
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled.into());
            }
            if self.stop.is_set() {
                return Ok(());
            }
            if stream >= self.allowed.load(Ordering::SeqCst) {
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

    fn run(&self, mut batch: Batch, stream: usize, finished: &Sender<Batch>) -> StageResult<()> {
        loop {
            let most = self.batch.load(Ordering::SeqCst);
            match batch.model.clone().run(&mut batch, stream, most) {
                Ok(()) => {
                    tracing::debug!("stream {stream} ran batch {} of {} tiles", batch.number, batch.slots.len());
                    return finished.send(batch).map_err(Into::into);
                }
                Err(error) if error.is_out_of_memory() => {
                    // Tiles of other shapes may come again, and can be opened again.
                    let others = |model: &&Arc<Model>| !Arc::ptr_eq(model, &batch.model);
                    self.models.opened().iter().filter(others).for_each(|model| model.close(stream));
                    if let Some(smaller) = batch.model.smaller_than(most.min(batch.model.batch())) {
                        self.batch.fetch_min(smaller, Ordering::SeqCst);
                        tracing::warn!("out of memory: goes on with {smaller} images in a run");
                    } else if self.alive.load(Ordering::SeqCst) > 1 {
                        self.halve_streams();
                        if !self.wait_for_others(stream)? {
                            self.returned().push(batch);
                            return Ok(());
                        }
                    } else {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn halve_streams(&self) {
        let halved = (self.alive.load(Ordering::SeqCst) / 2).max(1);
        if self.allowed.fetch_min(halved, Ordering::SeqCst) > halved {
            tracing::warn!("out of memory: goes on with {halved} streams");
        }
    }

    /// Until those that may not go on have given their memory back; false if this is one of them.
    fn wait_for_others(&self, stream: usize) -> StageResult<bool> {
        loop {
            let (alive, allowed) = (self.alive.load(Ordering::SeqCst), self.allowed.load(Ordering::SeqCst));
            if alive <= allowed || alive == 1 {
                return Ok(true);
            }
            if stream >= allowed {
                return Ok(false);
            }
            if self.cancel.is_cancelled() || self.stop.is_set() {
                return Err(Error::Cancelled.into());
            }
            thread::sleep(PATIENCE / 10);
        }
    }
}
