//! Why a request is refused.

use std::fmt;
use std::path::PathBuf;
use tileforge_contract::Task;

/// A field of [`PipelineRequest`](super::PipelineRequest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineOption {
    /// [`PipelineRequest::batch`](super::PipelineRequest::batch).
    Batch,
    /// [`PipelineRequest::tokens`](super::PipelineRequest::tokens).
    Tokens,
    /// [`PipelineRequest::variant`](super::PipelineRequest::variant).
    Variant,
    /// [`PipelineRequest::adaptations`](super::PipelineRequest::adaptations).
    Adaptations,
    /// [`PipelineRequest::config`](super::PipelineRequest::config).
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

/// Why a request is refused: its options contradict each other or the kind of model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Hyperparameters or frames were given for a pipeline.
    #[error("hyperparameters and frames are for one network, and this is a pipeline")]
    OfOneNetwork,
    /// An option for pipelines was given for something else.
    #[error("only a pipeline takes {0}, and has a folder with model_index.json")]
    OfPipelines(PipelineOption),
    /// A model file already states which files a pipeline has.
    #[error("a variant and a folder of configurations are for a pipeline's folder or file, not for a model file")]
    OfFolders,
    /// A pipeline has no such part.
    #[error("expected one of {}, found {found}", known.join(", "))]
    NoSuchPart {
        /// The requested part.
        found: String,
        /// The pipeline's parts.
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
    /// Facts about ONNX files of other programs were given for something else.
    #[error("only an ONNX file of another program needs to be told what its tensors mean")]
    OfForeignFiles,
    /// The purpose of another program's ONNX file is not given.
    #[error("{}: another program wrote this file, so it does not say what its tensors mean", path.display())]
    NoMeaning {
        /// The file.
        path: PathBuf,
    },
    /// Only a contract can state the meanings of a task's tensors.
    #[error("the tensors of the task {task} have meanings that a task alone does not say")]
    NeedsContract {
        /// The task.
        task: Task,
    },
    /// The fastest precision is measured only for engines of one network.
    #[error("which precision is fastest is measured for one network, and this engine has several parts")]
    FastestOfParts,
    /// The fastest precision on a GPU cannot be measured on a processor.
    #[error("which precision is fastest is measured here, and {profile} is a profile for GPUs")]
    FastestElsewhere {
        /// The profile.
        profile: String,
    },
    /// No profile is named.
    #[error("expected a profile, found none")]
    NoProfile,
}
