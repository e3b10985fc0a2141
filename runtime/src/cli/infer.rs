//! `runtime infer`: pictures through an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tileforge_runtime::image::frames::{FrameWriter, Matrix, RawFrames};
use tileforge_runtime::image::{
    Depth, Format, Header, ImageReader, ImageWriter, JPEG_QUALITY, Limits, RowSink, RowSource,
};
use tileforge_runtime::onnxruntime::Library;
use tileforge_runtime::pipeline::{Cancel, Event, Next, Open, Pictures, Progress, Statistics, Upscaler};
use tileforge_runtime::{Error, Result};

use super::chosen::{Chosen, Running};
use super::frames::{self, NextFrame};
use super::output::{peak_memory_bytes, print, report};
use super::plan::{Assignment, assign, is_standard_stream};
use super::{CommandResult, Failure, chain};

const EXAMPLES: &str = "\
Examples:
  runtime infer --engine engines/compact-x4 --input photo.png --output large.png
  runtime infer --engine engines/compact-x4 --input photos/ --output large/
  runtime infer --engine engines/compact-x4 --input a.jpg b.webp --output large/ --json
  runtime infer --engine engines/compact-x4 --input 'photos/*.png' --output large/ --resume
  runtime infer --engine engines/compact-x4 --input photos/ --output large/ --provider tensorrt --strict --streams 2
  ffmpeg -i in.mp4 -f yuv4mpegpipe - | runtime infer --engine engines/compact-x4 --input - --output - | ffmpeg -i - out.mp4
  runtime infer --engine engines/compact-x4 --raw rgb24:640x480 --input frames.rgb --output large.rgb

PNG and TIFF are read and written by rows, so their height costs no memory; JPEG, WebP, interlaced PNGs and
pictures that EXIF turns or mirrors are held whole. The output has the input's depth (8 or 16 bits, or float in
TIFF), channels and colour profile. Frames keep their number, rate, aspect ratio and colour space; what is said
about them goes to standard error where they go to standard output.";

/// Send pictures through an engine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: Chosen,
    /// Pictures, or folders of pictures: PNG, JPEG, WebP, TIFF; or one stream of frames, a .y4m file or - for standard
    /// input.
    #[arg(long, required = true, num_args = 1.., value_name = "IN")]
    input: Vec<PathBuf>,
    /// The output file; a folder for several inputs; for frames, a file or - for standard output.
    #[arg(long, value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    running: Running,
    /// Frames are nothing but samples: the format, by ffmpeg's name, and the size (rgb24:1920x1080).
    #[arg(long, value_name = "FORMAT:WxH", value_parser = str::parse::<RawFrames>)]
    pub(super) raw: Option<RawFrames>,
    /// What .y4m frames were made with, which they do not say: bt601 or bt709 [default: bt601 up to 576 lines].
    #[arg(long, value_name = "MATRIX", value_parser = str::parse::<Matrix>)]
    pub(super) matrix: Option<Matrix>,
    /// Convert to sRGB by the picture's colour profile, instead of keeping both.
    #[arg(long)]
    pub(super) srgb: bool,
    /// Quality of JPEG outputs, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = JPEG_QUALITY, value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: u8,
    /// Bits of the output's samples: 8, 16 or 32 (float, TIFF only) [default: as the input].
    #[arg(long, value_name = "BITS", value_parser = depth)]
    pub(super) bit_depth: Option<Depth>,
    /// Refuse larger inputs.
    #[arg(long, value_name = "N", default_value_t = Limits::default().megapixels)]
    pub(super) max_megapixels: u32,
    /// Leave out pictures whose output is there already: it is finished, as every output gets its name at the very end.
    #[arg(long)]
    resume: bool,
    /// Stop at the first picture that fails, instead of going on with the others.
    #[arg(long)]
    fail_fast: bool,
    /// Print one JSON object about everything.
    #[arg(long)]
    json: bool,
}

