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
    /// It is open, and now lent to the caller, after these have closed: it is used for more than before.
    Open(Vec<SessionKey>),
    /// It may open, after these have closed. Its memory is counted from now on.
    MayOpen(Vec<SessionKey>),
    /// Its memory has no budget: ask again with what the system can give.
    AsksSystem,
    /// It is in use, or sessions in use must be returned first.
    InUse,
    /// It does not fit beside the sessions that cannot close.
    NeverFits {
        /// Bytes of the budget.
        budget: u64,
    },
}

/// A session whose memory counts as long as tensors are bound to its graph, even after it is closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    key: SessionKey,
    number: u64,
}

struct Entry {
    /// Tells a session from a later one with the same key.
    number: u64,
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
    /// Sessions that are closed while bound tensors keep their graphs loaded, by their numbers.
    closed: BTreeMap<u64, Entry>,
    /// Most bytes that sessions may take of a memory; without an entry: no limit.
    budgets: BTreeMap<Memory, u64>,
    clock: u64,
}

impl Pool {
    /// Limits the bytes that sessions take of a memory.
    pub(super) fn limit(&mut self, memory: Memory, bytes: u64) {
        self.budgets.insert(memory, bytes);
    }

    /// Finds or admits a session that takes `bytes` of a memory. `system` is what the system says of the bytes that it
    /// can still give; it is needed for a new session in a memory without a budget.
    pub(super) fn take(&mut self, key: SessionKey, memory: Memory, bytes: u64, system: Option<Option<u64>>) -> Found {
        self.clock += 1;
        let clock = self.clock;
        // What it counts for already, if it is open.
        let mut held = 0;
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.in_use {
                return Found::InUse;
            }
            // In another memory, it is closed: its graph is on another provider now.
            let grows = entry.memory == memory && bytes > entry.bytes;
            if !grows || !self.budgets.contains_key(&memory) {
                (entry.in_use, entry.used_at) = (true, clock);
                entry.bytes = if grows { bytes } else { entry.bytes };
                return Found::Open(Vec::new());
            }
            held = entry.bytes;
        }
        let (limit, used) = match self.budgets.get(&memory) {
            Some(budget) => (Some(*budget), self.used(memory).saturating_sub(held)),
            None => match system {
                Some(free) => (free, 0),
                None => return Found::AsksSystem,
            },
        };
        let mut closing = Vec::new();
        if let Some(limit) = limit {
            let mut over = used.saturating_add(bytes).saturating_sub(limit);
            let others = || self.entries.iter().filter(|(other, entry)| entry.memory == memory && **other != key);
            let mut idle: Vec<_> = others().filter(|(_, entry)| entry.is_idle()).collect();
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
                let running = others().filter(|(_, entry)| entry.in_use && entry.pins == 0);
                let returns = running.fold(0_u64, |sum, (_, entry)| sum.saturating_add(entry.bytes));
                return if returns >= over { Found::InUse } else { Found::NeverFits { budget: limit } };
            }
        }
        self.entries.retain(|key, _| !closing.contains(key));
        if let Some(entry) = self.entries.get_mut(&key) {
            (entry.in_use, entry.used_at, entry.bytes) = (true, clock, bytes);
            return Found::Open(closing);
        }
        self.entries.insert(key, Entry { number: clock, memory, bytes, used_at: clock, in_use: true, pins: 0 });
        Found::MayOpen(closing)
    }

    /// Records the memory in which a session was opened, and what it takes of it. It may differ from the memory that
    /// admitted it: its graph may have stepped down to another provider.
    pub(super) fn set_memory(&mut self, key: SessionKey, memory: Memory, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            (entry.memory, entry.bytes) = (memory, bytes);
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
        if let Some(entry) = self.entries.remove(&key).filter(|entry| entry.pins > 0) {
            self.closed.insert(entry.number, entry);
        }
    }

    /// Records that bound tensors keep a session's graph loaded.
    pub(super) fn pin(&mut self, key: SessionKey) -> Option<Pinned> {
        let entry = self.entries.get_mut(&key)?;
        entry.pins += 1;
        Some(Pinned { key, number: entry.number })
    }

    /// Records that they no longer do.
    pub(super) fn unpin(&mut self, Pinned { key, number }: Pinned) {
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.number == number) {
            entry.pins -= 1;
        } else if let Some(entry) = self.closed.get_mut(&number) {
            entry.pins -= 1;
            if entry.pins == 0 {
                self.closed.remove(&number);
            }
        }
    }

    /// All sessions whose memory counts.
    fn counted(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().chain(self.closed.values())
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
        let own = self.counted().filter(|entry| entry.memory == memory);
        own.fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// The open sessions and their bytes, for each memory.
    pub(super) fn summary(&self) -> BTreeMap<Memory, (usize, u64)> {
        let mut all: BTreeMap<Memory, (usize, u64)> = BTreeMap::new();
        for entry in self.counted() {
            let (count, bytes) = all.entry(entry.memory).or_default();
            (*count, *bytes) = (*count + 1, bytes.saturating_add(entry.bytes));
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
        pool.take(key(engine), Memory::Machine, bytes, Some(None))
    }

    #[test]
    fn the_least_recently_used_closes_first() {
        let mut pool = pool(30);
        for engine in 1..=3 {
            assert_eq!(take(&mut pool, engine, 10), Found::MayOpen(vec![]));
            pool.give_back(key(engine));
        }
        assert_eq!(take(&mut pool, 1, 10), Found::Open(vec![]));
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
        let pinned = pool.pin(key(1)).unwrap();
        assert_eq!(take(&mut pool, 2, 10), Found::NeverFits { budget: 15 });
        pool.unpin(pinned);
        assert_eq!(take(&mut pool, 2, 10), Found::MayOpen(vec![key(1)]));
        assert_eq!(take(&mut pool, 3, 16), Found::NeverFits { budget: 15 });
        // A session that could not be opened takes nothing.
        pool.remove(key(2));
        assert_eq!(pool.used(Memory::Machine), 0);
    }

    #[test]
    fn a_closed_session_counts_until_nothing_is_bound_to_its_graph() {
        let mut pool = pool(25);
        assert_eq!(take(&mut pool, 1, 10), Found::MayOpen(vec![]));
        let [first, second] = [(); 2].map(|()| pool.pin(key(1)).unwrap());
        pool.remove(key(1));
        assert_eq!(take(&mut pool, 1, 10), Found::MayOpen(vec![]), "its graph is on another provider now");
        let later = pool.pin(key(1)).unwrap();
        assert_eq!((pool.used(Memory::Machine), pool.summary()[&Memory::Machine]), (20, (2, 20)));
        pool.unpin(first);
        assert_eq!(pool.used(Memory::Machine), 20);
        pool.unpin(second);
        assert_eq!(pool.used(Memory::Machine), 10);
        pool.give_back(key(1));
        assert_eq!(pool.take_idle(|_, _| true), [], "the later one is pinned, too");
        pool.unpin(later);
        assert_eq!(pool.take_idle(|_, _| true), [key(1)]);
        assert_eq!(pool.pin(key(1)), None);
    }

    #[test]
    fn a_session_counts_where_it_was_opened() {
        let mut pool = pool(15);
        assert_eq!(pool.take(key(1), Memory::Gpu(0), 8, Some(None)), Found::MayOpen(vec![]));
        pool.set_memory(key(1), Memory::Machine, 10);
        assert_eq!((pool.used(Memory::Gpu(0)), pool.used(Memory::Machine)), (0, 10));
        assert_eq!(take(&mut pool, 2, 10), Found::InUse);
        assert_eq!(take(&mut pool, 3, 5), Found::MayOpen(vec![]));
        assert_eq!(pool.take(key(4), Memory::Gpu(1), 7, Some(None)), Found::MayOpen(vec![]));
        assert_eq!(pool.summary(), BTreeMap::from([(Memory::Machine, (2, 15)), (Memory::Gpu(1), (1, 7))]));
    }

    #[test]
    fn without_a_budget_idle_sessions_make_room_and_the_attempt_is_made() {
        let mut pool = Pool::default();
        let mut take = |engine, free| pool.take(key(engine), Memory::Machine, 10, Some(free));
        assert_eq!(take(1, None), Found::MayOpen(vec![]));
        assert_eq!(take(2, Some(5)), Found::MayOpen(vec![]));
        pool.give_back(key(1));
        assert_eq!(
            pool.take(key(1), Memory::Machine, 10, None),
            Found::Open(vec![]),
            "an open session needs no more memory"
        );
        pool.give_back(key(1));
        assert_eq!(pool.take(key(3), Memory::Machine, 10, None), Found::AsksSystem);
        assert_eq!(pool.take(key(3), Memory::Machine, 10, Some(Some(5))), Found::MayOpen(vec![key(1)]));
        assert_eq!(pool.take_idle(|_, _| true), []);
        pool.give_back(key(2));
        assert_eq!(pool.take_idle(|_, memory| memory == Memory::Machine), [key(2)]);
    }

    #[test]
    fn a_session_that_is_used_for_more_counts_for_more() {
        let mut pool = pool(30);
        assert_eq!(take(&mut pool, 1, 10), Found::MayOpen(vec![]));
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 2, 10), Found::MayOpen(vec![]));
        pool.give_back(key(2));
        assert_eq!(take(&mut pool, 1, 20), Found::Open(vec![]));
        pool.give_back(key(1));
        assert_eq!(pool.used(Memory::Machine), 30);
        assert_eq!(take(&mut pool, 1, 15), Found::Open(vec![]), "it keeps what it has");
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 1, 25), Found::Open(vec![key(2)]));
        assert_eq!(pool.used(Memory::Machine), 25);
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 1, 31), Found::NeverFits { budget: 30 });
        // It is idle as before.
        assert_eq!(take(&mut pool, 1, 25), Found::Open(vec![]));
        pool.give_back(key(1));
        // Its graph is on a GPU now: the caller closes it.
        assert_eq!(pool.take(key(1), Memory::Gpu(0), 99, Some(None)), Found::Open(vec![]));
        assert_eq!(pool.used(Memory::Machine), 25);
    }
}
