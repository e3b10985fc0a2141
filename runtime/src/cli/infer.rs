//! `runtime infer`: pictures through an engine.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runtime::image::{Alpha, Depth, Format, Header, ImageReader, ImageWriter, Limits, RowSource};
use runtime::onnxruntime::Library;
use runtime::pipeline::{Cancel, Event, Open, Options, Pictures, Progress, Statistics, Upscaler};
use runtime::tile::{Blend, Size};
use runtime::{Error, Result};
use serde_json::{Value, json};

use super::chosen::{Chosen, Placing};
use super::output::{peak_memory_bytes, print, print_json, report};
use super::plan::{Assignment, assign};
use super::{CommandResult, Failure, chain};

const EXAMPLES: &str = "\
Examples:
  runtime infer --engine engines/compact-x4 --input photo.png --output large.png
  runtime infer --engine engines/compact-x4 --input photos/ --output large/
  runtime infer --engine engines/compact-x4 --input a.jpg b.webp --output large/ --json
  runtime infer --engine engines/compact-x4 --input 'photos/*.png' --output large/ --resume
  runtime infer --engine engines/compact-x4 --input photos/ --output large/ --provider tensorrt --strict --streams 2

PNG is read and written by rows, so its height costs no memory; JPEG and WebP are held whole.
The output has the input's depth (8 or 16 bits), channels and colour profile.";

/// Send pictures through an engine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: Chosen,
    /// Pictures, or folders of pictures: PNG, JPEG, WebP.
    #[arg(long, required = true, num_args = 1.., value_name = "IN")]
    input: Vec<PathBuf>,
    /// The output file; a folder for several inputs.
    #[arg(long, value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    running: Running,
    /// Bits of the output's samples: 8 or 16 [default: as the input].
    #[arg(long, value_name = "BITS", value_parser = depth)]
    bit_depth: Option<Depth>,
    /// Refuse larger inputs.
    #[arg(long, value_name = "N", default_value_t = Limits::default().megapixels)]
    max_megapixels: u32,
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

/// How an engine is run; shared by the commands that run one.
#[derive(clap::Args)]
pub(crate) struct Running {
    /// Pixels that neighbouring tiles share [default: by the model's receptive field].
    #[arg(long, value_name = "N")]
    overlap: Option<u32>,
    /// Pixels thrown away at each inner border of a tile [default: by the model's receptive field].
    #[arg(long, value_name = "N")]
    margin: Option<u32>,
    /// How one tile hands over to the next: hann, cosine, linear or none.
    #[arg(long, value_name = "CURVE", default_value = "hann", value_parser = str::parse::<Blend>)]
    blend: Blend,
    /// How transparency is enlarged: bicubic, model (as a grey picture through the engine) or drop.
    #[arg(long, value_name = "HOW", default_value = "bicubic", value_parser = str::parse::<Alpha>)]
    alpha: Alpha,
    /// The engine's tile to use, WIDTHxHEIGHT, or auto: the one with the least to compute [default: auto].
    #[arg(long, value_name = "TILE", default_value = "auto", value_parser = tile)]
    tile: TileChoice,
    /// Most images in one run [default: as many as the engine has graphs for].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: Option<u16>,
    #[command(flatten)]
    placing: Placing,
}

#[derive(Clone, Copy)]
enum TileChoice {
    Auto,
    Only(Size),
}

fn tile(text: &str) -> Result<TileChoice, String> {
    let size = || {
        let (width, height) = text.split_once('x')?;
        Some(Size { width: width.parse().ok()?, height: height.parse().ok()? })
    };
    if text == "auto" {
        Ok(TileChoice::Auto)
    } else {
        size().map(TileChoice::Only).ok_or("expected auto, or a size such as 256x256".into())
    }
}

fn depth(text: &str) -> Result<Depth, String> {
    match text {
        "8" => Ok(Depth::Eight),
        "16" => Ok(Depth::Sixteen),
        _ => Err("expected 8 or 16".into()),
    }
}