fn depth(text: &str) -> Result<Depth, String> {
    match text {
        "8" => Ok(Depth::Eight),
        "16" => Ok(Depth::Sixteen),
        "32" => Ok(Depth::Float),
        _ => Err("expected 8, 16 or 32".into()),
    }
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    let started = Instant::now();
    let (mut assignments, folder) = assign(&arguments.input, &arguments.output, arguments.raw)?;
    assignments.iter().try_for_each(|assignment| frames::check(assignment, arguments))?;
    if let Some(folder) = folder {
        fs::create_dir_all(&folder).map_err(|source| Error::File {
            path: folder,
            action: "create the folder",
            source,
        })?;
    }
    let all = assignments.len();
    if arguments.resume {
        assignments.retain(|assignment| !assignment.output.exists());
    }
    let skipped = all - assignments.len();
    let engine = arguments.engine.open()?;
    let engine_seconds = started.elapsed().as_secs_f64();
    let library = library()?;
    let cancel = stopped_by_signals()?;
    let mut upscaler = Upscaler::new(&engine, arguments.running.options())?;

    let shared = Mutex::default();
    let mut told = Told::new(arguments, &assignments, all, &shared, &cancel);
    let mut queue =
        Queue { assignments: &assignments, arguments, next: 0, stream: None, ended: Vec::new(), shared: &shared };
    let ran = upscaler.run(&mut queue, |event| told.hear(event), &cancel);
    told.bar.finish_and_clear();
    if let Some(error) = told.unheard {
        return Err(error.into());
    }
    let used = match ran {
        // The first failure is what ended it.
        Err(Error::Cancelled) if told.stopped => None,
        ran => Some(ran?),
    };
    for (assignment, writer) in queue.ended {
        told.end_stream(assignment, writer);
    }
    let (files, mut failures) = (told.files.into_values().collect::<Vec<_>>(), told.failures);
    if arguments.json {
        let everything = json!({
            "provider": upscaler.provider(),
            "verdict": upscaler.verdict(),
            "used": used,
            "engine": engine.manifest().name,
            "onnxruntime": library.version(),
            "files": files,
            "skipped": skipped,
            "failed": failures.len(),
            "peak_memory_bytes": peak_memory_bytes(),
            "engine_seconds": engine_seconds,
            "load_seconds": library.load_time().as_secs_f64(),
            "session_seconds": upscaler.session_time().as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        say(arguments, &serde_json::to_string_pretty(&everything).map_err(io::Error::from)?)?;
    }
    match (failures.len(), all) {
        (0, _) => Ok(()),
        (1, 1) => Err(failures.remove(0).into()),
        (failed, all) => {
            let left = assignments.len() - files.len();
            let left = if left > 0 { format!(", {left} were not finished") } else { String::new() };
            Err(Failure::Partly(format!("{failed} of {all} pictures failed{left}; see above")))
        }
    }
}

/// Prints a result; on standard error where standard output is for frames.
fn say(arguments: &Arguments, text: &str) -> io::Result<()> {
    if is_standard_stream(&arguments.output) {
        report(text);
        return Ok(());
    }
    print(text)
}

/// A flag that Ctrl-C and the signals that ask a process to end set; the second of them ends it at once.
fn stopped_by_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let set = ctrlc::set_handler(move || {
        if flag.is_cancelled() {
            // Something waits that nothing here can end, such as a pipe that nobody reads.
            std::process::exit(130);
        }
        flag.cancel();
    });
    set.map_err(|error| Failure::Usage(format!("signals cannot be handled: {error}")))?;
    Ok(cancel)
}

/// What those that open pictures and those that hear of them tell each other.
#[derive(Default)]
struct Shared {
    /// The assignment of each picture so far.
    owners: Vec<usize>,
    /// Assignments that have failed: no more frames of these are wanted.
    failed: BTreeSet<usize>,
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Both fields are whole between any two statements.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pictures and frames that are still to be opened.
struct Queue<'q> {
    assignments: &'q [Assignment],
    arguments: &'q Arguments,
    /// The assignment that comes next.
    next: usize,
    /// The stream that is being read, which is that of the assignment before.
    stream: Option<frames::Stream>,
    /// Streams of which every frame has been read, by their assignments.
    ended: Vec<(usize, FrameWriter)>,
    shared: &'q Mutex<Shared>,
}

impl Queue<'_> {
    /// What the stream of an assignment has next; `None` after its end.
    fn frame(
        &mut self,
        stream: frames::Stream,
        owner: usize,
        output_of: &dyn Fn(&Header) -> Result<Header>,
    ) -> Option<Next> {
        if locked(self.shared).failed.contains(&owner) {
            return None;
        }
        let (stream, next) = stream.next(&self.assignments[owner], self.arguments, output_of);
        self.stream = stream;
        match next {
            Ok(NextFrame::Frame(frame)) => Some(Next::Picture(Ok(frame))),
            Ok(NextFrame::NotYet) => Some(Next::NotYet),
            Ok(NextFrame::End(writer)) => {
                self.ended.push((owner, writer));
                None
            }
            Err(error) => Some(Next::Picture(Err(error))),
        }
    }

    fn picture(
        &self,
        Assignment { input, output }: &Assignment,
        output_of: &dyn Fn(&Header) -> Result<Header>,
    ) -> Result<Open> {
        let format = Format::of_name(output)?;
        let limits = Limits { megapixels: self.arguments.max_megapixels, ..Limits::default() };
        let source = ImageReader::open(input, &limits)?;
        let source = if self.arguments.srgb { source.into_srgb()? } else { source };
        let mut header = output_of(source.header())?;
        header.depth = self.arguments.bit_depth.unwrap_or(header.depth);
        let sink = ImageWriter::create(output, format, header)?.with_jpeg_quality(self.arguments.quality);
        if self.arguments.bit_depth.is_some_and(|depth| depth != sink.header().depth) {
            let problem = format!(
                "{} does not hold samples of that many bits; leave --bit-depth out, or write a TIFF",
                format.name()
            );
            return Err(Error::Image { path: output.clone(), problem });
        }
        Ok(Open { source: Box::new(source), sink: Box::new(sink) })
    }
}

