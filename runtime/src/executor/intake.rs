//! The task's end of the queue.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError, after, never, select};

use super::Task;
use super::failure::Failure;
use super::handle::Reply;

/// A request, and where it is answered.
pub struct Job<T: Task + ?Sized> {
    /// What is asked for.
    pub request: T::Request,
    /// Where the task answers.
    pub reply: Reply<T::Output>,
}

/// What an [`Intake`] has next.
pub enum Next<T: Task + ?Sized> {
    /// A request.
    Request(Job<T>),
    /// Nothing came in the time that was given.
    NotYet,
    /// Nothing will come any more, or the task has ended.
    Closed,
}

/// Where a task takes requests from, in the order in which they were submitted.
pub struct Intake<T: Task + ?Sized> {
    queue: Receiver<Job<T>>,
    failure: Failure,
}

impl<T: Task + ?Sized> Intake<T> {
    pub(super) fn new(queue: Receiver<Job<T>>, failure: Failure) -> Self {
        Self { queue, failure }
    }

    /// Waits for the next request.
    pub fn wait(&self) -> Next<T> {
        self.next(&never())
    }

    /// Waits for the next request, no longer than this.
    pub fn wait_for(&self, patience: Duration) -> Next<T> {
        self.next(&after(patience))
    }

    fn next(&self, patience: &Receiver<Instant>) -> Next<T> {
        select! {
            recv(self.queue) -> job => job.map_or(Next::Closed, Next::Request),
            recv(self.failure.alarm()) -> _ => Next::Closed,
            recv(patience) -> _ => Next::NotYet,
        }
    }

    /// Answers with the failure whatever is still submitted, until nobody can submit any more.
    pub(super) fn refuse_the_rest(self) {
        // A reply that is dropped tells the failure.
        self.queue.iter().for_each(drop);
    }

    /// What ends the task, to be set by its threads.
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Nothing will come any more.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.queue.try_recv(), Err(TryRecvError::Disconnected))
    }
}
