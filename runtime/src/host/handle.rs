//! The two ends of a request: the caller's and the task's.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tileforge_session::{Cancel, Notice};

use super::deadlines::Deadline;
use super::long::{LongTurn, OpenLong};
use super::sync::{Condvar, Mutex, thread};
use super::ticket::Ticket;
use crate::error::{Error, Result};

/// How far a request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Parts that are done: tiles, steps, frames.
    pub done: u64,
    /// All parts; `None` until the request's turn comes, or if the number is unknown.
    pub total: Option<u64>,
}

struct Shared<O> {
    /// This request's own flag: a child of the caller's flag, which other requests may share.
    cancel: Cancel,
    state: Mutex<State<O>>,
    finished: Condvar,
    /// Finishes the request when the flag is set.
    notice: OnceLock<Notice>,
    queue_position: Box<dyn Fn() -> Option<usize> + Send + Sync>,
}

struct State<O> {
    progress: Progress,
    finished: bool,
    /// Until it is taken.
    result: Option<Result<O>>,
    waker: Option<Waker>,
}

/// Makes the two ends of a request. `queue_position` returns how many requests are ahead of it while it waits.
pub(super) fn pair<O: Send + 'static>(
    task: &'static str,
    given: &Cancel,
    queue_position: impl Fn() -> Option<usize> + Send + Sync + 'static,
) -> (Promise<O>, Handle<O>) {
    let state = State { progress: Progress::default(), finished: false, result: None, waker: None };
    let shared = Arc::new(Shared {
        cancel: given.child(),
        state: Mutex::new(state),
        finished: Condvar::new(),
        notice: OnceLock::new(),
        queue_position: Box::new(queue_position),
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

/// A submitted request: wait for it, or await it as a [`Future`] on any async runtime. Dropping the handle does not
/// end the request.
pub struct Handle<O>(Arc<Shared<O>>);

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Handle").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl<O> Handle<O> {
    /// Ends this request alone with [`Error::Cancelled`], unless it is finished. The result is available at once. A
    /// run in progress ends after the current node, and unfinished outputs are removed then.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    /// The request's progress.
    pub fn progress(&self) -> Progress {
        self.0.state.lock().progress
    }

    /// How many requests are ahead of it; `None` once its turn has come.
    pub fn queue_position(&self) -> Option<usize> {
        (self.0.queue_position)()
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

    /// Waits for the result for at most `patience`; `None` if there is none by then, or if it was already taken.
    pub fn wait_for(&self, patience: Duration) -> Option<Result<O>> {
        let until = Instant::now().checked_add(patience);
        let mut state = self.0.state.lock();
        while !state.finished {
            match until {
                Some(until) if self.0.finished.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
                // Later than any time: as long as it takes.
                None => self.0.finished.wait(&mut state),
            }
        }
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

/// Answers a request; also before its turn.
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

    /// Whether the request needs no more work: it is cancelled or finished.
    pub(super) fn is_over(&self) -> bool {
        self.shared.cancel.is_cancelled() || self.shared.state.lock().finished
    }
}

impl<O: Send + 'static> Promise<O> {
    /// A function that ends the request with [`Error::Deadline`] if it is unfinished.
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
    /// A dropped request also gets an answer: an error.
    fn drop(&mut self) {
        self.finish(Err(if thread::panicking() { Error::internal(self.task) } else { Error::Closed }));
    }
}

/// Where a task answers a request whose turn has come.
pub struct Reply<O> {
    pub(super) promise: Promise<O>,
    pub(super) ticket: Ticket,
    pub(super) long_turn: LongTurn,
    pub(super) _deadline: Option<Deadline>,
}

impl<O> std::fmt::Debug for Reply<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reply").field("task", &self.promise.task).finish_non_exhaustive()
    }
}

impl<O> Reply<O> {
    /// Whether the request needs no more work: it is cancelled, or its deadline has passed.
    pub fn is_over(&self) -> bool {
        self.promise.is_over()
    }

    /// The flag that ends the request's runs.
    pub fn cancel(&self) -> &Cancel {
        self.promise.cancel()
    }

    /// Whether to go on with the request.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the request is over.
    pub fn go_on(&self) -> Result<()> {
        if self.is_over() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Reports the request's progress. `total` is `None` if it is unknown.
    pub fn progress(&self, done: u64, total: impl Into<Option<u64>>) {
        self.promise.shared.state.lock().progress = Progress { done, total: total.into() };
    }

    /// The request in the queues of the host.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Declares the request a long one, and waits while the allowed number of earlier long requests is open. The
    /// request counts as long until the returned guard is dropped.
    pub(crate) fn wait_as_long(&self) -> Result<OpenLong> {
        self.long_turn.begin(|| self.is_over())
    }
}
