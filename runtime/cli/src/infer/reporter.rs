//! Reports progress and results to the user.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tileforge_image::frames::FrameWriter;
use tileforge_runtime::host::{Cancel, Handle};
use tileforge_runtime::upscale::UpscaleStatistics;
use tileforge_runtime::{Error, Result};
use tileforge_terminal::{PrintError, Progress, Unit, counted, print, print_beside, report_error};

use super::super::failure::error_text;
use super::arguments::Arguments;
use super::feed::Item;
use super::frames::added;
use super::kind::{has_frames, is_standard_stream};
use super::made_of::made_of;
use super::plan::Assignment;
use super::record::Record;

/// How often the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);

/// Reports progress and results to the user.
pub(super) struct Reporter<'t> {
    arguments: &'t Arguments,
    assignments: &'t [Assignment],
    /// How many pictures were requested, including those that are left out.
    all: usize,
    cancel: &'t Cancel,
    progress: Progress,
    /// One bar for all of several pictures, instead of one for the tiles of each.
    together: bool,
    /// The record of finished outputs.
    record: Option<RefCell<Record>>,
    /// The result of each assignment.
    files: BTreeMap<usize, Value>,
    /// Streams so far: when they began, and their frames together.
    streams: BTreeMap<usize, (Instant, Option<(UpscaleStatistics, u64)>)>,
    failures: Vec<Error>,
    /// A failure has ended everything.
    pub(super) stopped: bool,
    /// A picture was stopped by the user.
    pub(super) cancelled: bool,
    /// Why results cannot be printed.
    pub(super) unprinted: Option<PrintError>,
}

impl<'t> Reporter<'t> {
    pub(super) fn new(
        arguments: &'t Arguments,
        assignments: &'t [Assignment],
        all: usize,
        cancel: &'t Cancel,
        record: Option<RefCell<Record>>,
    ) -> Self {
        let together = assignments.len() > 1;
        let has_film = assignments.iter().any(|pair| has_frames(&pair.input, arguments.raw));
        // A single picture needs a bar only on a terminal; many pictures, or a film, take longer.
        let progress = if together || has_film { Progress::new() } else { Progress::on_terminal() };
        if together {
            progress.begin("infer", Some(assignments.len() as u64), Unit::Count("pictures"));
        }
        Self {
            arguments,
            assignments,
            all,
            cancel,
            progress,
            together,
            record,
            files: BTreeMap::new(),
            streams: BTreeMap::new(),
            failures: Vec::new(),
            stopped: false,
            cancelled: false,
            unprinted: None,
        }
    }

    /// Waits for a submitted item, and reports its result.
    pub(super) fn report(&mut self, item: Item) {
        match item {
            Item::Picture(owner, handle) => {
                match self.wait(owner, &handle) {
                    Ok(statistics) => self.made(owner, &statistics, 1),
                    Err(error) => self.failed(owner, error),
                }
                self.one_more();
            }
            Item::Begun(owner, frames) => self.begin_stream(owner, frames),
            Item::Frame(owner, handle, unwanted) => {
                self.streams.entry(owner).or_insert_with(|| (Instant::now(), None));
                if self.files.contains_key(&owner) {
                    // Report only the first failure of a stream; later frames fail because of it.
                    handle.cancel();
                    return;
                }
                match self.wait(owner, &handle) {
                    Ok(statistics) => self.add(owner, statistics),
                    Err(error) => {
                        unwanted.store(true, Ordering::SeqCst);
                        self.failed(owner, error);
                    }
                }
            }
            Item::Repeated(owner) => self.count(owner),
            Item::Broken(owner, error) => {
                self.failed(owner, error);
                self.one_more();
            }
            Item::Ended(owner, writer) => {
                self.end_stream(owner, writer);
                self.one_more();
            }
        }
    }

    /// The result, with a bar until it is there.
    fn wait(&self, owner: usize, handle: &Handle<UpscaleStatistics>) -> Result<UpscaleStatistics> {
        let mut begun = None;
        let is_frame = self.streams.contains_key(&owner);
        let name = self.name_of(owner);
        loop {
            if let Some(result) = handle.wait_for(TICK) {
                return result;
            }
            let now = handle.progress();
            // A film counts its frames.
            let Some(tiles) = now.total.filter(|_| !is_frame) else { continue };
            if self.together {
                self.progress.rename(&format!("{name} (tile {} of {tiles})", now.done.saturating_add(1).min(tiles)));
                continue;
            }
            if begun != now.total {
                begun = now.total;
                self.progress.begin(name.clone(), now.total, Unit::Count("tiles"));
            }
            self.progress.set(now.done);
        }
    }

