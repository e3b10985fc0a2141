//! How a command ends its program.

use std::process::ExitCode;

use crate::exit::Exit;
use crate::output::report_error;
use crate::signals::wait_if_stopping;

/// Why a command failed, in the words of its program.
pub trait Failure {
    /// The exit code.
    fn exit(&self) -> Exit;

    /// What to tell the user. `None`: nothing, because nobody reads any more.
    fn text(&self) -> Option<String>;
}

/// Reports a failure on standard error, and gives the exit code of the program.
pub fn end<F: Failure>(result: Result<(), F>) -> ExitCode {
    wait_if_stopping();
    let Err(failure) = result else { return Exit::Done.into() };
    if let Some(text) = failure.text() {
        report_error(&text);
    }
    failure.exit().into()
}
