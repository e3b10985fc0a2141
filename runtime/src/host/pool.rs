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

/// A session: of an engine on the host, one of its graphs, and one of several sessions of that graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) engine: u64,
    pub(super) graph: usize,
    /// The number of the stream that it was opened for, if that was free.
    pub(super) number: usize,
}

/// Whether a wanted session is open or may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is open, and now lent to the caller.
    Open {
        /// The wanted session, or another one of the same graph.
        key: SessionKey,
        /// These close first: it is used for more than before.
        closing: Vec<SessionKey>,
    },
    /// It may open. Its memory is counted from now on.
    MayOpen {
        /// Its key: the wanted one, unless that session is in use.
        key: SessionKey,
        /// These close first.
        closing: Vec<SessionKey>,
    },
    /// Its memory has no budget: ask again with what the system can give.
    AsksSystem,
    /// Sessions in use must be returned first.
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
    id: u64,
}

struct Entry {
    /// Tells a session from a later one with the same key.
    id: u64,
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
    /// Sessions that are closed while bound tensors keep their graphs loaded, by their identifiers.
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

    /// Finds or admits a session that takes `bytes` of a memory: the wanted one, or else one of the same graph in the
    /// same memory. Such a one is lent if it is idle, before sessions of other graphs close to make room for one more.
    /// `system` is what the system says of the bytes that it can still give; in a memory without a budget, it is needed
    /// for a new session and for one that is used for more than before.
    pub(super) fn take(&mut self, key: SessionKey, memory: Memory, bytes: u64, system: Option<Option<u64>>) -> Found {
        self.clock += 1;
        let is_lent = self.entries.get(&key).is_some_and(|entry| entry.in_use);
        let key = if is_lent { self.unused(key) } else { key };
        let own = self.entries.get(&key);
        let budget = self.budgets.get(&memory).copied();
        // In another memory, the caller closes it: its graph is on another provider now.
        let held = own.map_or(0, |own| if own.memory == memory { own.bytes } else { bytes });
        let more = bytes.saturating_sub(held);
        let (limit, used) = match (budget, system) {
            (Some(budget), _) => (Some(budget), self.used(memory)),
            // The system counts a session only once it is open.
            (None, Some(free)) => (free, self.opening(memory)),
            (None, None) if more == 0 => (None, 0),
            (None, None) => return Found::AsksSystem,
        };
        let missing = limit.map_or(0, |limit| used.saturating_add(more).saturating_sub(limit));
        if own.is_none()
            && (is_lent || missing > 0)
            && let Some(twin) = self.unused_twin(key, memory)
        {
            return self.take(twin, memory, bytes, system);
        }
        let mut closing = Vec::new();
        if more > 0 {
            let mut over = missing;
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
                let is_used = |(_, entry): &(_, &Entry)| entry.in_use && entry.memory == memory;
                let waits = bytes_of(running) >= over || self.of_graph(key).any(|twin| is_used(&twin));
                return if waits { Found::InUse } else { Found::NeverFits { budget } };
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
        let entry = Entry { id: clock, memory, bytes, used_at: clock, in_use: true, is_opening: true, pins: 0 };
        self.entries.insert(key, entry);
        Found::MayOpen { key, closing }
    }

    /// The sessions of the same graph.
    fn of_graph(&self, key: SessionKey) -> impl Iterator<Item = (&SessionKey, &Entry)> {
        self.entries.range(SessionKey { number: 0, ..key }..=SessionKey { number: usize::MAX, ..key })
    }

    /// A session of the same graph in this memory that is not in use. Tensors may be bound to it.
    fn unused_twin(&self, key: SessionKey, memory: Memory) -> Option<SessionKey> {
        self.of_graph(key).find(|(_, entry)| !entry.in_use && entry.memory == memory).map(|(twin, _)| *twin)
    }

    /// The key with the first number that no session of the graph has.
    fn unused(&self, key: SessionKey) -> SessionKey {
        let taken = |number: &usize| self.entries.contains_key(&SessionKey { number: *number, ..key });
        SessionKey { number: (0..).find(|number| !taken(number)).unwrap_or(usize::MAX), ..key }
    }

    /// Records that a session is open, in which memory, and what it takes of it. It may differ from the memory that
    /// admitted it: its graph may have stepped down to another provider.
    pub(super) fn opened(&mut self, key: SessionKey, memory: Memory, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            (entry.memory, entry.bytes, entry.is_opening) = (memory, bytes, false);
        }
    }

