//! Latents to pictures and clips.

use std::time::Instant;

use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_session::Location;

use super::coder::{Coder, CodingOptions, CodingStatistics, Part, Watch, pixels_of};
use super::interface::{Clips, Direction};
use super::latent::Latent;
use crate::error::{Error, Result};
use crate::host::{Host, Reply, Task};
use crate::pixels::Pixels;
use crate::tiling::cut;

/// Receives the frames of a clip in order, or the one picture.
type Sink = Box<dyn FnMut(Pixels) -> Result<()> + Send>;

/// A latent to decode.
pub struct DecodeRequest {
    open: Box<dyn FnOnce() -> Result<Latent> + Send>,
    sink: Sink,
}

impl DecodeRequest {
    /// A latent that `open` opens when its turn comes. `sink` receives its frames. Both run on another thread.
    pub fn new(
        open: impl FnOnce() -> Result<Latent> + Send + 'static,
        sink: impl FnMut(Pixels) -> Result<()> + Send + 'static,
    ) -> Self {
        Self { open: Box::new(open), sink: Box::new(sink) }
    }
}

impl std::fmt::Debug for DecodeRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DecodeRequest").finish_non_exhaustive()
    }
}

/// The decoder of an autoencoder: the task of a [`Service`](crate::host::Service).
pub struct Decoder(Coder);

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Decoder").field(self.location().verdict).finish()
    }
}

impl Decoder {
    /// A decoder for an engine. `next` is the engine for later chunks, for clips that are longer than one chunk.
    ///
    /// # Errors
    /// As [`Encoder::new`](super::Encoder::new).
    pub fn new(host: &Host, engine: &Engine, next: Option<&Engine>, options: CodingOptions) -> Result<Self> {
        Coder::new(host, engine, next, Direction::Decode, options).map(Self)
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.0.location()
    }

    /// Whether it gives clips.
    pub fn is_clip(&self) -> bool {
        self.0.is_clip()
    }

    fn decode(&self, request: DecodeRequest, reply: &Reply<CodingStatistics>) -> Result<CodingStatistics> {
        let progress = |done, total| reply.progress(done, total);
        let watch = Watch { began: Instant::now(), ticket: reply.ticket(), progress: &progress };
        self.decode_latent(&(request.open)()?, request.sink, watch)
    }

    /// Closes its sessions, until they are needed again.
    pub(crate) fn close_sessions(&self) {
        self.0.close_sessions();
    }

    /// The properties that its encoder must share.
    pub(crate) fn clips(&self) -> Clips {
        self.0.interface.clips()
    }

    /// Pixels for each latent pixel, along each axis.
    pub(crate) fn factor(&self) -> usize {
        self.0.interface.factor
    }

    /// Passes the frames of a latent to `sink`.
    pub(crate) fn decode_latent(
        &self,
        latent: &Latent,
        mut sink: impl FnMut(Pixels) -> Result<()>,
        watch: Watch<'_>,
    ) -> Result<CodingStatistics> {
        let interface = &self.0.interface;
        let given = latent.frames.is_some();
        let tensor = || interface.input.clone();
        if latent.channels != interface.latent_channels || given != self.is_clip() {
            let of = |channels: usize, clip: bool| {
                format!("a latent {} of {channels} channels", if clip { "clip" } else { "picture" })
            };
            return Err(Error::Tensor {
                tensor: tensor(),
                expected: of(interface.latent_channels, self.is_clip()),
                found: of(latent.channels, given),
            });
        }
        latent.check(|expected, found| Error::Tensor { tensor: tensor(), expected, found })?;
        let whole = pixels_of(latent.size, interface.factor);
        let size = latent.pixels.filter(|size| size.width <= whole.width && size.height <= whole.height);
        let size = size.unwrap_or(whole);
        let latents = latent.frames.unwrap_or(1);
        let mut coding = self.0.begin(watch.ticket, latent.size)?;
        let all = coding.plan.cut.frames_of(latents).ok_or_else(|| Error::internal("decode"))?;
        let frames = latent.clip_frames.filter(|frames| *frames <= all).unwrap_or(all);
        let chunks = coding.plan.cut.count(latents);
        let chunk = |number| coding.plan.cut.chunk(number).ok_or_else(|| coding.plan.cut.too_long());
        let chunks = (0..chunks).map(chunk).collect::<Result<Vec<_>>>()?;
        let area = latent.size.pixels() as usize;
        let raw = |value: &f32| value / interface.scaling + interface.shift;
        for (number, chunk) in chunks.iter().enumerate() {
            if watch.ticket.cancel().is_cancelled() {
                return Err(Error::Cancelled);
            }
            // The last latent frame is repeated after the end.
            let mut planes = Vec::with_capacity(latent.channels * chunk.latents.len() * area);
            for channel in 0..latent.channels {
                for at in chunk.latents.clone() {
                    let at = (channel * latents + at.min(latents - 1)) * area;
                    planes.extend(latent.values[at..at + area].iter().map(raw));
                }
            }
            let is_last = number + 1 == chunks.len();
            let made = coding.run(Part { chunk, number, is_last, planes: &planes, size: latent.size })?;
            for frame in chunk.frames.clone().filter(|frame| *frame < frames) {
                sink(self.frame(&made, frame - chunk.frames.start, chunk.frames.len(), whole, size)?)?;
            }
            (watch.progress)(number as u64 + 1, Some(chunks.len() as u64));
        }
        Ok(coding.statistics(size, frames, latents, chunks.len(), watch.began))
    }

    /// Frame `at` of `frames` in `[channels, frames, height, width]` of the size `whole`, cropped to `size`.
    fn frame(&self, made: &[f32], at: usize, frames: usize, whole: Size, size: Size) -> Result<Pixels> {
        let (area, channels) = (whole.pixels() as usize, self.0.interface.values.channels());
        let mut planes = Vec::with_capacity(channels * area);
        for channel in 0..channels {
            planes.extend_from_slice(&made[(channel * frames + at) * area..][..area]);
        }
        let mut own = vec![0.0; channels * size.pixels() as usize];
        cut(&planes, whole, 0, 0, size, &mut own);
        self.0.interface.values.decode(&own, size)
    }
}

impl Task for Decoder {
    const NAME: &'static str = "decode";
    type Request = DecodeRequest;
    type Output = CodingStatistics;

    fn concurrency(&self) -> usize {
        self.0.concurrency()
    }

    fn serve(&self, request: DecodeRequest, reply: &Reply<CodingStatistics>) -> Result<CodingStatistics> {
        self.decode(request, reply)
    }
}
