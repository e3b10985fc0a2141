//! `runtime generate`: pictures from texts.

mod arguments;
mod record;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tileforge_engine::Pipeline;
use tileforge_engine::digest::{sha256, sha256_file};
use tileforge_files::{TEXT_MAXIMUM_BYTES, outputs};
use tileforge_image::{Depth, Format, ImageReader, ImageWriter, Limits};
use tileforge_runtime::autoencoder::Latent;
use tileforge_runtime::diffusion::{
    CutOff, GenerateKind, GenerateRequest, GenerateStatistics, Generated, Generator, Settings, Start,
};
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::pixels::Pixels;
use tileforge_runtime::{Error, Result};
use tileforge_session::Environment;
use tileforge_session::peak_memory_bytes;
use tileforge_terminal::{Unit, counted, print, print_json};

pub(crate) use arguments::Arguments;

use super::failure::{CommandResult, Failure};
use super::figures::nodes;
use super::signals::stopped_by_signals;
use super::waiting::wait;
use record::{KEYWORD, Record};

/// The ending of latents.
const LATENTS: &str = "safetensors";

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let started = Instant::now();
    check_names(arguments)?;
    let old = arguments.from_image.as_deref().map(Record::read).transpose()?;
    let pipeline = arguments.signed.open_diffusion(&arguments.directory)?;
    let environment = environment()?;
    let host = Host::new(&environment, HostOptions::default());
    let generator = Generator::new(&host, &pipeline, arguments.options())?;
    let record = record_for(arguments, &pipeline, &generator, old.as_ref())?;
    let settings = &record.settings;
    let outputs = names(&arguments.output, settings.count);
    check_outputs(arguments, &outputs)?;
    for CutOff { of, rest } in generator.cut_off(settings)? {
        let rest = shortened(&rest);
        tracing::warn!(
            "the {of} is too long for the text encoder, so its end has no effect (see --long-prompt): {rest}"
        );
    }

    let service = Service::new(&host, generator, 1);
    let handle = service.submit(request(arguments, settings.clone()), &stopped_by_signals())?;
    let Generated { pictures, latents, statistics } = wait(&handle, "generate", Unit::Count("evaluations"))?;
    if is_latent(&arguments.output) {
        outputs.iter().zip(&latents).try_for_each(|(output, latent)| latent.write(output))?;
    } else {
        for (number, (output, picture)) in outputs.iter().zip(&pictures).enumerate() {
            write(picture, output, &Record { picture: number + 1, ..record.clone() })?;
        }
    }
    let session = service.task().location().opening;
    tell(arguments, service.task(), &outputs, &record, &statistics, [session, started.elapsed()])
}

/// Checks the endings of names.
fn check_names(arguments: &Arguments) -> CommandResult {
    if !is_latent(&arguments.output) {
        Format::of_name(&arguments.output)?;
    }
    if let Some(preview) = &arguments.preview {
        Format::of_name(preview)?;
    }
    Ok(())
}

fn is_latent(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(LATENTS))
}

/// The record that the pictures will contain.
fn record_for(
    arguments: &Arguments,
    pipeline: &Pipeline,
    generator: &Generator,
    old: Option<&Record>,
) -> Result<Record, Failure> {
    let sources = &arguments.sources;
    let kind = match (&sources.image, &sources.mask) {
        (None, _) => GenerateKind::TextToImage,
        (Some(_), None) => GenerateKind::ImageToImage,
        (Some(_), Some(_)) => GenerateKind::Inpainting,
    };
    let defaults = generator.settings("", kind);
    let read = |path: &Path| {
        let text = tileforge_files::read_text(path, TEXT_MAXIMUM_BYTES);
        text.map_err(|source| Failure::file(path, "read", source))
    };
    let prompt_of_file = arguments.prompt_file.as_deref().map(read).transpose()?;
    let mut settings = arguments.over(old.map_or(defaults, |old| old.settings.clone()), prompt_of_file);
    // Checked before the numbers are used, such as the number of pictures.
    settings.check().map_err(Error::from)?;
    settings.scheduler = Some(settings.scheduler.unwrap_or_else(|| generator.scheduler().into()));
    let digest = |path: &Option<PathBuf>| path.as_deref().map(|path| Ok(sha256_file(path)?.sha256)).transpose();
    let manifest = serde_json::to_vec(pipeline.manifest()).map_err(|_| unwritten())?;
    let record = Record {
        engine: pipeline.manifest().name.clone(),
        engine_sha256: sha256(&manifest),
        picture: 1,
        image_sha256: digest(&sources.image).map_err(Error::Engine)?,
        mask_sha256: digest(&sources.mask).map_err(Error::Engine)?,
        latents_sha256: digest(&sources.latents).map_err(Error::Engine)?,
        settings,
    };
    if let Some(old) = old {
        for (made, given, what) in [
            (&old.image_sha256, &record.image_sha256, "--image"),
            (&old.mask_sha256, &record.mask_sha256, "--mask"),
            (&old.latents_sha256, &record.latents_sha256, "--latents"),
        ] {
            if made.is_some() && given.is_none() {
                return Err(Failure::Usage(format!("the picture was made with {what}; give that file, too")));
            }
        }
        let differences = old.differences(&record);
        if !differences.is_empty() {
            tracing::warn!("not as the picture was made: {}", differences.join(", "));
        }
    }
    Ok(record)
}

