//! Texts to pictures.

use tileforge_image::{Limits, Size};
use tileforge_runtime::autoencoder::Latent;
use tileforge_runtime::diffusion::{self, GenerateKind, GenerateStatistics, Settings, Start};
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::pixels::Pixels;
use tileforge_session::Placement;

use crate::error::Result;
use crate::picture::Picture;
use crate::request::Request;

/// How pictures are made.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    /// Where the parts run.
    pub placement: Placement,
    /// Closes the sessions of a part when it is done, so that only one part is in memory at a time.
    pub low_memory: bool,
}

impl From<Generation> for diffusion::GeneratorOptions {
    fn from(Generation { placement, low_memory }: Generation) -> Self {
        Self { placement, low_memory, overlap: None }
    }
}

/// A request to a [`Generator`]: settings and optional inputs.
///
/// ```
/// use tileforge::diffusion::GenerateKind;
/// use tileforge::{Generate, Generator, Picture};
///
/// fn request(generator: &Generator, photo: Picture) -> Generate {
///     let settings = generator.settings("a fox in the snow", GenerateKind::ImageToImage);
///     Generate::new(settings)
///         .from_picture(photo)
///         .with_previews(5, |steps, picture| println!("after {steps} steps: {}", picture.size()))
/// }
/// ```
#[derive(Debug)]
pub struct Generate(diffusion::GenerateRequest);

impl Generate {
    /// Pictures from noise.
    pub fn new(settings: Settings) -> Self {
        Self(diffusion::GenerateRequest::new(settings))
    }

    /// Starts from a picture.
    #[must_use]
    pub fn from_picture(self, picture: Picture) -> Self {
        Self(self.0.from_start(move || Ok(Start::Picture(pixels(picture)?))))
    }

    /// Regenerates only the white part of a mask. The mask has the size of the picture to start from.
    #[must_use]
    pub fn with_mask(self, mask: Picture) -> Self {
        Self(self.0.with_mask(move || pixels(mask)))
    }

    /// Calls `show` after every `every` steps with the number of finished steps and a preview of the first picture.
    /// The last step has no preview. Each preview costs one run of the decoder, and the steps wait for `show`.
    #[must_use]
    pub fn with_previews(self, every: usize, show: impl FnMut(usize, Picture) + Send + 'static) -> Self {
        let mut show = show;
        Self(self.0.with_preview(every, move |steps, pixels| {
            show(steps, Picture::from(pixels));
            Ok(())
        }))
    }
}

fn pixels(picture: Picture) -> tileforge_runtime::Result<Pixels> {
    Pixels::read(&mut picture.source(), &Limits::default())
}

/// The result of a request.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The pictures, of 8 bits.
    pub pictures: Vec<Picture>,
    /// A latent for each picture.
    pub latents: Vec<Latent>,
    /// The statistics of the request.
    pub statistics: GenerateStatistics,
}

/// A pipeline that makes pictures from texts, for any number of callers. Requests at different steps, with different
/// schedulers and guidance, share the runs of its network.
#[derive(Debug)]
pub struct Generator(Service<diffusion::Generator>);

impl Generator {
    pub(crate) fn new(service: Service<diffusion::Generator>) -> Self {
        Self(service)
    }

    /// The sizes of pictures that it makes, the smallest first.
    pub fn sizes(&self) -> Vec<Size> {
        self.0.task().sizes()
    }

    /// The default settings, as in diffusers' pipeline of its class.
    pub fn settings(&self, prompt: impl Into<String>, kind: GenerateKind) -> Settings {
        self.0.task().settings(prompt, kind)
    }

    /// Makes pictures from noise, and waits for them.
    ///
    /// # Errors
    /// The settings exclude each other, or do not fit this pipeline.
    pub fn generate(&self, settings: Settings) -> Result<Generated> {
        self.submit(settings, Terms::default())?.wait()
    }

    /// The class of the default scheduler, by its name in diffusers.
    pub fn scheduler(&self) -> &str {
        self.0.task().scheduler()
    }

    /// Whether the network only fills masked parts of pictures.
    pub fn needs_mask(&self) -> bool {
        self.0.task().needs_mask()
    }

    /// Makes pictures from noise, when the request's turn comes.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(&self, settings: Settings, terms: impl Into<Terms>) -> Result<Request<Generated>> {
        self.send(Generate::new(settings), terms)
    }

    /// Makes pictures from a picture; with a mask of its size, only the mask's white part is regenerated.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit_from(
        &self,
        settings: Settings,
        picture: Picture,
        mask: Option<Picture>,
        terms: impl Into<Terms>,
    ) -> Result<Request<Generated>> {
        let request = Generate::new(settings).from_picture(picture);
        match mask {
            Some(mask) => self.send(request.with_mask(mask), terms),
            None => self.send(request, terms),
        }
    }

    /// Submits a [`Generate`] request. [`Request::progress`] counts its steps.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn send(&self, request: Generate, terms: impl Into<Terms>) -> Result<Request<Generated>> {
        let handle = self.0.submit(request.0, terms)?;
        Ok(Request::new(handle, |made: diffusion::Generated| {
            let diffusion::Generated { pictures, latents, statistics } = made;
            Ok(Generated { pictures: pictures.iter().map(Picture::from).collect(), latents, statistics })
        }))
    }
}
