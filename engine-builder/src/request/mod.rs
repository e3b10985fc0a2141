//! Builds an engine for a user's request: from a path, names of profiles and options to an engine directory.
//!
//! | module | holds |
//! |---|---|
//! | `sources` | the graphs that a path stands for |
//! | `recorded` | what the manifest says about how the engine was ordered |
//! | `problem` | why a request cannot be met |
//! | `prepared` | what is asked for, opened and checked, and its builds |

mod prepared;
mod problem;
mod recorded;
mod sources;

use crate::{CalibrationBudget, RangeMethod, WeightFolders};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tileforge_contract::Precision;
use tileforge_engine::manifest::ForeignRecipe;
use tileforge_exporter::lora::Lora;
use tileforge_image::Size;

pub use prepared::{BuiltEngine, PreparedBuild, Target};
pub use problem::{PipelineOption, RequestError};

/// A request for engines. Fields without a value follow the model file and the profile.
#[derive(Clone, Debug, Default)]
pub struct BuildRequest {
    /// A checkpoint, a diffusion pipeline, an exported graph, or a model file.
    pub model: PathBuf,
    /// The one graph to build, if the model has several.
    pub component: Option<String>,
    /// Hyperparameters that the checkpoint does not state.
    pub hyperparameters: BTreeMap<String, String>,
    /// Sizes of the pictures in pixels.
    pub sizes: Vec<Size>,
    /// Frames of a video in one run; only with [`sizes`](Self::sizes).
    pub frames: Option<u16>,
    /// The options of a diffusion pipeline.
    pub pipeline: PipelineRequest,
    /// The given facts about an ONNX file of another program.
    pub foreign: ForeignRecipe,
    /// Names of profiles, or paths of their files. Each profile gets an engine.
    pub profiles: Vec<String>,
    /// The precision of the engines.
    pub precision: PrecisionChoice,
    /// How activations are measured.
    pub calibration: CalibrationRequest,
    /// Whether an engine may be portable.
    pub compilation: Compilation,
    /// The folders of weights.
    pub weights: WeightFolders,
}

/// How the precision of an engine is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// By the model file, which states what suits the model on the profile's provider; without such a statement, by
    /// the profile.
    #[default]
    Stated,
    /// By the caller.
    Only(Precision),
    /// The fastest precision on this machine that passes its gates.
    Fastest,
}

impl From<Option<Precision>> for PrecisionChoice {
    fn from(precision: Option<Precision>) -> Self {
        precision.map_or(Self::Stated, Self::Only)
    }
}

/// The options for the engine of a diffusion pipeline.
#[derive(Clone, Debug, Default)]
pub struct PipelineRequest {
    /// Pictures that are made together; `None`: one.
    pub batch: Option<u16>,
    /// Numbers of tokens of a text; empty: the number that the text encoder takes.
    pub tokens: Vec<u16>,
    /// The variant of the weights in a folder, such as `fp16`.
    pub variant: Option<String>,
    /// Low-rank adaptations to merge into the weights.
    pub adaptations: Vec<Lora>,
    /// The folder with the configurations, tokenizers and scheduler of a pipeline whose weights are in one file.
    pub config: Option<PathBuf>,
}

impl PipelineRequest {
    /// The first option that has a value.
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
    /// The number of tiles to draw from them.
    pub tiles: Option<u32>,
    /// What calibration and gates may run.
    pub budget: CalibrationBudget,
    /// How INT8 chooses the range of an activation.
    pub range: Option<RangeMethod>,
    /// Whether the first and the last layer are also quantised.
    pub all_layers: bool,
    /// Whether every layer is tried alone.
    pub sensitivity: bool,
}

/// Whether an engine may be [portable](crate::portable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compilation {
    /// An engine with plans needs them; an engine that TensorRT compiles is portable if its GPU is not in this
    /// machine.
    #[default]
    Plans,
    /// It must be compiled on this machine.
    Required,
    /// It may be portable.
    Free,
}
