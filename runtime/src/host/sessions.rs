//! The sessions of a host: opened when they are needed, and closed to make room for others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tileforge_session::provider::GpuMemory;
use tileforge_session::{Cancel, Session, available_memory};

use super::core::Core;
use super::group::Tensors;
use super::pool::{Found, Memory, Pinned, Pool, SessionKey};
use super::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::error::{Error, Result};

/// How long a stream waits for a session before it checks again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Free bytes of a memory, if the system reports them.
fn free(memory: Memory) -> Option<u64> {
    match memory {
        Memory::Machine => available_memory(),
        Memory::Gpu(number) => GpuMemory::open(number).and_then(|memory| memory.free()).ok(),
    }
}

/// The sessions of a host.
pub(super) struct OpenSessions {
    state: Mutex<State>,
    /// A session was given back, or a stream waits no longer.
    returned: Condvar,
}

struct State {
    pool: Pool,
    /// Sessions that are idle.
    idle: BTreeMap<SessionKey, Lent>,
    /// The streams that wait for a session, in the order in which they came.
    waiting: BTreeMap<u64, Memory>,
    came: u64,
    /// The total time spent opening sessions.
    opening: Duration,
}

impl State {
    /// Whether no stream waits for a session in this memory that came before this place; without a place: none at all.
    fn is_turn_of(&self, place: Option<u64>, memory: Memory) -> bool {
        self.waiting.range(..place.unwrap_or(u64::MAX)).all(|(_, other)| *other != memory)
    }
}

/// A stream's place among those that wait for sessions.
struct Place<'s> {
    sessions: &'s OpenSessions,
    number: u64,
}

impl<'s> Place<'s> {
    /// The last place among those that wait for this memory.
    fn last(sessions: &'s OpenSessions, state: &mut State, memory: Memory) -> Self {
        state.came += 1;
        state.waiting.insert(state.came, memory);
        Self { sessions, number: state.came }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.sessions.state.lock().waiting.remove(&self.number);
        self.sessions.returned.notify_all();
    }
}

/// A session, and the tensors of its last run.
pub(super) struct Lent {
    pub(super) session: Session,
    pub(super) tensors: Option<Tensors>,
}

impl OpenSessions {
    /// Creates an empty set. `budgets` limits the bytes that sessions take of each memory.
    pub(super) fn new(budgets: impl IntoIterator<Item = (Memory, u64)>) -> Self {
        let mut pool = Pool::default();
        budgets.into_iter().for_each(|(memory, bytes)| pool.limit(memory, bytes));
        Self {
            state: Mutex::new(State {
                pool,
                idle: BTreeMap::new(),
                waiting: BTreeMap::new(),
                came: 0,
                opening: Duration::ZERO,
            }),
            returned: Condvar::new(),
        }
    }

    /// The open sessions and their bytes, for each memory, and the total time spent opening sessions.
    pub(super) fn summary(&self) -> (BTreeMap<Memory, (usize, u64)>, Duration) {
        let state = self.state.lock();
        (state.pool.summary(), state.opening)
    }

    /// Lends a session of a graph to a stream: an open one, or a new one. Idle sessions may close to make room for it.
    /// `bytes` says what it counts for in a memory: as much as the largest size that it will be used for.
    ///
    /// # Errors
    /// [`Error::OverBudget`]: the budget does not hold it beside the bound sessions. [`Error::Cancelled`] once `cancel`
    /// is set. Otherwise, why it did not open.
    pub(super) fn lend(
        self: &Arc<Self>,
        core: &Arc<Core>,
        graph: usize,
        stream: usize,
        bytes: &dyn Fn(Memory) -> u64,
        cancel: &Cancel,
    ) -> Result<Lending> {
        let key = SessionKey { engine: core.id, graph, number: stream };
        let memory = core.memory(graph, stream);
        // Dropped only after the lock is released.
        let mut place = None;
        let (key, lent) = self.admit(core, key, memory, bytes(memory), cancel, &mut place)?;
        drop(place);
        let mut lending = Lending { sessions: self.clone(), core: core.clone(), key, lent };
        if lending.lent.is_some() {
            return Ok(lending);
        }
        let (record, _) = core.graphs.get(graph).ok_or_else(|| Error::internal("session"))?;
        let began = Instant::now();
        let opened = core.ladder.session(record, stream, cancel);
        self.state.lock().opening += began.elapsed();
        let session = opened?;
        core.set_assigned(session.assigned());
        let memory = core.memory(graph, stream);
        let needed = bytes(memory);
        self.state.lock().pool.opened(key, memory, needed);
        lending.lent = Some(Lent { session, tensors: None });
        Ok(lending)
    }

