//! A task with its queue of requests.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tileforge_session::Cancel;

use super::counted::Counted;
use super::deadlines::Deadline;
use super::handle::{Handle, Promise, Reply, pair};
use super::host::Host;
use super::long::{LONG_MAXIMUM, LongRequests, LongTurn, Slots};
use super::queue::Priority;
use super::sync::thread::{self, JoinHandle};
use super::sync::{Condvar, Mutex, MutexGuard};
use super::ticket::Ticket;
use crate::error::{Error, Result};

/// How long a caller waits for room before it checks again whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a service serves: independent requests.
///
/// [`Task::serve`] does the work before and after the network, on a thread of the service. It submits samples to
/// groups of graphs; the group decides which samples may run together. Samples run on the host's threads, with the
/// samples of other requests.
pub trait Task: Send + Sync + 'static {
    /// The task's name, for threads and errors.
    const NAME: &'static str;
    /// The request. Requests wait in the queue, so they should be small: open files only in [`Task::serve`].
    type Request: Send + 'static;
    /// The result of a request.
    type Output: Send + 'static;

    /// How many requests are served at the same time, beside long ones: enough to fill the device while others are
    /// prepared and finished.
    fn concurrency(&self) -> usize;

    /// Serves one request.
    ///
    /// # Errors
    /// Why the request failed.
    fn serve(&self, request: Self::Request, reply: &Reply<Self::Output>) -> Result<Self::Output>;
}

/// How a request is served.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Which requests are served first.
    pub priority: Priority,
    /// The time at which an unfinished request ends with [`Error::Deadline`].
    pub deadline: Option<Instant>,
    /// The caller's identity: any number. Callers share the device in equal parts, however many requests each of them
    /// has.
    pub caller: u64,
    /// Samples may run together with samples of other requests even where that changes the last digits of the results,
    /// as on GPUs. Where it changes no byte, they may always.
    pub allows_rounding: bool,
    /// The request is refused with [`Error::QueueFull`] instead of waiting for room in the queue.
    pub refuses_to_wait: bool,
    /// The flag that ends the request.
    pub cancel: Cancel,
}

impl From<&Cancel> for Terms {
    fn from(cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..Self::default() }
    }
}

/// A task with its queue of requests.
///
/// A request that fails, is cancelled or panics does not affect the others. Dropping the service does the same as
/// [`Service::shutdown`].
pub struct Service<T: Task> {
    /// `None` once it is shut down.
    inner: Option<Arc<Inner<T>>>,
}

struct Inner<T: Task> {
    host: Host,
    task: T,
    capacity: usize,
    state: Mutex<State<T>>,
    /// A request was submitted, or the service was closed.
    news: Condvar,
    /// A request's turn came, or a thread became idle.
    room: Condvar,
    long: Arc<LongRequests>,
}

struct State<T: Task> {
    /// In the order in which they were submitted.
    waiting: Vec<Waiting<T>>,
    closed: bool,
    next_id: u64,
    /// Requests whose turn has come so far.
    begun: u64,
    /// How many turns a caller has had, for callers that had more than `round`.
    turns: BTreeMap<u64, u64>,
    /// The highest number of turns that a caller had had when its turn came.
    round: u64,
    /// Requests that are served now.
    serving: usize,
    /// Those of them that are long, and have given their slots to others.
    long: usize,
    /// Threads that were started.
    started: usize,
    /// Their handles, until [`Service::join`] takes them.
    threads: Vec<JoinHandle<()>>,
}

impl<T: Task> State<T> {
    /// How many more requests may be served beside those that are, if `slots` may at the same time.
    fn free(&self, slots: usize) -> usize {
        slots.max(1).saturating_sub(self.serving - self.long)
    }

    /// Whether the queue has no room. `capacity` requests wait for a slot, and as many long ones for others to end.
    fn is_full(&self, capacity: usize, slots: usize) -> bool {
        // What has a slot is about to be taken, so it does not count.
        self.waiting.len() >= capacity + self.free(slots) || self.long >= LONG_MAXIMUM + capacity
    }

    /// The sort key of each waiting request; the least is served first. It holds the priority; the number of the
    /// caller's turn, so that a caller with a hundred requests does not block the others; and the request's number.
    fn order(&self) -> Vec<(Reverse<Priority>, u64, u64)> {
        let mut turns = self.turns.clone();
        let of = |waiting: &Waiting<T>| {
            let Terms { priority, caller, .. } = waiting.terms;
            let turn = turns.entry(caller).or_insert(self.round);
            *turn += 1;
            (Reverse(priority), *turn, waiting.id)
        };
        self.waiting.iter().map(of).collect()
    }

