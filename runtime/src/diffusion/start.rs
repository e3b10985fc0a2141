//! Prepares the latents of the first step from a request's source. Random numbers are drawn in the order of diffusers'
//! pipelines: for the picture's latent, the noise, the masked picture's latent.

use std::time::Instant;

use super::accepted::Accepted;
use super::error::Error;
use super::request::Resized;
use super::schedulers::Scheduler;
use super::settings::Fit;
use super::source::{StartingPoint, check_latent};
use crate::autoencoder::{Encoder, Watch};
use crate::error::{Error as RuntimeError, Result};
use crate::host::Ticket;
use crate::pixels::{Pixels, nearest_as_pytorch};

/// The grey of masked pixels: 0 in the range from −1 to 1.
const MASKED: f32 = 0.5;

/// The inputs of the first step.
pub(super) struct Prepared {
    /// `[pictures, channels, height, width]`.
    pub(super) sample: Vec<f64>,
    /// The known part of the picture, for networks that do not take a mask.
    pub(super) known: Option<Known>,
    /// The mask and the masked picture's latent, appended to each sample as input channels.
    pub(super) extra: Vec<f32>,
    /// The picture and its mask in the size of the result.
    pub(super) original: Option<Original>,
}

impl Prepared {
    fn without_mask(sample: Vec<f64>) -> Self {
        Self { sample, known: None, extra: Vec::new(), original: None }
    }
}

/// The known part of a picture.
pub(super) struct Known {
    /// `[channels, height, width]`.
    latent: Vec<f64>,
    /// `[height, width]`: 1 where the picture is regenerated.
    mask: Vec<f32>,
    /// `[pictures, channels, height, width]`.
    noise: Vec<f32>,
}

impl Known {
    /// Writes the known part into the sample, with the sample's noise level.
    pub(super) fn restore(&self, scheduler: &Scheduler, sample: &mut [f64]) -> Result<(), Error> {
        let pictures = sample.chunks_exact_mut(self.latent.len()).zip(self.noise.chunks_exact(self.latent.len()));
        for (sample, noise) in pictures {
            let known = scheduler.add_noise(&self.latent, noise)?;
            for ((value, known), mask) in sample.iter_mut().zip(known).zip(self.mask.iter().cycle()) {
                *value = if *mask >= 0.5 { *value } else { known };
            }
        }
        Ok(())
    }
}

/// A picture of which a part is regenerated.
pub(super) struct Original {
    picture: Pixels,
    /// `[height, width]`.
    mask: Vec<f32>,
}

impl Original {
    /// Copies the picture's pixels outside of the mask into another picture of its size.
    pub(super) fn restore(&self, picture: &mut Pixels) {
        let channels = picture.channels;
        let original = self.picture.with_channels(channels);
        let pixels = picture.samples.chunks_exact_mut(channels).zip(original.samples.chunks_exact(channels));
        for ((pixel, original), mask) in pixels.zip(&self.mask) {
            if *mask < 0.5 {
                pixel.copy_from_slice(original);
            }
        }
    }
}

/// What is needed to prepare the first step.
pub(super) struct Preparation<'b> {
    pub(super) accepted: &'b mut Accepted,
    /// Channels of the noisy latent, of the mask, and of the masked picture's latent.
    pub(super) channels: [usize; 3],
    /// The autoencoder's first half, if the engine has it.
    pub(super) encoder: Option<&'b Encoder>,
    pub(super) ticket: &'b Ticket,
}

