//! Decides which sessions are open, and which close to make room: pure, without the sessions themselves.

use std::collections::BTreeMap;

/// A memory that sessions take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The memory of this machine.
    Machine,
    /// The memory of the GPU with this number.
    Gpu(u32),
}

/// A session: of an engine on the host, one of its graphs, on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) engine: u64,
    pub(super) graph: usize,
    pub(super) stream: usize,
}

/// Whether a wanted session is open or may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is open, and now lent to the caller.
    Open,
    /// It may open, after these have closed. Its memory is counted from now on.
    MayOpen(Vec<SessionKey>),
    /// It is in use, or sessions in use must be returned first.
    InUse,
    /// It does not fit beside the sessions that cannot close.
    NeverFits {
        /// Bytes of the budget.
        budget: u64,
    },
}

struct Entry {
    memory: Memory,
    bytes: u64,
    used_at: u64,
    in_use: bool,
    /// Bound tensors that keep its graph loaded.
    pins: usize,
}

/// The sessions that are open, and their memory.
#[derive(Default)]
pub(super) struct Pool {
    entries: BTreeMap<SessionKey, Entry>,
    /// Most bytes that sessions may take of a memory; without an entry: no limit.
    budgets: BTreeMap<Memory, u64>,
    clock: u64,
}

impl Pool {
    /// Limits the bytes that sessions take of a memory.
    pub(super) fn limit(&mut self, memory: Memory, bytes: u64) {
        self.budgets.insert(memory, bytes);
    }

