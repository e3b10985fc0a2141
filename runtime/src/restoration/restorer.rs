//! An engine that restores pictures and films.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tileforge_contract::Extent;
use tileforge_engine::Pipeline;
use tileforge_image::{Limits, RowSink, Size};
use tileforge_session::Location;

use super::batches::{filling, weights};
use super::fitting::{Fit, Fitting, Wanted};
use super::interface::transformer_of;
use super::request::{NoiseOf, RestoreRequest, RestoreStatistics, Seconds, Settings};
use super::transformer::Transformer;
use crate::autoencoder::{AutoencoderPart, Clips, CodingOptions, Decoder, Direction, Encoder, Latent, Watch};
use crate::error::{Error, Result};
use crate::frames::FrameStream;
use crate::host::{Host, Reply, Task};
use crate::pixels::Pixels;
use crate::random::TorchCpu;
use crate::timed::timed;

/// Channels of the frames.
const CHANNELS: usize = 3;

/// A pipeline that restores pictures and films: the task of a [`Service`](crate::host::Service).
pub struct Restorer {
    encoder: Encoder,
    transformer: Transformer,
    decoder: Decoder,
    fitting: Fitting,
    /// How frames follow from latent frames.
    frames: Extent,
}

impl std::fmt::Debug for Restorer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Restorer").field("fitting", &self.fitting).finish_non_exhaustive()
    }
}

impl Restorer {
    /// A restorer for an engine, each part on the best provider that fits this machine.
    ///
    /// # Errors
    /// [`Error::NoRestoration`] and [`Error::NoPart`]: the engine lacks something; [`Error::Tensor`]: its parts do not
    /// fit together; the errors of [`Ladder::new`](tileforge_session::Ladder::new).
    pub fn new(host: &Host, pipeline: &Pipeline, options: CodingOptions) -> Result<Self> {
        let (engine, interface) = transformer_of(pipeline)?;
        let fitting = Fitting::new(pipeline, Wanted::Largest)?;
        let transformer = Transformer::new(host, pipeline, engine, interface, &options.placement)?;
        let part = AutoencoderPart::of_parts(pipeline, Direction::Encode)?;
        let encoder = Encoder::new(host, part.engine, part.next, options.clone())?;
        let part = AutoencoderPart::of_parts(pipeline, Direction::Decode)?;
        let decoder = Decoder::new(host, part.engine, part.next, options)?;
        let (encoded, decoded) = (encoder.clips(), decoder.clips());
        let expected = Clips { latent_channels: transformer.channels(), channels: CHANNELS, ..encoded };
        for (name, found) in [("the encoder", encoded), ("the decoder", decoded)] {
            if found != expected {
                let (expected, found) = (expected.to_string(), found.to_string());
                return Err(Error::Tensor { tensor: name.into(), expected, found });
            }
        }
        let frames = encoded.frames.ok_or_else(|| Error::Tensor {
            tensor: "the autoencoder".into(),
            expected: "one of clips".into(),
            found: "one of pictures".into(),
        })?;
        Ok(Self { encoder, transformer, decoder, fitting, frames })
    }

    /// The devices and providers of the transformer's sessions, and how long the sessions of all parts took to open so
    /// far.
    pub fn location(&self) -> Location<'_> {
        let coders = self.encoder.location().opening + self.decoder.location().opening;
        let placed = self.transformer.location();
        Location { opening: placed.opening + coders, ..placed }
    }

    /// The sizes of frames and results for a wanted size.
    pub fn fitting(&self, wanted: Wanted) -> Fitting {
        self.fitting.with(wanted)
    }

    fn restore(&self, request: RestoreRequest, reply: &Reply<RestoreStatistics>) -> Result<RestoreStatistics> {
        let RestoreRequest { open, settings, limits } = request;
        let fitting = self.fitting(settings.wanted);
        let stream = open(&fitting)?;
        let reading = Reading { stream, fitting, limits, first: None };
        Work { restorer: self, settings, reading, reply, seconds: Seconds::default(), tiles: 0 }.run()
    }
}

/// A frame that was read and resized, with the sink of its result.
struct Read {
    resized: Arc<Pixels>,
    place: Box<dyn RowSink>,
}

/// A restored frame that waits for its colour correction.
struct Made {
    frame: Pixels,
    /// Its original.
    resized: Arc<Pixels>,
    place: Box<dyn RowSink>,
}

