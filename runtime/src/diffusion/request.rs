//! A request to a pipeline, and its result.

use serde::Serialize;
use tileforge_image::Size;
use tileforge_session::Assigned;

use super::settings::{Fit, GenerateKind, Settings};
use crate::autoencoder::Latent;
use crate::error::Result;
use crate::pixels::Pixels;

/// What a picture is made from.
#[derive(Clone, Debug)]
pub enum Start {
    /// A picture.
    Picture(Pixels),
    /// A latent, from another network or from an encoder.
    Latent(Latent),
}

type Deferred<T> = Box<dyn FnOnce() -> Result<T> + Send>;
pub(super) type Preview = Box<dyn FnMut(usize, &Pixels) -> Result<()> + Send>;

/// A request to a pipeline. Its functions are called when its turn comes, on another thread.
pub struct GenerateRequest {
    pub(super) settings: Settings,
    pub(super) start: Option<Deferred<Start>>,
    pub(super) mask: Option<Deferred<Pixels>>,
    pub(super) noise: Option<Deferred<Latent>>,
    pub(super) preview: Option<(usize, Preview)>,
    pub(super) decodes: bool,
}

impl std::fmt::Debug for GenerateRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GenerateRequest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl GenerateRequest {
    /// Pictures from noise.
    pub fn new(settings: Settings) -> Self {
        Self { settings, start: None, mask: None, noise: None, preview: None, decodes: true }
    }

    /// Starts from a picture or a latent.
    #[must_use]
    pub fn from_start(self, open: impl FnOnce() -> Result<Start> + Send + 'static) -> Self {
        Self { start: Some(Box::new(open)), ..self }
    }

    /// Regenerates only the white part of a mask. The mask has the picture's size.
    #[must_use]
    pub fn with_mask(self, open: impl FnOnce() -> Result<Pixels> + Send + 'static) -> Self {
        Self { mask: Some(Box::new(open)), ..self }
    }

    /// Starts from this noise, of deviation 1, instead of drawn noise.
    #[must_use]
    pub fn with_noise(self, open: impl FnOnce() -> Result<Latent> + Send + 'static) -> Self {
        Self { noise: Some(Box::new(open)), ..self }
    }

    /// Calls `show` after every `every` steps with the number of finished steps and a preview of the first picture.
    #[must_use]
    pub fn with_preview(self, every: usize, show: impl FnMut(usize, &Pixels) -> Result<()> + Send + 'static) -> Self {
        Self { preview: Some((every.max(1), Box::new(show))), ..self }
    }

    /// Returns only the latents.
    #[must_use]
    pub fn without_pictures(self) -> Self {
        Self { decodes: false, ..self }
    }

    /// The kind of the request.
    pub fn kind(&self) -> GenerateKind {
        match (&self.start, &self.mask) {
            (None, None) => GenerateKind::TextToImage,
            (Some(_), None) => GenerateKind::ImageToImage,
            (_, Some(_)) => GenerateKind::Inpainting,
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The pictures; none if only latents were asked for.
    pub pictures: Vec<Pixels>,
    /// A latent for each picture.
    pub latents: Vec<Latent>,
    /// What it took.
    pub statistics: GenerateStatistics,
}

/// What a request took.
#[derive(Clone, Debug, Serialize)]
pub struct GenerateStatistics {
    /// What the pictures are made from.
    pub kind: GenerateKind,
    /// Width and height.
    pub size: Size,
    /// Columns and rows of the latents.
    pub latent_size: Size,
    /// The scheduler's class.
    pub scheduler: String,
    /// Evaluations of the network for each picture; the second evaluation for guidance does not count.
    pub evaluations: usize,
    /// Runs of the network in each evaluation.
    pub runs: usize,
    /// The parts of the texts that were too long for the text encoders.
    pub cut_off: Vec<CutOff>,
    /// How the given picture was fitted to this size, if it had another one.
    pub resized: Option<Resized>,
    /// Tiles that each picture was decoded in.
    pub tiles: u64,
    /// Which providers took the network's nodes.
    pub assigned: Vec<Assigned>,
    /// How long everything took.
    pub seconds: Seconds,
}

/// The part of a text that is too long for the text encoders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CutOff {
    /// Which text.
    pub of: Text,
    /// The part that no encoder sees.
    pub rest: String,
}

/// A text of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    /// What is to be seen.
    Prompt,
    /// What is not to be seen.
    NegativePrompt,
}

impl std::fmt::Display for Text {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Prompt => "prompt",
            Self::NegativePrompt => "negative prompt",
        })
    }
}

/// How a picture got another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resized {
    /// The size that it had.
    pub from: Size,
    /// How it was fitted.
    pub fit: Fit,
    /// The request names the size, or it is the picture's own size, rounded down to whole latent pixels.
    pub asked_for: bool,
}

/// How long the stages took. Opening a session counts where it was first needed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Seconds {
    /// The texts.
    pub text: f64,
    /// Opening the picture and the mask, and making latents of them.
    pub encode: f64,
    /// All steps.
    pub denoise: f64,
    /// Each evaluation.
    pub evaluations: Vec<f64>,
    /// Making pictures of the latents.
    pub decode: f64,
    /// Everything.
    pub total: f64,
}
