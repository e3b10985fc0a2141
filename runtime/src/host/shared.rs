//! What the threads of a host share: queues, sessions and their memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tileforge_session::{Environment, Session, available_memory};

use super::core::Core;
use super::group::Tensors;
use super::metrics::Counters;
use super::pool::{Found, Memory, Pool, SessionKey};
use super::queue::Queue;
use super::work::Work;
use super::worker;
use crate::error::{Error, Result};

/// How long somebody waits before looking again.
const PATIENCE: Duration = Duration::from_millis(50);

/// What the threads of a host share.
pub(super) struct Shared {
    pub(super) environment: Environment,
    state: Mutex<State>,
    /// A session was given back.
    returned: Condvar,
    next_id: AtomicU64,
}

pub(super) struct State {
    /// No more work comes.
    pub(super) closed: bool,
    pub(super) places: Vec<Place>,
    pool: Pool,
    /// Sessions that are idle.
    idle: BTreeMap<SessionKey, Lent>,
    pub(super) counters: Counters,
    threads: Vec<JoinHandle<()>>,
}

/// GPUs that run one queue, or the CPU.
pub(super) struct Place {
    /// Empty: the CPU.
    gpus: Vec<u32>,
    pub(super) queue: Queue<Work>,
    /// Work came, or may run now that could not before.
    pub(super) news: Arc<Condvar>,
    streams: usize,
}

/// A session, and the tensors of its last run.
pub(super) struct Lent {
    pub(super) session: Session,
    pub(super) tensors: Option<Tensors>,
}

impl Shared {
    pub(super) fn new(environment: &Environment, budgets: impl IntoIterator<Item = (Memory, u64)>) -> Self {
        let mut pool = Pool::default();
        budgets.into_iter().for_each(|(memory, bytes)| pool.limit(memory, bytes));
        let state = State {
            closed: false,
            places: Vec::new(),
            pool,
            idle: BTreeMap::new(),
            counters: Counters::default(),
            threads: Vec::new(),
        };
        Self {
            environment: environment.clone(),
            state: Mutex::new(state),
            returned: Condvar::new(),
            next_id: AtomicU64::new(1),
        }
    }

    /// A number that nothing else of this host has.
    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The place for engines on these GPUs, or on the CPU, with a thread for each of so many streams.
    pub(super) fn place(self: &Arc<Self>, gpus: &[u32], streams: usize) -> Result<usize> {
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
            let thread = thread.spawn(move || worker::work(&shared, number, stream));
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

    /// A session of a graph for a stream: an open one, or one that is opened now, for which others that are idle may
    /// close.
    ///
    /// # Errors
    /// [`Error::OverBudget`]: the budget does not hold it beside what is bound. Those of opening a session.
    pub(super) fn lend(self: &Arc<Self>, core: &Arc<Core>, graph: usize, stream: usize) -> Result<Lending> {
        let key = SessionKey { engine: core.id, graph, stream };
        let (memory, bytes) = (core.memory(stream), core.bytes(graph));
        let closing: Vec<Lent> = {
            let mut state = self.lock();
            loop {
                let free = if memory == Memory::Machine { available_memory() } else { None };
                match state.pool.take(key, memory, bytes, free) {
                    Found::Open => match state.idle.remove(&key) {
                        Some(lent) if lent.session.provider() == core.ladder.provider() => {
                            return Ok(Lending { shared: self.clone(), core: core.clone(), key, lent: Some(lent) });
                        }
                        // The ladder has left its provider, or it is gone.
                        other => {
                            state.pool.remove(key);
                            drop(other);
                        }
                    },
                    Found::MayOpen(keys) => break keys.iter().filter_map(|key| state.idle.remove(key)).collect(),
                    Found::InUse => drop(self.returned.wait_for(&mut state, PATIENCE)),
                    Found::NeverFits { budget } => {
                        let engine = core.ladder.verdict().engine.clone();
                        return Err(Error::OverBudget { engine, needed: bytes, budget });
                    }
                }
            }
        };
        drop(closing);
        let mut place = Lending { shared: self.clone(), core: core.clone(), key, lent: None };
        let (record, _) = core.graphs.get(graph).ok_or_else(|| Error::internal("session"))?;
        let session = core.ladder.session(record, stream)?;
        core.set_assigned(session.assigned());
        place.lent = Some(Lent { session, tensors: None });
        Ok(place)
    }

    /// Closes idle sessions that are as wanted. Says whether there were any.
    pub(super) fn close_idle(&self, wanted: impl Fn(&SessionKey, Memory) -> bool) -> bool {
        let closing: Vec<Lent> = {
            let mut state = self.lock();
            let keys = state.pool.take_idle(wanted);
            keys.iter().filter_map(|key| state.idle.remove(key)).collect()
        };
        !closing.is_empty()
    }

    /// Keeps a session's memory counted while tensors are bound to its graph.
    pub(super) fn pin(&self, key: SessionKey, pinned: bool) {
        self.lock().pool.pin(key, pinned);
        self.returned.notify_all();
    }

    /// Ends all threads, once they have nothing to do.
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
            // A panic was told to those whose work it was.
            let _ = thread.join();
        }
    }
}

impl State {
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// A session in somebody's hands, until this is dropped.
pub(super) struct Lending {
    shared: Arc<Shared>,
    core: Arc<Core>,
    pub(super) key: SessionKey,
    /// `None`: it could not be opened.
    lent: Option<Lent>,
}

impl Lending {
    pub(super) fn lent(&mut self) -> Result<&mut Lent> {
        self.lent.as_mut().ok_or_else(|| Error::internal("session"))
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let unwanted = match self.lent.take() {
            // What a panic left is not used again.
            Some(lent) if !self.core.is_retired() && !thread::panicking() => {
                state.pool.give_back(self.key);
                state.idle.insert(self.key, lent)
            }
            other => {
                state.pool.remove(self.key);
                other
            }
        };
        drop(state);
        drop(unwanted);
        self.shared.returned.notify_all();
    }
}
