//! A request that was accepted: its files are open, and everything that can be refused before a network runs was
//! checked.

use tileforge_image::Size;

use super::error::Error;
use super::open::Networks;
use crate::random::Noise;
use super::request::{Preview, Request};
use super::schedulers::{self, Config, Scheduler};
use super::settings::{Kind, Settings};
use super::source::Source;
use super::texts::{TextEncoder, pieces};
use crate::error::Result;

/// A request that was accepted, and how far its scheduler and its random numbers are.
pub(super) struct Accepted {
    pub(super) settings: Settings,
    pub(super) kind: Kind,
    /// Of the result, in pixels.
    pub(super) size: Size,
    /// Columns and rows of a latent.
    pub(super) latent_size: Size,
    /// Pieces of each text.
    pub(super) pieces: usize,
    /// Tokens of all pieces of a text.
    pub(super) tokens: usize,
    pub(super) scheduler: Scheduler,
    /// The scheduler's class.
    pub(super) class: String,
    pub(super) random: Box<dyn Noise>,
    /// What is shown on the way, and after how many steps each.
    pub(super) preview: Option<(usize, Preview)>,
    /// Whether latents become pictures.
    pub(super) decodes: bool,
}

impl Accepted {
    /// Accepts a request to a pipeline with this scheduler. Returns what its steps start from, too.
    pub(super) fn new(request: Request, networks: &Networks, scheduler: &Config) -> Result<(Self, Source)> {
        let kind = request.kind();
        let Request { settings, start, mask, noise, preview, decodes } = request;
        settings.check()?;
        check_kind(kind, &settings, networks.network.inpaints(), noise.is_some())?;
        let start = start.map(|open| open()).transpose()?;
        let mask = mask.map(|open| open()).transpose()?;
        let noise = noise.map(|open| open()).transpose()?;
        let source = Source::new(start, mask, noise)?;
        let factor = networks.decoder.factor();
        let known = networks.sizes();
        let size = settings.size.or(source.size(factor)).or(known.last().copied());
        let size = size.ok_or(Error::NoPart { part: "unet", purpose: "a picture" })?;
        let latent_size = latent_size(size, factor)?;
        if !known.contains(&size) {
            return Err(Error::NoSuchSize { wanted: size, known }.into());
        }
        source.check(&settings, networks.network.channels[0], latent_size, networks.encoder.is_some())?;
        let (scheduler, class) = new_scheduler(&settings, kind, scheduler)?;
        let pieces = most_pieces(&settings, &networks.texts)?;
        let tokens = pieces * networks.texts.first().map_or(0, TextEncoder::tokens);
        networks.network.check(latent_size, tokens)?;
        let random = settings.random_numbers.generator(settings.seed);
        let accepted =
            Self { settings, kind, size, latent_size, pieces, tokens, scheduler, class, random, preview, decodes };
        Ok((accepted, source))
    }
}

/// Refuses what does not go together, or not with this network. `inpaints`: the network only fills masked parts.
/// `noise`: noise is given.
fn check_kind(kind: Kind, settings: &Settings, inpaints: bool, noise: bool) -> Result<(), Error> {
    let problem = match kind {
        Kind::TextToImage | Kind::ImageToImage if inpaints => {
            "the engine fills masked parts of pictures; expected a picture and a mask"
        }
        Kind::ImageToImage | Kind::Inpainting if noise => {
            "noise that is given goes with no picture; leave one of them out"
        }
        Kind::TextToImage if settings.start.is_some() => {
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

/// A scheduler before its first step, and its class: the one that was asked for, else the pipeline's.
fn new_scheduler(settings: &Settings, kind: Kind, config: &Config) -> Result<(Scheduler, String), Error> {
    let config = match &settings.scheduler {
        Some(class) => config.clone().with_class(class)?,
        None => config.clone(),
    };
    let mut options = schedulers::Options::new(settings.steps);
    options.strength = if kind == Kind::TextToImage { 1.0 } else { settings.strength };
    options.eta = settings.eta;
    options.end = settings.end;
    options.start = settings.start.filter(|start| *start > 0.0);
    Ok((config.scheduler(&options)?, config.class().to_owned()))
}

/// The pieces of the longest text.
fn most_pieces(settings: &Settings, encoders: &[TextEncoder]) -> Result<usize> {
    let texts = [Some(&settings.prompt), settings.negative_prompt.as_ref()].into_iter().flatten();
    let counts = texts.map(|text| pieces(encoders, text, settings.long_prompt)).collect::<Result<Vec<_>>>()?;
    Ok(counts.into_iter().max().unwrap_or(1))
}
