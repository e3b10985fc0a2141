//! `runtime encode`, `runtime decode` and `runtime roundtrip`: autoencoders.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tileforge_files::outputs;
use tileforge_film::nut::{TimeBase, Track};
use tileforge_film::{Colours, Container, Encoding, Film, Plan, Programs, Reading, WRITTEN};
use tileforge_image::frames::{FrameReader, FrameWriter, Matrix, RawFrames};
use tileforge_image::{Depth, Format, ImageReader, ImageWriter, Limits, Size};
use tileforge_runtime::autoencoder::{
    AutoencoderPart, CodingOptions, CodingStatistics, DecodeRequest, Decoder, Direction, EncodeRequest, Encoder,
    Frames, Latent, Posterior,
};
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::pixels::Pixels;
use tileforge_runtime::tensor_file::TensorFormat;
use tileforge_runtime::{Error, Result};
use tileforge_session::Environment;
use tileforge_session::peak_memory_bytes;
use tileforge_terminal::{Placing, Unit, number, print, print_json, whole};

use super::chosen::{Chosen, Named, Signed, placement};
use super::endings;
use super::failure::{CommandResult, Failure};
use super::figures::{decibels, nodes};
use super::frame_folder::FrameFolder;
use super::infer::{has_frames, is_film, is_standard_stream, open_frames, say};
use super::signals::stopped_by_signals;
use super::waiting::wait;

/// What progress counts: the parts of a clip in time. A picture is one.
const CHUNKS: Unit = Unit::Count("chunks");

const ENCODE_EXAMPLES: &str = "\
Examples:
  runtime encode --engine engines/sdxl-vae --input photo.png --output photo.safetensors
  runtime encode --engine engines/sdxl-vae --input photo.png --output photo.safetensors --sample 42
  runtime encode --engine engines/seedvr2-vae --input clip.y4m --output clip.safetensors";

const DECODE_EXAMPLES: &str = "\
Examples:
  runtime decode --engine engines/sdxl-vae --input photo.safetensors --output photo.png
  runtime decode --engine engines/seedvr2-vae --input clip.safetensors --output clip.y4m --rate 24:1
  runtime decode --engine engines/seedvr2-vae --input clip.safetensors --output clip.mp4 --rate 24:1
  runtime decode --engine engines/seedvr2-vae --input clip.safetensors --output - | ffmpeg -i - clip.mp4
  runtime decode --engine engines/seedvr2-vae --input clip.safetensors --output frames/";

const ROUNDTRIP_EXAMPLES: &str = "\
Examples:
  runtime roundtrip --engine engines/sdxl-vae --input photo.png
  runtime roundtrip --engine engines/seedvr2-vae --input clip.y4m --minimum-psnr 30";

/// How autoencoders run.
#[derive(clap::Args)]
struct Coding {
    /// Pixels by which tiles overlap where the picture is larger than the engine's [default: a quarter of the tile; for
    /// clips an eighth].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(..))]
    overlap: Option<u32>,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Coding {
    fn options(&self) -> CodingOptions {
        CodingOptions { placement: placement(&self.placing), overlap: self.overlap }
    }
}

/// What goes in.
#[derive(clap::Args)]
struct ClipInput {
    /// A picture (PNG, JPEG, WebP, TIFF), or for engines that take clips a film, or a stream of frames: a .y4m
    /// file, or - for standard input.
    #[arg(long, value_name = "IN")]
    input: PathBuf,
    /// Frames are nothing but samples: the format, by ffmpeg's name, and the size (rgb24:1920x1080).
    #[arg(long, value_name = "FORMAT:WxH", value_parser = str::parse::<RawFrames>)]
    raw: Option<RawFrames>,
    /// What .y4m frames were made with, which they do not say: bt601, bt709 or bt2020 [default: bt601 up to 576 lines].
    #[arg(long, value_name = "MATRIX", value_parser = str::parse::<Matrix>)]
    matrix: Option<Matrix>,
    /// Refuse larger inputs.
    #[arg(long, value_name = "N", default_value_t = Limits::default().megapixels, value_parser = whole::<u32>(..))]
    max_megapixels: u32,
}

impl ClipInput {
    fn is_stream(&self) -> bool {
        has_frames(&self.input, self.raw)
    }

