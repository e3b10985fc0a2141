//! Building an engine as somebody asks for it: from a path, names of profiles and options to an engine directory.
//!
//! | module | holds |
//! |---|---|
//! | `sources` | the graphs that a path stands for |
//! | `recorded` | what the manifest says about how the engine was ordered |
//! | `prepared` | what is asked for, opened and checked, and its builds |

mod prepared;
mod recorded;
mod sources;

use crate::{CalibrationBudget, Error, RangeMethod, Result, WeightFolders};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use tileforge_contract::Precision;
use tileforge_exporter::lora::Lora;
use tileforge_image::Size;

pub use prepared::{BuiltEngine, PreparedBuild, Target};

/// What engines are to be built of, and how. What is not given is as the model file and the profile say.
#[derive(Clone, Debug, Default)]
pub struct BuildRequest {
    /// A checkpoint, a diffusion pipeline, an exported graph, or a model file.
    pub model: PathBuf,
    /// The one graph to build, where there are several.
    pub component: Option<String>,
    /// Hyperparameters that the checkpoint does not state.
    pub hyperparameters: BTreeMap<String, String>,
    /// Sizes of the pictures in pixels.
    pub sizes: Vec<Size>,
    /// Frames of a video in one run; only with [`sizes`](Self::sizes).
    pub frames: Option<u16>,
    /// What is asked of a diffusion pipeline.
    pub pipeline: PipelineRequest,
    /// Names of profiles, or paths of their files. There is an engine for each.
    pub profiles: Vec<String>,
    /// Another precision than that of the profiles.
    pub precision: Option<Precision>,
    /// How activations are measured.
    pub calibration: CalibrationRequest,
    /// Whether an engine may be portable.
    pub compilation: Compilation,
    /// Where weights are looked for.
    pub weights: WeightFolders,
}

/// What is asked of the engine of a diffusion pipeline.
#[derive(Clone, Debug, Default)]
pub struct PipelineRequest {
    /// Pictures that are made together; one if nothing is said.
    pub batch: Option<u16>,
    /// Numbers of tokens of a text; those that the text encoder takes if there are none.
    pub tokens: Vec<u16>,
    /// The variant of the weights in a folder, such as `fp16`.
    pub variant: Option<String>,
    /// Low-rank adaptations to merge into the weights.
    pub adaptations: Vec<Lora>,
    /// The folder with the configurations, tokenizers and scheduler of a pipeline whose weights are in one file.
    pub config: Option<PathBuf>,
}

/// A field of [`PipelineRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineOption {
    /// [`PipelineRequest::batch`].
    Batch,
    /// [`PipelineRequest::tokens`].
    Tokens,
    /// [`PipelineRequest::variant`].
    Variant,
    /// [`PipelineRequest::adaptations`].
    Adaptations,
    /// [`PipelineRequest::config`].
    Config,
}

impl fmt::Display for PipelineOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch => "a batch",
            Self::Tokens => "a number of tokens",
            Self::Variant => "a variant of the weights",
            Self::Adaptations => "adaptations",
            Self::Config => "a folder of configurations",
        })
    }
}

impl PipelineRequest {
    /// The first option that was given.
    fn given(&self) -> Option<PipelineOption> {
        let given = [
            (PipelineOption::Batch, self.batch.is_some()),
            (PipelineOption::Tokens, !self.tokens.is_empty()),
            (PipelineOption::Variant, self.variant.is_some()),
            (PipelineOption::Adaptations, !self.adaptations.is_empty()),
            (PipelineOption::Config, self.config.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// How activations are measured.
#[derive(Clone, Debug, Default)]
pub struct CalibrationRequest {
    /// A folder of pictures or tensors; for an engine of several parts, one with a folder for each part. `None`:
    /// built-in pictures, or random tensors.
    pub folder: Option<PathBuf>,
    /// Tiles that are drawn from them.
    pub tiles: Option<u32>,
    /// What calibration and gates may run.
    pub budget: CalibrationBudget,
    /// How INT8 chooses the range of an activation.
    pub range: Option<RangeMethod>,
    /// Whether the first and the last layer are quantised as well.
    pub all_layers: bool,
    /// Whether every layer is tried alone.
    pub sensitivity: bool,
}

/// Whether an engine may be [portable](crate::portable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compilation {
    /// An engine of plans needs them; one that TensorRT compiles is portable where its GPU is not here.
    #[default]
    Plans,
    /// It must be compiled here.
    Required,
    /// It may be portable.
    Free,
}

/// Why a request cannot be met: its options do not go together, or not with what the model is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Hyperparameters or frames are given for a pipeline.
    #[error("hyperparameters and frames are for one network, and this is a pipeline")]
    OfOneNetwork,
    /// An option of pipelines is given for something else.
    #[error("{0} is for pipelines, which have a folder with model_index.json")]
    OfPipelines(PipelineOption),
    /// A model file says itself which files a pipeline has.
    #[error("a variant and a folder of configurations are for a pipeline's folder or file, not for a model file")]
    OfFolders,
    /// A pipeline has no such part.
    #[error("expected one of {}, found {found}", known.join(", "))]
    NoSuchPart {
        /// The part that was asked for.
        found: String,
        /// Those that it has.
        known: Vec<String>,
    },
    /// The folder of calibration data has no folder for any part.
    #[error("{}: expected folders in it, named after the parts {}", folder.display(), parts.join(", "))]
    NoFoldersOfParts {
        /// The folder.
        folder: PathBuf,
        /// The parts.
        parts: Vec<String>,
    },
    /// No profile is named.
    #[error("expected a profile, found none")]
    NoProfile,
}

/// The task of a checkpoint's graph.
fn task(name: &str) -> Result<tileforge_contract::Task> {
    name.parse().map_err(|reason| Error::Component { reason })
}
