//! A pipeline engine that is ready to make pictures.

use std::time::{Duration, Instant};

use tileforge_engine::{Engine, Pipeline};
use tileforge_image::Size;
use tileforge_session::{Assigned, Location, Placement};

use super::accepted::{Accepted, cut_off_of};
use super::conditions::{Conditions, TIME_IDS_WITH_SCORE, check_texts};
use super::denoiser::{Conditioned, Denoiser};
use super::error::Error;
use super::guidance::Step;
use super::networks::Networks;
use super::request::{CutOff, GenerateRequest, GenerateStatistics, Generated, Resized, Seconds};
use super::schedulers::Config;
use super::settings::{Family, Fit, GenerateKind, Settings};
use super::source::StartingPoint;
use super::start::{Original, Preparation, Prepared};
use super::texts::TextEncoder;
use super::tokenizer::Tokenizer;
use crate::autoencoder::{CodingOptions, Decoder, Encoder, Latent, Watch};
use crate::error::{Error as RuntimeError, Result};
use crate::host::{Host, Reply, Task, Ticket};
use crate::pixels::Pixels;
use crate::timed::timed;

/// The file of the scheduler's configuration.
const SCHEDULER: &str = "scheduler/scheduler_config.json";

/// How pictures are made.
#[derive(Clone, Debug, Default)]
pub struct GeneratorOptions {
    /// Where the parts run.
    pub placement: Placement,
    /// Overlap of tiles in pixels, if a picture is larger than the autoencoder's graphs; `None`: a quarter of the
    /// tile.
    pub overlap: Option<u32>,
    /// Closes the sessions of a part when it is done, so that only one part is in memory at a time.
    pub low_memory: bool,
}

/// A diffusion pipeline: the task of a [`Service`](crate::host::Service).
pub struct Generator {
    networks: Networks,
    scheduler: Config,
    family: Family,
    /// Without a negative prompt, its embeddings are zeros.
    zeros_without_negative: bool,
    low_memory: bool,
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Generator").field("scheduler", &self.scheduler.class()).finish_non_exhaustive()
    }
}

impl Generator {
    /// A generator for an engine, each part on the best provider that fits this machine.
    ///
    /// # Errors
    /// A part or a file is missing, parts do not fit together, or the errors of
    /// [`Ladder::new`](tileforge_session::Ladder::new).
    pub fn new(host: &Host, pipeline: &Pipeline, options: GeneratorOptions) -> Result<Self> {
        let roles = pipeline.roles();
        let engine = |part: &str| -> Result<&Engine, Error> {
            let name = &pipeline.manifest().name;
            pipeline.part(part).ok_or_else(|| Error::NoPipeline { engine: name.clone(), part: part.to_owned() })
        };
        let placement = &options.placement;
        let denoiser = Denoiser::new(host, &roles, engine(&roles.denoiser)?, placement)?;
        let (mut texts, interface) = (Vec::new(), &denoiser.interface);
        for role in &roles.texts {
            let folder = &role.tokenizer;
            let tokenizer = Tokenizer::new(|name| pipeline.file(&format!("{folder}/{name}")).ok());
            let tokenizer = tokenizer.map_err(|source| Error::Tokenizer { name: folder.clone(), source })?;
            texts.push(TextEncoder::new(host, engine(&role.part)?, placement, (&roles, interface), role, tokenizer)?);
        }
        check_texts(interface, &roles, &texts)?;
        let coding = || CodingOptions { placement: placement.clone(), overlap: options.overlap };
        let decoder = Decoder::new(host, engine(&roles.decoder)?, None, coding())?;
        let encoder = roles.encoder.as_deref().map(engine).transpose()?;
        let encoder = encoder.map(|engine| Encoder::new(host, engine, None, coding())).transpose()?;
        let scheduler = pipeline.file(SCHEDULER).map_err(|_| Error::NoFile { file: SCHEDULER })?;
        let scheduler = Config::parse_bytes(scheduler).map_err(Error::Scheduler)?;
        let diffusion = pipeline.manifest().diffusion.as_ref();
        let scored = diffusion.is_some_and(|diffusion| diffusion.requires_aesthetics_score);
        let numbers = denoiser.interface.time_ids();
        if numbers.is_some_and(|count| scored != (count == TIME_IDS_WITH_SCORE)) {
            let text = |scored: bool| if scored { "a score of the picture" } else { "the picture's size" };
            let (part, expected, found) = (roles.denoiser, text(scored).into(), text(!scored).into());
            return Err(Error::Mismatch { part, expected, found }.into());
        }
        let family = match diffusion {
            Some(diffusion) => Family::of_class(&diffusion.class),
            // An engine that names no class: the network's inputs decide.
            None if numbers.is_some() => Family::StableDiffusionXl,
            None => Family::StableDiffusion,
        };
        let is_xl = family == Family::StableDiffusionXl;
        Ok(Self {
            family,
            zeros_without_negative: is_xl && diffusion.is_none_or(|diffusion| diffusion.force_zeros_for_empty_prompt),
            low_memory: options.low_memory,
            networks: Networks { texts, denoiser, encoder, decoder },
            scheduler,
        })
    }

