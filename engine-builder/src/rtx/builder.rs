//! Building plans, each in a process of its own.

use super::process::{Answer, Figures, Job};
use super::system::ended_by_system;
use crate::{Error, Result};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use tileforge_session::onnxruntime;
use tileforge_tensorrt::{
    BuildOptions, ComputeCapability, Error as PlanError, Library, LibraryVersion, PlanHeader, Progress,
};

/// The command line with which a program starts itself to call [`serve_plan`](super::serve_plan) and nothing else.
#[derive(Debug, Clone)]
pub struct PlanProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The folder of the builder's library, if the user named one; otherwise it is beside ONNX Runtime's library.
    pub library: Option<PathBuf>,
}

/// NVIDIA's builder for RTX GPUs.
#[derive(Debug, Clone)]
pub struct PlanBuilder {
    program: PlanProgram,
    library: PathBuf,
    release: LibraryVersion,
}

/// Time, memory and size of one graph's plan. Times and memory differ from build to build, so they are not part of an
/// engine.
#[derive(Debug, Clone, Serialize)]
pub struct PlanReport {
    /// The graph's file.
    pub graph: String,
    /// Seconds that NVIDIA's builder took.
    pub seconds: f64,
    /// The peak memory of its process in bytes, if the system reports it.
    pub peak_bytes: Option<u64>,
    /// Layers before the builder fused any.
    pub layers: usize,
    /// Bytes of the plan.
    pub bytes: u64,
    /// The builder's warnings.
    pub messages: Vec<String>,
    /// Whether another build gives the same bytes. That needs a system call that some containers do not allow.
    pub repeatable: bool,
}

impl PlanBuilder {
    /// The builder whose library the program names, or else the one beside ONNX Runtime's library.
    ///
    /// # Errors
    /// As [`PlanBuilder::new`]; also if another user could change the library, and the user did not name its folder.
    pub fn beside(onnxruntime: &onnxruntime::Library, program: &PlanProgram) -> tileforge_tensorrt::Result<Self> {
        if let Some(library) = &program.library {
            return Self::new(program, library);
        }
        let path = onnxruntime.path();
        for file in Library::FILES {
            onnxruntime
                .beside(file)
                .map_err(|reason| PlanError::LibraryUnusable { path: path.with_file_name(file), reason })?;
        }
        Self::new(program, path.parent().unwrap_or(Path::new("")))
    }

    /// The builder whose library is in `library`.
    ///
    /// # Errors
    /// The bindings are not compiled in, or there is no library of the expected release.
    pub fn new(program: &PlanProgram, library: &Path) -> tileforge_tensorrt::Result<Self> {
        let release = Library::release_in(library)?;
        Ok(PlanBuilder { program: program.clone(), library: library.to_owned(), release })
    }

    /// The library's release. Its plans run only with the same release.
    pub fn release(&self) -> LibraryVersion {
        self.release
    }

