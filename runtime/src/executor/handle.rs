//! The two ends of a request: that of the caller, and that of the task.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tileforge_session::Cancel;

use super::failure::Failure;
use crate::error::{Error, Result};

/// How far a request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Parts that are done: tiles, steps, frames.
    pub done: u64,
    /// All parts; `None` until the request's turn comes.
    pub total: Option<u64>,
}

struct Shared<O> {
    /// Of this request alone, and below the caller's, which may be that of other requests, too.
    cancel: Cancel,
    state: Mutex<State<O>>,
    finished: Condvar,
}

struct State<O> {
    progress: Progress,
    finished: bool,
    /// Until somebody takes it.
    result: Option<Result<O>>,
}

/// Makes the two ends of a request.
pub(super) fn pair<O>(task: &'static str, given: &Cancel, failure: &Failure) -> (Reply<O>, Handle<O>) {
    let state = State { progress: Progress::default(), finished: false, result: None };
    let (state, finished) = (Mutex::new(state), Condvar::new());
    let shared = Arc::new(Shared { cancel: given.child(), state, finished });
    (Reply { shared: shared.clone(), task, failure: failure.clone() }, Handle(shared))
}

/// A submitted request. Dropping it changes nothing: the request goes on.
pub struct Handle<O>(Arc<Shared<O>>);

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Handle").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl<O> Handle<O> {
    /// Ends the request, and no other one, with [`Error::Cancelled`], unless it is finished before that is noticed.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.0.state.lock().progress
    }

    /// Whether there is a result.
    pub fn is_finished(&self) -> bool {
        self.0.state.lock().finished
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Why the request failed; [`Error::Cancelled`]; what ended the task.
    pub fn wait(self) -> Result<O> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            if state.finished {
                // Taken by `wait_for` before.
                return Err(Error::Closed);
            }
            self.0.finished.wait(&mut state);
        }
    }

    /// Waits for the result no longer than this; `None` if there is none by then, or if it was taken before.
    pub fn wait_for(&self, patience: Duration) -> Option<Result<O>> {
        let until = Instant::now() + patience;
        let mut state = self.0.state.lock();
        while !state.finished && !self.0.finished.wait_until(&mut state, until).timed_out() {}
        state.result.take()
    }
}

/// Where a task answers a request.
pub struct Reply<O> {
    shared: Arc<Shared<O>>,
    task: &'static str,
    failure: Failure,
}

impl<O> std::fmt::Debug for Reply<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reply").field("task", &self.task).finish_non_exhaustive()
    }
}

impl<O> Reply<O> {
    /// The caller wants the request no more.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancel.is_cancelled()
    }

    /// What ends the request's runs when the caller wants it no more.
    pub fn cancel(&self) -> &Cancel {
        &self.shared.cancel
    }

    /// Whether to go on with the request.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the caller wants it no more.
    pub fn go_on(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Tells how far the request has come.
    pub fn progress(&self, done: u64, total: u64) {
        self.shared.state.lock().progress = Progress { done, total: Some(total) };
    }

    /// Tells what the request came to; false if that had been told before, which counts.
    pub fn finish(&self, result: Result<O>) -> bool {
        let mut state = self.shared.state.lock();
        if state.finished {
            return false;
        }
        (state.finished, state.result) = (true, Some(result));
        self.shared.finished.notify_all();
        true
    }

    /// Whether nobody needs anything more of the request: it is finished, or cancelled.
    pub fn is_over(&self) -> bool {
        self.is_cancelled() || self.shared.state.lock().finished
    }
}

impl<O> Drop for Reply<O> {
    /// A request that was lost has an error, too.
    fn drop(&mut self) {
        let thread = thread::current();
        let error = match thread.name().filter(|_| thread::panicking()) {
            Some(stage) => Error::Internal(stage.into()),
            None => self.failure.error(self.task),
        };
        self.finish(Err(error));
    }
}