impl Pictures for &mut Queue<'_> {
    fn next(&mut self, output_of: &dyn Fn(&Header) -> Result<Header>) -> Next {
        loop {
            let next = match self.stream.take() {
                Some(stream) => self.frame(stream, self.next - 1, output_of),
                None => {
                    let Some(assignment) = self.assignments.get(self.next) else { return Next::End };
                    self.next += 1;
                    if frames::are_in(&assignment.input, self.arguments.raw) {
                        self.stream = Some(frames::Stream::open(assignment, self.arguments));
                        None
                    } else {
                        Some(Next::Picture(self.picture(assignment, output_of)))
                    }
                }
            };
            if let Some(Next::Picture(_)) = &next {
                locked(self.shared).owners.push(self.next - 1);
            }
            if let Some(next) = next {
                return next;
            }
        }
    }
}

/// What the user is told while pictures are on their way.
struct Told<'t> {
    arguments: &'t Arguments,
    assignments: &'t [Assignment],
    /// How many pictures were asked for, with those that are left out.
    all: usize,
    shared: &'t Mutex<Shared>,
    cancel: &'t Cancel,
    bar: ProgressBar,
    /// What each assignment became.
    files: BTreeMap<usize, Value>,
    /// When streams began.
    begun: BTreeMap<usize, Instant>,
    /// Streams so far: their frames together, and how many they are.
    streams: BTreeMap<usize, (Statistics, u64)>,
    failures: Vec<Error>,
    /// A failure has ended the run.
    stopped: bool,
    /// Why results cannot be printed.
    unheard: Option<io::Error>,
}

impl<'t> Told<'t> {
    fn new(
        arguments: &'t Arguments,
        assignments: &'t [Assignment],
        all: usize,
        shared: &'t Mutex<Shared>,
        cancel: &'t Cancel,
    ) -> Self {
        let (files, begun, streams) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (failures, stopped, unheard) = (Vec::new(), false, None);
        Self {
            arguments,
            assignments,
            all,
            shared,
            cancel,
            bar: bar(),
            files,
            begun,
            streams,
            failures,
            stopped,
            unheard,
        }
    }

