//! Pictures to latents, and back.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::Limits;
use tileforge_runtime::autoencoder::{self, CodingOptions, DecodeRequest, EncodeRequest, Latent, Posterior};
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::pixels::Pixels;
use tileforge_session::Placement;

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::request::Request;

/// How pictures and clips are coded, or restored.
#[derive(Clone, Debug, Default)]
pub struct Coding {
    /// Where the engine runs.
    pub placement: Placement,
}

impl From<Coding> for CodingOptions {
    fn from(Coding { placement }: Coding) -> Self {
        Self { placement, overlap: None }
    }
}

/// An engine that encodes pictures to latents, for any number of callers.
#[derive(Debug)]
pub struct Encoder(Service<autoencoder::Encoder>);

impl Encoder {
    pub(crate) fn new(service: Service<autoencoder::Encoder>) -> Self {
        Self(service)
    }

    /// Encodes a picture to the mean of its latent distribution, and waits for the latent.
    ///
    /// # Errors
    /// The engine takes clips, or the network fails.
    pub fn encode(&self, picture: Picture) -> Result<Latent> {
        self.submit(picture, Terms::default())?.wait()
    }

    /// Submits a picture to encode.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(&self, picture: Picture, terms: impl Into<Terms>) -> Result<Request<Latent>> {
        self.submit_clip([picture], terms)
    }

    /// Submits a clip to encode to the mean of its latent distribution. All frames must have one size. Frames are
    /// taken one after the other, on another thread.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit). Waiting for the request fails if there is no frame, or if
    /// there are several and the engine takes only pictures.
    pub fn submit_clip<I>(&self, frames: I, terms: impl Into<Terms>) -> Result<Request<Latent>>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let open = move || -> tileforge_runtime::Result<autoencoder::Frames> {
            let pixels = |picture: Picture| Pixels::read(&mut picture.source(), &Limits::default());
            Ok(Box::new(frames.into_iter().map(pixels)))
        };
        let handle = self.0.submit(EncodeRequest::new(open, Posterior::Mean), terms)?;
        Ok(Request::new(handle, |(latent, _)| Ok(latent)))
    }
}

/// An engine that decodes latents to pictures, for any number of callers.
#[derive(Debug)]
pub struct Decoder(Service<autoencoder::Decoder>);

impl Decoder {
    pub(crate) fn new(service: Service<autoencoder::Decoder>) -> Self {
        Self(service)
    }

    /// Decodes a latent to a picture of 8 bits, and waits for it.
    ///
    /// # Errors
    /// The latent has the wrong channels, or belongs to a clip.
    pub fn decode(&self, latent: Latent) -> Result<Picture> {
        self.submit(latent, Terms::default())?.wait()
    }

    /// Submits the latent of a picture to decode.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(&self, latent: Latent, terms: impl Into<Terms>) -> Result<Request<Picture>> {
        self.submit_as(latent, terms, |mut frames| match (frames.pop(), frames.len()) {
            (Some(picture), 0) => Ok(picture),
            (_, others) => Err(Error::Clip { frames: others + 1 }),
        })
    }

    /// Submits the latent of a clip to decode to frames of 8 bits.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit). Waiting for the request fails if all frames together are too
    /// large for memory.
    pub fn submit_clip(&self, latent: Latent, terms: impl Into<Terms>) -> Result<Request<Vec<Picture>>> {
        self.submit_as(latent, terms, Ok)
    }

    fn submit_as<T: 'static>(
        &self,
        latent: Latent,
        terms: impl Into<Terms>,
        result: impl FnOnce(Vec<Picture>) -> Result<T> + Send + 'static,
    ) -> Result<Request<T>> {
        let frames = Arc::new(Mutex::new(Vec::new()));
        let made = frames.clone();
        let mut held = 0;
        let keep = move |pixels: Pixels| {
            let frame = Picture::from(&pixels);
            frame.held_with(&mut held)?;
            frames.lock().push(frame);
            Ok(())
        };
        let handle = self.0.submit(DecodeRequest::new(move || Ok(latent), keep), terms)?;
        Ok(Request::new(handle, move |_| result(std::mem::take(&mut *made.lock()))))
    }
}
