//! Pictures from texts, for every interface.

use std::sync::Arc;

use tileforge::diffusion::{Fit, GenerateKind, Settings};
use tileforge::{Colour, Generate, Generator, Picture, PixelData, Pixels, Size};

use crate::app::App;
use crate::budget::Held;
use crate::failure::{Failure, Result};
use crate::inference::RequestOptions;
use crate::model::Model;
use crate::size::shown;
use crate::watcher::Watcher;

/// The largest length of a text in bytes.
const TEXT_MAXIMUM: usize = 32 << 10;

/// Bytes that a picture takes for each of its pixels: as floats, as samples, and as a file.
const BYTES_PER_PIXEL: u64 = 20;

/// A client's request to a pipeline. Missing values have diffusers' defaults, except the seed, which is drawn.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) prompt: String,
    pub(crate) negative_prompt: Option<String>,
    pub(crate) count: Option<usize>,
    pub(crate) size: Option<Size>,
    pub(crate) seed: Option<u64>,
    pub(crate) steps: Option<usize>,
    pub(crate) guidance: Option<f64>,
    pub(crate) strength: Option<f64>,
    pub(crate) scheduler: Option<String>,
    pub(crate) fit: Option<Fit>,
    /// The picture to start from.
    pub(crate) picture: Option<Picture>,
    /// White where the picture is made anew.
    pub(crate) mask: Option<Picture>,
    /// The largest number of previews.
    pub(crate) previews: usize,
}

/// Pictures, and how to make them again.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) pictures: Vec<Picture>,
    pub(crate) size: Size,
    pub(crate) seed: u64,
    pub(crate) steps: usize,
}

/// Makes pictures. Their memory is counted towards the request's before the first step.
pub(crate) async fn generate(
    app: &App,
    model: &Model,
    wanted: Wanted,
    options: RequestOptions,
    held: &Held,
    watcher: &Watcher,
) -> Result<Made> {
    let generator = model.generator()?;
    let settings = settings(app, generator, &wanted)?;
    let pixels = pixels_of(&settings);
    held.add_pixels(pixels, BYTES_PER_PIXEL)?;
    let (seed, steps) = (settings.seed, settings.steps);
    let every = steps.div_ceil(wanted.previews + 1).max(1);
    let mut request = Generate::new(settings);
    if let Some(picture) = wanted.picture {
        request = request.from_picture(picture);
    }
    if let Some(mask) = wanted.mask {
        request = request.with_mask(mask);
    }
    if wanted.previews > 0 {
        // Some schedulers evaluate the network more than once in a step.
        let (watcher, mut left) = (watcher.clone(), wanted.previews);
        request = request.with_previews(every, move |steps, picture| {
            if left > 0 {
                left -= 1;
                watcher.show(steps, picture);
            }
        });
    }
    let (terms, _cancel) = options.terms(app);
    let made = watcher.follow(model, generator.send(request, terms)?).await?;
    let size = made.statistics.size;
    Ok(Made { pictures: made.pictures, size, seed, steps })
}

/// Pixels of all pictures together.
fn pixels_of(settings: &Settings) -> u64 {
    settings.size.map_or(0, Size::pixels) * settings.count as u64
}

/// The settings of a request within the limits.
fn settings(app: &App, generator: &Generator, wanted: &Wanted) -> Result<Settings> {
    let limits = &app.limits;
    let kind = match (&wanted.picture, &wanted.mask) {
        (None, None) => GenerateKind::TextToImage,
        (Some(_), None) => GenerateKind::ImageToImage,
        (_, Some(_)) => GenerateKind::Inpainting,
    };
    for (name, text) in [("prompt", Some(&wanted.prompt)), ("negative_prompt", wanted.negative_prompt.as_ref())] {
        if text.is_some_and(|text| text.len() > TEXT_MAXIMUM) {
            return Err(Failure::invalid(format!("{name}: expected a text of at most {TEXT_MAXIMUM} bytes")));
        }
    }
    let default = generator.settings(wanted.prompt.clone(), kind);
    let within = |name: &str, number: Option<usize>, default: usize, most: usize| match number {
        None => Ok(default.min(most)),
        Some(number) if (1..=most).contains(&number) => Ok(number),
        Some(_) => Err(Failure::invalid(format!("{name}: expected a number from 1 to {most}"))),
    };
    let settings = Settings {
        negative_prompt: wanted.negative_prompt.clone(),
        steps: within("steps", wanted.steps, default.steps, limits.steps)?,
        count: within("n", wanted.count, default.count, limits.pictures)?,
        guidance: wanted.guidance.unwrap_or(default.guidance),
        strength: wanted.strength.unwrap_or(default.strength),
        scheduler: wanted.scheduler.clone(),
        seed: wanted.seed.map_or_else(new_seed, Ok)?,
        size: Some(size(generator, wanted)?),
        fit: wanted.fit.or(Some(Fit::Crop)),
        long_prompt: true,
        // Pixels outside of the mask do not change.
        keep_unmasked: wanted.mask.is_some(),
        ..default
    };
    settings.check().map_err(tileforge::Error::from)?;
    if pixels_of(&settings) > u64::from(limits.megapixels) * 1_000_000 {
        let most = limits.megapixels;
        return Err(Failure::invalid(format!("expected at most {most} million pixels in all pictures together")));
    }
    Ok(settings)
}

