//! A pipeline engine that is ready to make pictures.

use std::time::{Duration, Instant};

use tileforge_engine::{Engine, Pipeline};
use tileforge_image::Size;
use tileforge_session::{Environment, Placed, Placement};

use super::conditions::{Conditions, TIME_IDS_WITH_SCORE, check_texts};
use super::error::Error;
use super::guidance::Step;
use super::network::Network;
use super::open::{Networks, Open};
use super::request::{Generated, Request, Seconds, Start, Statistics};
use super::schedulers::{self, Config, Scheduler};
use super::settings::{Kind, Settings};
use super::start::{Beginner, Beginning};
use super::texts::{States, TextEncoder, pieces};
use super::tokenizer::Tokenizer;
use crate::autoencoder::{CodingOptions, Decoder, Encoder, Latent, Sections, Watch, pixels_of};
use crate::error::{Error as RuntimeError, Result};
use crate::executor::{Intake, Reply, Task, serve_each};
use crate::pixels::Pixels;

/// The file of the scheduler's configuration.
const SCHEDULER: &str = "scheduler/scheduler_config.json";
/// The parts of the text encoders, with the folders of their tokenizers.
const TEXTS: [(&str, &str); 2] = [("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")];

/// How pictures are made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the parts run.
    pub placement: Placement,
    /// Pixels by which tiles overlap where a picture is larger than the autoencoder's graphs; `None`: a quarter of the
    /// tile.
    pub overlap: Option<u32>,
    /// The sessions of a part are closed when it is done, so that only one part is in memory at a time.
    pub low_memory: bool,
}