    /// The pipeline's default settings.
    pub fn settings(&self, prompt: impl Into<String>, kind: GenerateKind) -> Settings {
        Settings::new(prompt, kind, self.family)
    }

    /// The class of the default scheduler.
    pub fn scheduler(&self) -> &str {
        self.scheduler.class()
    }

    /// The sizes of pictures that it makes, the smallest first.
    pub fn sizes(&self) -> Vec<Size> {
        self.networks.sizes()
    }

    /// The parts of these settings' texts that are too long for the text encoders. Opens no session.
    ///
    /// # Errors
    /// A text cannot be read.
    pub fn cut_off(&self, settings: &Settings) -> Result<Vec<CutOff>> {
        cut_off_of(settings, &self.networks)
    }

    /// The devices and providers of the network's sessions, and how long the sessions of all parts took to open so
    /// far.
    pub fn location(&self) -> Location<'_> {
        let Networks { texts, denoiser, encoder, decoder } = &self.networks;
        let texts = texts.iter().map(|text| text.location().opening).sum::<Duration>();
        let coders = encoder.iter().map(|encoder| encoder.location()).chain([decoder.location()]);
        let denoiser = denoiser.location();
        let opening = texts + denoiser.opening + coders.map(|coder| coder.opening).sum::<Duration>();
        Location { opening, ..denoiser }
    }

    /// Whether the network only fills masked parts of pictures.
    pub fn needs_mask(&self) -> bool {
        self.networks.denoiser.inpaints()
    }

    /// Threads of each session on the CPU; `None`: ONNX Runtime's default for one session.
    pub fn threads(&self) -> Option<usize> {
        self.networks.denoiser.threads()
    }

    fn generate(&self, request: GenerateRequest, reply: &Reply<Generated>) -> Result<Generated> {
        let began = Instant::now();
        let mut seconds = Seconds::default();
        let accept = || Accepted::new(request, &self.networks, self.family, &self.scheduler);
        let (mut accepted, source) = timed(&mut seconds.encode, accept)?;
        if let Some(Resized { from, fit, asked_for: false }) = accepted.resized {
            let how =
                if fit == Fit::Crop { "its middle, cropped to their proportions" } else { "all of it, stretched" };
            tracing::warn!(
                "the engine makes no pictures of {from}: the picture is resized to {} ({how})",
                accepted.size
            );
        }
        let conditions = timed(&mut seconds.text, || self.encode_prompt(&accepted, reply.ticket()))?;
        reply.go_on()?;
        let prepare = || self.prepare_latents(&mut accepted, source, reply);
        let mut prepared = timed(&mut seconds.encode, prepare)?;
        reply.go_on()?;
        let denoise = || self.denoise(&mut accepted, conditions, &mut prepared, reply);
        let Denoised { evaluations, runs, assigned } = timed(&mut seconds.denoise, denoise)?;
        seconds.evaluations = evaluations;
        let Accepted { kind, size, resized, latent_size, .. } = accepted;
        let latents = self.latents(&prepared.sample, size, latent_size);
        let original = prepared.original.filter(|_| accepted.settings.keep_unmasked);
        let to_decode = if accepted.decodes { latents.as_slice() } else { &[] };
        let decode = || self.decode(to_decode, original.as_ref(), reply);
        let (pictures, tiles) = timed(&mut seconds.decode, decode)?;
        seconds.total = began.elapsed().as_secs_f64();
        let statistics = GenerateStatistics {
            kind,
            size,
            latent_size,
            scheduler: accepted.class,
            evaluations: seconds.evaluations.len(),
            runs,
            cut_off: accepted.cut_off,
            resized,
            tiles,
            assigned,
            seconds,
        };
        Ok(Generated { pictures, latents, statistics })
    }

    /// The network's conditions, one for each row of its batch.
    fn encode_prompt(&self, accepted: &Accepted, ticket: &Ticket) -> Result<Vec<Conditioned>> {
        let conditions = Conditions {
            settings: &accepted.settings,
            interface: &self.networks.denoiser.interface,
            encoders: &self.networks.texts,
            pieces: accepted.pieces,
            is_guided: accepted.is_guided,
            zeros_without_negative: self.zeros_without_negative,
            size: accepted.size,
        };
        let rows = conditions.rows(ticket)?;
        if self.low_memory {
            self.networks.texts.iter().for_each(TextEncoder::close_sessions);
        }
        Ok(rows)
    }

    /// The initial latents of the first step.
    fn prepare_latents(
        &self,
        accepted: &mut Accepted,
        source: StartingPoint,
        reply: &Reply<Generated>,
    ) -> Result<Prepared> {
        let preparation = Preparation {
            accepted,
            channels: self.networks.denoiser.interface.channels,
            encoder: self.networks.encoder.as_ref(),
            ticket: reply.ticket(),
        };
        let prepared = preparation.prepare(source)?;
        if self.low_memory {
            self.networks.encoder.iter().for_each(Encoder::close_sessions);
        }
        Ok(prepared)
    }

    /// Denoises `prepared.sample`, step by step.
    fn denoise(
        &self,
        accepted: &mut Accepted,
        conditions: Vec<Conditioned>,
        prepared: &mut Prepared,
        reply: &Reply<Generated>,
    ) -> Result<Denoised> {
        let Prepared { sample, known, extra, .. } = prepared;
        let steps = self.networks.denoiser.begin(reply.ticket(), accepted.latent_size, accepted.tokens, conditions)?;
        let runs = steps.runs();
        let all = accepted.scheduler.timesteps().len();
        let mut evaluations = Vec::with_capacity(all);
        reply.progress(0, all as u64);
        while let Some(timestep) = accepted.scheduler.timestep() {
            reply.go_on()?;
            let began = Instant::now();
            let done = evaluations.len() + 1;
            let input = accepted.scheduler.model_input(sample).map_err(Error::Scheduler)?;
            let (settings, is_guided) = (&accepted.settings, accepted.is_guided);
            let step = Step { settings, is_guided, timestep: timestep as f32, input: &input, extra };
            let prediction = step.predicted(&steps)?;
            if prediction.iter().any(|value| !value.is_finite()) {
                return Err(Error::NotFinite { step: done }.into());
            }
            let is_shown = accepted.preview.as_ref().is_some_and(|(every, _)| done % every == 0 && done < all);
            let seen = is_shown.then(|| accepted.scheduler.picture(&prediction, sample)).transpose();
            let seen = seen.map_err(Error::Scheduler)?;
            accepted.scheduler.step(&prediction, sample, &mut *accepted.random).map_err(Error::Scheduler)?;
            if let Some(known) = known {
                known.restore(&accepted.scheduler, sample)?;
            }
            evaluations.push(began.elapsed().as_secs_f64());
            if let Some(seen) = seen {
                self.show(accepted, &seen, done, reply)?;
            }
            tracing::debug!("made step {done} of {all}");
            reply.progress(done as u64, all as u64);
        }
        let assigned = self.networks.denoiser.assigned();
        if self.low_memory {
            self.networks.denoiser.close_sessions();
        }
        Ok(Denoised { evaluations, runs, assigned })
    }

    /// Passes the preview of the first picture, as the network predicts it after a step, to the callback.
    fn show(&self, accepted: &mut Accepted, seen: &[f64], done: usize, reply: &Reply<Generated>) -> Result<()> {
        let Some((_, show)) = &mut accepted.preview else { return Ok(()) };
        let first = self.latents(seen, accepted.size, accepted.latent_size).into_iter().next();
        let first = first.ok_or_else(|| RuntimeError::internal("preview"))?;
        let (picture, _) = self.decoded(&first, reply)?;
        show(done, &picture)
    }

    /// The pictures of latents, with the pixels of `original` outside of its mask, and the number of tiles that each
    /// was decoded in.
    fn decode(
        &self,
        latents: &[Latent],
        original: Option<&Original>,
        reply: &Reply<Generated>,
    ) -> Result<(Vec<Pixels>, u64)> {
        let (mut pictures, mut tiles) = (Vec::with_capacity(latents.len()), 0);
        for latent in latents {
            reply.go_on()?;
            let (mut picture, cut) = self.decoded(latent, reply)?;
            if let Some(original) = original {
                original.restore(&mut picture);
            }
            tiles = cut;
            pictures.push(picture);
        }
        if self.low_memory {
            self.networks.decoder.close_sessions();
        }
        Ok((pictures, tiles))
    }

    /// The latents in `[pictures, channels, height, width]`.
    fn latents(&self, sample: &[f64], pixels: Size, size: Size) -> Vec<Latent> {
        let channels = self.networks.denoiser.interface.channels[0];
        let each = sample.chunks_exact(channels * size.pixels() as usize);
        let latent = |values: &[f64]| Latent {
            channels,
            frames: None,
            size,
            values: values.iter().map(|value| *value as f32).collect(),
            pixels: Some(pixels),
            clip_frames: None,
        };
        each.map(latent).collect()
    }

    /// The picture of a latent, and the number of tiles that it was decoded in.
    fn decoded(&self, latent: &Latent, reply: &Reply<Generated>) -> Result<(Pixels, u64)> {
        let mut picture = None;
        let watch = Watch { began: Instant::now(), ticket: reply.ticket(), progress: &|_, _| () };
        let keep = |pixels| {
            picture = Some(pixels);
            Ok(())
        };
        let tiles = self.networks.decoder.decode_latent(latent, keep, watch)?.tiles;
        Ok((picture.ok_or_else(|| RuntimeError::internal("decode"))?, tiles))
    }
}

/// What the steps took.
struct Denoised {
    /// Seconds of each evaluation.
    evaluations: Vec<f64>,
    /// Runs of the network in each evaluation.
    runs: usize,
    assigned: Vec<Assigned>,
}

impl Task for Generator {
    const NAME: &'static str = "generate";
    type Request = GenerateRequest;
    type Output = Generated;

    fn concurrency(&self) -> usize {
        // Enough to fill the network's largest run on each stream, plus one whose texts or picture are being coded.
        self.networks.denoiser.rows() + 1
    }

    fn serve(&self, request: GenerateRequest, reply: &Reply<Generated>) -> Result<Generated> {
        self.generate(request, reply)
    }
}