    /// Builds the plan of the graph in the file `graph` for the given GPUs and writes it to `plan`. `name` stands for
    /// the graph in errors. `progress` may end the build.
    ///
    /// # Errors
    /// [`Error::Plan`] if the builder refuses the graph; [`Error::PlanProcess`] if its process fails.
    pub fn build(
        &self,
        graph: &Path,
        name: &str,
        capabilities: &[ComputeCapability],
        options: &BuildOptions,
        plan: &Path,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<PlanReport> {
        let failed = |reason: String| Error::PlanProcess { graph: name.to_owned(), reason };
        let job = Job {
            parent: std::process::id(),
            library: self.library.clone(),
            graph: graph.to_owned(),
            plan: plan.to_owned(),
            capabilities: capabilities.to_vec(),
            options: options.clone(),
        };
        let mut job = serde_json::to_vec(&job).map_err(|error| failed(error.to_string()))?;
        job.push(b'\n');
        let spawned = Command::new(&self.program.program)
            .args(&self.program.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Process(spawned.map_err(|error| failed(format!("it cannot be started: {error}")))?);
        let pipes = (process.0.stdin.take(), process.0.stdout.take(), process.0.stderr.take());
        let (Some(mut input), Some(output), Some(mut errors)) = pipes else {
            return Err(failed("it has no pipes".into()));
        };
        let talk = thread::spawn(move || {
            let mut text = Vec::new();
            // The text that could be read is shown; a read error is not an error of the build.
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        // If the process has already ended, its other pipes have the reason.
        let _ = input.write_all(&job);
        drop(input);
        let mut last = None;
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| failed(error.to_string()))?;
            match serde_json::from_str(&line) {
                Ok(Answer::Progress(step)) => {
                    if progress(&step).is_break() {
                        return Err(Error::Plan(tileforge_tensorrt::Error::Cancelled));
                    }
                }
                Ok(answer) => last = Some(answer),
                // The library itself may print lines.
                Err(_) => tracing::debug!("{name}: {line}"),
            }
        }
        let status = process.0.wait().map_err(|error| failed(error.to_string()))?;
        match last {
            Some(Answer::Built(figures)) => report(name, &figures, plan, capabilities),
            Some(Answer::Failed(error)) => Err(Error::Plan(named(error, name))),
            Some(Answer::Unwritable(reason)) => Err(failed(format!("the plan cannot be written: {reason}"))),
            Some(Answer::Progress(_)) | None => Err(failed(ended(status, &talk.join().unwrap_or_default()))),
        }
    }
}

/// Checks the written plan against the figures of the builder, because this process cannot open the plan itself.
fn report(name: &str, figures: &Figures, plan: &Path, capabilities: &[ComputeCapability]) -> Result<PlanReport> {
    let read = || -> std::io::Result<(Vec<u8>, u64)> {
        let file = std::fs::File::open(plan)?;
        let length = file.metadata()?.len();
        let mut head = Vec::new();
        file.take(PlanHeader::LENGTH as u64).read_to_end(&mut head)?;
        Ok((head, length))
    };
    let (head, length) = read().map_err(|source| Error::file(plan, "read", source))?;
    let header = PlanHeader::read(&head).map_err(Error::Plan)?;
    if header.version != figures.release || header.capabilities != capabilities || length != figures.bytes {
        let reason = format!(
            "expected a plan of {} bytes by release {} for {capabilities:?}, found {length} bytes by {} for {:?}",
            figures.bytes, figures.release, header.version, header.capabilities
        );
        return Err(Error::PlanProcess { graph: name.to_owned(), reason });
    }
    Ok(PlanReport {
        graph: name.to_owned(),
        seconds: figures.seconds,
        peak_bytes: figures.peak_bytes,
        layers: figures.layers,
        bytes: figures.bytes,
        messages: figures.messages.iter().map(|message| message.text.clone()).collect(),
        repeatable: figures.repeatable,
    })
}

/// The error with the graph's name instead of the path of its temporary file.
fn named(mut error: tileforge_tensorrt::Error, name: &str) -> tileforge_tensorrt::Error {
    use tileforge_tensorrt::Error::{Parse, Precision, Refused};
    if let Parse { graph, .. } | Refused { graph, .. } | Precision { graph, .. } = &mut error {
        *graph = name.into();
    }
    error
}

/// Why a process ended without an answer.
fn ended(status: ExitStatus, talk: &str) -> String {
    let how = ended_by_system(status).unwrap_or_else(|| format!("it ended without an answer ({status})"));
    let lines: Vec<&str> = talk.lines().rev().take(SHOWN_LINES).collect();
    let last: String = lines.into_iter().rev().map(|line| format!("\n  {line}")).collect();
    how + &last
}

/// The number of lines that an error shows of a failed process's messages.
const SHOWN_LINES: usize = 5;

/// A child process that is killed when this value is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended; otherwise its answer is no longer needed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_fails_is_an_error_with_its_last_words() {
        let run = |script: &str| {
            let program = PlanProgram {
                program: "/bin/sh".into(),
                arguments: ["-c", script].map(Into::into).into(),
                library: None,
            };
            let builder = PlanBuilder { program, library: "lib".into(), release: LibraryVersion::EXPECTED };
            let plan = Path::new("/nowhere/a.plan");
            builder
                .build(Path::new("a.onnx"), "model.onnx", &[], &BuildOptions::default(), plan, &mut |_| {
                    ControlFlow::Continue(())
                })
                .unwrap_err()
                .to_string()
        };
        let killed = run("kill -9 $$");
        assert!(killed.contains("model.onnx") && killed.contains("memory is short"), "{killed}");
        let crashed = run("echo 'terminate called' >&2; kill -SEGV $$");
        assert!(crashed.contains("signal 11") && crashed.contains("terminate called"), "{crashed}");
        let silent = run("exit 3");
        assert!(silent.contains("without an answer"), "{silent}");
        let full = run(r#"echo '{"unwritable":"No space left on device"}'"#);
        assert!(full.contains("the plan cannot be written: No space left"), "{full}");
        let refused = run(r#"echo noise; echo '{"failed":{"Options":"impossible"}}'"#);
        assert!(refused.contains("impossible"), "{refused}");
    }
}
