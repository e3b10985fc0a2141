//! Pictures and clips to latents.

use std::time::Instant;

use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_session::Location;

use super::coder::{Coder, CodingOptions, CodingStatistics, Part, Watch, pixels_of};
use super::interface::{Clips, Direction};
use super::latent::Latent;
use crate::error::{Error, Result};
use crate::host::{Host, Reply, Task};
use crate::pixels::{Pixels, check_finite};
use crate::random::{Noise, TorchCpu};
use crate::tiling::cut;

/// The frames of a clip, or the one picture.
pub type Frames = Box<dyn Iterator<Item = Result<Pixels>> + Send>;

/// Which latent is taken from the distribution that the encoder outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Posterior {
    /// The mean, the most probable latent.
    #[default]
    Mean,
    /// A sample, with the noise that PyTorch draws for a seed.
    Sample(u64),
}

/// A picture or clip to encode.
pub struct EncodeRequest {
    open: Box<dyn FnOnce() -> Result<Frames> + Send>,
    posterior: Posterior,
}

impl EncodeRequest {
    /// A picture or clip that `open` opens when its turn comes, on another thread.
    pub fn new(open: impl FnOnce() -> Result<Frames> + Send + 'static, posterior: Posterior) -> Self {
        Self { open: Box::new(open), posterior }
    }
}

impl std::fmt::Debug for EncodeRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EncodeRequest").field("posterior", &self.posterior).finish_non_exhaustive()
    }
}

/// The encoder of an autoencoder: the task of a [`Service`](crate::host::Service).
pub struct Encoder(Coder);

impl std::fmt::Debug for Encoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Encoder").field(self.location().verdict).finish()
    }
}

impl Encoder {
    /// An encoder for an engine. `next` is the engine for later chunks, for clips that are longer than one chunk.
    ///
    /// # Errors
    /// As [`Ladder::new`](tileforge_session::Ladder::new); [`Error::Tensor`]: an engine is no encoder, or the two do
    /// not belong together.
    pub fn new(host: &Host, engine: &Engine, next: Option<&Engine>, options: CodingOptions) -> Result<Self> {
        Coder::new(host, engine, next, Direction::Encode, options).map(Self)
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.0.location()
    }

    /// Whether it takes clips.
    pub fn is_clip(&self) -> bool {
        self.0.is_clip()
    }

    fn encode(
        &self,
        request: EncodeRequest,
        reply: &Reply<(Latent, CodingStatistics)>,
    ) -> Result<(Latent, CodingStatistics)> {
        let progress = |done, total| reply.progress(done, total);
        let watch = Watch { began: Instant::now(), ticket: reply.ticket(), progress: &progress };
        let frames = (request.open)()?;
        let mut noise = match request.posterior {
            Posterior::Mean => None,
            Posterior::Sample(seed) => Some(TorchCpu::new(seed)),
        };
        let noise = noise.as_mut().map(|noise| noise as &mut dyn Noise);
        self.encode_frames(frames, noise, watch)
    }

    /// The properties that its decoder must share.
    pub(crate) fn clips(&self) -> Clips {
        self.0.interface.clips()
    }

    /// The size of the latent of a picture.
    pub(crate) fn latent_of(&self, size: Size) -> Size {
        self.0.interface.latent_of(size)
    }

    /// Closes its sessions, until they are needed again.
    pub(crate) fn close_sessions(&self) {
        self.0.close_sessions();
    }

