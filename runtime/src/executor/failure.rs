//! What ends a task, and how its threads end together.

use std::sync::{Arc, OnceLock};
use std::thread::{self, Scope};

use crossbeam_channel::{RecvError, SendError};

use crate::error::{Error, Result};

/// What ended a task: the first error counts. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure(Arc<OnceLock<Arc<Error>>>);

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
        self.0.get_or_init(|| Arc::new(error));
    }

    /// Whether the task has ended.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// What ended the task.
    pub(crate) fn error(&self, task: &str) -> Error {
        self.0.get().map_or_else(|| Error::Internal(task.into()), |error| Error::Shared(error.clone()))
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
