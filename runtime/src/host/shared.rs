//! What the threads of a host share: queues and sessions.

use std::sync::Arc;
use std::time::Duration;

use tileforge_session::Environment;

use super::core::Core;
use super::metrics::Counters;
use super::pool::Memory;
use super::queue::Queue;
use super::sessions::OpenSessions;
use super::sync::atomic::{AtomicU64, Ordering};
use super::sync::thread::{self, JoinHandle};
use super::sync::{Condvar, Mutex, MutexGuard};
use super::work::Work;
use crate::error::{Error, Result};

/// What the threads of a host share.
pub(super) struct Shared {
    pub(super) environment: Environment,
    pub(super) sessions: Arc<OpenSessions>,
    state: Mutex<State>,
    next_id: AtomicU64,
}

pub(super) struct State {
    /// The host is closed: no more work comes.
    pub(super) closed: bool,
    pub(super) devices: Vec<Device>,
    pub(super) counters: Counters,
    threads: Vec<JoinHandle<()>>,
}

/// GPUs that share one queue, or the CPU.
pub(super) struct Device {
    /// Empty: the CPU.
    gpus: Vec<u32>,
    pub(super) queue: Queue<Work>,
    /// Work came, or waiting work may run now.
    pub(super) news: Arc<Condvar>,
    streams: usize,
}

impl Shared {
    pub(super) fn new(environment: &Environment, budgets: impl IntoIterator<Item = (Memory, u64)>) -> Self {
        let counters = Counters::default();
        let state = State { closed: false, devices: Vec::new(), counters, threads: Vec::new() };
        Self {
            environment: environment.clone(),
            sessions: Arc::new(OpenSessions::new(budgets)),
            state: Mutex::new(state),
            next_id: AtomicU64::new(1),
        }
    }

    /// A number that is unique in this host.
    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The number of the device for engines on these GPUs, or on the CPU if there are none. Starts threads up to
    /// `streams`; each calls `work` with the numbers of the device and the stream.
    pub(super) fn device(
        self: &Arc<Self>,
        gpus: &[u32],
        streams: usize,
        work: fn(&Arc<Self>, usize, usize),
    ) -> Result<usize> {
        let mut state = self.lock();
        let found = state.devices.iter().position(|device| device.gpus == gpus);
        let number = found.unwrap_or_else(|| {
            let news = Arc::new(Condvar::new());
            state.devices.push(Device { gpus: gpus.to_vec(), queue: Queue::default(), news, streams: 0 });
            state.devices.len() - 1
        });
        for stream in state.devices[number].streams..streams {
            let shared = self.clone();
            let thread = thread::Builder::new().name("stream".into());
            let thread = thread.spawn(move || work(&shared, number, stream));
            let thread = thread.map_err(|source| Error::Thread { name: "stream", source })?;
            state.threads.push(thread);
            state.devices[number].streams = stream + 1;
        }
        Ok(number)
    }

    /// Wakes the streams of a device.
    pub(super) fn wake(&self, device: usize) {
        if let Some(device) = self.lock().devices.get(device) {
            device.news.notify_all();
        }
    }

    /// Records a successful run of an engine.
    pub(super) fn record_run(&self, core: &Core, samples: usize, took: Duration) {
        core.record_run(samples, took);
        let counters = &mut self.lock().counters;
        *counters.runs.entry(samples).or_default() += 1;
        counters.ran += took;
    }

    /// Records a run that failed.
    pub(super) fn record_failure(&self) {
        self.lock().counters.failed += 1;
    }

    /// Closes the host, and waits until all threads have ended their current work.
    pub(super) fn close(&self) {
        let threads = {
            let mut state = self.lock();
            state.closed = true;
            for device in &state.devices {
                device.news.notify_all();
            }
            std::mem::take(&mut state.threads)
        };
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // The callers whose work it was have received the panic as an error.
            let _ = thread.join();
        }
    }
}
