//! Builds engines from graphs: a model prepared for one kind of machine and checked against its reference.
//!
//! A [`Source`] (checkpoint, graph or model file) gives one graph for each tile and batch of a [`Profile`]. The graphs
//! are run against their reference. [`build`] writes the engine directory. A [`request`] does all of this for a path
//! and names of profiles, and a [`rebuild`] for an existing engine.

mod build;
mod calibration_budget;
mod coverage;
mod diffusion;
mod digests;
mod error;
mod fastest;
mod fetch;
mod fixed;
pub mod fleet;
mod foreign;
mod gate;
pub mod lint;
mod listed_weights;
mod model_file;
pub mod model_package;
mod not_compiled;
mod optimise;
mod origin;
mod parallel;
mod part_order;
mod picture;
mod pipeline;
pub mod portable;
mod precision;
pub mod profile;
mod progress;
pub mod rebuild;
mod recipe;
pub mod request;
mod restoration;
pub mod rtx;
mod samples;
mod source;
mod test_image;
mod weights;
mod yaml;

pub use build::{Built, Plans, build};
pub use calibration_budget::CalibrationBudget;
pub use diffusion::{DiffusionOptions, DiffusionSource};
pub use error::{Error, MissingWeights, Result};
pub use fetch::{Fetched, Hub, fetch};
pub use gate::{Measurement, figure};
pub use listed_weights::check_weights;
pub use model_file::{Calibration, FileFacts, GraphFile, ModelFile, ModelSizes, RestorationFile};
pub use origin::Origin;
pub use parallel::map_parallel;
pub use part_order::PartOrder;
pub use picture::Picture;
pub use pipeline::{BuiltPipeline, PipelineExtras, PipelineFile, build_pipeline};
pub use precision::{PrecisionOption, PrecisionOptions, RangeMethod, Sensitivity, convert_graph, uncalibrated};
pub use profile::{Device, Floors, Profile, Tile};
pub use progress::{Progress, Silent};
pub use source::{Source, SourceOptions};
pub use weights::WeightFolders;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use tileforge_exporter::arch::registry;
    use tileforge_exporter::{Checkpoint, export, synthesise};
    use tileforge_graph::{DataType, Model};
    use tileforge_session::{Environment, onnxruntime};

    /// ONNX Runtime of this source tree, without a cache.
    pub(crate) fn environment() -> Environment {
        Environment::new(onnxruntime::load(&onnxruntime::Search::AroundExecutable).unwrap())
    }

    /// The graph of an architecture's preset, with random weights.
    pub(crate) fn preset(architecture: &str, preset: &str) -> Model {
        let architecture = registry().iter().find(|entry| entry.name == architecture).unwrap();
        let (_, network) = architecture.presets().into_iter().find(|(name, _)| *name == preset).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint.safetensors");
        synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
        let checkpoint = Checkpoint::open(&checkpoint).unwrap();
        export(&checkpoint, &network.example_shapes(), &BTreeMap::new()).unwrap().model
    }
}
