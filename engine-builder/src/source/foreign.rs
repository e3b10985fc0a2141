//! Sources that are ONNX files of other programs.

use super::{LATENT_PIXELS, Source, SourceKind, SourceOptions, name_of};
use crate::foreign::Foreign;
use crate::{Progress, Result};
use std::path::Path;
use tileforge_contract::{ARCHITECTURE_KEY, Axis, CONTRACT_KEY, Extent, Meaning, Task};
use tileforge_engine::manifest::ForeignRecipe;
use tileforge_graph::Model;
use tileforge_session::Environment;

/// The architecture that manifests record for a file of another program.
const ARCHITECTURE: &str = "ONNX";

impl Source {
    /// Opens an ONNX file of another program than `exporter`, with the given facts. The other facts are found by
    /// running it on the CPU.
    ///
    /// # Errors
    /// The file cannot be used, its purpose is not given, or the given facts contradict the file.
    pub fn of_foreign(
        path: &Path,
        said: &ForeignRecipe,
        options: &SourceOptions,
        environment: &Environment,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let Foreign { mut model, contract, folding } = Foreign::open(path, said, environment, progress)?;
        // From here on, the graph has metadata as exported graphs have.
        model.metadata.insert(ARCHITECTURE_KEY.into(), ARCHITECTURE.into());
        model.metadata.insert(CONTRACT_KEY.into(), contract.to_json()?);
        let (batches, parameters) = (batches(&model, &contract.inputs), model.parameters());
        let kind = match folding {
            None => SourceKind::Graph(Box::new(model)),
            Some(folding) => SourceKind::Folded { model: Box::new(model), folding },
        };
        // Tensors without a meaning are not latent pictures.
        let has_values = contract.inputs.iter().any(|input| input.meaning == Meaning::Values);
        let latent_pixels = if contract.task == Task::Tensors || has_values { 1 } else { LATENT_PIXELS };
        Ok(Source {
            name: name_of(path),
            path: path.to_owned(),
            licence: None,
            kind,
            contract,
            architecture: ARCHITECTURE.into(),
            parameters,
            hyperparameters: serde_json::Value::Null,
            sizes: None,
            asked: options.sizes.clone(),
            frames: options.frames,
            batches,
            lengths: Vec::new(),
            latent_pixels,
            latent_frames: Extent::multiple_of(1),
            is_part: false,
            digests: options.weights.digests.clone(),
        })
    }
}

/// The only batch of a graph that has one; otherwise empty, and the profile decides.
fn batches(model: &Model, inputs: &[tileforge_contract::TensorSpec]) -> Vec<usize> {
    let fixed = inputs.iter().find_map(|input| {
        let axis = input.axes.iter().position(|axis| *axis == Axis::Batch)?;
        model.inputs.iter().find(|port| port.name == input.name)?.ty.dims.get(axis)?.fixed()
    });
    fixed.into_iter().collect()
}
