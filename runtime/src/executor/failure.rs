//! What ends a task, and how its threads end together.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Scope};

use crossbeam_channel::{Receiver, RecvError, SendError, Sender, bounded, select};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// What ended a task: the first error counts. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    error: OnceLock<Arc<Error>>,
    /// Until there is an error.
    calm: Mutex<Option<Sender<Infallible>>>,
    /// Closed once there is an error: whoever waits for something else, too, wakes up.
    alarm: Receiver<Infallible>,
}

impl Default for Failure {
    fn default() -> Self {
        let (calm, alarm) = bounded(0);
        Self(Arc::new(Shared { error: OnceLock::new(), calm: Mutex::new(Some(calm)), alarm }))
    }
}

/// A stage ends because a neighbour has: the channel between them is closed.
#[derive(Debug)]
pub(crate) struct Closed;

impl<T> From<SendError<T>> for Closed {
    fn from(_: SendError<T>) -> Self {
        Self
    }
}

impl From<RecvError> for Closed {
    fn from(_: RecvError) -> Self {
        Self
    }
}

/// What a stage comes to. Errors of single requests are no errors of the stage.
pub(crate) type StageResult<T> = Result<T, Closed>;

impl Failure {
    /// Ends the task with an error.
    pub(crate) fn set(&self, error: Error) {
        self.0.error.get_or_init(|| Arc::new(error));
        *self.0.calm.lock() = None;
    }

    /// Whether the task has ended.
    pub(crate) fn is_set(&self) -> bool {
        self.0.error.get().is_some()
    }

    /// What ended the task.
    pub(crate) fn error(&self, task: &str) -> Error {
        self.0.error.get().map_or_else(|| Error::Internal(task.into()), |error| Error::Shared(error.clone()))
    }

    /// A channel that is closed once the task has ended.
    pub(crate) fn alarm(&self) -> &Receiver<Infallible> {
        &self.0.alarm
    }

    /// Sends, unless the task ends before there is room. A message that waits in a channel keeps what it holds, even if
    /// its reader is gone, so that nobody may rely on that.
    pub(crate) fn send<T>(&self, to: &Sender<T>, message: T) -> StageResult<()> {
        select! {
            send(to, message) -> sent => Ok(sent?),
            recv(self.0.alarm) -> _ => Err(Closed),
        }
    }

    /// Starts a stage on a thread of its name. One that the system does not give ends the task.
    pub(crate) fn spawn<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        name: &'static str,
        stage: impl FnOnce() + Send + 'scope,
    ) {
        if let Err(source) = thread::Builder::new().name(name.into()).spawn_scoped(scope, stage) {
            self.set(Error::Thread { name, source });
        }
    }

    /// Runs a stage, which should borrow its channels: they have to be open until a panic has been noted here, so that
    /// neighbours that notice the closed channels find the reason.
    pub(crate) fn watch(&self, stage: &str, work: impl FnOnce() -> StageResult<()>) {
        struct Watched<'f>(&'f Failure, &'f str);
        impl Drop for Watched<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.set(Error::Internal(self.1.into()));
                }
            }
        }
        let _watched = Watched(self, stage);
        if let Err(Closed) = work() {
            // The neighbour has told why, unless that is a defect.
            self.set(Error::Internal(stage.into()));
        }
    }
}
