//! An engine: opened from a folder, an archive or a registry.

use std::path::{Path, PathBuf};

use tileforge_contract::Task;
use tileforge_engine::digest::sha256_file;
use tileforge_engine::{Bundle, PublicKey, archive};
use tileforge_registry::{Authorities, Cache, Credentials, Offer, Purpose, Reference, Registry, pull_to_cache};
use tileforge_runtime::autoencoder::{AutoencoderPart, Direction};
use tileforge_runtime::host::{Host, Service, Task as HostTask};
use tileforge_runtime::realtime::RealtimeOptions;
use tileforge_runtime::{
    Error as RuntimeError, autoencoder, depth, diffusion, inpaint, realtime, restoration, run, upscale,
};
use tileforge_session::{Placement, Verdict, choice};

use crate::autoencoder::{Coding, Decoder, Encoder};
use crate::depth::DepthEstimator;
use crate::error::{Error, Result};
use crate::generator::{Generation, Generator};
use crate::inpainter::Inpainter;
use crate::player::Player;
use crate::restorer::Restorer;
use crate::tensors::Tensors;
use crate::upscaler::{Upscale, Upscaler};

/// How an engine is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The key that must have signed the engine. An engine without this signature is refused before any of it is
    /// parsed. `None`: no signature is required.
    pub key: Option<PublicKey>,
    /// The part to open of an engine of several parts, such as `decoder`; `None`: the whole engine.
    pub part: Option<String>,
    /// The credentials for a registry; `None`: anonymous.
    pub credentials: Option<Credentials>,
    /// How many requests may wait in the queue of each service that the engine is opened as, at least one; 64 by
    /// default.
    pub waiting: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { key: None, part: None, credentials: None, waiting: 64 }
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OpenOptions").field("part", &self.part).finish_non_exhaustive()
    }
}

/// A complete and verified engine on a host. Its task decides as what it can be opened.
pub struct Engine {
    host: Host,
    bundle: Bundle,
    waiting: usize,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Engine").field(&self.bundle.name()).finish()
    }
}

impl Engine {
    /// Opens an engine: a folder of `engine-builder build`, a `.tar` of `engine-builder pack`, or
    /// `oci://HOST/NAME:TAG`, the variant in a registry that fits this machine best. Engines from archives and
    /// registries are stored in the host's cache folder, and opened from there the next time.
    ///
    /// # Errors
    /// The engine is incomplete, is not signed by the key, or does not fit this machine; the registry cannot be
    /// reached; a cache folder is needed and the host has none.
    pub fn open(host: &Host, source: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let source = source.as_ref();
        let directory = match source.to_str() {
            Some(text) if text.starts_with(Reference::SCHEME) => pulled(host, &text.parse()?, options)?,
            _ if source.is_file() => unpacked(host, source, options)?,
            _ => source.to_owned(),
        };
        let key = options.key.as_ref();
        let bundle = match &options.part {
            Some(part) => Bundle::Engine(tileforge_engine::Pipeline::open_part(&directory, part, key)?),
            None => Bundle::open_of(&directory, key)?,
        };
        Ok(Self { host: host.clone(), bundle, waiting: options.waiting })
    }

    /// The engine's name.
    pub fn name(&self) -> &str {
        self.bundle.name()
    }

    /// The engine's task; `None` for an engine of several parts, such as a diffusion pipeline.
    pub fn task(&self) -> Option<Task> {
        match &self.bundle {
            Bundle::Engine(engine) => Some(engine.manifest().contract.task),
            Bundle::Pipeline(_) => None,
        }
    }

    /// The manifest as JSON; with the manifests of its parts, if it has any.
    ///
    /// # Errors
    /// The manifest cannot be written as JSON.
    pub fn manifest_json(&self) -> Result<String> {
        Ok(self.bundle.manifest_json()?.to_string())
    }

    /// How the engine, or each of its parts with its name, can run on this machine.
    pub fn verdicts(&self, placement: &Placement) -> Vec<(Option<&str>, Verdict)> {
        let engines = self.bundle.engines().into_iter();
        engines.map(|(part, engine)| (part, Verdict::of(engine, self.host.environment(), placement))).collect()
    }

    /// Opens it as an upscaler; networks that restore pictures are upscalers, too. Sessions open with the first
    /// picture.
    ///
    /// # Errors
    /// It is for another task, or does not fit this machine.
    pub fn upscaler(&self, options: Upscale) -> Result<Upscaler> {
        let engine = self.of_one_network("pictures to pictures")?;
        Ok(Upscaler::new(self.serve(upscale::Upscaler::new(&self.host, engine, options.into())?)))
    }

    /// Opens it as an inpainter.
    ///
    /// # Errors
    /// As [`Engine::upscaler`].
    pub fn inpainter(&self, placement: Placement) -> Result<Inpainter> {
        let engine = self.of_one_network("pictures with masks")?;
        let options = inpaint::InpaintOptions { placement };
        Ok(Inpainter::new(self.serve(inpaint::Inpainter::new(&self.host, engine, options)?)))
    }

    /// Opens it as a depth estimator.
    ///
    /// # Errors
    /// As [`Engine::upscaler`].
    pub fn depth(&self, placement: Placement) -> Result<DepthEstimator> {
        let engine = self.of_one_network("depth")?;
        let options = depth::DepthOptions { placement, ..depth::DepthOptions::default() };
        Ok(DepthEstimator::new(self.serve(depth::Estimator::new(&self.host, engine, options)?)))
    }