    fn name_of(&self, owner: usize) -> String {
        self.assignments[owner].input.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// One more of several pictures is done.
    fn one_more(&self) {
        if self.together {
            self.progress.add(1);
        }
    }

    fn begin_stream(&mut self, owner: usize, frames: Option<u64>) {
        self.streams.entry(owner).or_insert_with(|| (Instant::now(), None));
        if self.together {
            self.progress.rename(&self.name_of(owner));
        } else {
            self.progress.begin(self.name_of(owner), frames, Unit::Rate("frames"));
        }
    }

    /// Adds a frame to its stream.
    fn add(&mut self, owner: usize, statistics: UpscaleStatistics) {
        let Some((begun, sum)) = self.streams.get_mut(&owner) else { return };
        let elapsed = begun.elapsed().as_secs_f64();
        *sum = Some(match sum.take() {
            Some((sum, frames)) => (added(sum, &statistics, elapsed), frames),
            None => (statistics, 0),
        });
        self.count(owner);
    }

    /// Counts a frame of its stream.
    fn count(&mut self, owner: usize) {
        let Some((begun, Some((_, frames)))) = self.streams.get_mut(&owner) else { return };
        *frames += 1;
        let (frames, seconds) = (*frames, begun.elapsed().as_secs_f64());
        if self.together {
            let rate = frames as f64 / seconds;
            self.progress.rename(&format!("{} (frame {frames}, {rate:.1} a second)", self.name_of(owner)));
        } else {
            self.progress.set(frames);
        }
    }

    fn made(&mut self, owner: usize, statistics: &UpscaleStatistics, frames: u64) {
        let assignment = &self.assignments[owner];
        if let Some(record) = &self.record {
            let inputs = made_of(&assignment.input, self.arguments);
            record.borrow_mut().add(&assignment.output, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        }
        let line = || say(self.arguments.output(), &line(assignment, statistics, frames));
        if !self.arguments.json
            && let Err(error) = self.progress.suspend(line)
        {
            self.unprinted = Some(error);
            self.cancel.cancel();
        }
        self.files.insert(owner, entry(assignment, statistics, frames));
    }

    fn failed(&mut self, owner: usize, error: Error) {
        if matches!(error.root(), Error::Cancelled) && self.cancel.is_cancelled() {
            self.cancelled = true;
            return;
        }
        if self.files.contains_key(&owner) {
            return;
        }
        let Assignment { input, output } = &self.assignments[owner];
        let text = error_text(&error);
        if self.all > 1 {
            self.progress.suspend(|| report_error(&text));
        }
        self.files.insert(owner, json!({ "input": name(input), "output": name(output), "error": text }));
        self.failures.push(error);
        if self.arguments.fail_fast {
            self.stopped = true;
            self.cancel.cancel();
        }
    }

    /// Finishes a stream after its last frame: its output gets its name.
    fn end_stream(&mut self, owner: usize, writer: FrameWriter) {
        let sum = self.streams.remove(&owner).and_then(|(_, sum)| sum);
        let Some((sum, frames)) = sum.filter(|_| !self.cancelled && !self.files.contains_key(&owner)) else { return };
        match writer.finish() {
            Ok(()) => self.made(owner, &sum, frames),
            Err(error) => self.failed(owner, error.into()),
        }
    }

    /// Ends the bar, and returns the results in the order of assignments, and the failures.
    pub(super) fn finish(self) -> (Vec<Value>, Vec<Error>) {
        self.progress.finish();
        (self.files.into_values().collect(), self.failures)
    }
}

/// Prints a result; on standard error where standard output is for frames.
pub(crate) fn say(output: Option<&Path>, text: &str) -> Result<(), PrintError> {
    if output.is_some_and(is_standard_stream) { print_beside(text) } else { print(text) }
}

fn line(assignment: &Assignment, statistics: &UpscaleStatistics, frames: u64) -> String {
    let UpscaleStatistics { size, tiles, tile, overlap, exact, seconds, assigned, .. } = statistics;
    // A picture in one tile has nothing that overlaps.
    let overlap = if *tiles > frames { format!("overlap {}, ", overlap.pixels) } else { String::new() };
    let exact = if *exact { "exact" } else { "not exact" };
    let provider = assigned.first().map_or("none", |assigned| assigned.provider.trim_end_matches("ExecutionProvider"));
    let frames = if frames == 1 { String::new() } else { format!("{frames} frames of ") };
    format!(
        "{} → {}: {frames}{size}, {} of {tile} ({overlap}{exact}), {:.2} s on {provider}",
        assignment.input.display(),
        assignment.output.display(),
        counted(*tiles, "tile"),
        seconds.total
    )
}

/// A path for JSON, which is UTF-8: invalid bytes become the replacement character.
fn name(path: &Path) -> Cow<'_, str> {
    path.to_string_lossy()
}

fn entry(assignment: &Assignment, statistics: &UpscaleStatistics, frames: u64) -> Value {
    json!({
        "input": name(&assignment.input),
        "output": name(&assignment.output),
        "frames": frames,
        "size": statistics.size,
        "tiles": statistics.tiles,
        "tile": statistics.tile,
        "overlap": statistics.overlap,
        "exact": statistics.exact,
        "tiling_psnr_db": statistics.tiling_psnr_db,
        "assigned": statistics.assigned,
        "seconds": statistics.seconds,
    })
}
