//! Chooses the next work: pure, without threads, clocks or devices.
//!
//! Work comes in flows, one for each request. Flows of higher priority go first. Among equals, the device is shared by
//! start-time fair queuing (Goyal, Vin and Cheng 1996): each flow is charged for the time of its work, first an
//! estimate and after the run the measured time, and the flow that got least is next. So a picture of a thousand tiles
//! does not block a picture of one tile. The flows of one caller share that caller's part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How long work waits for work that other flows have announced.
pub(super) const GRACE: Duration = Duration::from_millis(20);

/// Which requests are served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Served when nothing else waits.
    Background,
    /// The default.
    #[default]
    Normal,
    /// Served before all others.
    Urgent,
}

/// Identifies a request's work in one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlowId(u64);

/// Items with equal keys may run together: samples of one group of graphs, with the same values in the shared inputs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) group: u64,
    pub(super) shared: Vec<u8>,
}

/// One piece of work.
pub(super) struct Item<T> {
    pub(super) key: Key,
    /// Whether work of other flows may run with it.
    pub(super) joins: bool,
    /// Estimated seconds of device time.
    pub(super) cost: f64,
    pub(super) since: Instant,
    pub(super) work: T,
}

/// An item that was taken.
pub(super) struct TakenItem<T> {
    pub(super) item: Item<T>,
    pub(super) charge: Charge,
}

/// What a flow was charged for an item: seconds times the number of flows among which its caller's part was divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) flow: FlowId,
    seconds: f64,
    flows: f64,
}

/// Items that run together.
pub(super) type Taken<T> = Vec<TakenItem<T>>;

/// What is next.
pub(super) enum Next<T> {
    /// These items, all of one key; never empty.
    Work(Taken<T>),
    /// Nothing before this moment, or before more work comes.
    NotBefore(Instant),
    /// Nothing before more work comes.
    Nothing,
}

struct Flow<T> {
    priority: Priority,
    caller: u64,
    /// When its next item starts, in virtual time.
    start: f64,
    items: VecDeque<Item<T>>,
    /// Keys for which more items will come.
    announced: BTreeSet<Key>,
}

/// The work that waits for one device.
pub(super) struct Queue<T> {
    flows: BTreeMap<FlowId, Flow<T>>,
    /// The largest start of any item taken so far.
    virtual_time: f64,
    next: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { flows: BTreeMap::new(), virtual_time: 0.0, next: 0 }
    }
}

impl<T> Queue<T> {
    /// A new request of a caller.
    pub(super) fn open(&mut self, caller: u64, priority: Priority) -> FlowId {
        let id = FlowId(self.next);
        self.next += 1;
        let start = self.virtual_time;
        self.flows.insert(id, Flow { priority, caller, start, items: VecDeque::new(), announced: BTreeSet::new() });
        id
    }

    /// Ends a request. Returns its remaining work.
    pub(super) fn close(&mut self, id: FlowId) -> Vec<Item<T>> {
        self.flows.remove(&id).map(|flow| flow.items.into()).unwrap_or_default()
    }

    /// Removes all of a request's work; the request stays open.
    pub(super) fn clear(&mut self, id: FlowId) -> Vec<Item<T>> {
        self.flows.get_mut(&id).map(|flow| std::mem::take(&mut flow.items).into()).unwrap_or_default()
    }

    /// Adds work. Returns it as the error if the request has ended.
    pub(super) fn push(&mut self, id: FlowId, item: Item<T>) -> Result<(), Item<T>> {
        let Some(flow) = self.flows.get_mut(&id) else { return Err(item) };
        if flow.items.is_empty() {
            // An idle flow earns no credit for later.
            flow.start = flow.start.max(self.virtual_time);
        }
        flow.items.push_back(item);
        Ok(())
    }

    /// Puts taken work back at the front of its flows, where it waits from `now` on. Returns the items whose request
    /// has ended.
    pub(super) fn put_back(&mut self, taken: Taken<T>, now: Instant) -> Vec<Item<T>> {
        let mut lost = Vec::new();
        for TakenItem { mut item, charge } in taken.into_iter().rev() {
            self.settle(charge, 0.0);
            match self.flows.get_mut(&charge.flow) {
                Some(flow) => {
                    item.since = now;
                    flow.items.push_front(item);
                }
                None => lost.push(item),
            }
        }
        lost
    }