    /// The memory of a session that is open or being opened.
    pub(super) fn memory_of(&self, key: SessionKey) -> Option<Memory> {
        self.entries.get(&key).map(|entry| entry.memory)
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
            self.closed.insert(entry.id, entry);
        }
    }

    /// Records that bound tensors keep a session's graph loaded.
    pub(super) fn pin(&mut self, key: SessionKey) -> Option<Pinned> {
        let entry = self.entries.get_mut(&key)?;
        entry.pins += 1;
        Some(Pinned { key, id: entry.id })
    }

    /// Records that they no longer do.
    pub(super) fn unpin(&mut self, Pinned { key, id }: Pinned) {
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.id == id) {
            entry.pins -= 1;
        } else if let Some(entry) = self.closed.get_mut(&id) {
            entry.pins -= 1;
            if entry.pins == 0 {
                self.closed.remove(&id);
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
    pub(super) fn opening(&self, memory: Memory) -> u64 {
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
        SessionKey { engine, graph: 0, number: 0 }
    }

    fn open<const N: usize>(engine: u64, closing: [SessionKey; N]) -> Found {
        Found::Open { key: key(engine), closing: closing.to_vec() }
    }

    fn new<const N: usize>(engine: u64, closing: [SessionKey; N]) -> Found {
        Found::MayOpen { key: key(engine), closing: closing.to_vec() }
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
            assert_eq!(take(&mut pool, engine, 10), new(engine, []));
            pool.give_back(key(engine));
        }
        assert_eq!(take(&mut pool, 1, 10), open(1, []));
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 4, 15), new(4, [key(2), key(3)]));
        assert_eq!(pool.used(Memory::Machine), 25);
    }

    #[test]
    fn what_is_in_use_is_waited_for_and_what_is_pinned_is_not() {
        let mut pool = pool(15);
        assert_eq!(take(&mut pool, 1, 10), new(1, []));
        assert_eq!(take(&mut pool, 1, 10), Found::InUse);
        assert_eq!(take(&mut pool, 2, 10), Found::InUse);
        pool.give_back(key(1));
        let pinned = pool.pin(key(1)).unwrap();
        assert_eq!(take(&mut pool, 2, 10), Found::NeverFits { budget: 15 });
        pool.unpin(pinned);
        assert_eq!(take(&mut pool, 2, 10), new(2, [key(1)]));
        assert_eq!(take(&mut pool, 3, 16), Found::NeverFits { budget: 15 });
        // A session that could not be opened takes nothing.
        pool.remove(key(2));
        assert_eq!(pool.used(Memory::Machine), 0);
    }

    #[test]
    fn a_closed_session_counts_until_nothing_is_bound_to_its_graph() {
        let mut pool = pool(25);
        assert_eq!(take(&mut pool, 1, 10), new(1, []));
        let [first, second] = [(); 2].map(|()| pool.pin(key(1)).unwrap());
        pool.remove(key(1));
        assert_eq!(take(&mut pool, 1, 10), new(1, []), "its graph is on another provider now");
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
        assert_eq!(pool.take(key(1), Memory::Gpu(0), 8, Some(None)), new(1, []));
        pool.opened(key(1), Memory::Machine, 10);
        assert_eq!((pool.used(Memory::Gpu(0)), pool.used(Memory::Machine)), (0, 10));
        assert_eq!(take(&mut pool, 2, 10), Found::InUse);
        assert_eq!(take(&mut pool, 3, 5), new(3, []));
        assert_eq!(pool.take(key(4), Memory::Gpu(1), 7, Some(None)), new(4, []));
        assert_eq!(pool.summary(), BTreeMap::from([(Memory::Machine, (2, 15)), (Memory::Gpu(1), (1, 7))]));
    }

    #[test]
    fn without_a_budget_idle_sessions_make_room_and_the_attempt_is_made() {
        let mut pool = Pool::default();
        let mut take = |engine, free| pool.take(key(engine), Memory::Machine, 10, Some(free));
        assert_eq!(take(1, None), new(1, []));
        assert_eq!(take(2, Some(5)), new(2, []));
        pool.give_back(key(1));
        assert_eq!(pool.take(key(1), Memory::Machine, 10, None), open(1, []), "an open session needs no more memory");
        pool.give_back(key(1));
        assert_eq!(pool.take(key(3), Memory::Machine, 10, None), Found::AsksSystem);
        assert_eq!(pool.take(key(3), Memory::Machine, 10, Some(Some(5))), new(3, [key(1)]));
        assert_eq!(pool.take_idle(|_, _| true), []);
        pool.give_back(key(2));
        assert_eq!(pool.take_idle(|_, memory| memory == Memory::Machine), [key(2)]);
    }

    #[test]
    fn without_a_budget_the_system_is_asked_about_what_a_session_takes_in_addition() {
        let mut pool = Pool::default();
        let take = |pool: &mut Pool, engine, bytes, system| pool.take(key(engine), Memory::Machine, bytes, system);
        for engine in [1, 2] {
            assert_eq!(take(&mut pool, engine, 10, Some(Some(100))), new(engine, []));
            pool.opened(key(engine), Memory::Machine, 10);
            pool.give_back(key(engine));
        }
        assert_eq!(take(&mut pool, 1, 25, None), Found::AsksSystem);
        assert_eq!(take(&mut pool, 1, 25, Some(Some(15))), open(1, []));
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 1, 25, None), open(1, []));
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 1, 40, Some(Some(14))), open(1, [key(2)]));
        assert_eq!(pool.used(Memory::Machine), 40);
    }

    #[test]
    fn a_session_that_is_used_for_more_counts_for_more() {
        let mut pool = pool(30);
        assert_eq!(take(&mut pool, 1, 10), new(1, []));
        pool.give_back(key(1));
        assert_eq!(take(&mut pool, 2, 10), new(2, []));
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
    fn where_one_more_session_of_a_graph_has_no_room_an_unused_one_is_lent() {
        let on = |engine, number| SessionKey { engine, graph: 0, number };
        let opens = |key, closing: &[SessionKey]| Found::MayOpen { key, closing: closing.to_vec() };
        let lends = |key, closing: &[SessionKey]| Found::Open { key, closing: closing.to_vec() };
        let mut pool = pool(30);
        let take = |pool: &mut Pool, engine, number| pool.take(on(engine, number), Memory::Machine, 10, None);
        for (engine, number) in [(1, 0), (1, 1), (2, 0)] {
            assert_eq!(take(&mut pool, engine, number), opens(on(engine, number), &[]));
        }
        assert_eq!(take(&mut pool, 1, 2), Found::InUse);
        pool.give_back(on(2, 0));
        pool.give_back(on(1, 1));
        assert_eq!(take(&mut pool, 1, 2), lends(on(1, 1), &[]));
        // Its own stream gets another one, for which the idle session of another engine closes only now.
        assert_eq!(take(&mut pool, 1, 1), opens(on(1, 2), &[on(2, 0)]));
        assert_eq!(take(&mut pool, 1, 1), Found::InUse);
        // On another GPU, it is no replacement.
        pool.limit(Memory::Gpu(1), 5);
        (0..3).for_each(|number| pool.give_back(on(1, number)));
        assert_eq!(pool.take(on(1, 3), Memory::Gpu(1), 9, None), Found::NeverFits { budget: 5 });
        // It is used for more than before, if there is room.
        assert_eq!(pool.take(on(1, 3), Memory::Machine, 20, None), lends(on(1, 0), &[on(1, 1)]));
        assert_eq!(pool.used(Memory::Machine), 30);
    }

    #[test]
    fn a_session_with_bound_tensors_is_lent_and_waited_for() {
        let on = |number| SessionKey { engine: 1, graph: 0, number };
        let mut pool = pool(10);
        let take = |pool: &mut Pool, number| pool.take(on(number), Memory::Machine, 10, None);
        assert_eq!(take(&mut pool, 1), Found::MayOpen { key: on(1), closing: vec![] });
        let pinned = pool.pin(on(1)).unwrap();
        assert_eq!(take(&mut pool, 0), Found::InUse);
        pool.give_back(on(1));
        assert_eq!(take(&mut pool, 0), Found::Open { key: on(1), closing: vec![] });
        pool.unpin(pinned);
        assert_eq!(pool.memory_of(on(1)), Some(Memory::Machine));
    }

    #[test]
    fn what_is_being_opened_is_not_free() {
        let mut pool = Pool::default();
        let take = |pool: &mut Pool, engine, free| pool.take(key(engine), Memory::Machine, 10, Some(Some(free)));
        assert_eq!(take(&mut pool, 1, 30), new(1, []));
        pool.opened(key(1), Memory::Machine, 10);
        pool.give_back(key(1));
        // The system counts the first one now.
        assert_eq!(take(&mut pool, 2, 20), new(2, []));
        assert_eq!(take(&mut pool, 3, 19), new(3, [key(1)]));
    }
}
