//! How a command ends its program.

use std::process::ExitCode;

use crate::exit::Exit;
use crate::output::report_error;
use crate::signals::wait_if_stopping;

/// Why a command failed, as its program describes it.
pub trait Failure {
    /// The exit code.
    fn exit(&self) -> Exit;

    /// The message for the user. `None`: no message, because it would have no reader.
    fn text(&self) -> Option<String>;
}

/// Reports a failure on standard error, and returns the program's exit code.
pub fn end<F: Failure>(result: Result<(), F>) -> ExitCode {
    wait_if_stopping();
    let Err(failure) = result else { return Exit::Done.into() };
    if let Some(text) = failure.text() {
        report_error(&text);
    }
    failure.exit().into()
}