    /// Charges a flow the seconds that an item took, in the place of the estimate.
    pub(super) fn settle(&mut self, charge: Charge, took: f64) {
        if let Some(flow) = self.flows.get_mut(&charge.flow) {
            flow.start += (took - charge.seconds) * charge.flows;
        }
    }

    /// Announces, or revokes, that more work of a key will come soon: items of that key wait for it.
    pub(super) fn announce(&mut self, id: FlowId, key: &Key, comes: bool) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if comes {
            flow.announced.insert(key.clone());
        } else {
            flow.announced.remove(key);
        }
    }

    /// How many items wait.
    pub(super) fn waiting(&self) -> usize {
        self.flows.values().map(|flow| flow.items.len()).sum()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.flows.values().all(|flow| flow.items.is_empty())
    }

    /// Takes the next work at the time `now`. `room` gives how many such items may run together; `None`: it cannot run
    /// now.
    pub(super) fn take(&mut self, now: Instant, room: impl Fn(&Item<T>) -> Option<usize>) -> Next<T> {
        let mut order: Vec<FlowId> =
            self.flows.iter().filter(|(_, flow)| !flow.items.is_empty()).map(|(id, _)| *id).collect();
        order.sort_by(|one, other| {
            let of = |id: &FlowId| self.flows.get(id).map(|flow| (flow.priority, flow.start));
            let ((first, start), (second, later)) = (of(one).unwrap_or_default(), of(other).unwrap_or_default());
            second.cmp(&first).then(start.total_cmp(&later)).then(one.cmp(other))
        });
        let mut until: Option<Instant> = None;
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        let heads = order.iter().flat_map(|id| self.heads(*id).into_iter().map(move |item| (id, item)));
        for (first, head) in heads {
            let Some(most) = room(head).filter(|most| *most > 0) else { continue };
            let (key, joins) = (head.key.clone(), head.joins);
            if joins && !seen.insert(key.clone()) {
                continue;
            }
            // The number of a flow's items that may run with the head.
            let of_key = |id: &FlowId| {
                let flow = self.flows.get(id)?;
                let count = flow.items.iter().filter(|item| item.key == key && item.joins == joins).count();
                (count > 0 && (joins || id == first)).then_some(count)
            };
            let count: usize = order.iter().filter_map(of_key).sum();
            if count < most && self.is_announced(&key, joins, *first) {
                // A flow that has announced more waits for it without limit: its runs are the fewest possible, and
                // always the same. Other flows wait for `GRACE`.
                let ready = self.oldest_without_more(&key, joins).map(|since| since + GRACE);
                if ready.is_none_or(|ready| now < ready) {
                    until = [until, ready].into_iter().flatten().min();
                    continue;
                }
            }
            let first = *first;
            return Next::Work(self.gather(&key, joins, first, most));
        }
        until.map_or(Next::Nothing, Next::NotBefore)
    }

    /// The oldest item of each key of a flow.
    fn heads(&self, id: FlowId) -> Vec<&Item<T>> {
        let mut keys = BTreeSet::new();
        let items = self.flows.get(&id).map(|flow| &flow.items).into_iter().flatten();
        items.filter(|item| keys.insert((&item.key, item.joins))).collect()
    }

    fn is_announced(&self, key: &Key, joins: bool, first: FlowId) -> bool {
        let mut flows = self.flows.iter().filter(|(id, _)| joins || **id == first);
        flows.any(|(_, flow)| flow.announced.contains(key))
    }

    /// When the oldest joining item of a key was added, among flows that have not announced more of that key.
    fn oldest_without_more(&self, key: &Key, joins: bool) -> Option<Instant> {
        let flows = self.flows.values().filter(|flow| joins && !flow.announced.contains(key));
        flows.flat_map(|flow| &flow.items).filter(|item| item.joins && item.key == *key).map(|item| item.since).min()
    }

    /// Takes up to `most` items of a key, each from the flow that got least so far; the first from `first`.
    fn gather(&mut self, key: &Key, joins: bool, first: FlowId, most: usize) -> Taken<T> {
        let mut callers: BTreeMap<u64, f64> = BTreeMap::new();
        self.flows.values().filter(|flow| !flow.items.is_empty()).for_each(|flow| {
            *callers.entry(flow.caller).or_default() += 1.0;
        });
        let mut taken = Vec::new();
        while taken.len() < most {
            let fits = |item: &Item<T>| item.key == *key && item.joins == joins;
            let candidates = self.flows.iter().filter(|(id, flow)| {
                let of_first = **id == first;
                // The chosen flow goes first.
                (if taken.is_empty() { of_first } else { joins || of_first }) && flow.items.iter().any(fits)
            });
            let least = candidates.min_by(|(_, one), (_, other)| {
                other.priority.cmp(&one.priority).then(one.start.total_cmp(&other.start))
            });
            let Some(id) = least.map(|(id, _)| *id) else { break };
            let Some(flow) = self.flows.get_mut(&id) else { break };
            let Some(item) = flow.items.iter().position(fits).and_then(|place| flow.items.remove(place)) else { break };
            self.virtual_time = self.virtual_time.max(flow.start);
            let charge =
                Charge { flow: id, seconds: item.cost, flows: callers.get(&flow.caller).copied().unwrap_or(1.0) };
            flow.start += charge.seconds * charge.flows;
            taken.push(TakenItem { item, charge });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: u64) -> Key {
        Key { group, shared: Vec::new() }
    }

    struct Desk {
        queue: Queue<u32>,
        now: Instant,
    }

    impl Desk {
        fn new() -> Self {
            Self { queue: Queue::default(), now: Instant::now() }
        }

        fn push(&mut self, flow: FlowId, group: u64, work: impl IntoIterator<Item = u32>) {
            self.push_as(flow, group, true, work);
        }

        fn push_as(&mut self, flow: FlowId, group: u64, joins: bool, work: impl IntoIterator<Item = u32>) {
            for work in work {
                let item = Item { key: key(group), joins, cost: 1.0, since: self.now, work };
                assert!(self.queue.push(flow, item).is_ok());
            }
        }

        /// Takes all items, in batches of at most `most`.
        fn all(&mut self, most: usize) -> Vec<Vec<u32>> {
            let mut batches = Vec::new();
            while let Next::Work(taken) = self.queue.take(self.now, |_| Some(most)) {
                batches.push(taken.into_iter().map(|taken| taken.item.work).collect());
            }
            batches
        }
    }

    #[test]
    fn a_large_request_never_stands_in_front_of_a_small_one() {
        let mut desk = Desk::new();
        let large = desk.queue.open(1, Priority::Normal);
        desk.push(large, 1, 0..1000);
        for _ in 0..10 {
            assert!(matches!(desk.queue.take(desk.now, |_| Some(1)), Next::Work(_)));
        }
        let small = desk.queue.open(2, Priority::Normal);
        desk.push(small, 2, [5000]);
        let next: Vec<u32> = desk.all(1).concat();
        assert!(next.iter().position(|work| *work == 5000).unwrap() <= 1);
    }

    #[test]
    fn what_took_longer_than_estimated_is_charged() {
        let mut desk = Desk::new();
        let [slow, fast] = [1, 2].map(|caller| desk.queue.open(caller, Priority::Normal));
        // Of different groups: what one estimates says nothing about the other.
        desk.push(slow, 1, std::iter::repeat_n(10, 100));
        desk.push(fast, 2, std::iter::repeat_n(1, 100));
        let mut spent = BTreeMap::new();
        for _ in 0..60 {
            let Next::Work(taken) = desk.queue.take(desk.now, |_| Some(1)) else { panic!("nothing") };
            for TakenItem { item, charge } in taken {
                *spent.entry(charge.flow).or_insert(0) += item.work;
                desk.queue.settle(charge, f64::from(item.work));
            }
        }
        let (slow, fast) = (spent[&slow], spent[&fast]);
        assert!(i32::abs_diff(slow as i32, fast as i32) <= 10, "{slow} and {fast} seconds");
    }

    #[test]
    fn what_is_put_back_costs_nothing_and_waits_anew() {
        let mut desk = Desk::new();
        // One caller's part is divided among its flows, so each is charged the time of all.
        let [one, two] = [1, 1].map(|caller| desk.queue.open(caller, Priority::Normal));
        desk.push(one, 1, [1]);
        desk.push(two, 2, [2]);
        let later = desk.now + GRACE;
        for _ in 0..3 {
            let Next::Work(taken) = desk.queue.take(desk.now, |_| Some(1)) else { panic!("nothing") };
            assert_eq!(taken[0].item.work, 1);
            desk.queue.put_back(taken, later);
        }
        let Next::Work(taken) = desk.queue.take(desk.now, |_| Some(1)) else { panic!("nothing") };
        assert_eq!((taken[0].item.work, taken[0].item.since), (1, later));
        // A request that has ended is not charged.
        desk.queue.close(one);
        desk.queue.settle(taken[0].charge, 5.0);
        assert_eq!(desk.all(1), [[2]]);
    }

    #[test]
    fn flows_of_one_caller_share_what_one_caller_gets() {
        let mut desk = Desk::new();
        let many: Vec<FlowId> = (0..4).map(|_| desk.queue.open(1, Priority::Normal)).collect();
        for (number, flow) in (0..).zip(&many) {
            desk.push_as(*flow, number, false, std::iter::repeat_n(1, 100));
        }
        let single = desk.queue.open(2, Priority::Normal);
        desk.push_as(single, 9, false, std::iter::repeat_n(2, 100));
        let first = desk.all(1).concat();
        let of_single = first[..100].iter().filter(|work| **work == 2).count();
        assert!((40..=60).contains(&of_single), "{of_single}");
    }

    #[test]
    fn higher_priority_goes_first_and_order_within_a_request_stays() {
        let mut desk = Desk::new();
        let [background, normal, urgent] =
            [Priority::Background, Priority::Normal, Priority::Urgent].map(|priority| desk.queue.open(0, priority));
        desk.push(background, 1, [1, 2]);
        desk.push(normal, 2, [3, 4]);
        desk.push(urgent, 3, [5, 6]);
        assert_eq!(desk.all(2), [[5, 6], [3, 4], [1, 2]]);
    }

    #[test]
    fn work_of_one_key_runs_together_and_what_does_not_join_stays_alone() {
        let mut desk = Desk::new();
        let [one, other] = [1, 2].map(|caller| desk.queue.open(caller, Priority::Normal));
        desk.push(one, 1, [1, 2, 3]);
        desk.push(other, 1, [11, 12]);
        assert_eq!(desk.all(4), [vec![1, 11, 2, 12], vec![3]]);
        desk.push_as(one, 1, false, [1, 2, 3]);
        desk.push_as(other, 1, false, [11, 12]);
        let batches = desk.all(4);
        assert!(batches.contains(&vec![1, 2, 3]) && batches.contains(&vec![11, 12]), "{batches:?}");
    }

    #[test]
    fn who_announces_more_waits_for_it_and_others_wait_a_little() {
        for joins in [true, false] {
            let mut desk = Desk::new();
            let [one, other] = [1, 2].map(|caller| desk.queue.open(caller, Priority::Normal));
            desk.queue.announce(one, &key(1), true);
            desk.push_as(one, 1, joins, [1]);
            let later = desk.now + 2 * GRACE;
            assert!(matches!(desk.queue.take(later, |_| Some(3)), Next::Nothing));
            // Other work does not wait for it.
            desk.push_as(one, 2, joins, [9]);
            assert_eq!(desk.all(3), [[9]]);
            desk.push_as(other, 1, joins, [2]);
            match desk.queue.take(desk.now, |_| Some(3)) {
                Next::NotBefore(until) => assert!(joins && until == desk.now + GRACE),
                // The work of the other request, which has announced nothing.
                Next::Work(taken) => assert!(!joins && taken.len() == 1),
                Next::Nothing => panic!("it is forgotten"),
            }
            if joins {
                let Next::Work(taken) = desk.queue.take(later, |_| Some(3)) else { panic!("it waits for ever") };
                assert_eq!(taken.len(), 2);
                desk.push_as(one, 1, joins, [1]);
            }
            desk.queue.announce(one, &key(1), false);
            assert_eq!(desk.all(3), [[1]]);
        }
    }

    #[test]
    fn work_that_is_put_back_or_cannot_run_is_not_lost() {
        let mut desk = Desk::new();
        let flow = desk.queue.open(0, Priority::Normal);
        desk.push(flow, 1, [1, 2, 3]);
        let Next::Work(taken) = desk.queue.take(desk.now, |_| Some(2)) else { panic!("nothing") };
        assert!(desk.queue.put_back(taken, desk.now).is_empty());
        assert!(matches!(desk.queue.take(desk.now, |_| None), Next::Nothing));
        assert_eq!((desk.queue.waiting(), desk.all(3)), (3, vec![vec![1, 2, 3]]));
        desk.push(flow, 1, [4]);
        assert_eq!(desk.queue.close(flow).len(), 1);
        assert!(desk.queue.is_empty());
        let item = Item { key: key(1), joins: true, cost: 1.0, since: desk.now, work: 5 };
        assert!(desk.queue.push(flow, item).is_err());
    }
}
