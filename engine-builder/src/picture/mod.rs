//! The gates of a pipeline's picture: all of its networks together, against FP32.
//!
//! The gates of a network measure one run. A picture takes several runs of several networks, and each starts with the
//! errors of the runs before. So the runtime makes the same picture twice on this CPU: with the exported graphs in
//! FP32, operator by operator, and with the engine's graphs. One network is in memory at a time.
//!
//! | module | holds |
//! |---|---|
//! | `generated` | a picture of a diffusion pipeline |
//! | `restored` | a picture of a pipeline that restores films |

mod generated;
mod restored;

use crate::gate::Measurement;
use crate::precision::emulation;
use crate::test_image::test_image;
use crate::{Error, Progress, Result};
use ndarray::{Array1, ArrayD};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tileforge_contract::{Precision, Provider};
use tileforge_engine::digest::sha256_file;
use tileforge_engine::manifest::{Gate, Graph, Manifest, Target};
use tileforge_engine::{MANIFEST_FILE, Pipeline, PipelineManifest, WEIGHTS_FILE, exchange, folder};
use tileforge_files::{link_or_copy, unfinished};
use tileforge_graph::Model;
use tileforge_image::Size;
use tileforge_runtime::Error as RuntimeError;
use tileforge_runtime::diffusion;
use tileforge_runtime::host::{Cancel, Host, HostOptions, Service, Task};
use tileforge_runtime::pixels::Pixels;
use tileforge_session::{Environment, OptimisationLevel, Placement, SessionOptions};

/// The interval between updates of the progress bar.
const TICK: Duration = Duration::from_millis(50);

/// An engine whose parts are written, in a temporary folder.
pub(crate) struct Staged<'s> {
    /// The folder of the parts and of the files beside them.
    pub(crate) folder: &'s Path,
    /// The future manifest, without these gates.
    pub(crate) manifest: &'s PipelineManifest,
    pub(crate) parts: &'s BTreeMap<String, StagedPart<'s>>,
}

/// A part that is written.
pub(crate) struct StagedPart<'s> {
    pub(crate) manifest: &'s Manifest,
    /// Its graphs before they were converted to the part's precision, in the order of the manifest.
    pub(crate) exported: Vec<Model>,
    /// The least PSNR of the part itself.
    pub(crate) floor_db: f64,
}

/// The measurement of a picture.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Its size: the engine's smallest.
    pub size: Size,
    /// The gates, with figures.
    pub gates: Vec<Gate>,
    /// The time in seconds to make it twice.
    pub seconds: f64,
}

impl Picture {
    /// Makes the picture twice. Temporary files go to `scratch`.
    ///
    /// # Errors
    /// The runtime cannot make a picture with these parts, or a file cannot be written.
    pub(crate) fn measure(
        environment: &Environment,
        progress: &dyn Progress,
        staged: &Staged<'_>,
        scratch: &Path,
    ) -> Result<Self> {
        let began = Instant::now();
        let kind = PictureKind::of(staged.manifest);
        progress.begin("making a picture in FP32 and with the engine", 2 * kind.steps());
        let folder = scratch.join("picture");
        staged.write(&folder, |part, name, to| part.write_graphs(&part.exported, &staged.folder.join(name), to))?;
        let making = Making { environment, progress, folder: &folder, scratch };
        let reference = kind.make(&making, (Provider::Cpu, OptimisationLevel::Disabled))?;
        fs::remove_dir_all(&folder).map_err(|e| Error::file(&folder, "remove", e))?;
        let mut emulated = false;
        staged.write(&folder, |part, name, to| {
            emulated |= part.write_for_cpu(&staged.folder.join(name), to)?;
            Ok(())
        })?;
        let found = match kind.make(&making, (staged.provider(), OptimisationLevel::All)) {
            Err(error) if is_of_no_numbers(&error) => None,
            made => Some(made?),
        };
        let measured = found.as_ref().map_or(NON_FINITE, |found| Measurement::of(&values(found), &values(&reference)));
        let floor_db = staged.parts.values().map(|part| part.floor_db).fold(f64::INFINITY, f64::min) - kind.lower_db();
        let gates = measured.picture_gates(floor_db, emulated);
        Ok(Self { size: reference.size, gates, seconds: began.elapsed().as_secs_f64() })
    }
}