    /// The latent of a picture or clip: the mean of its distribution, or with `noise` a sample, for which one tensor
    /// of noise is drawn.
    pub(crate) fn encode_frames(
        &self,
        mut frames: Frames,
        noise: Option<&mut dyn Noise>,
        watch: Watch<'_>,
    ) -> Result<(Latent, CodingStatistics)> {
        let first = frames.next().ok_or(Error::NoFrames)??;
        let (size, interface) = (first.size, &self.0.interface);
        let latent = interface.latent_of(size);
        let mut coding = self.0.begin(watch.ticket, latent)?;
        let channels = interface.values.channels();
        let whole = pixels_of(latent, interface.factor);
        let (area, whole_area) = (area(size), area(whole));
        let latent_area = latent.pixels() as usize;
        let mut stored = Stored::new(interface.planes(), latent_area);
        let (mut ahead, mut last) = (Some(first), None::<Vec<f32>>);
        let (mut count, mut number) = (0, 0);
        loop {
            // Another chunk as long as frames are left.
            let chunk = coding.plan.cut.chunk(number).ok_or_else(|| coding.plan.cut.too_long())?;
            let length = chunk.frames.len();
            let mut planes = vec![0.0; channels * length * whole_area];
            for at in 0..length {
                if let Some(frame) = ahead.take() {
                    if frame.size != size {
                        let expected = format!("frames of {size}");
                        let found = frame.size.to_string();
                        return Err(Error::Tensor { tensor: interface.input.clone(), expected, found });
                    }
                    let mut encoded = vec![0.0; channels * area];
                    interface.values.encode(&frame, &mut encoded);
                    let mut extended = vec![0.0; channels * whole_area];
                    cut(&encoded, size, 0, 0, whole, &mut extended);
                    last = Some(extended);
                    count += 1;
                    ahead = if self.is_clip() { frames.next().transpose()? } else { None };
                }
                // The last frame is repeated after the end.
                let frame = last.as_ref().ok_or_else(|| Error::internal("encode"))?;
                for channel in 0..channels {
                    planes[(channel * length + at) * whole_area..][..whole_area]
                        .copy_from_slice(&frame[channel * whole_area..][..whole_area]);
                }
            }
            if watch.ticket.cancel().is_cancelled() {
                return Err(Error::Cancelled);
            }
            let is_last = ahead.is_none();
            let part = Part { chunk: &chunk, number, is_last, planes: &planes, size: whole };
            stored.add(&coding.run(part)?, chunk.latents.len());
            number += 1;
            (watch.progress)(number as u64, is_last.then_some(number as u64));
            if is_last {
                break;
            }
        }
        let latents = coding.plan.cut.latents_of(count);
        let parameters = stored.planes(latents);
        check_finite(&parameters, latent)?;
        let values = self.chosen(&parameters, noise);
        let made = Latent {
            channels: interface.latent_channels,
            frames: self.is_clip().then_some(latents),
            size: latent,
            values,
            pixels: Some(size),
            clip_frames: self.is_clip().then_some(count),
        };
        Ok((made, coding.statistics(size, count, latents, number, watch.began)))
    }

    /// The mean or a sample, from `[2 · channels, frames, height, width]`: means and logarithms of variances.
    fn chosen(&self, parameters: &[f32], noise: Option<&mut dyn Noise>) -> Vec<f32> {
        let (means, logarithms) = parameters.split_at(parameters.len() / 2);
        let scaled = |value: f32| (value - self.0.interface.shift) * self.0.interface.scaling;
        let Some(noise) = noise else { return means.iter().map(|mean| scaled(*mean)).collect() };
        // The limits are those of the reference.
        let sample = |((mean, logarithm), noise): ((&f32, &f32), f32)| {
            scaled(mean + (0.5 * logarithm.clamp(-30.0, 20.0)).exp() * noise)
        };
        means.iter().zip(logarithms).zip(noise.normal(means.len())).map(sample).collect()
    }
}

fn area(size: Size) -> usize {
    size.width as usize * size.height as usize
}

/// Chunks `[planes, frames, area]` one after the other in time.
struct Stored {
    /// For each plane its frames.
    planes: Vec<Vec<f32>>,
    area: usize,
}

impl Stored {
    fn new(planes: usize, area: usize) -> Self {
        Self { planes: vec![Vec::new(); planes], area }
    }

    fn add(&mut self, chunk: &[f32], frames: usize) {
        for (plane, values) in self.planes.iter_mut().zip(chunk.chunks_exact(frames * self.area)) {
            plane.extend_from_slice(values);
        }
    }

    /// `[planes, frames, area]` of the first frames.
    fn planes(&self, frames: usize) -> Vec<f32> {
        let length = frames * self.area;
        self.planes.iter().flat_map(|plane| plane[..length.min(plane.len())].iter().copied()).collect()
    }
}

impl Task for Encoder {
    const NAME: &'static str = "encode";
    type Request = EncodeRequest;
    type Output = (Latent, CodingStatistics);

    fn concurrency(&self) -> usize {
        self.0.concurrency()
    }

    fn serve(
        &self,
        request: EncodeRequest,
        reply: &Reply<(Latent, CodingStatistics)>,
    ) -> Result<(Latent, CodingStatistics)> {
        self.encode(request, reply)
    }
}