    /// Returns a function that opens the source. A film is probed now.
    fn opener(&self) -> Result<impl Fn() -> Result<Frames> + Send + 'static, Failure> {
        let (input, raw, matrix, stream) = (self.input.clone(), self.raw, self.matrix, self.is_stream());
        let limits = Limits { megapixels: self.max_megapixels, ..Limits::default() };
        let film = if is_film(&input, raw) {
            let reading = Reading { matrix, ..Reading::default() };
            Some(Film::open(Programs::find()?, &input, reading)?)
        } else {
            None
        };
        Ok(move || {
            if let Some(film) = &film {
                let reader = film.decode(0, &limits).map_err(tileforge_image::Error::from)?.reader;
                return Ok(Box::new(ClipFrames { reader, limits }) as Frames);
            }
            if stream {
                let reader = open_frames(&input, raw, matrix, &limits)?;
                return Ok(Box::new(ClipFrames { reader, limits }));
            }
            let mut picture = ImageReader::open(&input, &limits)?;
            Ok(Box::new(std::iter::once(Pixels::read(&mut picture, &limits))) as Frames)
        })
    }
}

/// The frames of a stream.
struct ClipFrames {
    reader: FrameReader,
    limits: Limits,
}

impl Iterator for ClipFrames {
    type Item = Result<Pixels>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.reader.next_frame().map_err(Error::from).transpose()?;
        Some(frame.and_then(|mut frame| Pixels::read(&mut frame, &self.limits)))
    }
}

/// Encode a picture or a clip with an autoencoder's encoder.
///
/// The encoder is a part of the engine; for clips two are, one for the first chunk and one for the later ones. The
/// latent is written as diffusion models work on it: (latent − shift) · scaling, by the engine's contract.
#[derive(clap::Args)]
#[command(after_help = ENCODE_EXAMPLES)]
pub(crate) struct EncodeArguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    #[command(flatten)]
    source: ClipInput,
    /// Where the latent goes: a .safetensors file.
    #[arg(long, value_name = "OUT")]
    output: PathBuf,
    /// Take a sample of the latent, with the noise that PyTorch draws on a CPU for this seed [default: the mean].
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>(..))]
    sample: Option<u64>,
    #[command(flatten)]
    coding: Coding,
}

/// Decode a latent with an autoencoder's decoder.
///
/// Takes latents as `runtime encode` writes them, and those of diffusion pipelines: (latent − shift) · scaling.
#[derive(clap::Args)]
#[command(after_help = DECODE_EXAMPLES)]
pub(crate) struct DecodeArguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    /// The latent: .safetensors, .npz or .npy.
    #[arg(long, value_name = "IN")]
    input: PathBuf,
    /// A picture; for clips a film (.mp4, .mkv …, H.264 through ffmpeg), a .y4m file, - for standard output, or a new
    /// or empty folder that gets a PNG for each frame. A file or folder gets its name when it is finished; nothing is
    /// left of a clip that fails or is cancelled.
    #[arg(long, value_name = "OUT")]
    output: PathBuf,
    /// Frames in a second of a .y4m file or film.
    #[arg(long, value_name = "N:N", default_value = "25:1", value_parser = rate)]
    rate: String,
    #[command(flatten)]
    coding: Coding,
}

/// Encode and decode again, and show how much is lost.
#[derive(clap::Args)]
#[command(after_help = ROUNDTRIP_EXAMPLES)]
pub(crate) struct RoundtripArguments {
    /// The engine's directory, with an encoder and a decoder among its parts, or oci://HOST/NAME:TAG.
    #[arg(long = "engine", value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    source: ClipInput,
    /// Fail (exit code 4) below this PSNR.
    #[arg(long, value_name = "DB", allow_negative_numbers = true, value_parser = number(-100.0..=1000.0))]
    minimum_psnr: Option<f64>,
    #[command(flatten)]
    coding: Coding,
}

impl RoundtripArguments {
    /// The engine as it was named.
    pub(crate) fn named(&mut self) -> Named<'_> {
        Named { paths: vec![&mut self.directory], signed: &self.signed }
    }
}

