//! A submitted request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tileforge_runtime::host::{Handle, Progress};

use crate::error::{Error, Result};

/// A submitted request: wait for it, or await it as a [`Future`] on any async runtime. Dropping it does not end the
/// request.
pub struct Request<T>(Box<dyn Waiting<T>>);

impl<T> std::fmt::Debug for Request<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Request").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl<T: 'static> Request<T> {
    /// A request whose result `finish` makes from the task's output.
    pub(crate) fn new<O: Send + 'static>(
        handle: Handle<O>,
        finish: impl FnOnce(O) -> Result<T> + Send + 'static,
    ) -> Self {
        Self(Box::new(Finishing { handle, finish: Some(Box::new(finish)) }))
    }
}

impl<T: 'static> Request<T> {
    /// The same request with a converted result.
    pub fn map<U: 'static>(self, change: impl FnOnce(T) -> Result<U> + Send + 'static) -> Request<U> {
        Request(Box::new(Changing { request: self.0, change: Some(Box::new(change)) }))
    }
}

impl<T> Request<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// Why the request failed; its [kind](Error::kind) tells what the caller can do.
    pub fn wait(mut self) -> Result<T> {
        loop {
            if let Some(result) = self.0.wait_for(Duration::from_secs(3600)) {
                return result;
            }
        }
    }

    /// Waits for the result for at most `patience`; `None` if there is none by then.
    pub fn wait_for(&mut self, patience: Duration) -> Option<Result<T>> {
        self.0.wait_for(patience)
    }

    /// The request's progress: tiles, steps or parts.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// How many requests are ahead of it; `None` once its turn has come.
    pub fn queue_position(&self) -> Option<usize> {
        self.0.queue_position()
    }

    /// Ends the request. The result is available at once; a run in progress ends after the current node.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl<T> Future for Request<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.0.poll(context)
    }
}

/// A handle with a converted output.
trait Waiting<T>: Send {
    fn wait_for(&mut self, patience: Duration) -> Option<Result<T>>;
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>>;
    fn progress(&self) -> Progress;
    fn queue_position(&self) -> Option<usize>;
    fn cancel(&self);
}

type Finish<O, T> = Box<dyn FnOnce(O) -> Result<T> + Send>;

struct Finishing<O, T> {
    handle: Handle<O>,
    /// Until there is a result.
    finish: Option<Finish<O, T>>,
}

impl<O, T> Finishing<O, T> {
    fn finished(&mut self, result: tileforge_runtime::Result<O>) -> Result<T> {
        let finish = self.finish.take().ok_or(Error::Runtime(tileforge_runtime::Error::Taken))?;
        finish(result?)
    }
}

impl<O: Send, T> Waiting<T> for Finishing<O, T> {
    fn wait_for(&mut self, patience: Duration) -> Option<Result<T>> {
        if self.finish.is_none() {
            return Some(Err(Error::Runtime(tileforge_runtime::Error::Taken)));
        }
        let result = self.handle.wait_for(patience)?;
        Some(self.finished(result))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.handle).poll(context).map(|result| self.finished(result))
    }

    fn progress(&self) -> Progress {
        self.handle.progress()
    }

    fn queue_position(&self) -> Option<usize> {
        self.handle.queue_position()
    }

    fn cancel(&self) {
        self.handle.cancel();
    }
}

/// A request with a converted result.
struct Changing<T, U> {
    request: Box<dyn Waiting<T>>,
    /// Until there is a result.
    change: Option<Finish<T, U>>,
}

impl<T, U> Changing<T, U> {
    fn changed(&mut self, result: Result<T>) -> Result<U> {
        let change = self.change.take().ok_or(Error::Runtime(tileforge_runtime::Error::Taken))?;
        change(result?)
    }
}

impl<T, U> Waiting<U> for Changing<T, U> {
    fn wait_for(&mut self, patience: Duration) -> Option<Result<U>> {
        let result = self.request.wait_for(patience)?;
        Some(self.changed(result))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<U>> {
        self.request.poll(context).map(|result| self.changed(result))
    }

    fn progress(&self) -> Progress {
        self.request.progress()
    }

    fn queue_position(&self) -> Option<usize> {
        self.request.queue_position()
    }

    fn cancel(&self) {
        self.request.cancel();
    }
}