/// The kind of picture that a pipeline makes.
#[derive(Clone, Copy)]
enum PictureKind {
    Generated,
    Restored,
}

impl PictureKind {
    fn of(manifest: &PipelineManifest) -> Self {
        if manifest.restoration.is_some() { Self::Restored } else { Self::Generated }
    }

    /// The number of steps of one picture.
    fn steps(self) -> usize {
        match self {
            Self::Generated => generated::STEPS,
            Self::Restored => restored::STEPS,
        }
    }

    /// How far the floor of the picture is below the floor of the worst network, in dB.
    fn lower_db(self) -> f64 {
        match self {
            Self::Generated => generated::GUIDANCE_DB,
            Self::Restored => restored::NETWORKS_DB,
        }
    }

    /// Makes the smallest picture of an engine.
    fn make(self, making: &Making<'_>, (provider, optimisation): (Provider, OptimisationLevel)) -> Result<Pixels> {
        let placement = Placement {
            provider: Some(provider),
            session: SessionOptions { optimisation, ..SessionOptions::default() },
            ..Placement::default()
        };
        let host = Host::new(making.environment, HostOptions::default());
        let pipeline = Pipeline::open(making.folder)?;
        match self {
            Self::Generated => generated::make(making, &host, &pipeline, placement),
            Self::Restored => restored::make(making, &host, &pipeline, placement),
        }
    }
}

/// The context for making a picture.
struct Making<'m> {
    environment: &'m Environment,
    progress: &'m dyn Progress,
    /// The engine.
    folder: &'m Path,
    /// A folder for temporary files.
    scratch: &'m Path,
}

impl Making<'_> {
    /// Submits a request and waits for its result, with a progress bar.
    fn result<T: Task>(&self, host: &Host, task: T, request: T::Request) -> Result<T::Output> {
        let service = Service::new(host, task, 1);
        let handle = service.submit(request, &Cancel::new()).map_err(of_runtime)?;
        let mut done = 0;
        loop {
            let made = handle.wait_for(TICK);
            let now = handle.progress().done;
            (done..now).for_each(|_| self.progress.step());
            done = now;
            if let Some(made) = made {
                return made.map_err(of_runtime);
            }
        }
    }
}

/// The measurement for values that are not finite.
const NON_FINITE: Measurement =
    Measurement { finite: false, psnr_db: f64::NAN, cosine: f64::NAN, maximum_error: f64::NAN };

fn values(picture: &Pixels) -> ArrayD<f32> {
    Array1::from(picture.samples.clone()).into_dyn()
}

/// Whether the error is that a network gave NaN or infinity.
fn is_of_no_numbers(error: &Error) -> bool {
    matches!(
        error,
        Error::Picture(
            RuntimeError::Diffusion(diffusion::Error::NotFinite { .. })
                | RuntimeError::Image(tileforge_image::Error::NotFinite { .. })
        )
    )
}

impl Staged<'_> {
    /// The provider that runs the engine on this machine's processor.
    fn provider(&self) -> Provider {
        let providers = self.parts.values().map(|part| part.manifest.target.provider);
        providers.into_iter().find(|provider| provider.is_on_processor()).unwrap_or(Provider::Cpu)
    }

    /// Writes an engine of the same parts for this CPU to `folder`. `write_part` gets a part, its name and its own
    /// folder.
    fn write(
        &self,
        folder: &Path,
        mut write_part: impl FnMut(&StagedPart<'_>, &str, &Path) -> Result<()>,
    ) -> Result<()> {
        let mut manifest = self.manifest.clone();
        for (name, part) in self.parts {
            let to = folder.join(name);
            make_folder(&to)?;
            write_part(part, name, &to)?;
            manifest.parts.insert(name.clone(), sha256_file(&to.join(MANIFEST_FILE))?);
        }
        for name in manifest.files.keys() {
            let to = folder.join(name);
            make_folder(exchange::parent_of(&to))?;
            link(&self.folder.join(name), &to)?;
        }
        Ok(exchange::write_manifest(&manifest, folder)?)
    }
}

