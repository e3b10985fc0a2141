//! What the threads of a host share: queues and sessions.

use std::sync::Arc;

use tileforge_session::Environment;

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
    pub(super) places: Vec<Place>,
    pub(super) counters: Counters,
    threads: Vec<JoinHandle<()>>,
}

/// GPUs that run one queue, or the CPU.
pub(super) struct Place {
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
        let state = State { closed: false, places: Vec::new(), counters, threads: Vec::new() };
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

    /// The place for engines on these GPUs, or on the CPU if there are none. Starts threads up to `streams`; each
    /// calls `work` with the numbers of the place and the stream.
    pub(super) fn place(
        self: &Arc<Self>,
        gpus: &[u32],
        streams: usize,
        work: fn(&Arc<Self>, usize, usize),
    ) -> Result<usize> {
        let mut state = self.lock();
        let found = state.places.iter().position(|place| place.gpus == gpus);
        let number = found.unwrap_or_else(|| {
            let news = Arc::new(Condvar::new());
            state.places.push(Place { gpus: gpus.to_vec(), queue: Queue::default(), news, streams: 0 });
            state.places.len() - 1
        });
        for stream in state.places[number].streams..streams {
            let shared = self.clone();
            let thread = thread::Builder::new().name("stream".into());
            let thread = thread.spawn(move || work(&shared, number, stream));
            let thread = thread.map_err(|source| Error::Thread { name: "stream", source })?;
            state.threads.push(thread);
            state.places[number].streams = stream + 1;
        }
        Ok(number)
    }

    /// Wakes the streams of a place.
    pub(super) fn wake(&self, place: usize) {
        if let Some(place) = self.lock().places.get(place) {
            place.news.notify_all();
        }
    }

    /// Closes the host, and waits until all threads have ended their current work.
    pub(super) fn close(&self) {
        let threads = {
            let mut state = self.lock();
            state.closed = true;
            for place in &state.places {
                place.news.notify_all();
            }
            std::mem::take(&mut state.threads)
        };
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // The callers whose work it was have received the panic as an error.
            let _ = thread.join();
        }
    }
}