/// The error for numbers that JSON cannot represent; the library has already refused these.
fn unwritten() -> Failure {
    Error::Internal("generate".into()).into()
}

/// A text for a message.
fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    let shown: String = text.chars().take(MOST).collect();
    if shown.len() < text.len() { format!("{shown}… ({} characters)", text.chars().count()) } else { shown }
}

/// The names of the results: numbered if there are several.
fn names(output: &Path, count: usize) -> Vec<PathBuf> {
    if count == 1 {
        return vec![output.to_owned()];
    }
    let numbered = |number: usize| {
        let mut name = output.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{number}"));
        let mut path = output.with_file_name(name);
        if let Some(ending) = output.extension() {
            // Not `with_extension`, which would take a part of a name with several dots.
            path.as_mut_os_string().push(".");
            path.as_mut_os_string().push(ending);
        }
        path
    };
    (1..=count).map(numbered).collect()
}

fn check_outputs(arguments: &Arguments, outputs: &[PathBuf]) -> CommandResult {
    let sources = &arguments.sources;
    let inputs = [&sources.image, &sources.mask, &sources.latents, &arguments.from_image, &arguments.prompt_file];
    let inputs: Vec<&Path> = inputs.into_iter().flatten().map(PathBuf::as_path).collect();
    let written: Vec<&Path> = outputs.iter().chain(&arguments.preview).map(PathBuf::as_path).collect();
    Ok(outputs::check(&written, &[&inputs[..], &[arguments.directory.as_path()]].concat())?)
}

fn request(arguments: &Arguments, settings: Settings) -> GenerateRequest {
    let sources = &arguments.sources;
    let limits = Limits { megapixels: sources.max_megapixels, ..Limits::default() };
    let mut request = GenerateRequest::new(settings);
    if let Some(image) = sources.image.clone() {
        request = request.from_start(move || {
            if is_latent(&image) {
                Latent::read(&image).map(Start::Latent)
            } else {
                picture(&image, &limits).map(Start::Picture)
            }
        });
    }
    if let Some(mask) = sources.mask.clone() {
        request = request.with_mask(move || picture(&mask, &limits));
    }
    if let Some(latents) = sources.latents.clone() {
        request = request.with_noise(move || Latent::read(&latents));
    }
    if let Some(preview) = arguments.preview.clone() {
        request = request.with_preview(arguments.preview_every as usize, move |_, seen| {
            let writer = ImageWriter::create(&preview, Format::of_name(&preview)?, seen.header(Depth::Eight))?;
            seen.write(Box::new(writer))
        });
    }
    if is_latent(&arguments.output) { request.without_pictures() } else { request }
}

fn picture(path: &Path, limits: &Limits) -> Result<Pixels> {
    Pixels::read(&mut ImageReader::open(path, limits)?, limits)
}

fn write(picture: &Pixels, path: &Path, record: &Record) -> CommandResult {
    let text = serde_json::to_string(record).map_err(|_| unwritten())?;
    let (format, header) = (Format::of_name(path)?, picture.header(Depth::Eight));
    let writer = ImageWriter::create_with_texts(path, format, header, &[(KEYWORD, &text)])?;
    Ok(picture.write(Box::new(writer))?)
}

/// Says what was made.
fn tell(
    arguments: &Arguments,
    generator: &Generator,
    outputs: &[PathBuf],
    record: &Record,
    made: &GenerateStatistics,
    [session, total]: [Duration; 2],
) -> CommandResult {
    let settings = &record.settings;
    if arguments.json {
        let mut everything = json!({
            "engine": record.engine,
            "outputs": outputs.iter().map(|output| output.to_string_lossy()).collect::<Vec<_>>(),
            "provider": generator.location().provider,
            "verdict": generator.location().verdict,
            "settings": settings,
            "session_seconds": session.as_secs_f64(),
            "total_seconds": total.as_secs_f64(),
            "peak_memory_bytes": peak_memory_bytes(),
        });
        if let (Some(object), Value::Object(more)) = (everything.as_object_mut(), json!(made)) {
            object.extend(more);
        }
        return Ok(print_json(&everything)?);
    }
    let tiles = if made.tiles > 1 { format!(", decoded in {} tiles", made.tiles) } else { String::new() };
    let about = format!(
        "{}, {}, seed {}{tiles}, {:.2} s on {}",
        made.size,
        steps_text(settings.steps, made),
        settings.seed,
        made.seconds.total,
        nodes(&made.assigned)
    );
    let lines = outputs.iter().map(|output| format!("{}: {about}", output.display()));
    Ok(print(&lines.collect::<Vec<_>>().join("\n"))?)
}

/// "20 steps of PNDMScheduler (21 evaluations)": as many steps as were asked for. Some methods evaluate the network
/// more often, and a run from a picture less often.
fn steps_text(steps: usize, made: &GenerateStatistics) -> String {
    let GenerateStatistics { evaluations, scheduler, .. } = made;
    let often = if *evaluations == steps { String::new() } else { format!(" ({evaluations} evaluations)") };
    format!("{} of {scheduler}{often}", counted(steps, "step"))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn several_pictures_are_numbered() {
        let text = |output: &str, count| -> Vec<String> {
            names(output.as_ref(), count).iter().map(|path| path.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(text("a/fox.png", 1), ["a/fox.png"]);
        assert_eq!(text("a/red.fox.png", 2), ["a/red.fox-1.png", "a/red.fox-2.png"]);
    }
}
