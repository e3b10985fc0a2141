//! `runtime evaluate`: is the engine better than bicubic, on a photo whose details are known?

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tileforge_contract::Upscale;
use tileforge_engine::Engine;
use tileforge_files::{outputs, unfinished};
use tileforge_image::{Difference, Format, ImageReader, ImageWriter, Limits, Picture, RowSource, Size};
use tileforge_runtime::host::{Cancel, Host, HostOptions, Service};
use tileforge_runtime::upscale::{UpscaleRequest, Upscaler};
use tileforge_runtime::{Error, Result};
use tileforge_session::{Assigned, Environment};
use tileforge_terminal::{number, print, print_json};

use super::chosen::{Chosen, Running};
use super::compare::{Likeness, Places, Summary, as_png, pictures_in, similarity};
use super::failure::{CommandResult, Failure};
use super::figures::{decibels, nodes};

const EXAMPLES: &str = "\
Examples:
  runtime evaluate --engine engines/compact-x4 --input photo.png
  runtime evaluate --engine engines/compact-x4 --input photo.png --minimum-gain 0.5 --json
  runtime evaluate --engine engines/compact-x4 --input photos/ --minimum-psnr 28 --side-by-side compared/

The photo is cropped to a multiple of the engine's scale, shrunk by it (bicubic with antialiasing, 8 bits),
enlarged again by the engine and by bicubic, and both are compared with what it was.";

/// Shrink a photo, or each of a folder, enlarge it with the engine, and compare with the original and with bicubic.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    /// A photo, or a folder: PNG, JPEG, WebP or TIFF.
    #[arg(long, value_name = "PHOTO")]
    input: PathBuf,
    /// Keep what the engine made, as a PNG; a folder for photos of a folder.
    #[arg(long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Fail (exit code 4) when the engine is not better than bicubic by this many dB.
    #[arg(long, value_name = "DB", allow_negative_numbers = true, value_parser = number(-100.0..=100.0))]
    minimum_gain: Option<f64>,
    #[command(flatten)]
    likeness: Likeness,
    #[command(flatten)]
    running: Running,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A photo, and the places of its results.
struct Photo {
    /// Its name in the folder; `None` for a single file.
    name: Option<PathBuf>,
    path: PathBuf,
    /// The file of the engine's result.
    output: Option<PathBuf>,
    places: Places,
}

impl Photo {
    fn shown(&self) -> String {
        self.name.as_deref().unwrap_or(&self.path).display().to_string()
    }
}

/// The figures of a photo.
struct Outcome {
    size: Size,
    shrunk: Size,
    by_engine: Difference,
    by_bicubic: Difference,
    assigned: Vec<Assigned>,
}

impl Outcome {
    /// The gain in PSNR; `None` if a PSNR is, because pictures are identical.
    fn gain(&self) -> Option<f64> {
        self.by_engine.psnr_db.zip(self.by_bicubic.psnr_db).map(|(engine, bicubic)| engine - bicubic)
    }

    fn json(&self) -> Value {
        json!({
            "size": self.size,
            "shrunk": self.shrunk,
            "engine_psnr_db": self.by_engine.psnr_db,
            "bicubic_psnr_db": self.by_bicubic.psnr_db,
            "engine_ssim": self.by_engine.ssim,
            "bicubic_ssim": self.by_bicubic.ssim,
            "gain_db": self.gain(),
            "provider": Assigned::most(&self.assigned),
            "assigned": self.assigned,
        })
    }

    fn gain_text(&self) -> String {
        self.gain().map_or("none".into(), |gain| format!("{gain:+.2} dB"))
    }
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let likeness = &arguments.likeness;
    let photos = photos(arguments)?;
    let kept: Vec<&Path> = photos.iter().filter_map(|photo| photo.output.as_deref()).collect();
    outputs::check(&kept, &[&arguments.input, &arguments.engine.directory])?;
    let engine = arguments.engine.open()?;
    let scale = u32::try_from(Upscale::of(&engine.manifest().contract)?.scale).unwrap_or(u32::MAX);
    let environment = environment()?;
    let places: Vec<&Places> = photos.iter().map(|photo| &photo.places).collect();
    let single = photos.iter().all(|photo| photo.name.is_none());
    likeness.prepare(&places, &kept, &[&arguments.input, &arguments.engine.directory], !single)?;
    let parent = std::env::temp_dir();
    let folder =
        unfinished::folder_in(&parent).map_err(|source| Failure::file(&parent, "create a folder in it", source))?;
    let host = Host::new(&environment, HostOptions::default());
    let upscaler = Service::new(&host, Upscaler::new(&host, &engine, arguments.running.options())?, 1);
    let (mut files, mut found, mut slow) = (Vec::new(), Vec::new(), Vec::new());
    for photo in &photos {
        let outcome = evaluate(&upscaler, scale, likeness, photo, folder.path())?;
        let (name, gain) = (photo.shown(), outcome.gain_text());
        if !arguments.json {
            let (engine, bicubic) = (figures(&outcome.by_engine), figures(&outcome.by_bicubic));
            let on = nodes(&outcome.assigned);
            print(&match &photo.name {
                None => format!("engine  {engine}, on {on}\nbicubic {bicubic}\ngain    {gain}"),
                Some(_) => format!("{name}: engine {engine}; bicubic {bicubic}; gain {gain}; on {on}"),
            })?;
        }
        let mut object = outcome.json();
        object["input"] = photo.path.to_string_lossy().into();
        files.push(object);
        if let Some((minimum, gain)) =
            arguments.minimum_gain.zip(outcome.gain()).filter(|(minimum, gain)| gain < minimum)
        {
            slow.push(format!("{name}: expected a gain of at least {minimum:.2} dB over bicubic, found {gain:+.2} dB"));
        }
        found.push((name, outcome.by_engine));
    }
    if arguments.json {
        print_json(&report(arguments, &engine, files, &found, single))?;
    } else if !single {
        print(&Summary::new(&found).text())?;
    }
    if !slow.is_empty() {
        return Err(Failure::Gate(format!("{}: {}", arguments.engine.directory.display(), slow.join("\n  "))));
    }
    likeness.check(&found)
}