    /// Opens it as a player, which turns frames into frames.
    ///
    /// # Errors
    /// As [`Engine::upscaler`]; it lacks the requested size or timesteps.
    pub fn player(&self, options: RealtimeOptions) -> Result<Player> {
        let engine = self.of_one_network("frames to frames")?;
        Ok(Player::new(self.serve(realtime::Player::new(&self.host, engine, options)?)))
    }

    /// Opens it as a pipeline that makes pictures from texts.
    ///
    /// # Errors
    /// As [`Engine::upscaler`].
    pub fn generator(&self, options: Generation) -> Result<Generator> {
        let Bundle::Pipeline(pipeline) = &self.bundle else { return Err(self.other("a diffusion pipeline")) };
        Ok(Generator::new(self.serve(diffusion::Generator::new(&self.host, pipeline, options.into())?)))
    }

    /// Whether it is a pipeline that restores films and pictures.
    pub fn is_restorer(&self) -> bool {
        matches!(&self.bundle, Bundle::Pipeline(pipeline) if pipeline.manifest().restoration.is_some())
    }

    /// Opens it as a pipeline that restores films and pictures.
    ///
    /// # Errors
    /// As [`Engine::upscaler`].
    pub fn restorer(&self, options: Coding) -> Result<Restorer> {
        let Bundle::Pipeline(pipeline) = &self.bundle else { return Err(self.other("a restoration pipeline")) };
        Ok(Restorer::new(self.serve(restoration::Restorer::new(&self.host, pipeline, options.into())?)))
    }

    /// Opens it, or its encoder, as an encoder of pictures to latents.
    ///
    /// # Errors
    /// As [`Engine::upscaler`].
    pub fn encoder(&self, options: Coding) -> Result<Encoder> {
        let part = AutoencoderPart::of(&self.bundle, Direction::Encode)?;
        let encoder = autoencoder::Encoder::new(&self.host, part.engine, part.next, options.into())?;
        Ok(Encoder::new(self.serve(encoder)))
    }

    /// Opens it, or its decoder, as a decoder of latents to pictures.
    ///
    /// # Errors
    /// As [`Engine::upscaler`].
    pub fn decoder(&self, options: Coding) -> Result<Decoder> {
        let part = AutoencoderPart::of(&self.bundle, Direction::Decode)?;
        let decoder = autoencoder::Decoder::new(&self.host, part.engine, part.next, options.into())?;
        Ok(Decoder::new(self.serve(decoder)))
    }

    /// Opens it as a network with tensors by name, for any task.
    ///
    /// # Errors
    /// It has several parts, or does not fit this machine.
    pub fn tensors(&self, placement: Placement) -> Result<Tensors> {
        let engine = self.of_one_network("tensors")?;
        Ok(Tensors::new(self.serve(run::Runner::new(&self.host, engine, placement)?)))
    }

    fn serve<T: HostTask>(&self, task: T) -> Service<T> {
        Service::new(&self.host, task, self.waiting)
    }

    fn of_one_network(&self, expected: &'static str) -> Result<&tileforge_engine::Engine> {
        match &self.bundle {
            Bundle::Engine(engine) => Ok(engine),
            Bundle::Pipeline(_) => Err(self.other(expected)),
        }
    }

    fn other(&self, expected: &'static str) -> Error {
        let parts =
            |bundle: &Bundle| bundle.engines().iter().filter_map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = match self.task() {
            Some(task) => task.to_string(),
            None => format!("one of several parts ({}): OpenOptions::part names one", parts(&self.bundle)),
        };
        Error::OtherTask { expected, found }
    }
}

/// A folder in the host's cache.
fn cache(host: &Host) -> Result<PathBuf> {
    let cache = host.environment().cache().ok_or(RuntimeError::from(tileforge_session::Error::NoCache))?;
    Ok(cache.to_owned())
}

/// The directory of an archive's engine. An archive is unpacked the first time.
fn unpacked(host: &Host, path: &Path, options: &OpenOptions) -> Result<PathBuf> {
    let digest = sha256_file(path)?.sha256;
    let folder = cache(host)?.join("archives");
    let directory = folder.join(&digest);
    // An existing folder is complete, and is verified again when it is opened.
    if !directory.is_dir() {
        std::fs::create_dir_all(&folder).map_err(|source| tileforge_engine::Error::file(&folder, "create", source))?;
        archive::unpack(path, &directory, options.key.as_ref())?;
    }
    Ok(directory)
}

/// The directory of the variant in a registry that fits this machine, in the host's cache.
fn pulled(host: &Host, reference: &Reference, options: &OpenOptions) -> Result<PathBuf> {
    let cache = Cache::at(cache(host)?.join("registry"));
    let credentials = options.credentials.clone().unwrap_or_else(|| Credentials::from_variables(|_| None));
    let registry = Registry::new(reference, Purpose::Pull, credentials, &Authorities::from_variables(|_| None), false)?;
    let offer = Offer::of(&registry, Some(&cache))?;
    let requirements: Vec<_> = offer.variants.iter().map(|variant| variant.requirements.clone()).collect();
    let ranked = choice::ranked(&requirements, host.environment(), &Placement::default());
    let best = choice::best(&ranked, false)?;
    let variant = &offer.variants[best.index];
    Ok(pull_to_cache(&registry, variant, &cache, options.key.as_ref(), &mut Unseen)?.0)
}

/// A transfer without progress reports.
struct Unseen;

impl tileforge_files::Transfer for Unseen {
    fn begin(&mut self, _: &str, _: Option<u64>, _: u64) {}

    fn advance(&mut self, _: u64) {}
}