    /// Finds or admits a session that takes `bytes` of a memory. For a new session in a memory without a budget, calls
    /// `free` for the bytes that the system can still give, if it reports them.
    pub(super) fn take(
        &mut self,
        key: SessionKey,
        memory: Memory,
        bytes: u64,
        free: impl FnOnce() -> Option<u64>,
    ) -> Found {
        self.clock += 1;
        let clock = self.clock;
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.in_use {
                return Found::InUse;
            }
            (entry.in_use, entry.used_at) = (true, clock);
            return Found::Open;
        }
        let (limit, used) = match self.budgets.get(&memory) {
            Some(budget) => (Some(*budget), self.used(memory)),
            None => (free(), 0),
        };
        let mut closing = Vec::new();
        if let Some(limit) = limit {
            let mut over = used.saturating_add(bytes).saturating_sub(limit);
            let mut idle: Vec<_> =
                self.entries.iter().filter(|(_, entry)| entry.memory == memory && entry.is_idle()).collect();
            idle.sort_by_key(|(_, entry)| entry.used_at);
            for (key, entry) in idle {
                if over == 0 {
                    break;
                }
                over = over.saturating_sub(entry.bytes);
                closing.push(*key);
            }
            // The system's figure of free memory is only an estimate, so without a budget the attempt is made anyway.
            if over > 0 && self.budgets.contains_key(&memory) {
                let running = |entry: &&Entry| entry.memory == memory && entry.in_use && entry.pins == 0;
                let returns: u64 = self.entries.values().filter(running).map(|entry| entry.bytes).sum();
                return if returns >= over { Found::InUse } else { Found::NeverFits { budget: limit } };
            }
        }
        self.entries.retain(|key, _| !closing.contains(key));
        self.entries.insert(key, Entry { memory, bytes, used_at: clock, in_use: true, pins: 0 });
        Found::MayOpen(closing)
    }

    /// Records the memory in which a session was opened. It may differ from the memory that admitted it: its graph may
    /// have stepped down to another provider.
    pub(super) fn place(&mut self, key: SessionKey, memory: Memory) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.memory = memory;
        }
    }

    /// A session is idle again.
    pub(super) fn give_back(&mut self, key: SessionKey) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.in_use = false;
        }
    }

    /// A session is closed, or was not opened.
    pub(super) fn remove(&mut self, key: SessionKey) {
        self.entries.remove(&key);
    }

    /// Records that bound tensors keep a session's graph loaded, or no longer do.
    pub(super) fn pin(&mut self, key: SessionKey, pinned: bool) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.pins = if pinned { entry.pins + 1 } else { entry.pins.saturating_sub(1) };
        }
    }

    /// Removes the idle sessions that `wanted` selects, and returns them to be closed.
    pub(super) fn take_idle(&mut self, wanted: impl Fn(&SessionKey, Memory) -> bool) -> Vec<SessionKey> {
        let idle = self.entries.iter().filter(|(key, entry)| entry.is_idle() && wanted(key, entry.memory));
        let keys: Vec<SessionKey> = idle.map(|(key, _)| *key).collect();
        self.entries.retain(|key, _| !keys.contains(key));
        keys
    }

    /// Bytes of the open sessions of a memory.
    pub(super) fn used(&self, memory: Memory) -> u64 {
        self.entries.values().filter(|entry| entry.memory == memory).map(|entry| entry.bytes).sum()
    }

    /// The open sessions and their bytes, for each memory.
    pub(super) fn summary(&self) -> BTreeMap<Memory, (usize, u64)> {
        let mut all: BTreeMap<Memory, (usize, u64)> = BTreeMap::new();
        for entry in self.entries.values() {
            let (count, bytes) = all.entry(entry.memory).or_default();
            (*count, *bytes) = (*count + 1, *bytes + entry.bytes);
        }
        all
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        !self.in_use && self.pins == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(engine: u64) -> SessionKey {
        SessionKey { engine, graph: 0, stream: 0 }
    }

    fn pool(budget: u64) -> Pool {
        let mut pool = Pool::default();
        pool.limit(Memory::Machine, budget);
        pool
    }

    fn take(pool: &mut Pool, engine: u64, bytes: u64) -> Found {
        pool.take(key(engine), Memory::Machine, bytes, || None)
    }

    #[test]
    fn the_least_recently_used_closes_first() {
        let mut pool = pool(30);
        for engine in 1..=3 {
            assert_eq!(take(&mut pool, engine, 10), Found::MayOpen(vec![]));
            pool.give_back(key(engine));
        }
        assert_eq!(take(&mut pool, 1, 10), Found::Open);
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 4, 15), Found::MayOpen(vec![key(2), key(3)]));
        assert_eq!(pool.used(Memory::Machine), 25);
    }

    #[test]
    fn what_is_in_use_is_waited_for_and_what_is_pinned_is_not() {
        let mut pool = pool(15);
        assert_eq!(take(&mut pool, 1, 10), Found::MayOpen(vec![]));
        assert_eq!(take(&mut pool, 1, 10), Found::InUse);
        assert_eq!(take(&mut pool, 2, 10), Found::InUse);
        pool.give_back(key(1));
        pool.pin(key(1), true);
        assert_eq!(take(&mut pool, 2, 10), Found::NeverFits { budget: 15 });
        pool.pin(key(1), false);
        assert_eq!(take(&mut pool, 2, 10), Found::MayOpen(vec![key(1)]));
        assert_eq!(take(&mut pool, 3, 16), Found::NeverFits { budget: 15 });
        // A session that could not be opened takes nothing.
        pool.remove(key(2));
        assert_eq!(pool.used(Memory::Machine), 0);
    }

    #[test]
    fn a_session_counts_where_it_was_opened() {
        let mut pool = pool(15);
        assert_eq!(pool.take(key(1), Memory::Gpu(0), 10, || None), Found::MayOpen(vec![]));
        pool.place(key(1), Memory::Machine);
        assert_eq!((pool.used(Memory::Gpu(0)), pool.used(Memory::Machine)), (0, 10));
        assert_eq!(take(&mut pool, 2, 10), Found::InUse);
        assert_eq!(take(&mut pool, 3, 5), Found::MayOpen(vec![]));
        assert_eq!(pool.take(key(4), Memory::Gpu(1), 7, || None), Found::MayOpen(vec![]));
        assert_eq!(pool.summary(), BTreeMap::from([(Memory::Machine, (2, 15)), (Memory::Gpu(1), (1, 7))]));
    }

    #[test]
    fn without_a_budget_idle_sessions_make_room_and_the_attempt_is_made() {
        let mut pool = Pool::default();
        let mut take = |engine, free| pool.take(key(engine), Memory::Machine, 10, || free);
        assert_eq!(take(1, None), Found::MayOpen(vec![]));
        assert_eq!(take(2, Some(5)), Found::MayOpen(vec![]));
        pool.give_back(key(1));
        assert_eq!(pool.take(key(3), Memory::Machine, 10, || Some(5)), Found::MayOpen(vec![key(1)]));
        assert_eq!(pool.take_idle(|_, _| true), []);
        pool.give_back(key(2));
        assert_eq!(pool.take_idle(|_, memory| memory == Memory::Machine), [key(2)]);
    }
}
