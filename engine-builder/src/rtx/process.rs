//! The process that builds one plan.
//!
//! NVIDIA's builder runs in a process of its own for each plan:
//! - The library cannot build two plans at the same time in one process.
//! - Where the builder may choose an order, release 1.7.1 uses the order of addresses in memory. Without address space
//!   randomisation, the same graph gives the same bytes.
//! - A crash of the builder, or the system's reaction to too little memory, ends only that process.
//!
//! The program starts itself for that. The job comes on standard input, and the answers are lines of JSON on standard
//! output.

use super::system::{end_with_parent, fix_addresses};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tileforge_tensorrt::{BuildOptions, ComputeCapability, Library, LibraryVersion, Message, Progress};

/// The plan to build.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The process that started this one. The builder ends with it.
    pub(super) parent: u32,
    /// The folder of the library.
    pub(super) library: PathBuf,
    /// The graph's file.
    pub(super) graph: PathBuf,
    /// The path of the plan.
    pub(super) plan: PathBuf,
    pub(super) capabilities: Vec<ComputeCapability>,
    pub(super) options: BuildOptions,
}

/// One line of the process's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// A step of the builder.
    Progress(Progress),
    /// The plan is in its file. The last line.
    Built(Figures),
    /// The builder refuses the graph. The last line.
    Failed(tileforge_tensorrt::Error),
    /// The plan cannot be written. The last line.
    Unwritable(String),
}

/// Time, memory and size of a plan.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) release: LibraryVersion,
    pub(super) layers: usize,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) peak_bytes: Option<u64>,
    pub(super) messages: Vec<Message>,
    /// Whether address space randomisation is off, so that another build gives the same bytes.
    pub(super) repeatable: bool,
}

/// Builds the plan that standard input describes. This is all that a process of a [`PlanBuilder`](super::PlanBuilder)
/// does.
///
/// # Errors
/// Standard input holds no job, or standard output is closed. All other errors are answers.
pub fn serve_plan() -> Result<()> {
    let asked = |source| Error::file(Path::new("standard input"), "take a plan's description", source);
    let (repeatable, job) = take_job().map_err(asked)?;
    let answer = match build(&job) {
        Ok(Ok(figures)) => Answer::Built(Figures { repeatable, ..figures }),
        Ok(Err(error)) => Answer::Unwritable(error.to_string()),
        Err(error) => Answer::Failed(error),
    };
    tell(&answer).map_err(|source| Error::file(Path::new("standard output"), "answer", source))
}

/// The job, and whether address space randomisation is off. From here on, the process ends with its parent.
fn take_job() -> io::Result<(bool, Job)> {
    let repeatable = fix_addresses()?;
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text)?;
    let job: Job = serde_json::from_str(&text)?;
    // If the parent is killed, this process must not continue for minutes.
    end_with_parent(job.parent)?;
    Ok((repeatable, job))
}

fn build(job: &Job) -> tileforge_tensorrt::Result<io::Result<Figures>> {
    let library = Library::load(&job.library)?;
    let started = Instant::now();
    let plan = library.build(&job.graph, &job.capabilities, &job.options, &mut |progress| {
        match tell(&Answer::Progress(progress.clone())) {
            Ok(()) => ControlFlow::Continue(()),
            // Standard output is closed: the parent has ended.
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let figures = || Figures {
        release: library.version(),
        layers: plan.layers(),
        bytes: plan.bytes().len() as u64,
        seconds,
        peak_bytes: tileforge_session::peak_memory_bytes(),
        messages: plan.messages().to_vec(),
        repeatable: false,
    };
    Ok(fs::write(&job.plan, plan.bytes()).map(|()| figures()))
}

fn tell(answer: &Answer) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, answer)?;
    output.write_all(b"\n")?;
    output.flush()
}