impl Preparation<'_> {
    pub(super) fn prepare(mut self, source: StartingPoint) -> Result<Prepared> {
        match source {
            StartingPoint::Noise(given) => {
                let noise = given.map_or_else(|| self.draw(), |latent| latent.values);
                Ok(Prepared::without_mask(self.scaled(&noise)))
            }
            StartingPoint::Latent(latent) => self.image_to_image(latent.values.into_iter().map(f64::from).collect()),
            StartingPoint::Picture(picture) => {
                let fitted = self.fitted(&picture)?;
                let latent = self.encoded(fitted)?;
                self.image_to_image(latent)
            }
            StartingPoint::Masked { picture, mask } => self.inpainting(&picture, &mask),
        }
    }

    /// A picture or its mask in the size of the result.
    fn fitted(&self, picture: &Pixels) -> Result<Pixels> {
        let size = self.accepted.size;
        match self.accepted.resized {
            Some(Resized { fit: Fit::Crop, .. }) => picture.middle(size).lanczos_as_pillow(size),
            _ => picture.lanczos_as_pillow(size),
        }
    }

    /// Noise for all pictures, as one tensor.
    fn draw(&mut self) -> Vec<f32> {
        let count = self.accepted.settings.count * self.channels[0] * self.accepted.latent_size.pixels() as usize;
        self.accepted.random.normal(count)
    }

    fn scaled(&self, noise: &[f32]) -> Vec<f64> {
        let deviation = self.accepted.scheduler.initial_deviation();
        noise.iter().map(|value| f64::from(*value) * deviation).collect()
    }

    fn image_to_image(mut self, latent: Vec<f64>) -> Result<Prepared> {
        // A latent from another network already has its noise.
        let sample = if self.accepted.settings.start.is_some() {
            latent.repeat(self.accepted.settings.count)
        } else {
            let noise = self.draw();
            self.noised(&latent, &noise)?
        };
        Ok(Prepared::without_mask(sample))
    }

    fn inpainting(mut self, picture: &Pixels, mask: &Pixels) -> Result<Prepared> {
        let (picture, mask) = (self.fitted(picture)?, self.fitted(mask)?);
        let white = |value: &f32| if *value >= 0.5 { 1.0 } else { 0.0 };
        let mask: Vec<f32> = mask.with_channels(1).samples.iter().map(white).collect();
        let takes_mask = self.channels[1] > 0;
        let is_full = self.accepted.settings.strength >= 1.0;
        let latent = (!takes_mask || !is_full).then(|| self.encoded(picture.clone())).transpose()?;
        let noise = self.draw();
        let sample = match &latent {
            Some(latent) if !is_full => self.noised(latent, &noise)?,
            _ => self.scaled(&noise),
        };
        let mut masked = picture.clone();
        for (pixel, mask) in masked.samples.chunks_exact_mut(picture.channels).zip(&mask) {
            if *mask >= 0.5 {
                pixel.fill(MASKED);
            }
        }
        // diffusers draws this latent's numbers also for networks that do not take it.
        let masked = self.encoded(masked)?;
        let small = nearest_as_pytorch(&mask, self.accepted.size, self.accepted.latent_size);
        let extra = if takes_mask {
            small.iter().copied().chain(masked.into_iter().map(|value| value as f32)).collect()
        } else {
            Vec::new()
        };
        let known = latent.filter(|_| !takes_mask).map(|latent| Known { latent, mask: small, noise });
        Ok(Prepared { sample, known, extra, original: Some(Original { picture, mask }) })
    }

    /// The same latent with the noise of each picture.
    fn noised(&self, latent: &[f64], noise: &[f32]) -> Result<Vec<f64>, Error> {
        let mut sample = Vec::with_capacity(noise.len());
        for noise in noise.chunks_exact(latent.len()) {
            sample.extend(self.accepted.scheduler.add_noise(latent, noise)?);
        }
        Ok(sample)
    }

    /// A sample of a picture's latent.
    fn encoded(&mut self, picture: Pixels) -> Result<Vec<f64>> {
        // Without an encoder, the source was refused.
        let encoder = self.encoder.ok_or_else(|| RuntimeError::internal("encoder"))?;
        let progress = |_, _| ();
        let watch = Watch { began: Instant::now(), ticket: self.ticket, progress: &progress };
        let frames = Box::new(std::iter::once(Ok(picture)));
        let (latent, _) = encoder.encode_frames(frames, Some(&mut *self.accepted.random), watch)?;
        check_latent("the encoder's", &latent, self.channels[0], self.accepted.latent_size)?;
        Ok(latent.values.into_iter().map(f64::from).collect())
    }
}
