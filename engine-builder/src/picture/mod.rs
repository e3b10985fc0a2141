//! The gates of a pipeline's picture: all of its networks together, against FP32.
//!
//! The gates of a network measure one run. A picture takes several runs of several networks, and each starts with the
//! errors of the runs before. So the runtime makes the same picture twice on this CPU: with the exported graphs in
//! FP32, operator by operator, and with the engine's graphs. One network is in memory at a time.
//!
//! | module | holds |
//! |---|---|
//! | `staged` | the engine in the forms that this CPU runs |
//! | `making` | makes a picture with the runtime |
//! | `generated` | a picture of a diffusion pipeline |
//! | `restored` | a picture of a pipeline that restores films |

mod generated;
mod making;
mod restored;
mod staged;

use crate::gate::Measurement;
use crate::{Error, Progress, Result};
use making::Making;
use ndarray::{Array1, ArrayD};
use std::fs;
use std::path::Path;
use std::time::Instant;
use tileforge_contract::Provider;
use tileforge_engine::manifest::Gate;
use tileforge_engine::{Pipeline, PipelineManifest};
use tileforge_image::Size;
use tileforge_runtime::Error as RuntimeError;
use tileforge_runtime::diffusion;
use tileforge_runtime::host::{Host, HostOptions};
use tileforge_runtime::pixels::Pixels;
use tileforge_session::{Environment, OptimisationLevel, Placement, SessionOptions};

pub(crate) use staged::{Staged, StagedPart};

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