impl Running {
    pub(crate) fn options(&self) -> Options {
        let tile = match self.tile {
            TileChoice::Auto => None,
            TileChoice::Only(size) => Some(size),
        };
        Options {
            placement: self.placing.placement(),
            batch: self.batch.map(usize::from),
            tile,
            overlap: self.overlap,
            margin: self.margin,
            blend: self.blend,
            alpha: self.alpha,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    let started = Instant::now();
    let mut assignments = assign(&arguments.input, &arguments.output)?;
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

    let mut told =
        Told { arguments, assignments: &assignments, cancel: &cancel, bar: bar(), files: Vec::new(), failures: Vec::new(), unheard: None };
    let queue = Queue { assignments: assignments.iter(), arguments };
    let ran = upscaler.run(queue, |event| told.hear(event), &cancel);
    let Told { bar, files, mut failures, unheard, .. } = told;
    bar.finish_and_clear();
    if let Some(error) = unheard {
        return Err(error.into());
    }
    let used = match ran {
        // The first failure is what ended it.
        Err(Error::Cancelled) if arguments.fail_fast && !failures.is_empty() => None,
        ran => Some(ran?),
    };
    if arguments.json {
        print_json(&json!({
            "provider": upscaler.verdict().chosen()?,
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
        }))?;
    }
    match (failures.len(), all) {
        (0, _) => Ok(()),
        (1, 1) => Err(failures.remove(0).into()),
        (failed, all) => {
            let left = assignments.len() - files.len();
            let left = if left > 0 { format!(", {left} were not begun") } else { String::new() };
            Err(Failure::Partly(format!("{failed} of {all} pictures failed{left}; see above")))
        }
    }
}

/// A flag that Ctrl-C and the signals that ask a process to end set.
fn stopped_by_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let set = ctrlc::set_handler(move || flag.cancel());
    set.map_err(|error| Failure::Usage(format!("signals cannot be handled: {error}")))?;
    Ok(cancel)
}

/// The pictures that are still to be opened.
struct Queue<'q> {
    assignments: std::slice::Iter<'q, Assignment>,
    arguments: &'q Arguments,
}

impl Pictures for Queue<'_> {
    fn next(&mut self, output_of: &dyn Fn(&Header) -> Result<Header>) -> Option<Result<Open>> {
        let Assignment { input, output } = self.assignments.next()?;
        let open = || {
            let format = Format::of_name(output)?;
            let limits = Limits { megapixels: self.arguments.max_megapixels, ..Limits::default() };
            let source = ImageReader::open(input, &limits)?;
            let mut header = output_of(source.header())?;
            header.depth = self.arguments.bit_depth.unwrap_or(header.depth);
            let sink = ImageWriter::create(output, format, header)?;
            Ok(Open { source: Box::new(source), sink: Box::new(sink) })
        };
        Some(open())
    }
}

/// What the user is told while pictures are on their way.
struct Told<'t> {
    arguments: &'t Arguments,
    assignments: &'t [Assignment],
    cancel: &'t Cancel,
    bar: ProgressBar,
    files: Vec<Value>,
    failures: Vec<Error>,
    /// Why results cannot be printed.
    unheard: Option<io::Error>,
}

impl Told<'_> {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Progress(Progress { picture, done, total }) => {
                let name = self.assignments[picture].input.file_name().unwrap_or_default().to_string_lossy();
                self.bar.set_message(name.into_owned());
                self.bar.set_length(total);
                self.bar.set_position(done);
            }
            Event::Finished(picture, Ok(statistics)) => {
                let assignment = &self.assignments[picture];
                if !self.arguments.json
                    && let Err(error) = self.bar.suspend(|| print(&line(assignment, &statistics)))
                {
                    self.unheard = Some(error);
                    self.cancel.cancel();
                }
                self.files.push(entry(assignment, &statistics));
            }
            Event::Finished(picture, Err(error)) => {
                let Assignment { input, output } = &self.assignments[picture];
                if self.assignments.len() > 1 {
                    self.bar.suspend(|| report(&format!("error: {}", chain(&error))));
                }
                self.files.push(json!({ "input": input, "output": output, "error": chain(&error) }));
                self.failures.push(error);
                if self.arguments.fail_fast {
                    self.cancel.cancel();
                }
            }
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

fn line(assignment: &Assignment, statistics: &Statistics) -> String {
    let Statistics { size, tiles, tile, overlap, exact, seconds, assigned } = statistics;
    let blended = if *exact { "exact" } else { "blended" };
    let provider = assigned.first().map_or("none", |assigned| assigned.provider.trim_end_matches("ExecutionProvider"));
    format!(
        "{} → {}: {size}, {tiles} tiles of {tile} (overlap {}, {blended}), {:.2} s on {provider}",
        assignment.input.display(),
        assignment.output.display(),
        overlap.pixels,
        seconds.total
    )
}

fn entry(assignment: &Assignment, statistics: &Statistics) -> Value {
    json!({
        "input": assignment.input,
        "output": assignment.output,
        "size": statistics.size,
        "tiles": statistics.tiles,
        "tile": statistics.tile,
        "overlap": statistics.overlap,
        "exact": statistics.exact,
        "assigned": statistics.assigned,
        "seconds": statistics.seconds,
    })
}