impl StagedPart<'_> {
    /// Writes the part in the form that a CPU runs. Returns whether its graphs are emulations. `from` is the part's
    /// own folder.
    fn write_for_cpu(&self, from: &Path, to: &Path) -> Result<bool> {
        let provider = self.manifest.target.provider;
        if provider.is_on_processor() {
            link(&from.join(MANIFEST_FILE), &to.join(MANIFEST_FILE))?;
            self.manifest.files.keys().try_for_each(|name| link(&from.join(name), &to.join(name)))?;
            return Ok(false);
        }
        let mut emulated = false;
        let mut graphs = Vec::new();
        for Graph { file, .. } in &self.manifest.graphs {
            let graph = tileforge_graph::load(from.join(file))?;
            let emulation = emulation(&graph, provider)?;
            emulated |= emulation.is_some();
            graphs.push(emulation.unwrap_or(graph));
        }
        self.write_graphs(&graphs, from, to)?;
        Ok(emulated)
    }

    /// Writes the part with other graphs, which compute in FP32 on a CPU.
    fn write_graphs(&self, graphs: &[Model], from: &Path, to: &Path) -> Result<()> {
        let record = |graph: &Graph| Graph { optimised: false, plan: None, ..graph.clone() };
        let records: Vec<Graph> = self.manifest.graphs.iter().map(record).collect();
        let paths: Vec<PathBuf> = records.iter().map(|record| to.join(&record.file)).collect();
        let pairs: Vec<(&Model, &Path)> = graphs.iter().zip(paths.iter().map(PathBuf::as_path)).collect();
        tileforge_graph::save_sharing_weights(&pairs, &to.join(WEIGHTS_FILE))?;
        let selftest = &self.manifest.selftest.file;
        link(&from.join(selftest), &to.join(selftest))?;
        let manifest = Manifest {
            precision: Precision::Fp32,
            islands: Vec::new(),
            target: Target {
                profile: self.manifest.target.profile.clone(),
                provider: Provider::Cpu,
                compute_capability: None,
                portable: false,
                streams: 1,
                tensorrt_rtx: BTreeMap::new(),
                tensorrt: BTreeMap::new(),
                cuda: BTreeMap::new(),
                openvino: BTreeMap::new(),
            },
            graphs: records,
            gates: Vec::new(),
            files: folder::files(to)?,
            ..self.manifest.clone()
        };
        Ok(exchange::write_manifest(&manifest, to)?)
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    unfinished::create_folders(folder).map_err(|e| Error::file(folder, "create", e))
}

fn link(from: &Path, to: &Path) -> Result<()> {
    link_or_copy(from, to).map_err(|e| Error::file(to, "create", e))
}

/// The built-in test image.
fn test_picture(size: Size) -> Pixels {
    const CHANNELS: usize = 3;
    let planes = test_image([CHANNELS, size.height as usize, size.width as usize], [0.0, 1.0]);
    let area = size.pixels() as usize;
    let samples = (0..area).flat_map(|pixel| (0..CHANNELS).map(move |channel| (channel, pixel)));
    let samples = samples.map(|(channel, pixel)| planes[channel * area + pixel]).collect();
    Pixels { size, channels: CHANNELS, samples }
}

/// Unpacks errors that have their own variant in this crate.
fn of_runtime(error: RuntimeError) -> Error {
    match error {
        RuntimeError::Engine(error) => error.into(),
        RuntimeError::Session(error) => error.into(),
        other => Error::Picture(other),
    }
}
