//! A validated request with open files: it passed every check that is possible before a network runs.

use tileforge_image::Size;

use super::error::Error;
use super::networks::Networks;
use super::request::{CutOff, GenerateRequest, Preview, Resized, Text};
use super::schedulers::{self, Config, Scheduler};
use super::settings::{Family, Fit, GenerateKind, Settings};
use super::source::StartingPoint;
use super::texts::{TextEncoder, cut_off, pieces, tokens};
use crate::error::Result;
use crate::random::Noise;

/// A validated request, with the state of its scheduler and its random numbers.
pub(super) struct Accepted {
    pub(super) settings: Settings,
    pub(super) kind: GenerateKind,
    /// Whether the network also runs without the text.
    pub(super) is_guided: bool,
    /// Size of the result in pixels.
    pub(super) size: Size,
    /// How the given picture is fitted to `size`, if it has another size.
    pub(super) resized: Option<Resized>,
    /// Columns and rows of a latent.
    pub(super) latent_size: Size,
    /// Pieces of each text.
    pub(super) pieces: usize,
    /// Tokens of all pieces of a text.
    pub(super) tokens: Option<usize>,
    /// The parts of the texts that no encoder sees.
    pub(super) cut_off: Vec<CutOff>,
    pub(super) scheduler: Scheduler,
    /// The scheduler's class.
    pub(super) class: String,
    pub(super) random: Box<dyn Noise>,
    /// The preview callback, and the number of steps between two calls.
    pub(super) preview: Option<(usize, Preview)>,
    /// Whether latents are decoded to pictures.
    pub(super) decodes: bool,
}

impl Accepted {
    /// Validates a request to a pipeline of this family with this scheduler. Also returns the source of its steps.
    pub(super) fn new(
        request: GenerateRequest,
        networks: &Networks,
        family: Family,
        scheduler: &Config,
    ) -> Result<(Self, StartingPoint)> {
        let kind = request.kind();
        let GenerateRequest { settings, start, mask, noise, preview, decodes } = request;
        settings.check()?;
        check_kind(kind, &settings, networks.denoiser.inpaints(), noise.is_some())?;
        let start = start.map(|open| open()).transpose()?;
        let mask = mask.map(|open| open()).transpose()?;
        let noise = noise.map(|open| open()).transpose()?;
        let source = StartingPoint::new(start, mask, noise)?;
        let factor = networks.decoder.factor();
        let known = networks.sizes();
        let (size, resized) = chosen_size(&settings, &source, factor, &known)?;
        let latent_size = latent_size(size, factor)?;
        if !known.contains(&size) {
            return Err(Error::NoSuchSize { wanted: size, known }.into());
        }
        source.check(&settings, networks.denoiser.interface.channels[0], latent_size, networks.encoder.is_some())?;
        let (scheduler, class) = new_scheduler(&settings, kind, family, scheduler)?;
        let pieces = most_pieces(&settings, &networks.texts)?;
        let is_guided = networks.is_guided(&settings);
        if networks.denoiser.interface.takes_guidance() && settings.negative_prompt.is_some() {
            tracing::warn!("the network follows the text in one evaluation: the negative prompt has no effect");
        }
        let cut_off = cut_off_of(&settings, networks)?;
        let tokens = tokens(&networks.texts, pieces);
        networks.denoiser.check(latent_size, tokens)?;
        let random = settings.random_numbers.generator(settings.seed);
        let accepted = Self {
            settings,
            kind,
            is_guided,
            size,
            resized,
            latent_size,
            pieces,
            tokens,
            cut_off,
            scheduler,
            class,
            random,
            preview,
            decodes,
        };
        Ok((accepted, source))
    }
}

/// Refuses inputs that exclude each other or that this network does not take. `inpaints`: the network only fills
/// masked parts. `noise`: the request gives noise.
fn check_kind(kind: GenerateKind, settings: &Settings, inpaints: bool, noise: bool) -> Result<(), Error> {
    let problem = match kind {
        GenerateKind::TextToImage | GenerateKind::ImageToImage if inpaints => {
            "the engine fills masked parts of pictures; expected a picture and a mask"
        }
        GenerateKind::ImageToImage | GenerateKind::Inpainting if noise => {
            "noise that is given goes with no picture; leave one of them out"
        }
        GenerateKind::TextToImage if settings.start.is_some() => {
            "going on where a network stopped needs its latent to start from"
        }
        _ => return Ok(()),
    };
    Err(Error::Inputs { problem })
}

/// Columns and rows of a picture's latent.
fn latent_size(size: Size, factor: usize) -> Result<Size, Error> {
    let multiple = u32::try_from(factor).unwrap_or(u32::MAX);
    if size.width.is_multiple_of(multiple) && size.height.is_multiple_of(multiple) {
        return Ok(Size { width: size.width / multiple, height: size.height / multiple });
    }
    Err(Error::SizeMultiple { found: size, multiple: factor })
}

/// A scheduler before its first step, and its class: the requested one, else the pipeline's.
fn new_scheduler(
    settings: &Settings,
    kind: GenerateKind,
    family: Family,
    config: &Config,
) -> Result<(Scheduler, String), Error> {
    let config = match &settings.scheduler {
        Some(name) => config.clone().with_name(name)?,
        None => config.clone(),
    };
    let mut options = schedulers::SchedulerOptions::new(settings.steps);
    options.strength = if kind == GenerateKind::TextToImage { 1.0 } else { settings.strength };
    options.all_steps = family == Family::LatentConsistency;
    options.eta = settings.eta;
    options.end = settings.end;
    options.start = settings.start.filter(|start| *start > 0.0);
    Ok((config.scheduler(&options)?, config.class().to_owned()))
}