    /// Waits until a session is idle, or until one may open: then there is none yet. Takes a `place` if it has to wait.
    fn admit<'s>(
        &'s self,
        core: &Core,
        key: SessionKey,
        memory: Memory,
        needed: u64,
        cancel: &Cancel,
        place: &mut Option<Place<'s>>,
    ) -> Result<(SessionKey, Option<Lent>)> {
        // These are dropped after the lock is released: closing takes a while.
        let mut closing: Vec<Lent> = Vec::new();
        let mut system = None;
        let mut state = self.state.lock();
        loop {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let found = if state.is_turn_of(place.as_ref().map(|place| place.number), memory) {
                state.pool.take(key, memory, needed, system)
            } else {
                // Else those that need much room would wait as long as others find their sessions idle.
                Found::InUse
            };
            match found {
                Found::Open { key, closing: keys } => {
                    closing.extend(keys.iter().filter_map(|key| state.idle.remove(key)));
                    match state.idle.remove(&key) {
                        Some(lent) if Some(lent.session.provider()) == core.provider(key.graph) => {
                            drop(state);
                            return Ok((key, Some(lent)));
                        }
                        // The graph is on another provider now, or it is time to try the best one again. What counts no
                        // longer must be gone before others are admitted.
                        other => {
                            MutexGuard::unlocked(&mut state, || drop(other));
                            state.pool.remove(key);
                        }
                    }
                }
                Found::MayOpen { key, closing: keys } => {
                    closing.extend(keys.iter().filter_map(|key| state.idle.remove(key)));
                    drop(state);
                    return Ok((key, None));
                }
                Found::AsksSystem => {
                    let opening = state.pool.opening(memory);
                    // The driver of a GPU may take long, and other streams need the lock.
                    let found = MutexGuard::unlocked(&mut state, || free(memory));
                    // Sessions that have been opened meanwhile may not be in the figure.
                    let opened = opening.saturating_sub(state.pool.opening(memory));
                    system = Some(found.map(|free| free.saturating_sub(opened)));
                }
                Found::InUse => {
                    place.get_or_insert_with(|| Place::last(self, &mut state, memory));
                    if !self.returned.wait_for(&mut state, POLL_INTERVAL).timed_out() {
                        system = None;
                    }
                }
                Found::NeverFits { budget } => {
                    let engine = core.ladder.verdict().engine.clone();
                    return Err(Error::OverBudget { engine, needed, budget });
                }
            }
        }
    }

    /// Closes the idle sessions that `wanted` selects. Returns whether there were any.
    pub(super) fn close_idle(&self, wanted: impl Fn(&SessionKey, Memory) -> bool) -> bool {
        let closing: Vec<Lent> = {
            let mut state = self.state.lock();
            let keys = state.pool.take_idle(wanted);
            keys.iter().filter_map(|key| state.idle.remove(key)).collect()
        };
        !closing.is_empty()
    }

    /// Closes the idle sessions in this memory, except the session `key`. Returns whether there were any.
    pub(super) fn close_beside(&self, memory: Memory, key: SessionKey) -> bool {
        self.close_idle(|other, taken| taken == memory && *other != key)
    }

    /// The memory of a session that is open.
    pub(super) fn memory_of(&self, key: SessionKey) -> Option<Memory> {
        self.state.lock().pool.memory_of(key)
    }

    /// Keeps a session's memory counted while tensors are bound to its graph.
    pub(super) fn pin(&self, key: SessionKey) -> Option<Pinned> {
        self.state.lock().pool.pin(key)
    }

    /// The tensors are bound no longer.
    pub(super) fn unpin(&self, pinned: Pinned) {
        self.state.lock().pool.unpin(pinned);
        self.returned.notify_all();
    }
}

/// A session that is lent to a caller, until it is dropped.
pub(super) struct Lending {
    sessions: Arc<OpenSessions>,
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
        let mut state = self.sessions.state.lock();
        let unwanted = match self.lent.take() {
            // A session is not reused after a panic.
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
        self.sessions.returned.notify_all();
    }
}

#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
mod tests {
    use super::*;

    #[test]
    fn streams_wait_in_the_order_in_which_they_came_for_each_memory() {
        let sessions = OpenSessions::new([]);
        let come = |memory| Place::last(&sessions, &mut sessions.state.lock(), memory);
        let is_turn = |place: Option<&Place<'_>>, memory| {
            sessions.state.lock().is_turn_of(place.map(|place| place.number), memory)
        };
        assert!(is_turn(None, Memory::Machine));
        let [first, second, third] = [(); 3].map(|()| come(Memory::Machine));
        let other = come(Memory::Gpu(0));
        assert!(is_turn(Some(&first), Memory::Machine) && is_turn(Some(&other), Memory::Gpu(0)));
        assert!(!is_turn(Some(&second), Memory::Machine) && !is_turn(None, Memory::Machine));
        assert!(is_turn(None, Memory::Gpu(1)));
        // Nobody waits for a stream that has left.
        drop(second);
        assert!(!is_turn(Some(&third), Memory::Machine));
        drop(first);
        assert!(is_turn(Some(&third), Memory::Machine));
        drop(third);
        assert!(is_turn(None, Memory::Machine) && !is_turn(None, Memory::Gpu(0)));
    }
}
