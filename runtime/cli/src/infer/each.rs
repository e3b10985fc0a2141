//! Submits one request for each picture in order, and collects the results.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use tileforge_runtime::host::{Cancel, Service, Task, Terms};
use tileforge_runtime::{Error, Result};
use tileforge_session::{Environment, Location, peak_memory_bytes};
use tileforge_terminal::{PrintError, Progress, Unit, print, report_error};

use super::super::failure::{CommandResult, Failure, error_text};
use super::arguments::Arguments;
use super::made_of::made_of;
use super::plan::Assignment;
use super::record::Record;
use super::reporter::say;

/// What a command does with its pictures.
pub(super) struct Each<'e> {
    pub(super) arguments: &'e Arguments,
    pub(super) assignments: &'e [Assignment],
    /// How many pictures were requested, including those that are left out.
    pub(super) all: usize,
    pub(super) cancel: &'e Cancel,
    pub(super) fail_fast: bool,
    /// Results are printed together at the end.
    pub(super) json: bool,
    /// The record of finished outputs.
    pub(super) record: Option<RefCell<Record>>,
}

/// The results of all pictures.
pub(super) struct Heard {
    /// An object for each picture, with `error` where it failed.
    pub(super) files: Vec<Value>,
    failures: Vec<Error>,
    all: usize,
    left: usize,
}

impl Each<'_> {
    /// Submits a request for each picture, a few ahead of those that are served, and prints a line for each result.
    ///
    /// # Errors
    /// The user stopped it, or nothing can be printed.
    pub(super) fn run<T: Task>(
        &self,
        service: &Service<T>,
        ahead: usize,
        request: impl Fn(usize) -> T::Request,
        line: impl Fn(&T::Output) -> String,
        object: impl Fn(&T::Output) -> Value,
    ) -> Result<Heard, Failure> {
        let progress = if self.assignments.len() > 1 { Progress::new() } else { Progress::on_terminal() };
        progress.begin("infer", Some(self.assignments.len() as u64), Unit::Count("pictures"));
        // Pictures of one command may share a run on every device.
        let terms = || Terms { allows_rounding: true, ..self.cancel.into() };
        let (mut submitted, mut next) = (VecDeque::new(), 0);
        let mut heard = Heard { files: Vec::new(), failures: Vec::new(), all: self.all, left: 0 };
        loop {
            let stopped = self.fail_fast && !heard.failures.is_empty();
            while !stopped && next < self.assignments.len() && submitted.len() <= ahead {
                submitted.push_back((next, service.submit(request(next), terms())?));
                next += 1;
            }
            let Some((owner, handle)) = submitted.pop_front() else { break };
            let assignment = &self.assignments[owner];
            let Assignment { input, output } = assignment;
            progress.rename(&input.file_name().unwrap_or_default().to_string_lossy());
            match handle.wait() {
                Ok(made) => {
                    if let Some(record) = &self.record {
                        let inputs = made_of(input, self.arguments);
                        record.borrow_mut().add(output, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>());
                    }
                    if !self.json {
                        let text = format!("{} → {}: {}", input.display(), output.display(), line(&made));
                        progress.suspend(|| print(&text))?;
                    }
                    heard.files.push(assignment.to_json(object(&made)));
                }
                Err(error) if matches!(error.root(), Error::Cancelled) && self.cancel.is_cancelled() => {
                    return Err(error.into());
                }
                Err(error) => {
                    let text = error_text(&error);
                    if self.all > 1 {
                        progress.suspend(|| report_error(&format!("{}: {text}", input.display())));
                    }
                    heard.files.push(assignment.to_json(json!({ "error": text })));
                    heard.failures.push(error);
                }
            }
            progress.add(1);
        }
        progress.finish();
        heard.left = self.assignments.len() - heard.files.len();
        Ok(heard)
    }

    /// Prints the object of `--json`: the engine's name and placement, each file, and the number of failures.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(super) fn report(
        &self,
        (engine, placed): (&str, Location<'_>),
        environment: &Environment,
        (files, failed): (&[Value], usize),
        started: Instant,
    ) -> Result<(), PrintError> {
        if !self.json {
            return Ok(());
        }
        let everything = json!({
            "provider": placed.provider,
            "verdict": placed.verdict,
            "engine": engine,
            "onnxruntime": environment.library().version(),
            "files": files,
            "skipped": self.all - self.assignments.len(),
            "failed": failed,
            "peak_memory_bytes": peak_memory_bytes(),
            "session_seconds": placed.opening.as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        say(self.arguments.output(), &format!("{everything:#}"))
    }
}

impl Heard {
    pub(super) fn failed(&self) -> usize {
        self.failures.len()
    }

    /// How the command ends.
    pub(super) fn result(mut self) -> CommandResult {
        match (self.failures.len(), self.all) {
            (0, _) => Ok(()),
            (1, 1) => Err(self.failures.remove(0).into()),
            (failed, all) => {
                let left = if self.left > 0 { format!(", {} were not finished", self.left) } else { String::new() };
                Err(Failure::Partly(format!("{failed} of {all} pictures failed{left}; see above")))
            }
        }
    }
}
