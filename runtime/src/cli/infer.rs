//! `runtime infer`: pictures through an engine.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runtime::engine::manifest::Provider;
use runtime::image::frames::{Matrix, RawFrames};
use runtime::image::{Alpha, Depth, Format, ImageReader, ImageWriter, JPEG_QUALITY, Limits, RowSink, RowSource};
use runtime::onnxruntime::Library;
use runtime::pipeline::{Cancel, Options, Progress, Statistics, Upscaler};
use runtime::session::SessionOptions;
use runtime::tile::Blend;
use runtime::{Error, Result};
use serde_json::{Value, json};

use super::chosen::{Chosen, say_fallback};
use super::output::{peak_memory_bytes, print, report};
use super::plan::{Assignment, assign, is_standard_stream};
use super::{CommandResult, Failure, chain, frames};

const EXAMPLES: &str = "\
Examples:
  runtime infer --engine engines/compact-x4 --input photo.png --output large.png
  runtime infer --engine engines/compact-x4 --input photos/ --output large/
  runtime infer --engine engines/compact-x4 --input a.jpg b.webp --output large/ --json
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
    /// Pictures, or folders of pictures: PNG, JPEG, WebP, TIFF; or one stream of frames, a .y4m file or - for standard input.
    #[arg(long, required = true, num_args = 1.., value_name = "IN")]
    pub(super) input: Vec<PathBuf>,
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
    /// Threads of the engine [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// auto, cpu, cuda or tensorrt.
    #[arg(long, default_value = "auto", value_parser = provider)]
    provider: ProviderChoice,
}

#[derive(Clone, Copy)]
enum ProviderChoice {
    Auto,
    Only(Provider),
}

fn provider(text: &str) -> Result<ProviderChoice, String> {
    match text {
        "auto" => Ok(ProviderChoice::Auto),
        _ => text.parse().map(ProviderChoice::Only).map_err(|_| "expected auto, cpu, cuda or tensorrt".into()),
    }
}

fn depth(text: &str) -> Result<Depth, String> {
    match text {
        "8" => Ok(Depth::Eight),
        "16" => Ok(Depth::Sixteen),
        "32" => Ok(Depth::Float),
        _ => Err("expected 8, 16 or 32".into()),
    }
}

impl Running {
    pub(crate) fn options(&self) -> Options {
        // The CPU is what every box has, and all that this version runs on.
        let provider = match self.provider {
            ProviderChoice::Auto => Provider::Cpu,
            ProviderChoice::Only(provider) => provider,
        };
        let session = SessionOptions { provider, threads: self.threads.map(usize::from), ..SessionOptions::default() };
        Options { session, overlap: self.overlap, margin: self.margin, blend: self.blend, alpha: self.alpha }
    }
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    let started = Instant::now();
    let assignments = assign(&arguments.input, &arguments.output)?;
    assignments.iter().try_for_each(|assignment| frames::check(assignment, arguments))?;
    // Standard output is for frames where they go there.
    let say = |text: &str| {
        if is_standard_stream(&arguments.output) {
            report(text);
            return Ok(());
        }
        print(text)
    };
    let engine = arguments.engine.open()?;
    let engine_seconds = started.elapsed().as_secs_f64();
    let library = library()?;
    let options = arguments.running.options();
    let provider = options.session.provider;
    if provider == Provider::Cpu {
        say_fallback(&engine, library);
    }
    let mut upscaler = Upscaler::new(&engine, options);

    let mut files = Vec::new();
    let mut failures = Vec::new();
    for assignment in &assignments {
        let made = if frames::are_in(assignment, arguments) {
            frames::upscale(&mut upscaler, assignment, arguments)
        } else {
            upscale(&mut upscaler, assignment, arguments).map(|statistics| (statistics, 1))
        };
        match made {
            Ok((statistics, frames)) => {
                if !arguments.json {
                    say(&line(assignment, &statistics, frames))?;
                }
                files.push(entry(assignment, &statistics, frames));
            }
            Err(error) => {
                if assignments.len() > 1 {
                    report(&format!("error: {}", chain(&error)));
                }
                files.push(json!({ "input": assignment.input, "output": assignment.output, "error": chain(&error) }));
                failures.push(error);
            }
        }
    }
    if arguments.json {
        let everything = json!({
            "provider": provider,
            "engine": engine.manifest().name,
            "onnxruntime": library.version(),
            "files": files,
            "failed": failures.len(),
            "peak_memory_bytes": peak_memory_bytes(),
            "engine_seconds": engine_seconds,
            "load_seconds": library.load_time().as_secs_f64(),
            "session_seconds": upscaler.session_time().as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        say(&serde_json::to_string_pretty(&everything).map_err(std::io::Error::from)?)?;
    }
    match (failures.len(), assignments.len()) {
        (0, _) => Ok(()),
        (1, 1) => Err(failures.remove(0).into()),
        (failed, all) => Err(Failure::Partly(format!("{failed} of {all} pictures failed; see above"))),
    }
}

fn upscale(upscaler: &mut Upscaler<'_>, assignment: &Assignment, arguments: &Arguments) -> Result<Statistics> {
    let format = Format::of_name(&assignment.output)?;
    let limits = Limits { megapixels: arguments.max_megapixels, ..Limits::default() };
    let reader = ImageReader::open(&assignment.input, &limits)?;
    let reader = if arguments.srgb { reader.into_srgb()? } else { reader };
    let mut header = upscaler.output_of(reader.header())?;
    header.depth = arguments.bit_depth.unwrap_or(header.depth);
    let writer = ImageWriter::create(&assignment.output, format, header)?.with_jpeg_quality(arguments.quality);
    if arguments.bit_depth.is_some_and(|depth| depth != writer.header().depth) {
        let problem = format!("{} does not hold samples of that many bits; leave --bit-depth out, or write a TIFF", format.name());
        return Err(Error::Image { path: assignment.output.clone(), problem });
    }
    let bar = bar(&assignment.input.file_name().unwrap_or_default().to_string_lossy());
    let progress = |Progress { done, total }| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let result = upscaler.upscale(reader, writer, progress, &Cancel::new());
    bar.finish_and_clear();
    result
}

/// A progress bar on a terminal, and nothing elsewhere.
pub(super) fn bar(name: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} tiles, {eta} left") {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

fn line(assignment: &Assignment, statistics: &Statistics, frames: u64) -> String {
    let Statistics { size, tiles, tile, overlap, exact, seconds } = statistics;
    let blended = if *exact { "exact" } else { "blended" };
    let frames = if frames == 1 { String::new() } else { format!("{frames} frames of ") };
    format!(
        "{} → {}: {frames}{size}, {tiles} tiles of {tile} (overlap {}, {blended}), {:.2} s",
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
        "seconds": statistics.seconds,
    })
}
