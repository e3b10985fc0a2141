//! `runtime evaluate`: is the engine better than bicubic, on a photo whose details are known?

use std::path::{Path, PathBuf};

use serde_json::json;
use tileforge_contract::Upscale;
use tileforge_engine::Engine;
use tileforge_files::outputs;
use tileforge_files::unfinished;
use tileforge_image::{Format, ImageReader, ImageWriter, Limits, Picture, RowSource, Size};
use tileforge_runtime::executor::{Cancel, Executor};
use tileforge_runtime::upscale::{Request, Upscaler};
use tileforge_runtime::{Error, Result};
use tileforge_session::{Assigned, Environment};
use tileforge_terminal::{number, print, print_json};

use super::chosen::{Chosen, Running};
use super::failure::{CommandResult, Failure};
use super::figures::{decibels, nodes};

const EXAMPLES: &str = "\
Examples:
  runtime evaluate --engine engines/compact-x4 --input photo.png
  runtime evaluate --engine engines/compact-x4 --input photo.png --minimum-gain 0.5 --json

The photo is cropped to a multiple of the engine's scale, shrunk by it (bicubic with antialiasing, 8 bits),
enlarged again by the engine and by bicubic, and both are compared with what it was.";

/// Shrink a photo, enlarge it with the engine, and compare with the original and with bicubic.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    /// A photo: PNG, JPEG, WebP or TIFF.
    #[arg(long, value_name = "PHOTO")]
    input: PathBuf,
    /// Keep what the engine made, as a PNG.
    #[arg(long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Fail (exit code 4) when the engine is not better than bicubic by this many dB.
    #[arg(long, value_name = "DB", allow_negative_numbers = true, value_parser = number(-100.0..=100.0))]
    minimum_gain: Option<f64>,
    #[command(flatten)]
    running: Running,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    if let Some(output) = &arguments.output {
        outputs::check(&[output], &[&arguments.input, &arguments.engine.directory])?;
    }
    let engine = arguments.engine.open()?;
    let scale = Upscale::of(&engine.manifest().contract)?.scale;
    let environment = environment()?;
    let limits = Limits::default();
    let scale = u32::try_from(scale).unwrap_or(u32::MAX);
    let photo = Picture::read(&arguments.input, &limits)?;
    let small = Size { width: photo.size().width / scale, height: photo.size().height / scale };
    if small.width == 0 || small.height == 0 {
        let problem = format!("expected a photo of at least {scale}×{scale} pixels, found {}", photo.size());
        return Err(Error::from(tileforge_image::Error::image(&arguments.input, problem)).into());
    }
    let original = photo.cropped(0, 0, small.scaled(scale)?);
    let shrunk = original.resized(small)?;

    let parent = std::env::temp_dir();
    let folder =
        unfinished::folder_in(&parent).map_err(|source| Failure::file(&parent, "create a folder in it", source))?;
    let shrunk_path = folder.path().join("shrunk.png");
    shrunk.write(&shrunk_path)?;
    let enlarged_path = arguments.output.clone().unwrap_or_else(|| folder.path().join("enlarged.png"));
    let assigned = enlarge(&environment, &engine, arguments, &shrunk_path, &enlarged_path)?;

    let by_engine = Picture::read(&enlarged_path, &limits)?.difference(&original, 0)?;
    let by_bicubic = shrunk.resized(original.size())?.difference(&original, 0)?;
    // Identical pictures have no PSNR; then neither has the gain.
    let gain = by_engine.psnr_db.zip(by_bicubic.psnr_db).map(|(engine, bicubic)| engine - bicubic);
    if arguments.json {
        print_json(&json!({
            "engine": engine.manifest().name,
            "input": arguments.input.to_string_lossy(),
            "size": original.size(),
            "shrunk": small,
            "engine_psnr_db": by_engine.psnr_db,
            "bicubic_psnr_db": by_bicubic.psnr_db,
            "gain_db": gain,
            "minimum_gain_db": arguments.minimum_gain,
            "provider": Assigned::most(&assigned),
            "assigned": assigned,
        }))?;
    } else {
        let gain = gain.map_or("none".into(), |gain| format!("{gain:+.2} dB"));
        let (engine, bicubic) = (decibels(by_engine.psnr_db), decibels(by_bicubic.psnr_db));
        print(&format!("engine  {engine}, on {}\nbicubic {bicubic}\ngain    {gain}", nodes(&assigned)))?;
    }
    match (arguments.minimum_gain, gain) {
        (Some(minimum), Some(gain)) if gain < minimum => Err(Failure::Gate(format!(
            "{}: expected a gain of at least {minimum:.2} dB over bicubic, found {gain:+.2} dB",
            arguments.engine.directory.display()
        ))),
        _ => Ok(()),
    }
}

/// Tells which providers took the nodes.
fn enlarge(
    environment: &Environment,
    engine: &Engine,
    arguments: &Arguments,
    from: &Path,
    to: &Path,
) -> Result<Vec<Assigned>> {
    let executor = Executor::new(Upscaler::new(environment, engine, arguments.running.options())?, 1)?;
    let reader = ImageReader::open(from, &Limits::default())?;
    let writer = ImageWriter::create(to, Format::Png, executor.task().output_of(reader.header())?)?;
    Ok(executor.submit(Request::opened(reader, writer), &Cancel::new())?.wait()?.assigned)
}