/// The pieces of the longest text.
fn most_pieces(settings: &Settings, encoders: &[TextEncoder]) -> Result<usize> {
    let texts = [Some(&settings.prompt), settings.negative_prompt.as_ref()].into_iter().flatten();
    let counts = texts.map(|text| pieces(encoders, text, settings.reading())).collect::<Result<Vec<_>>>()?;
    Ok(counts.into_iter().max().unwrap_or(1))
}

/// The parts of a request's texts that no encoder sees.
pub(super) fn cut_off_of(settings: &Settings, networks: &Networks) -> Result<Vec<CutOff>> {
    let negative = settings.negative_prompt.as_ref().filter(|_| networks.is_guided(settings));
    let mut all = Vec::new();
    for (of, text) in [(Text::Prompt, Some(&settings.prompt)), (Text::NegativePrompt, negative)] {
        let rest = text.map(|text| cut_off(&networks.texts, text, settings.reading())).transpose()?.flatten();
        all.extend(rest.map(|rest| CutOff { of, rest }));
    }
    Ok(all)
}

/// The size of the result, and how a picture of another size is fitted to it.
fn chosen_size(
    settings: &Settings,
    source: &StartingPoint,
    factor: usize,
    known: &[Size],
) -> Result<(Size, Option<Resized>), Error> {
    let own = source.size(factor);
    let size = match (settings.size, own, source.picture()) {
        (Some(size), _, _) => Some(size),
        (None, Some(own), Some(picture)) if !known.contains(&own) => nearest(known, picture),
        (None, own, _) => own.or(known.last().copied()),
    };
    let size = size.ok_or(Error::NoPart { part: "a denoiser", purpose: "a picture" })?;
    let from = source.picture().filter(|from| *from != size);
    let resized = from.map(|from| {
        let asked_for = settings.size.is_some() || own == Some(size);
        Resized { from, fit: settings.fit.unwrap_or(if asked_for { Fit::Stretch } else { Fit::Crop }), asked_for }
    });
    Ok((size, resized))
}

/// The known size nearest to a picture's: first by proportions, then by number of pixels.
fn nearest(known: &[Size], picture: Size) -> Option<Size> {
    let proportions = |size: Size| (f64::from(size.width) / f64::from(size.height)).ln();
    let pixels = |size: Size| (size.pixels() as f64).ln();
    let distance = |of: &dyn Fn(Size) -> f64, size: Size| (of(size) - of(picture)).abs();
    known.iter().copied().min_by(|one, other| {
        let by = |of: &dyn Fn(Size) -> f64| distance(of, *one).total_cmp(&distance(of, *other));
        by(&proportions).then(by(&pixels))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pixels::Pixels;

    const SQUARE: Size = Size { width: 512, height: 512 };
    const LARGE: Size = Size { width: 1024, height: 1024 };
    const WIDE: Size = Size { width: 768, height: 512 };

    fn chosen(settings: &Settings, [width, height]: [u32; 2], known: &[Size]) -> (Size, Option<Resized>) {
        let size = Size { width, height };
        let picture = Pixels { size, channels: 1, samples: vec![0.5; size.pixels() as usize] };
        chosen_size(settings, &StartingPoint::Picture(picture), 8, known).unwrap()
    }

    #[test]
    fn a_picture_of_another_size_gets_the_nearest_that_the_engine_makes() {
        let settings = Settings::new("a fox", GenerateKind::ImageToImage, Family::StableDiffusion);
        let known = [SQUARE, WIDE, LARGE];
        let crop = |width, height| Some(Resized { from: Size { width, height }, fit: Fit::Crop, asked_for: false });
        for (picture, expected) in [([300, 300], SQUARE), ([900, 600], WIDE), ([900, 899], LARGE), ([5, 1], WIDE)] {
            assert_eq!(chosen(&settings, picture, &known), (expected, crop(picture[0], picture[1])), "{picture:?}");
        }
        assert_eq!(chosen(&settings, [512, 512], &known), (SQUARE, None));
        // The sides are few pixels above a multiple of the latent pixel; diffusers stretches this.
        let stretched = Resized { from: Size { width: 519, height: 512 }, fit: Fit::Stretch, asked_for: true };
        assert_eq!(chosen(&settings, [519, 512], &known), (SQUARE, Some(stretched)));
    }

    #[test]
    fn a_size_that_is_asked_for_stretches_the_picture_unless_it_is_cropped() {
        let mut settings = Settings {
            size: Some(SQUARE),
            ..Settings::new("a fox", GenerateKind::ImageToImage, Family::StableDiffusion)
        };
        for (fit, expected) in [(None, Fit::Stretch), (Some(Fit::Crop), Fit::Crop)] {
            settings.fit = fit;
            let from = Size { width: 768, height: 512 };
            let resized = Resized { from, fit: expected, asked_for: true };
            assert_eq!(chosen(&settings, [768, 512], &[WIDE]), (SQUARE, Some(resized)));
        }
    }
}
