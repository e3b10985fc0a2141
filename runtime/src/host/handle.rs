//! The two ends of a request: that of the caller, and that of the task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tileforge_session::{Cancel, Notice};

use super::aside::{Aside, Long};
use super::deadlines::Deadline;
use super::sync::{Condvar, Mutex, thread};
use super::ticket::Ticket;
use crate::error::{Error, Result};

/// How far a request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Parts that are done: tiles, steps, frames.
    pub done: u64,
    /// All parts; `None` until the request's turn comes, or where nobody knows.
    pub total: Option<u64>,
}

struct Shared<O> {
    /// Of this request alone, and below the caller's, which may be that of other requests, too.
    cancel: Cancel,
    state: Mutex<State<O>>,
    finished: Condvar,
    /// Answers when the flag is set.
    notice: OnceLock<Notice>,
    place: Box<dyn Fn() -> Option<usize> + Send + Sync>,
}

struct State<O> {
    progress: Progress,
    finished: bool,
    /// Until somebody takes it.
    result: Option<Result<O>>,
    waker: Option<Waker>,
}

/// Makes the two ends of a request. `place` says how many requests are in front of it while it waits.
pub(super) fn pair<O: Send + 'static>(
    task: &'static str,
    given: &Cancel,
    place: impl Fn() -> Option<usize> + Send + Sync + 'static,
) -> (Promise<O>, Handle<O>) {
    let state = State { progress: Progress::default(), finished: false, result: None, waker: None };
    let shared = Arc::new(Shared {
        cancel: given.child(),
        state: Mutex::new(state),
        finished: Condvar::new(),
        notice: OnceLock::new(),
        place: Box::new(place),
    });
    let noticed: Weak<Shared<O>> = Arc::downgrade(&shared);
    let notice = shared.cancel.notify(move || {
        if let Some(shared) = noticed.upgrade() {
            shared.finish(Err(Error::Cancelled));
        }
    });
    // Set once, here.
    let _ = shared.notice.set(notice);
    (Promise { shared: shared.clone(), task }, Handle(shared))
}

impl<O> Shared<O> {
    fn finish(&self, result: Result<O>) -> bool {
        let waker = {
            let mut state = self.state.lock();
            if state.finished {
                return false;
            }
            (state.finished, state.result) = (true, Some(result));
            self.finished.notify_all();
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

/// A submitted request: wait for it, or await it as a [`Future`], whichever runtime polls it. Dropping it changes
/// nothing: the request goes on.
pub struct Handle<O>(Arc<Shared<O>>);

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Handle").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl<O> Handle<O> {
    /// Ends the request, and no other one, with [`Error::Cancelled`], unless it is finished. The answer is there at
    /// once; what runs for it ends after the node that is being computed, and unfinished outputs are removed then.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.0.state.lock().progress
    }

    /// How many requests are in front of it; `None` once its turn has come.
    pub fn place(&self) -> Option<usize> {
        (self.0.place)()
    }

    /// Whether there is a result.
    pub fn is_finished(&self) -> bool {
        self.0.state.lock().finished
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Why the request failed; [`Error::Cancelled`]; [`Error::Deadline`]; [`Error::Taken`].
    pub fn wait(self) -> Result<O> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            if state.finished {
                return Err(Error::Taken);
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

impl<O> Future for Handle<O> {
    type Output = Result<O>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<O>> {
        let mut state = self.0.state.lock();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        if state.finished {
            return Poll::Ready(Err(Error::Taken));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Where a request will be answered, before its turn.
pub(super) struct Promise<O> {
    shared: Arc<Shared<O>>,
    task: &'static str,
}

impl<O> Promise<O> {
    pub(super) fn cancel(&self) -> &Cancel {
        &self.shared.cancel
    }

    pub(super) fn finish(&self, result: Result<O>) -> bool {
        self.shared.finish(result)
    }

    /// Whether nobody needs anything more of the request.
    pub(super) fn is_over(&self) -> bool {
        self.shared.cancel.is_cancelled() || self.shared.state.lock().finished
    }
}

impl<O: Send + 'static> Promise<O> {
    /// What ends the request with an error when its time is over.
    pub(super) fn expiry(&self) -> impl FnOnce() + Send + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade()
                && shared.finish(Err(Error::Deadline))
            {
                shared.cancel.cancel();
            }
        }
    }
}

impl<O> Drop for Promise<O> {
    /// A request that was lost has an error, too.
    fn drop(&mut self) {
        self.finish(Err(if thread::panicking() { Error::internal(self.task) } else { Error::Closed }));
    }
}

/// Where a task answers a request whose turn has come.
pub struct Reply<O> {
    pub(super) promise: Promise<O>,
    pub(super) ticket: Ticket,
    pub(super) aside: Aside,
    pub(super) _deadline: Option<Deadline>,
}

impl<O> std::fmt::Debug for Reply<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reply").field("task", &self.promise.task).finish_non_exhaustive()
    }
}

impl<O> Reply<O> {
    /// Whether nobody needs anything more of the request: it is cancelled, or its time is over.
    pub fn is_over(&self) -> bool {
        self.promise.is_over()
    }

    /// What ends the request's runs when the caller wants it no more.
    pub fn cancel(&self) -> &Cancel {
        self.promise.cancel()
    }

    /// Whether to go on with the request.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: nobody wants it any more.
    pub fn go_on(&self) -> Result<()> {
        if self.is_over() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Tells how far the request has come. `total` is `None` where nobody knows it.
    pub fn progress(&self, done: u64, total: impl Into<Option<u64>>) {
        self.promise.shared.state.lock().progress = Progress { done, total: total.into() };
    }

    /// The request in the queues of the host.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Says that the request is a long one, and waits while as many long ones as may be open at the same time began
    /// before it. It is a long one as long as what is returned lives.
    pub(crate) fn step_aside(&self) -> Result<Long> {
        self.aside.begin(|| self.is_over())
    }
}