/// Everything as JSON: a single photo's figures beside the engine, those of several in a list.
fn report(
    arguments: &Arguments,
    engine: &Engine,
    mut files: Vec<Value>,
    found: &[(String, Difference)],
    single: bool,
) -> Value {
    let mut all = json!({ "engine": engine.manifest().name, "minimum_gain_db": arguments.minimum_gain });
    let more = match files.pop() {
        Some(only) if single => vec![only],
        last => {
            files.extend(last);
            vec![json!({ "files": files }), Summary::new(found).json()]
        }
    };
    for more in more.into_iter().chain([arguments.likeness.floors()]) {
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
    }
    all
}

/// The photos, and the places of their results.
fn photos(arguments: &Arguments) -> Result<Vec<Photo>, Failure> {
    let Arguments { input, output, likeness, .. } = arguments;
    if !input.is_dir() {
        let (path, output) = (input.clone(), output.clone());
        return Ok(vec![Photo { name: None, path, output, places: likeness.places(None) }]);
    }
    let photo = |name: PathBuf| Photo {
        path: input.join(&name),
        output: output.as_ref().map(|output| output.join(as_png(&name))),
        places: likeness.places(Some(&name)),
        name: Some(name),
    };
    Ok(pictures_in(input)?.into_iter().map(photo).collect())
}

fn figures(found: &Difference) -> String {
    format!("{}, SSIM {}", decibels(found.psnr_db), similarity(found.ssim))
}

/// Shrinks and enlarges a photo, and compares.
fn evaluate(
    upscaler: &Service<Upscaler>,
    scale: u32,
    likeness: &Likeness,
    Photo { path, output, places, .. }: &Photo,
    folder: &Path,
) -> Result<Outcome, Failure> {
    let limits = Limits::default();
    let photo = Picture::read(path, &limits)?;
    let small = Size { width: photo.size().width / scale, height: photo.size().height / scale };
    if small.width == 0 || small.height == 0 {
        let problem = format!("expected a photo of at least {scale}×{scale} pixels, found {}", photo.size());
        return Err(Error::from(tileforge_image::Error::image(path, problem)).into());
    }
    let original = photo.cropped(0, 0, small.scaled(scale)?);
    let shrunk = original.resized(small)?;
    let shrunk_path = folder.join("shrunk.png");
    shrunk.write(&shrunk_path)?;
    let enlarged_path = output.clone().unwrap_or_else(|| folder.join("enlarged.png"));
    let assigned = enlarge(upscaler, &shrunk_path, &enlarged_path)?;
    let enlarged = Picture::read(&enlarged_path, &limits)?;
    let row_bytes = original.size().width as usize * 3;
    let by_engine = likeness.compare(original.size(), 0, places, |take| {
        let rows = original.samples().chunks_exact(row_bytes).zip(enlarged.samples().chunks_exact(row_bytes));
        rows.into_iter().try_for_each(|(one, other)| take(one, other))
    })?;
    let by_bicubic = shrunk.resized(original.size())?.difference(&original, 0)?;
    Ok(Outcome { size: original.size(), shrunk: small, by_engine, by_bicubic, assigned })
}

/// Enlarges a photo. Returns the providers that took the nodes.
fn enlarge(upscaler: &Service<Upscaler>, from: &Path, to: &Path) -> Result<Vec<Assigned>> {
    let reader = ImageReader::open(from, &Limits::default())?;
    let writer = ImageWriter::create(to, Format::Png, upscaler.task().output_of(reader.header())?)?;
    Ok(upscaler.submit(UpscaleRequest::opened(reader, writer), &Cancel::new())?.wait()?.assigned)
}