/// The frames of a film, one after the other.
struct Reading {
    stream: Box<dyn FrameStream>,
    fitting: Fitting,
    limits: Limits,
    /// The size of the first frame.
    first: Option<Size>,
}

impl Reading {
    /// The next frame, with its sizes.
    fn next(&mut self) -> Result<Option<(Read, Fit)>> {
        let Some((mut source, place)) = self.stream.next()? else { return Ok(None) };
        let size = source.header().size;
        let first = *self.first.get_or_insert(size);
        if size != first {
            let tensor = source.name().display().to_string();
            return Err(Error::Tensor { tensor, expected: format!("frames of {first}"), found: size.to_string() });
        }
        let fit = self.fitting.fit(size)?;
        let pixels = Pixels::read(&mut *source, &self.limits)?;
        let mut resized = pixels.with_channels(CHANNELS).resized(fit.resized)?;
        for sample in &mut resized.samples {
            *sample = sample.clamp(0.0, 1.0);
        }
        Ok(Some((Read { resized: Arc::new(resized), place }, fit)))
    }

    /// At most so many frames.
    fn take(&mut self, most: usize) -> Result<Vec<Read>> {
        let mut frames = Vec::with_capacity(most);
        while frames.len() < most {
            let Some((frame, _)) = self.next()? else { break };
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// A film in progress.
struct Work<'w> {
    restorer: &'w Restorer,
    settings: Settings,
    reading: Reading,
    reply: &'w Reply<RestoreStatistics>,
    seconds: Seconds,
    tiles: u64,
}

impl Work<'_> {
    fn run(mut self) -> Result<RestoreStatistics> {
        let began = Instant::now();
        let about = self.reading.stream.frames();
        self.reply.progress(0, about);
        let (first, fit) = timed(&mut self.seconds.read, || self.reading.next())?.ok_or(Error::NoFrames)?;
        let lengths = self.lengths(fit)?;
        let full = lengths.last().copied().unwrap_or(1);
        let shared = self.settings.frame_overlap;
        if shared >= full && shared > 0 {
            return Err(Error::SharedFrames { shared, batch: full });
        }
        let (mut read, mut carried) = (vec![first], Vec::new());
        // Batches whose frames still blend with later ones. Each is colour-corrected after that.
        let mut waiting: VecDeque<Vec<Made>> = VecDeque::new();
        let (mut frames, mut batches) = (0, 0);
        loop {
            let wanted = full - carried.len() - read.len();
            read.extend(timed(&mut self.seconds.read, || self.reading.take(wanted))?);
            if read.is_empty() {
                break;
            }
            self.reply.go_on()?;
            let clip: Vec<Arc<Pixels>> =
                carried.iter().chain(read.iter().map(|frame| &frame.resized)).cloned().collect();
            let length = lengths.iter().copied().find(|length| *length >= clip.len()).unwrap_or(full);
            let mut blended = self.restored(&clip, length, fit)?;
            let made = blended.split_off(carried.len());
            blend(&mut waiting, blended);
            let made = made.into_iter().zip(read.drain(..));
            waiting.push_back(made.map(|(frame, Read { resized, place })| Made { frame, resized, place }).collect());
            // The next batch blends with the last frames, which may belong to several batches.
            while waiting.iter().skip(1).map(Vec::len).sum::<usize>() >= shared {
                let Some(done) = waiting.pop_front() else { break };
                frames += done.len() as u64;
                self.write(done, fit.result)?;
            }
            self.reply.progress(frames, about);
            carried = clip.iter().skip(clip.len().saturating_sub(shared)).cloned().collect();
            batches += 1;
        }
        for left in waiting {
            frames += left.len() as u64;
            self.write(left, fit.result)?;
        }
        self.reading.stream.finish()?;
        self.reply.progress(frames, Some(frames));
        self.seconds.total = began.elapsed().as_secs_f64();
        Ok(RestoreStatistics {
            size: fit.result,
            network_size: fit.whole,
            frames,
            batches,
            tiles: self.tiles,
            assigned: self.restorer.transformer.assigned(),
            seconds: self.seconds,
        })
    }

    /// The numbers of frames that a batch can have, the least first.
    fn lengths(&self, fit: Fit) -> Result<Vec<usize>> {
        let latent = self.restorer.encoder.latent_of(fit.whole);
        let mut frames = self.restorer.transformer.frames(latent);
        if let NoiseOf::Latent(noise) = &self.settings.noise {
            let of = |channels: usize, frames: &[usize], size: Size| {
                let frames = frames.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                format!("noise of {channels} channels, {frames} latent frames and {size}")
            };
            let channels = self.restorer.transformer.channels();
            let given = noise.frames.unwrap_or(1);
            let found = of(noise.channels, &[given], noise.size);
            if noise.channels != channels || noise.size != latent || !frames.contains(&given) {
                let expected = of(channels, &frames, latent);
                return Err(Error::Tensor { tensor: "noise".into(), expected, found });
            }
            noise.check(|expected, found| Error::Tensor { tensor: "noise".into(), expected, found })?;
            frames = vec![given];
        }
        let lengths: Vec<usize> = frames.iter().filter_map(|frames| self.restorer.frames.length(*frames)).collect();
        if lengths.len() == frames.len() && !lengths.is_empty() {
            return Ok(lengths);
        }
        Err(Error::Tensor {
            tensor: "the autoencoder".into(),
            expected: format!("clips of {frames:?} latent frames, as the transformer takes them"),
            found: format!("clips of {} frames", self.restorer.frames),
        })
    }

    /// The restored frames of a clip, filled up to `length` frames.
    fn restored(&mut self, clip: &[Arc<Pixels>], length: usize, fit: Fit) -> Result<Vec<Pixels>> {
        let Self { restorer, reply, seconds, .. } = self;
        let watch = || Watch { began: Instant::now(), ticket: reply.ticket(), progress: &|_, _| () };
        let filled = (0..clip.len()).chain(filling(clip.len(), length));
        let resized = clip.to_vec();
        let frames = Box::new(filled.map(move |at| Ok(resized[at].extended(fit.whole))));
        let (latent, encoded) = timed(&mut seconds.encode, || restorer.encoder.encode_frames(frames, None, watch()))?;
        reply.go_on()?;
        let noise = match &self.settings.noise {
            NoiseOf::Seed(seed) => TorchCpu::new(*seed).one_by_one(latent.values.len()),
            NoiseOf::Latent(noise) => noise.values.clone(),
        };
        let restore = || restorer.transformer.restore(reply.ticket(), latent, &noise);
        let latent = timed(&mut seconds.restore, restore)?;
        reply.go_on()?;
        let latent = Latent { pixels: Some(fit.result), clip_frames: Some(clip.len()), ..latent };
        let mut made = Vec::with_capacity(clip.len());
        let keep = |frame| {
            made.push(frame);
            Ok(())
        };
        let decoded = timed(&mut seconds.decode, || restorer.decoder.decode_latent(&latent, keep, watch()))?;
        self.tiles = encoded.tiles + decoded.tiles;
        if made.len() == clip.len() { Ok(made) } else { Err(Error::internal("decode")) }
    }

    /// Corrects the colours of frames, and writes them.
    fn write(&mut self, frames: Vec<Made>, size: Size) -> Result<()> {
        let colour = self.settings.colour;
        timed(&mut self.seconds.write, || {
            let (mut made, mut like, mut places) = (Vec::new(), Vec::new(), Vec::new());
            for Made { frame, resized, place } in frames {
                made.push(frame);
                like.push(resized.part(0, 0, size));
                places.push(place);
            }
            colour.correct(&mut made, &like);
            for (frame, place) in made.iter().zip(places) {
                let channels = place.header().colour.colour_channels();
                frame.with_channels(channels).write(place)?;
            }
            Ok(())
        })
    }
}

/// Blends the last frames of earlier batches with the first ones of a later batch, which are the same frames.
fn blend(earlier: &mut VecDeque<Vec<Made>>, later: Vec<Pixels>) {
    let weights = weights(later.len());
    let last = earlier.iter_mut().rev().flat_map(|batch| batch.iter_mut().rev());
    for ((earlier, later), weight) in last.zip(later.into_iter().rev()).zip(weights.into_iter().rev()) {
        for (value, other) in earlier.frame.samples.iter_mut().zip(later.samples) {
            *value = *value * weight + other * (1.0 - weight);
        }
    }
}

impl Task for Restorer {
    const NAME: &'static str = "restore";
    type Request = RestoreRequest;
    type Output = RestoreStatistics;

    fn concurrency(&self) -> usize {
        // One film at a time: it keeps the state of its clips on the device.
        1
    }

    fn serve(&self, request: RestoreRequest, reply: &Reply<RestoreStatistics>) -> Result<RestoreStatistics> {
        self.restore(request, reply)
    }
}