fn rate(text: &str) -> Result<String, String> {
    let numbers =
        text.split_once(':').and_then(|(one, two)| Some((one.parse::<u32>().ok()?, two.parse::<u32>().ok()?)));
    match numbers {
        Some((1.., 1..)) => Ok(text.into()),
        _ => Err("expected frames and seconds, such as 25:1 or 30000:1001".into()),
    }
}

/// Checks the kind of input: a stream for an engine that takes clips, a picture for others.
fn check_source(source: &ClipInput, is_clip: bool) -> CommandResult {
    let usage = |expected: &str| Err(Failure::Usage(format!("{}: expected {expected}", source.input.display())));
    match (source.is_stream(), is_clip) {
        (true, false) => usage("a picture for an engine that takes pictures, found frames"),
        (false, true) => usage("a stream of frames (.y4m, - or --raw) for an engine that takes clips"),
        _ => Ok(()),
    }
}

/// Refuses an output that would overwrite an input. Standard streams are not files.
fn check_output(output: &Path, input: &Path, engine: &Path) -> CommandResult {
    if is_standard_stream(output) {
        return Ok(());
    }
    let read: Vec<&Path> = [input, engine].into_iter().filter(|path| !is_standard_stream(path)).collect();
    Ok(outputs::check(&[output], &read)?)
}

pub(crate) fn encode(arguments: &EncodeArguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let (output, coding) = (&arguments.output, &arguments.coding);
    if TensorFormat::of_name(output)? != TensorFormat::Safetensors {
        let text = format!("{}: expected a name that ends in .safetensors, which also holds sizes", output.display());
        return Err(Failure::Usage(text));
    }
    check_output(output, &arguments.source.input, &arguments.engine.directory)?;
    let bundle = arguments.engine.open_bundle()?;
    let part = AutoencoderPart::of(&bundle, Direction::Encode)?;
    let opener = arguments.source.opener()?;
    let host = Host::new(&environment()?, HostOptions::default());
    let encoder = Encoder::new(&host, part.engine, part.next, coding.options())?;
    check_source(&arguments.source, encoder.is_clip())?;
    let service = Service::new(&host, encoder, 1);
    let posterior = arguments.sample.map_or(Posterior::Mean, Posterior::Sample);
    let request = EncodeRequest::new(opener, posterior);
    let encoding = service.submit(request, &stopped_by_signals())?;
    let (latent, made) = wait(&encoding, "encode", CHUNKS)?;
    latent.write(output)?;
    let seconds = service.task().location().opening.as_secs_f64();
    tell(coding, &arguments.source.input, output, bundle.name(), &made, seconds)
}

pub(crate) fn decode(arguments: &DecodeArguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let (output, coding) = (&arguments.output, &arguments.coding);
    TensorFormat::of_name(&arguments.input)?;
    check_output(output, &arguments.input, &arguments.engine.directory)?;
    let bundle = arguments.engine.open_bundle()?;
    let part = AutoencoderPart::of(&bundle, Direction::Decode)?;
    let host = Host::new(&environment()?, HostOptions::default());
    let decoder = Decoder::new(&host, part.engine, part.next, coding.options())?;
    let to_stream = has_frames(output, None);
    if to_stream && !decoder.is_clip() {
        let text = format!("{}: expected a picture's name for an engine that gives pictures", output.display());
        return Err(Failure::Usage(text));
    }
    if !decoder.is_clip() {
        Format::of_name(output)?;
    } else if !to_stream && Format::of_name(output).is_ok() {
        let text = format!("{}: expected a .y4m file or a folder for a clip, found a picture", output.display());
        return Err(Failure::Usage(text));
    } else if !to_stream && !is_standard_stream(output) {
        endings::check_folder(output)?;
    }
    let target = match (decoder.is_clip(), to_stream) {
        (false, _) => Target::Picture(output.clone()),
        (true, true) if is_film(output, None) => {
            if Container::of_name(output).is_none() {
                let text = format!("{}: expected a film's name that ends in {WRITTEN}", output.display());
                return Err(Failure::Usage(text));
            }
            let (path, rate, programs) = (output.clone(), arguments.rate.clone(), Programs::find()?);
            Target::Film { path, rate, programs, writer: None }
        }
        (true, true) => Target::Stream { path: output.clone(), rate: arguments.rate.clone(), writer: None },
        (true, false) => Target::Folder(FrameFolder::at(output)?),
    };
    let service = Service::new(&host, decoder, 1);
    let target = Arc::new(parking_lot::Mutex::new((target, 0_u64)));
    let (sink, input) = (target.clone(), arguments.input.clone());
    let request = DecodeRequest::new(
        move || Latent::read(&input),
        move |frame| {
            let (target, count) = &mut *sink.lock();
            *count += 1;
            target.write(&frame, *count)
        },
    );
    let decoding = service.submit(request, &stopped_by_signals())?;
    let made = wait(&decoding, "decode", CHUNKS)?;
    let seconds = service.task().location().opening.as_secs_f64();
    // The task has dropped its own reference to the sink with the request.
    let (target, _) = Arc::into_inner(target).ok_or_else(|| Error::Internal("decode".into()))?.into_inner();
    target.finish()?;
    tell(coding, &arguments.input, output, bundle.name(), &made, seconds)
}

