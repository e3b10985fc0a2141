//! Deadlines: one thread calls functions at their times, for all requests of a host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

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
            let Some(first) = state.waiting.first_entry() else {
                self.changed.wait(&mut state);
                continue;
            };
            let (at, _) = *first.key();
            if at <= Instant::now() {
                let then = first.remove();
                drop(state);
                then();
                state = self.state.lock();
            } else {
                self.changed.wait_until(&mut state, at);
            }
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.shared.state.lock().waiting.remove(&self.key);
    }
}
use super::sync::thread::{self, JoinHandle};
use super::sync::{Condvar, Mutex};

#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn functions_are_called_at_their_times_unless_they_are_dropped() {
        let deadlines = Deadlines::default();
        let (called, calls) = mpsc::channel();
        let now = Instant::now();
        let add = |name: &'static str, at: Instant| {
            let called = called.clone();
            deadlines.add(at, move || called.send(name).unwrap()).unwrap()
        };
        let _late = add("in an hour", now + Duration::from_secs(3600));
        drop(add("dropped", now + Duration::from_millis(10)));
        let second = Instant::now() + Duration::from_millis(60);
        let _second = add("second", second);
        let _first = add("first", now + Duration::from_millis(30));
        let found: Vec<&str> = calls.iter().take(2).collect();
        assert_eq!(found, ["first", "second"]);
        assert!(Instant::now() >= second);
        deadlines.close();
        assert_eq!(calls.try_recv(), Err(mpsc::TryRecvError::Empty), "nothing more was called");
    }
}