/// The requested size; else the engine's size that is nearest to the picture's; else the largest.
fn size(generator: &Generator, wanted: &Wanted) -> Result<Size> {
    let sizes = generator.sizes();
    if let Some(size) = wanted.size {
        if sizes.contains(&size) {
            return Ok(size);
        }
        let known = sizes.iter().map(|size| shown(*size)).collect::<Vec<_>>().join(", ");
        return Err(Failure::invalid(format!("size: expected one of {known}, found {}", shown(size))));
    }
    let proportion = |size: Size| (f64::from(size.width) / f64::from(size.height)).ln();
    let size = match &wanted.picture {
        None => sizes.last().copied(),
        Some(picture) => {
            let far = |size: Size| (proportion(size) - proportion(picture.size())).abs();
            let pixels = |size: Size| size.pixels().abs_diff(picture.size().pixels());
            sizes
                .iter()
                .copied()
                .min_by(|one, other| far(*one).total_cmp(&far(*other)).then(pixels(*one).cmp(&pixels(*other))))
        }
    };
    size.ok_or_else(|| Failure::internal("the pipeline makes no pictures"))
}

/// A seed that JavaScript's numbers can represent exactly.
fn new_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| Failure::internal(format!("no random numbers: {error}")))?;
    Ok(u32::from_le_bytes(bytes).into())
}

/// How a mask marks the part to make anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskOf {
    /// The part is transparent, as in OpenAI's API. In a mask without transparency, it is white.
    Alpha,
    /// The part is white.
    White,
}

/// A mask of grey values, white where the picture is made anew.
pub(crate) fn mask(picture: &Picture, of: MaskOf) -> Result<Picture> {
    let alpha = match picture.colour() {
        Colour::GreyAlpha => Some(1),
        Colour::Rgba => Some(3),
        Colour::Grey | Colour::Rgb => None,
    };
    let channels = picture.colour().channels();
    let samples = picture.to_eight();
    let grey: Vec<u8> = match (of, alpha) {
        (MaskOf::Alpha, Some(alpha)) => samples.chunks_exact(channels).map(|pixel| 255 - pixel[alpha]).collect(),
        _ => samples.chunks_exact(channels).map(brightness).collect(),
    };
    let pixels = Pixels { size: picture.size(), colour: Colour::Grey, data: PixelData::Eight(&grey), stride: None };
    Ok(Picture::from_pixels(pixels)?)
}

/// Whether a part of a picture is transparent.
pub(crate) fn is_transparent(picture: &Picture) -> bool {
    let channels = picture.colour().channels();
    let has_alpha = matches!(picture.colour(), Colour::GreyAlpha | Colour::Rgba);
    has_alpha && picture.to_eight().chunks_exact(channels).any(|pixel| pixel[channels - 1] < 255)
}

/// The mean of red, green and blue, or the grey.
fn brightness(pixel: &[u8]) -> u8 {
    match pixel {
        [red, green, blue, ..] => ((u16::from(*red) + u16::from(*green) + u16::from(*blue)) / 3) as u8,
        [grey, ..] => *grey,
        [] => 0,
    }
}

/// Decodes a picture in a text: base64, alone or in a data URL.
pub(crate) async fn decode_text(app: &App, name: &str, text: &str, held: &Arc<Held>) -> Result<Picture> {
    use base64::Engine as _;
    let coded = match text.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,").map(|(_, coded)| coded),
        None => Some(text),
    };
    let wrong = || Failure::invalid(format!("{name}: expected a picture in base64, or a data URL with base64"));
    let coded = coded.ok_or_else(wrong)?.trim_end();
    held.add(coded.len() / 4 * 3)?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(coded).map_err(|_| wrong())?;
    if bytes.is_empty() {
        return Err(wrong());
    }
    app.coding.decode(bytes.into(), held).await
}
