//! Long-lived sessions behind a bounded queue.
//!
//! An [`Executor`] owns a [`Task`], such as an [`Upscaler`](crate::upscale::Upscaler), and the threads that serve it. A
//! caller submits a request and gets a [`Handle`]: progress, cancellation, and the request's own result. A request that
//! fails or is cancelled ends itself alone. A panic in one of the task's threads ends the task: what is on its way and
//! what comes later gets an error that names the stage.

mod each;
mod failure;
mod handle;
mod intake;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{SendTimeoutError, Sender, TrySendError, bounded};
use parking_lot::Mutex;

pub(crate) use each::serve_each;
pub(crate) use failure::{Closed, Failure, StageResult};
pub use handle::{Handle, Progress, Reply};
pub use intake::{Intake, Job, Next};
pub use tileforge_session::Cancel;

use crate::error::{Error, Result};

/// How long somebody waits before looking whether to stop.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// What an executor serves: a model with its sessions, and the stages around it.
pub trait Task: Send + Sync + 'static {
    /// The task's name, for threads and errors.
    const NAME: &'static str;
    /// What is asked for. Requests wait in the queue, so they should be small: open files when the turn comes.
    type Request: Send + 'static;
    /// What a request becomes.
    type Output: Send + 'static;

    /// Serves requests until the intake is closed and empty. Each request is answered through its [`Reply`], whether it
    /// fails or not.
    ///
    /// # Errors
    /// What ends the task: the requests that are on their way, and all later ones, get this error.
    fn serve(&self, intake: &Intake<Self>) -> Result<()>;
}

/// Serves requests one after the other, or several at the same time, as its task likes.
///
/// Dropping it is [`Executor::shutdown`] without the result.
pub struct Executor<T: Task> {
    task: Arc<T>,
    capacity: usize,
    /// `None`: nothing more is taken.
    queue: Mutex<Option<Sender<Job<T>>>>,
    failure: Failure,
    thread: Option<JoinHandle<()>>,
}

impl<T: Task> std::fmt::Debug for Executor<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Executor").field("task", &T::NAME).field("capacity", &self.capacity).finish()
    }
}

impl<T: Task> Executor<T> {
    /// Starts to serve a task. At most `capacity` requests, and at least one, wait for their turn.
    ///
    /// # Errors
    /// [`Error::Thread`]: the system gives no thread.
    pub fn new(task: T, capacity: usize) -> Result<Self> {
        let capacity = capacity.max(1);
        let (sender, receiver) = bounded(capacity);
        let (task, failure) = (Arc::new(task), Failure::default());
        let intake = Intake::new(receiver, failure.clone());
        let served = task.clone();
        let thread = thread::Builder::new().name(T::NAME.into()).spawn(move || serve(&*served, intake));
        let thread = thread.map_err(|source| Error::Thread { name: T::NAME, source })?;
        Ok(Self { task, capacity, queue: Mutex::new(Some(sender)), failure, thread: Some(thread) })
    }

    /// The task.
    pub fn task(&self) -> &T {
        &self.task
    }

    /// Submits a request; waits while the queue is full. `cancel` ends the wait and the request.
    ///
    /// # Errors
    /// [`Error::Cancelled`] while it waits; [`Error::Closed`] after [`Executor::close`]; what ended the task, if it has
    /// ended.
    pub fn submit(&self, request: T::Request, cancel: &Cancel) -> Result<Handle<T::Output>> {
        let (mut job, handle) = self.job(request, cancel);
        loop {
            let queue = self.open_queue()?;
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            match queue.send_timeout(job, PATIENCE) {
                Ok(()) => return Ok(handle),
                Err(SendTimeoutError::Timeout(back)) => job = back,
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.failure.error(T::NAME)),
            }
        }
    }

    /// Submits a request if the queue has room for it.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; otherwise as [`Executor::submit`].
    pub fn try_submit(&self, request: T::Request, cancel: &Cancel) -> Result<Handle<T::Output>> {
        let (job, handle) = self.job(request, cancel);
        match self.open_queue()?.try_send(job) {
            Ok(()) => Ok(handle),
            Err(TrySendError::Full(_)) => Err(Error::QueueFull { capacity: self.capacity }),
            Err(TrySendError::Disconnected(_)) => Err(self.failure.error(T::NAME)),
        }
    }

    fn job(&self, request: T::Request, cancel: &Cancel) -> (Job<T>, Handle<T::Output>) {
        let (reply, handle) = handle::pair(T::NAME, cancel, &self.failure);
        (Job { request, reply }, handle)
    }

    fn open_queue(&self) -> Result<Sender<Job<T>>> {
        if self.failure.is_set() {
            return Err(self.failure.error(T::NAME));
        }
        self.queue.lock().clone().ok_or(Error::Closed)
    }

    /// Takes no more requests. Those that were accepted are finished.
    pub fn close(&self) {
        *self.queue.lock() = None;
    }

    /// Takes no more requests, finishes those that were accepted, and returns when all threads have ended.
    ///
    /// # Errors
    /// What ended the task before, if anything did.
    pub fn shutdown(mut self) -> Result<()> {
        self.join();
        if self.failure.is_set() { Err(self.failure.error(T::NAME)) } else { Ok(()) }
    }

    fn join(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            // A panic has become the failure.
            let _ = thread.join();
        }
    }
}

impl<T: Task> Drop for Executor<T> {
    fn drop(&mut self) {
        self.join();
    }
}

/// The thread of an executor.
fn serve<T: Task>(task: &T, intake: Intake<T>) {
    let error = match catch_unwind(AssertUnwindSafe(|| task.serve(&intake))) {
        Ok(Ok(())) if intake.is_closed() => return,
        Ok(Ok(())) | Err(_) => Error::Internal(T::NAME.into()),
        Ok(Err(error)) => error,
    };
    intake.failure().set(error);
    intake.refuse_the_rest();
}

#[cfg(test)]
mod tests;