    fn hear(&mut self, event: Event) {
        let owner = |picture: usize| locked(self.shared).owners[picture];
        match event {
            Event::Progress(Progress { picture, done, total }) => {
                let owner = owner(picture);
                self.begun.entry(owner).or_insert_with(Instant::now);
                let name = self.assignments[owner].input.file_name().unwrap_or_default().to_string_lossy();
                self.bar.set_message(name.into_owned());
                self.bar.set_length(total);
                self.bar.set_position(done);
            }
            Event::Finished(picture, Ok(statistics)) => {
                let owner = owner(picture);
                if frames::are_in(&self.assignments[owner].input, self.arguments.raw) {
                    let elapsed = self.begun.get(&owner).map_or(0.0, |begun| begun.elapsed().as_secs_f64());
                    let (sum, frames) = match self.streams.remove(&owner) {
                        Some((sum, frames)) => (frames::added(sum, &statistics, elapsed), frames + 1),
                        None => (statistics, 1),
                    };
                    self.streams.insert(owner, (sum, frames));
                } else {
                    self.made(owner, &statistics, 1);
                }
            }
            Event::Finished(picture, Err(error)) => {
                let owner = owner(picture);
                self.failed(owner, error);
            }
        }
    }

    fn made(&mut self, owner: usize, statistics: &Statistics, frames: u64) {
        let assignment = &self.assignments[owner];
        if !self.arguments.json
            && let Err(error) = self.bar.suspend(|| say(self.arguments, &line(assignment, statistics, frames)))
        {
            self.unheard = Some(error);
            self.cancel.cancel();
        }
        self.files.insert(owner, entry(assignment, statistics, frames));
    }

    fn failed(&mut self, owner: usize, error: Error) {
        if self.files.contains_key(&owner) {
            // A stream has one failure; the frames behind it only follow from that.
            return;
        }
        let Assignment { input, output } = &self.assignments[owner];
        if self.all > 1 {
            self.bar.suspend(|| report(&format!("error: {}", chain(&error))));
        }
        self.files.insert(owner, json!({ "input": input, "output": output, "error": chain(&error) }));
        self.failures.push(error);
        locked(self.shared).failed.insert(owner);
        if self.arguments.fail_fast {
            self.stopped = true;
            self.cancel.cancel();
        }
    }

    /// Gives a stream of which every frame has been written its name.
    fn end_stream(&mut self, owner: usize, writer: FrameWriter) {
        let Some((sum, frames)) = self.streams.remove(&owner).filter(|_| !self.files.contains_key(&owner)) else {
            return;
        };
        match writer.finish() {
            Ok(()) => self.made(owner, &sum, frames),
            Err(error) => self.failed(owner, error),
        }
    }
}

/// A progress bar on a terminal, and nothing elsewhere.
fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} tiles, {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn line(assignment: &Assignment, statistics: &Statistics, frames: u64) -> String {
    let Statistics { size, tiles, tile, overlap, exact, seconds, assigned } = statistics;
    let blended = if *exact { "exact" } else { "blended" };
    let provider = assigned.first().map_or("none", |assigned| assigned.provider.trim_end_matches("ExecutionProvider"));
    let frames = if frames == 1 { String::new() } else { format!("{frames} frames of ") };
    format!(
        "{} → {}: {frames}{size}, {tiles} tiles of {tile} (overlap {}, {blended}), {:.2} s on {provider}",
        assignment.input.display(),
        assignment.output.display(),
        overlap.pixels,
        seconds.total
    )
}

fn entry(assignment: &Assignment, statistics: &Statistics, frames: u64) -> Value {
    json!({
        "input": assignment.input,
        "output": assignment.output,
        "frames": frames,
        "size": statistics.size,
        "tiles": statistics.tiles,
        "tile": statistics.tile,
        "overlap": statistics.overlap,
        "exact": statistics.exact,
        "assigned": statistics.assigned,
        "seconds": statistics.seconds,
    })
}
