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
    Open {
        /// The wanted session, or that of another stream.
        key: SessionKey,
        /// These close first: it is used for more than before.
        closing: Vec<SessionKey>,
    },
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
    is_opening: bool,
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

    /// Finds or admits a session that takes `bytes` of a memory. Where a new one has no room, an idle session of
    /// another stream is lent, if there is one. `system` is what the system says of the bytes that it can still give;
    /// it is needed for a new session in a memory without a budget.
    pub(super) fn take(&mut self, key: SessionKey, memory: Memory, bytes: u64, system: Option<Option<u64>>) -> Found {
        self.clock += 1;
        let own = self.entries.get(&key);
        if own.is_some_and(|entry| entry.in_use) {
            return match self.idle_twin(key, memory) {
                Some(twin) => self.take(twin, memory, bytes, system),
                None => Found::InUse,
            };
        }
        let budget = self.budgets.get(&memory).copied();
        let (limit, used) = match (budget, system) {
            (Some(budget), _) => (Some(budget), self.used(memory)),
            // The system counts a session only once it is open.
            (None, Some(free)) => (free, self.opening(memory)),
            (None, None) if own.is_some() => (None, 0),
            (None, None) => return Found::AsksSystem,
        };
        let missing = |held: u64| {
            let all = used.saturating_sub(held).saturating_add(bytes);
            limit.map_or(0, |limit| all.saturating_sub(limit))
        };
        if own.is_none()
            && missing(0) > 0
            && let Some(twin) = self.idle_twin(key, memory)
        {
            return self.take(twin, memory, bytes, system);
        }
        let mut closing = Vec::new();
        let (held, grows) = match self.entries.get(&key) {
            // In another memory, the caller closes it: its graph is on another provider now.
            Some(entry) => (entry.bytes, entry.memory == memory && bytes > entry.bytes && budget.is_some()),
            None => (0, true),
        };
        if grows {
            let mut over = missing(held);
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
            if let Some(budget) = budget.filter(|_| over > 0) {
                let running = others().map(|(_, entry)| entry).filter(|entry| entry.in_use && entry.pins == 0);
                return if bytes_of(running) >= over { Found::InUse } else { Found::NeverFits { budget } };
            }
        }
        self.entries.retain(|key, _| !closing.contains(key));
        let clock = self.clock;
        if let Some(entry) = self.entries.get_mut(&key) {
            (entry.in_use, entry.used_at) = (true, clock);
            if entry.memory == memory {
                entry.bytes = entry.bytes.max(bytes);
            }
            return Found::Open { key, closing };
        }
        let entry = Entry { number: clock, memory, bytes, used_at: clock, in_use: true, is_opening: true, pins: 0 };
        self.entries.insert(key, entry);
        Found::MayOpen(closing)
    }

    /// An idle session of the same graph for another stream, in this memory.
    fn idle_twin(&self, of: SessionKey, memory: Memory) -> Option<SessionKey> {
        let graph = SessionKey { stream: 0, ..of }..=SessionKey { stream: usize::MAX, ..of };
        let mut twins = self.entries.range(graph);
        twins.find(|(_, entry)| entry.is_idle() && entry.memory == memory).map(|(key, _)| *key)
    }

    /// Records that a session is open, in which memory, and what it takes of it. It may differ from the memory that
    /// admitted it: its graph may have stepped down to another provider.
    pub(super) fn opened(&mut self, key: SessionKey, memory: Memory, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            (entry.memory, entry.bytes, entry.is_opening) = (memory, bytes, false);
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
        bytes_of(self.counted().filter(|entry| entry.memory == memory))
    }

    /// Bytes of the sessions of a memory that are being opened.
    fn opening(&self, memory: Memory) -> u64 {
        bytes_of(self.counted().filter(|entry| entry.memory == memory && entry.is_opening))
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

fn bytes_of<'e>(entries: impl Iterator<Item = &'e Entry>) -> u64 {
    entries.fold(0, |sum, entry| sum.saturating_add(entry.bytes))
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

    fn open<const N: usize>(engine: u64, closing: [SessionKey; N]) -> Found {
        Found::Open { key: key(engine), closing: closing.to_vec() }
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
        assert_eq!(take(&mut pool, 1, 10), open(1, []));
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
        pool.opened(key(1), Memory::Machine, 10);
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
        assert_eq!(pool.take(key(1), Memory::Machine, 10, None), open(1, []), "an open session needs no more memory");
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
        assert_eq!(take(&mut pool, 1, 20), open(1, []));
        pool.give_back(key(1));
        assert_eq!(pool.used(Memory::Machine), 30);
        assert_eq!(take(&mut pool, 1, 15), open(1, []), "it keeps what it has");
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 1, 25), open(1, [key(2)]));
        assert_eq!(pool.used(Memory::Machine), 25);
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 1, 31), Found::NeverFits { budget: 30 });
        // It is idle as before.
        assert_eq!(take(&mut pool, 1, 25), open(1, []));
        pool.give_back(key(1));
        // Its graph is on a GPU now: the caller closes it.
        assert_eq!(pool.take(key(1), Memory::Gpu(0), 99, Some(None)), open(1, []));
        assert_eq!(pool.used(Memory::Machine), 25);
    }
    #[test]
    fn where_a_session_for_one_more_stream_has_no_room_it_uses_that_of_another_stream() {
        let on = |engine, stream| SessionKey { engine, graph: 0, stream };
        let mut pool = pool(30);
        let take = |pool: &mut Pool, engine, stream| pool.take(on(engine, stream), Memory::Machine, 10, None);
        for (engine, stream) in [(1, 0), (1, 1), (2, 0)] {
            assert_eq!(take(&mut pool, engine, stream), Found::MayOpen(vec![]));
        }
        assert_eq!(take(&mut pool, 1, 2), Found::InUse);
        pool.give_back(on(2, 0));
        pool.give_back(on(1, 1));
        assert_eq!(take(&mut pool, 1, 2), Found::Open { key: on(1, 1), closing: vec![] });
        // One that is idle for another engine closes only now.
        assert_eq!(take(&mut pool, 1, 2), Found::MayOpen(vec![on(2, 0)]));
        // On another GPU, it is no replacement.
        pool.limit(Memory::Gpu(1), 5);
        (0..3).for_each(|stream| pool.give_back(on(1, stream)));
        assert_eq!(pool.take(on(1, 3), Memory::Gpu(1), 9, None), Found::NeverFits { budget: 5 });
        // It is used for more than before, if there is room.
        assert_eq!(pool.take(on(1, 3), Memory::Machine, 20, None), {
            Found::Open { key: on(1, 0), closing: vec![on(1, 1)] }
        });
        assert_eq!(pool.used(Memory::Machine), 30);
    }

    #[test]
    fn what_is_being_opened_is_not_free() {
        let mut pool = Pool::default();
        let take = |pool: &mut Pool, engine, free| pool.take(key(engine), Memory::Machine, 10, Some(Some(free)));
        assert_eq!(take(&mut pool, 1, 30), Found::MayOpen(vec![]));
        pool.opened(key(1), Memory::Machine, 10);
        pool.give_back(key(1));
        // The system counts the first one now.
        assert_eq!(take(&mut pool, 2, 20), Found::MayOpen(vec![]));
        assert_eq!(take(&mut pool, 3, 19), Found::MayOpen(vec![key(1)]));
    }
}