/// The output of decoded frames.
enum Target {
    Picture(PathBuf),
    Stream { path: PathBuf, rate: String, writer: Option<FrameWriter> },
    Film { path: PathBuf, rate: String, programs: Programs, writer: Option<FrameWriter> },
    Folder(FrameFolder),
}

impl Target {
    fn write(&mut self, frame: &Pixels, number: u64) -> Result<()> {
        match self {
            Self::Picture(path) => write_picture(frame, path),
            Self::Folder(folder) => folder.write(frame, number),
            Self::Stream { path, rate, writer } => {
                let writer = match writer {
                    Some(writer) => writer,
                    none if is_standard_stream(path) => {
                        let (output, name) = (Box::new(io::stdout()), Path::new("standard output"));
                        none.insert(FrameWriter::y4m_to_stream(output, name, frame.size, rate)?)
                    }
                    none => none.insert(FrameWriter::create_y4m(path, frame.size, rate)?),
                };
                frame.write(Box::new(writer.frame_numbered(number)))
            }
            Self::Film { path, rate, programs, writer } => {
                let writer = match writer {
                    Some(writer) => writer,
                    none => none.insert(film_writer(*programs, path, rate, frame.size)?),
                };
                frame.write(Box::new(writer.frame_numbered(number)))
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Picture(_) => Ok(()),
            Self::Stream { writer, .. } | Self::Film { writer, .. } => Ok(writer.map_or(Ok(()), FrameWriter::finish)?),
            Self::Folder(folder) => folder.finish(),
        }
    }
}

/// A film of this size and rate, without other tracks.
fn film_writer(programs: Programs, path: &Path, rate: &str, size: Size) -> Result<FrameWriter, tileforge_image::Error> {
    let plan = Plan::new(programs, path, &Encoding::default(), None, Colours::New, size)?;
    let numbers = rate.split_once(':').and_then(|(one, two)| Some((one.parse().ok()?, two.parse().ok()?)));
    let (denominator, numerator) = numbers.unwrap_or((25, 1));
    let time_base = TimeBase { numerator, denominator };
    let target = plan.write(Track { width: size.width, height: size.height, pixel: [1, 1], time_base })?;
    FrameWriter::to_container(target, path, plan.layout(), plan.layout().header(size))
}

fn write_picture(frame: &Pixels, path: &Path) -> Result<()> {
    let writer = ImageWriter::create(path, Format::of_name(path)?, frame.header(Depth::Eight))?;
    frame.write(Box::new(writer))
}

pub(crate) fn roundtrip(
    arguments: &RoundtripArguments,
    environment: impl Fn() -> Result<Environment>,
) -> CommandResult {
    let coding = &arguments.coding;
    if is_standard_stream(&arguments.source.input) {
        return Err(Failure::Usage("the input is read twice; expected a file, found standard input (-)".into()));
    }
    let bundle = arguments.signed.open_bundle(&arguments.directory)?;
    let opener = arguments.source.opener()?;
    let part = |direction| AutoencoderPart::of(&bundle, direction);
    let (encoder, decoder) = (part(Direction::Encode)?, part(Direction::Decode)?);
    let environment = environment()?;
    let host = Host::new(&environment, HostOptions::default());
    let encoding = Encoder::new(&host, encoder.engine, encoder.next, coding.options())?;
    let decoding = Decoder::new(&host, decoder.engine, decoder.next, coding.options())?;
    check_source(&arguments.source, encoding.is_clip())?;
    let encoding = Service::new(&host, encoding, 1);
    let mut original = opener()?;
    let request = EncodeRequest::new(opener, Posterior::Mean);
    let cancel = stopped_by_signals();
    let (latent, encoded) = wait(&encoding.submit(request, &cancel)?, "encode", CHUNKS)?;
    encoding.shutdown();
    let sums = Arc::new(parking_lot::Mutex::new(Squares::default()));
    let sum = sums.clone();
    let request = DecodeRequest::new(
        move || Ok(latent),
        move |frame| {
            let other = original.next().ok_or_else(|| Error::Internal("roundtrip".into()))??;
            sum.lock().add(&frame, &other);
            Ok(())
        },
    );
    let decoding = Service::new(&host, decoding, 1);
    let decoded = wait(&decoding.submit(request, &cancel)?, "decode", CHUNKS)?;
    let psnr_db = sums.lock().psnr_db();
    if coding.json {
        print_json(&json!({ "psnr_db": psnr_db, "encode": encoded, "decode": decoded }))?;
    } else {
        let CodingStatistics { size, frames, latent_size, latent_frames, .. } = &encoded;
        print(&format!(
            "{}: {} of {size} through latents of {latent_size}{}: PSNR {}",
            arguments.source.input.display(),
            if *frames == 1 { "a picture".into() } else { format!("{frames} frames") },
            if *frames == 1 { String::new() } else { format!(" in {latent_frames} frames") },
            decibels(psnr_db)
        ))?;
    }
    match (arguments.minimum_psnr, psnr_db) {
        (Some(minimum), Some(found)) if found < minimum => Err(Failure::Gate(format!(
            "{}: expected a PSNR of at least {minimum:.2} dB, found {found:.2} dB",
            arguments.source.input.display()
        ))),
        _ => Ok(()),
    }
}

/// Squared differences of samples from 0 to 1.
#[derive(Default)]
struct Squares {
    sum: f64,
    count: usize,
}

impl Squares {
    fn add(&mut self, one: &Pixels, other: &Pixels) {
        let square = |(one, other): (&f32, &f32)| f64::from(one.clamp(0.0, 1.0) - other).powi(2);
        self.sum += one.samples.iter().zip(&other.samples).map(square).sum::<f64>();
        self.count += one.samples.len();
    }

