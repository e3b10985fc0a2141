//! Deadlines: one thread calls functions at their times, for all requests of a host.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::clock::Clock;
use super::sync::thread::{self, JoinHandle};
use super::sync::{Condvar, Mutex};
use crate::error::{Error, Result};

type Then = Box<dyn FnOnce() + Send>;

/// The deadlines of a host.
#[derive(Default)]
pub(super) struct Deadlines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<(Instant, u64), Then>,
    next: u64,
    clock: Clock,
    closed: bool,
    thread: Option<JoinHandle<()>>,
}

/// A function that is called at its time, unless this is dropped before.
pub(super) struct Deadline {
    shared: Arc<Shared>,
    key: (Instant, u64),
}

impl Deadlines {
    /// Calls `then` at a time, on the shared thread: it must return soon, because the other deadlines wait for it.
    pub(super) fn add(&self, at: Instant, then: impl FnOnce() + Send + 'static) -> Result<Deadline> {
        let mut state = self.0.state.lock();
        if state.thread.is_none() {
            let shared = self.0.clone();
            let thread = thread::Builder::new().name("deadlines".into()).spawn(move || shared.keep());
            state.thread = Some(thread.map_err(|source| Error::Thread { name: "deadlines", source })?);
        }
        let key = (at, state.next);
        state.next += 1;
        state.waiting.insert(key, Box::new(then));
        self.0.changed.notify_all();
        Ok(Deadline { shared: self.0.clone(), key })
    }

    /// Whether a time has come.
    pub(super) fn has_come(&self, at: Instant) -> bool {
        at <= self.0.state.lock().clock.now()
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        let thread = {
            let mut state = self.0.state.lock();
            state.closed = true;
            self.0.changed.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn keep(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            let clock = state.clock;
            let Some(first) = state.waiting.first_entry() else {
                self.changed.wait(&mut state);
                continue;
            };
            let (at, _) = *first.key();
            if at <= clock.now() {
                let then = first.remove();
                drop(state);
                // It calls functions of callers. If one panics, the deadlines of other requests stay.
                let _ = catch_unwind(AssertUnwindSafe(then));
                state = self.state.lock();
            } else if clock.runs() {
                self.changed.wait_until(&mut state, at);
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
impl Deadlines {
    /// Stops the clock, and returns its time.
    pub(super) fn stop(&self) -> Instant {
        let now = Instant::now();
        self.0.state.lock().clock = Clock::Stopped(now);
        self.0.changed.notify_all();
        now
    }

    /// Puts the stopped clock forward.
    pub(super) fn advance(&self, by: std::time::Duration) {
        let mut state = self.0.state.lock();
        state.clock = Clock::Stopped(state.clock.now() + by);
        self.0.changed.notify_all();
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.shared.state.lock().waiting.remove(&self.key);
    }
}
#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn functions_are_called_at_their_times_unless_they_are_dropped() {
        let deadlines = Deadlines::default();
        let now = deadlines.stop();
        let (called, calls) = mpsc::channel();
        let add = |name: &'static str, milliseconds: u64| {
            let called = called.clone();
            let at = now + Duration::from_millis(milliseconds);
            deadlines.add(at, move || called.send(name).unwrap()).unwrap()
        };
        let _late = add("in an hour", 3_600_000);
        drop(add("dropped", 10));
        let _second = add("second", 60);
        let _first = add("first", 30);
        let none = || assert_eq!(calls.try_recv(), Err(mpsc::TryRecvError::Empty));
        for (advance, expected) in [(29, None), (1, Some("first")), (29, None), (1, Some("second")), (3_599_000, None)]
        {
            deadlines.advance(Duration::from_millis(advance));
            match expected {
                Some(name) => assert_eq!(calls.recv(), Ok(name)),
                None => none(),
            }
        }
        assert!(deadlines.has_come(now + Duration::from_millis(3_599_060)));
        assert!(!deadlines.has_come(now + Duration::from_millis(3_599_061)));
        deadlines.close();
        none();
    }

    #[test]
    fn the_systems_clock_goes_on() {
        let deadlines = Deadlines::default();
        let (called, calls) = mpsc::channel();
        let at = Instant::now() + Duration::from_millis(20);
        let _deadline = deadlines.add(at, move || called.send(()).unwrap()).unwrap();
        assert_eq!(calls.recv(), Ok(()));
        assert!(Instant::now() >= at && deadlines.has_come(at));
    }
}