    /// Counts a turn of a caller.
    fn take_turn(&mut self, caller: u64) {
        self.round = self.turns.get(&caller).copied().unwrap_or_default().max(self.round);
        self.turns.insert(caller, self.round + 1);
        // Callers at or below `round` need no entry: `order` starts them at `round`.
        let round = self.round;
        self.turns.retain(|_, turns| *turns > round);
    }
}

struct Waiting<T: Task> {
    id: u64,
    request: T::Request,
    promise: Promise<T::Output>,
    terms: Terms,
    deadline: Option<Deadline>,
    counted: Counted,
}

impl<T: Task> std::fmt::Debug for Service<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Service").field("task", &T::NAME).finish_non_exhaustive()
    }
}

impl<T: Task> Service<T> {
    /// Serves a task. At most `capacity` requests, and at least one, wait for their turn; and as many long ones whose
    /// turn has come wait for other long ones.
    pub fn new(host: &Host, task: T, capacity: usize) -> Self {
        let state = State {
            waiting: Vec::new(),
            closed: false,
            next_id: 0,
            begun: 0,
            turns: BTreeMap::new(),
            round: 0,
            serving: 0,
            long: 0,
            started: 0,
            threads: Vec::new(),
        };
        Self {
            inner: Some(Arc::new(Inner {
                host: host.clone(),
                task,
                capacity: capacity.max(1),
                state: Mutex::new(state),
                news: Condvar::new(),
                room: Condvar::new(),
                long: Arc::default(),
            })),
        }
    }

    fn inner(&self) -> &Arc<Inner<T>> {
        // Only `shutdown` and `drop` take it, and both consume the service.
        #[allow(clippy::expect_used)]
        self.inner.as_ref().expect("the service is there until it is dropped")
    }

    /// The deadlines of its host.
    #[cfg(test)]
    #[cfg(not(feature = "interleavings"))]
    pub(super) fn deadlines(&self) -> &super::deadlines::Deadlines {
        self.inner().host.deadlines()
    }

    /// The task.
    pub fn task(&self) -> &T {
        &self.inner().task
    }

    /// Submits a request; waits while the queue is full, unless `terms` refuse to. The flag of `terms` ends the wait
    /// and the request.
    ///
    /// # Errors
    /// [`Error::QueueFull`] where `terms` refuse to wait; [`Error::Cancelled`] or [`Error::Deadline`] while it waits;
    /// [`Error::Closed`] after [`Service::close`]; [`Error::Thread`]: the system cannot start a thread.
    pub fn submit(&self, request: T::Request, terms: impl Into<Terms>) -> Result<Handle<T::Output>> {
        self.add(request, terms.into())
    }

    /// Submits a request if the queue has room for it.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; otherwise as [`Service::submit`].
    pub fn try_submit(&self, request: T::Request, terms: impl Into<Terms>) -> Result<Handle<T::Output>> {
        self.add(request, Terms { refuses_to_wait: true, ..terms.into() })
    }

    fn add(&self, request: T::Request, terms: Terms) -> Result<Handle<T::Output>> {
        let inner = self.inner();
        let mut state = inner.state.lock();
        let slots = inner.task.concurrency();
        while state.is_full(inner.capacity, slots) {
            // Cancelled and expired requests make room.
            let waiting = std::mem::take(&mut state.waiting);
            let (over, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waiting| waiting.promise.is_over());
            state.waiting = waiting;
            if !over.is_empty() {
                // Dropping them may take a while, so it happens without the lock.
                MutexGuard::unlocked(&mut state, || drop(over));
                continue;
            }
            if state.closed {
                return Err(Error::Closed);
            }
            if terms.refuses_to_wait {
                return Err(Error::QueueFull { capacity: inner.capacity });
            }
            if terms.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if terms.deadline.is_some_and(|deadline| inner.host.deadlines().has_come(deadline)) {
                return Err(Error::Deadline);
            }
            inner.room.wait_for(&mut state, POLL_INTERVAL);
        }
        if state.closed {
            return Err(Error::Closed);
        }
        let waiting = state.waiting.len() + 1;
        match inner.start_threads(&mut state, waiting) {
            // An existing thread serves it later.
            Err(_) if state.started > 0 => {}
            started => started?,
        }
        let id = state.next_id;
        state.next_id += 1;
        let place = Arc::downgrade(inner);
        let (promise, handle) = pair(T::NAME, &terms.cancel, move || place.upgrade()?.place_of(id));
        let deadline = terms.deadline.map(|at| inner.host.deadlines().add(at, promise.expiry())).transpose()?;
        let counted = Counted::new(inner.host.shared(), T::NAME);
        state.waiting.push(Waiting { id, request, promise, terms, deadline, counted });
        inner.news.notify_one();
        Ok(handle)
    }