/// A diffusion pipeline: the task of an [`Executor`](crate::executor::Executor).
pub struct Generator {
    networks: Networks,
    scheduler: Config,
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
    /// A generator for an engine, each part on the best provider that fits this box.
    ///
    /// # Errors
    /// A part or a file is missing, parts do not fit together, or those of
    /// [`Ladder::new`](tileforge_session::Ladder::new).
    pub fn new(environment: &Environment, pipeline: &Pipeline, options: Options) -> Result<Self> {
        let engine = |part: &'static str| -> Result<&Engine, Error> {
            let name = &pipeline.manifest().name;
            pipeline.part(part).ok_or_else(|| Error::NoPipeline { engine: name.clone(), part })
        };
        let placement = &options.placement;
        let network = Network::new(environment, engine("unet")?, placement)?;
        let xl = network.time_ids().is_some();
        let states = if xl { States::Penultimate } else { States::Last };
        let mut texts = Vec::new();
        for (part, folder) in TEXTS {
            let Some(engine) = pipeline.part(part) else { continue };
            let tokenizer = Tokenizer::new(|name| pipeline.file(&format!("{folder}/{name}")).ok());
            let tokenizer = tokenizer.map_err(|source| Error::Tokenizer { name: folder, source })?;
            texts.push(TextEncoder::new(environment, engine, placement, part, tokenizer, states)?);
        }
        check_texts(&network, &texts)?;
        let coding = || CodingOptions { placement: placement.clone(), overlap: options.overlap };
        let decoder = Decoder::new(environment, engine("vae_decoder")?, None, coding())?;
        let encoder = pipeline.part("vae_encoder");
        let encoder = encoder.map(|engine| Encoder::new(environment, engine, None, coding())).transpose()?;
        let scheduler = pipeline.file(SCHEDULER).map_err(|_| Error::NoFile { file: SCHEDULER })?;
        let scheduler = String::from_utf8_lossy(scheduler);
        let scheduler = Config::parse(&scheduler).map_err(Error::Scheduler)?;
        let diffusion = pipeline.manifest().diffusion.as_ref();
        let scored = diffusion.is_some_and(|diffusion| diffusion.requires_aesthetics_score);
        if xl && scored != (network.time_ids() == Some(TIME_IDS_WITH_SCORE)) {
            let text = |scored: bool| if scored { "a score of the picture" } else { "the picture's size" };
            let (part, expected, found) = ("unet".into(), text(scored).into(), text(!scored).into());
            return Err(Error::Mismatch { part, expected, found }.into());
        }
        Ok(Self {
            zeros_without_negative: xl && diffusion.is_none_or(|diffusion| diffusion.force_zeros_for_empty_prompt),
            low_memory: options.low_memory,
            networks: Networks { texts, network, encoder, decoder },
            scheduler,
        })
    }

    /// Whether it is SDXL or its refiner, whose pipelines have other defaults.
    pub fn is_xl(&self) -> bool {
        self.networks.network.time_ids().is_some()
    }

    /// The scheduler's class, where a request asks for no other.
    pub fn scheduler(&self) -> &str {
        self.scheduler.class()
    }

    /// The sizes of pictures that it makes, the smallest first.
    pub fn sizes(&self) -> Vec<Size> {
        let Networks { network, decoder, .. } = &self.networks;
        network.latents().into_iter().map(|latent| pixels_of(latent, decoder.factor())).collect()
    }

    /// Where the network's sessions run, and how long those of all parts took to open so far.
    pub fn placed(&self) -> Placed<'_> {
        let Networks { texts, network, encoder, decoder } = &self.networks;
        let texts = texts.iter().map(|text| text.sessions.placed().opening).sum::<Duration>();
        let coders = encoder.iter().map(|encoder| encoder.placed()).chain([decoder.placed()]);
        let network = network.sessions.placed();
        let opening = texts + network.opening + coders.map(|coder| coder.opening).sum::<Duration>();
        Placed { opening, ..network }
    }

    /// Whether the network only fills masked parts of pictures.
    pub fn needs_mask(&self) -> bool {
        self.networks.network.inpaints()
    }

    /// Threads of each session on the CPU; `None`: those that ONNX Runtime takes for one session.
    pub fn threads(&self) -> Option<usize> {
        self.networks.network.sessions.threads()
    }

    /// The size of the result and of its latent.
    fn sized(&self, wanted: Option<Size>, start: Option<&Start>, noise: Option<&Latent>) -> Result<[Size; 2], Error> {
        let factor = self.networks.decoder.factor();
        let multiple = u32::try_from(factor).unwrap_or(u32::MAX);
        let of_start = start.map(|start| match start {
            Start::Picture(picture) => {
                let side = |length: u32| length - length % multiple;
                Size { width: side(picture.size.width), height: side(picture.size.height) }
            }
            Start::Latent(latent) => pixels_of(latent.size, factor),
        });
        let of_noise = noise.map(|latent| pixels_of(latent.size, factor));
        let known = self.sizes();
        let size = wanted.or(of_start).or(of_noise).or(known.last().copied());
        let size = size.ok_or(Error::NoPart { part: "unet", purpose: "a picture" })?;
        if !size.width.is_multiple_of(multiple) || !size.height.is_multiple_of(multiple) {
            return Err(Error::SizeMultiple { found: size, multiple: factor });
        }
        if !known.contains(&size) {
            return Err(Error::NoSuchSize { wanted: size, known });
        }
        Ok([size, Size { width: size.width / multiple, height: size.height / multiple }])
    }

    fn made_scheduler(&self, settings: &Settings, kind: Kind) -> Result<(Scheduler, String), Error> {
        let config = match &settings.scheduler {
            Some(class) => self.scheduler.clone().with_class(class)?,
            None => self.scheduler.clone(),
        };
        let mut options = schedulers::Options::new(settings.steps);
        options.strength = if kind == Kind::TextToImage { 1.0 } else { settings.strength };
        options.eta = settings.eta;
        options.end = settings.end;
        options.start = settings.start.filter(|start| *start > 0.0);
        Ok((config.scheduler(&options)?, config.class().to_owned()))
    }

    fn generate(&self, open: &mut Open<'_>, request: Request, reply: &Reply<Generated>) -> Result<Generated> {
        let began = Instant::now();
        let kind = request.kind();
        let Request { settings, start, mask, noise, mut preview, decodes } = request;
        settings.check()?;
        self.check_inputs(kind, &settings, noise.is_some())?;
        let stopped = || reply.is_cancelled();
        let go_on = || if stopped() { Err(RuntimeError::Cancelled) } else { Ok(()) };
        let mut seconds = Seconds::default();

        // Everything that can be refused is refused before anything runs.
        let start = start.map(|open| open()).transpose()?;
        let mask = mask.map(|open| open()).transpose()?;
        let given = noise.map(|open| open()).transpose()?;
        if let (Some(Start::Picture(picture)), Some(mask)) = (&start, &mask)
            && picture.size != mask.size
        {
            return Err(Error::MaskSize { picture: picture.size, mask: mask.size }.into());
        }
        let [size, latent] = self.sized(settings.size, start.as_ref(), given.as_ref())?;
        let (mut scheduler, class) = self.made_scheduler(&settings, kind)?;
        let texts = [Some(&settings.prompt), settings.negative_prompt.as_ref()].into_iter().flatten();
        let counts =
            texts.map(|text| pieces(&self.networks.texts, text, settings.long_prompt)).collect::<Result<Vec<_>>>()?;
        let pieces = counts.into_iter().max().unwrap_or(1);
        let tokens = pieces * self.networks.texts.first().map_or(0, TextEncoder::tokens);
        self.networks.network.check(latent, tokens)?;
        seconds.encode += began.elapsed().as_secs_f64();

        let text_began = Instant::now();
        let conditions = Conditions {
            settings: &settings,
            encoders: &self.networks.texts,
            pieces,
            zeros_without_negative: self.zeros_without_negative,
            time_ids: self.networks.network.time_ids(),
            size,
        };
        let (rows, cut_off) = conditions.rows(&mut open.texts)?;
        if self.low_memory {
            open.close_texts();
        }
        seconds.text = text_began.elapsed().as_secs_f64();
        go_on()?;

        let encode_began = Instant::now();
        let mut random = settings.random_numbers.generator(settings.seed);
        let beginner = Beginner {
            settings: &settings,
            kind,
            size,
            latent,
            channels: self.networks.network.channels,
            scheduler: &scheduler,
            noise: &mut *random,
            encoder: self.networks.encoder.as_ref().zip(open.encoder.as_mut()),
            stopped: &stopped,
        };
        let Beginning { mut sample, known, extra, original } = beginner.begin(start, mask, given)?;
        if self.low_memory {
            open.close_encoder();
        }
        seconds.encode += encode_began.elapsed().as_secs_f64();
        go_on()?;

        let denoise_began = Instant::now();
        let mut steps = self.networks.network.begin(latent, tokens, rows)?;
        let runs = steps.runs();
        let evaluations = scheduler.timesteps().len();
        reply.progress(0, evaluations as u64);
        let mut done = 0;
        while let Some(timestep) = scheduler.timestep() {
            go_on()?;
            let step_began = Instant::now();
            let input = scheduler.model_input(&sample).map_err(Error::Scheduler)?;
            let step = Step { settings: &settings, timestep: timestep as f32, input: &input, extra: &extra };
            let prediction = step.predicted(&mut steps, &mut open.network)?;
            if prediction.iter().any(|value| !value.is_finite()) {
                return Err(Error::NotFinite { step: done + 1 }.into());
            }
            let show = preview.as_mut().filter(|(every, _)| (done + 1) % *every == 0 && done + 1 < evaluations);
            let seen = show.is_some().then(|| scheduler.picture(&prediction, &sample)).transpose();
            let seen = seen.map_err(Error::Scheduler)?;
            scheduler.step(&prediction, &mut sample, &mut *random).map_err(Error::Scheduler)?;
            if let Some(known) = &known {
                known.restore(&scheduler, &mut sample)?;
            }
            done += 1;
            seconds.evaluations.push(step_began.elapsed().as_secs_f64());
            if let (Some(seen), Some((_, show))) = (seen, show) {
                let first = self.latents(&seen, size, latent).into_iter().next();
                let first = first.ok_or_else(|| RuntimeError::internal("preview"))?;
                let (picture, _) = self.decoded(&mut open.decoder, &first, &stopped)?;
                show(done, &picture)?;
            }
            tracing::debug!("made step {done} of {evaluations}");
            reply.progress(done as u64, evaluations as u64);
        }
        drop(steps);
        let assigned = open.network.assigned();
        if self.low_memory {
            open.close_network();
        }
        seconds.denoise = denoise_began.elapsed().as_secs_f64();

        let decode_began = Instant::now();
        let latents = self.latents(&sample, size, latent);
        let (mut pictures, mut tiles) = (Vec::new(), 0);
        for latent in latents.iter().filter(|_| decodes) {
            go_on()?;
            let (mut picture, cut) = self.decoded(&mut open.decoder, latent, &stopped)?;
            if let Some(original) = original.as_ref().filter(|_| settings.keep_unmasked) {
                original.restore(&mut picture);
            }
            tiles = cut;
            pictures.push(picture);
        }
        if self.low_memory {
            open.close_decoder();
        }
        seconds.decode = decode_began.elapsed().as_secs_f64();
        seconds.total = began.elapsed().as_secs_f64();
        let statistics = Statistics {
            kind,
            size,
            latent_size: latent,
            scheduler: class,
            evaluations,
            runs,
            cut_off,
            tiles,
            assigned,
            seconds,
        };
        Ok(Generated { pictures, latents, statistics })
    }

    /// Refuses what does not go with this pipeline.
    fn check_inputs(&self, kind: Kind, settings: &Settings, noise: bool) -> Result<(), Error> {
        let problem = match kind {
            Kind::TextToImage | Kind::ImageToImage if self.networks.network.inpaints() => {
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

    /// The latents in `[pictures, channels, height, width]`.
    fn latents(&self, sample: &[f64], pixels: Size, size: Size) -> Vec<Latent> {
        let channels = self.networks.network.channels[0];
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

    /// The picture of a latent, and the tiles that it was decoded in.
    fn decoded(
        &self,
        sections: &mut Sections<'_>,
        latent: &Latent,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Pixels, u64)> {
        let mut picture = None;
        let progress = |_, _| ();
        let watch = Watch { began: Instant::now(), stopped, progress: &progress };
        let keep = |pixels| {
            picture = Some(pixels);
            Ok(())
        };
        let tiles = self.networks.decoder.decode_latent(sections, latent, keep, watch)?.tiles;
        Ok((picture.ok_or_else(|| RuntimeError::internal("decode"))?, tiles))
    }
}

impl Task for Generator {
    const NAME: &'static str = "generate";
    type Request = Request;
    type Output = Generated;

    fn serve(&self, intake: &Intake<Self>) -> Result<()> {
        let begin = |stream| Open::new(&self.networks, stream);
        let work = |open: &mut Open<'_>, request, reply: &Reply<Generated>| self.generate(open, request, reply);
        serve_each(intake, self.networks.network.sessions.streams(), begin, work)
    }
}