    /// `None` for equal samples.
    fn psnr_db(&self) -> Option<f64> {
        (self.sum > 0.0).then(|| -10.0 * (self.sum / self.count as f64).log10())
    }
}

/// Reports the result.
fn tell(
    coding: &Coding,
    input: &Path,
    output: &Path,
    engine: &str,
    made: &CodingStatistics,
    session_seconds: f64,
) -> CommandResult {
    if coding.json {
        let mut everything = json!({
            "engine": engine,
            "input": input,
            "output": output,
            "session_seconds": session_seconds,
            "peak_memory_bytes": peak_memory_bytes(),
        });
        if let (Some(object), Value::Object(more)) = (everything.as_object_mut(), json!(made)) {
            object.extend(more);
        }
        return Ok(say(Some(output), &format!("{everything:#}"))?);
    }
    let CodingStatistics {
        size,
        frames,
        latent_size,
        latent_frames,
        tile,
        tiles,
        chunks,
        padded,
        assigned,
        seconds,
        ..
    } = made;
    let clip = |frames: usize| if chunks + frames > 2 { format!("{frames} frames of ") } else { String::new() };
    let tiles = if *tiles > 1 { format!(", {tiles} tiles of {tile}, blended") } else { String::new() };
    let chunks = if *chunks > 1 { format!(", {chunks} chunks") } else { String::new() };
    let padded = if *padded { ", extended and cut" } else { "" };
    let text = format!(
        "{} → {}: {}{} as a latent of {}{}{tiles}{chunks}{padded}, {seconds:.2} s on {}",
        input.display(),
        output.display(),
        clip(*frames),
        size,
        clip(*latent_frames),
        latent_size,
        nodes(assigned)
    );
    Ok(say(Some(output), &text)?)
}