    /// Takes no more requests. Those that were accepted are finished.
    pub fn close(&self) {
        self.inner().close();
    }

    /// Takes no more requests, finishes those that were accepted, and returns when all threads have ended.
    pub fn shutdown(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.close();
            // A long request may start more threads meanwhile.
            loop {
                let threads = std::mem::take(&mut inner.state.lock().threads);
                if threads.is_empty() {
                    break;
                }
                // A request that drops the last owner of its service runs on one of these threads.
                for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
                    // The caller of the request has received the panic as an error.
                    let _ = thread.join();
                }
            }
        }
    }
}

impl<T: Task> Drop for Service<T> {
    fn drop(&mut self) {
        self.join();
    }
}

impl<T: Task> Inner<T> {
    fn close(&self) {
        self.state.lock().closed = true;
        self.news.notify_all();
        self.room.notify_all();
    }

    /// How many requests are ahead of a waiting one; `None` if it does not wait.
    fn place_of(&self, id: u64) -> Option<usize> {
        let state = self.state.lock();
        let order = state.order();
        let own = order.iter().find(|(.., other)| *other == id)?;
        Some(order.iter().filter(|other| *other < own).count())
    }

    /// Waits for the next request. Returns it with its number in the order of turns.
    fn next(&self) -> Option<(u64, Waiting<T>)> {
        let mut state = self.state.lock();
        loop {
            let has_slot = state.free(self.task.concurrency()) > 0;
            let order = if has_slot { state.order() } else { Vec::new() };
            let first = order.into_iter().enumerate().min_by_key(|(_, order)| *order);
            if let Some((place, _)) = first {
                let waiting = state.waiting.remove(place);
                state.take_turn(waiting.terms.caller);
                let number = state.begun;
                state.begun += 1;
                state.serving += 1;
                self.room.notify_all();
                if state.closed {
                    // Nothing may be left for the threads that wait.
                    self.news.notify_all();
                }
                return Some((number, waiting));
            }
            if state.closed && state.waiting.is_empty() {
                return None;
            }
            self.news.wait(&mut state);
        }
    }

    /// Starts threads until all that have slots are served, of so many waiting requests.
    fn start_threads(self: &Arc<Self>, state: &mut State<T>, waiting: usize) -> Result<()> {
        let wanted = state.serving + waiting.min(state.free(self.task.concurrency()));
        // A thread counts from its start, before it runs.
        while state.started < wanted {
            let serving = self.clone();
            let thread = thread::Builder::new().name(T::NAME.into()).spawn(move || serving.serve_all());
            state.threads.push(thread.map_err(|source| Error::Thread { name: T::NAME, source })?);
            state.started += 1;
        }
        Ok(())
    }

    fn serve_all(self: &Arc<Self>) {
        while let Some((number, waiting)) = self.next() {
            // After a panic the request has its error, and the thread serves the next one.
            let _ = catch_unwind(AssertUnwindSafe(|| self.serve(number, waiting)));
            self.state.lock().serving -= 1;
            self.room.notify_all();
        }
    }

    fn serve(self: &Arc<Self>, number: u64, waiting: Waiting<T>) {
        let Waiting { request, promise, terms, deadline, counted, .. } = waiting;
        // Metrics are updated before the answer, so that a caller with an answer sees the request in them.
        if promise.is_over() {
            drop(counted);
            promise.finish(Err(Error::Cancelled));
            return;
        }
        // On a busy machine, the deadline thread may run later than the request's turn.
        if terms.deadline.is_some_and(|deadline| self.host.deadlines().has_come(deadline)) {
            drop(counted);
            promise.finish(Err(Error::Deadline));
            return;
        }
        let Terms { priority, caller, allows_rounding, .. } = terms;
        let ticket = Ticket::new(self.host.shared(), priority, caller, allows_rounding, promise.cancel());
        let long_turn = LongTurn::new(&self.long, self.clone(), number, priority);
        let reply = Reply { promise, ticket, long_turn, _deadline: deadline };
        // Declared after `reply`, so that it is dropped first if the task panics.
        let counted = counted.begin(reply.ticket.stages());
        let result = self.task.serve(request, &reply);
        drop(counted);
        reply.promise.finish(result);
    }
}

impl<T: Task> Slots for Inner<T> {
    fn give(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.long += 1;
        let waiting = state.waiting.len();
        // Otherwise they are served when a thread is free.
        let _ = self.start_threads(&mut state, waiting);
        drop(state);
        self.news.notify_all();
        self.room.notify_all();
    }

    fn take_back(&self) {
        self.state.lock().long -= 1;
        self.room.notify_all();
    }
}
