//! Graphs that compute shapes, completed for one size by ONNX Runtime: its shape inference knows every operator, and
//! values that follow from sizes alone become constants.

use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_contract::Shapes;
use tileforge_engine::exchange;
use tileforge_graph::{Model, Opset, WeightStorage, save};
use tileforge_session::{Environment, OptimisationLevel, Session, SessionOptions};

/// Completes graphs with ONNX Runtime.
#[derive(Debug, Clone)]
pub(crate) struct Folding {
    environment: Environment,
    /// The file, for error messages.
    path: PathBuf,
}

/// Operators that read sizes or make values from sizes.
const OF_SHAPES: [&str; 5] = ["Shape", "Size", "ConstantOfShape", "Range", "NonZero"];

impl Folding {
    pub(super) fn new(path: &Path, environment: &Environment) -> Self {
        Self { environment: environment.clone(), path: path.to_owned() }
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Whether a graph needs no folding: all types are known, and it computes no sizes.
    pub(super) fn is_complete(model: &Model) -> bool {
        let outputs = || model.nodes.iter().flat_map(|node| &node.outputs).filter(|name| !name.is_empty());
        let computes_sizes = |operator: &str| OF_SHAPES.contains(&operator);
        outputs().all(|name| model.types.contains_key(name))
            && !model.nodes.iter().any(|node| computes_sizes(&node.operator))
    }

    /// The graph for fixed input shapes.
    ///
    /// # Errors
    /// The graph does not take these shapes, ONNX Runtime refuses it, or it needs more memory than is available.
    pub(crate) fn of_shapes(&self, model: &Model, shapes: &Shapes) -> Result<Model> {
        let fixed = model.specialised(shapes)?;
        if Self::is_complete(&fixed) {
            return Ok(fixed);
        }
        check_memory(&fixed)?;
        // The folder is removed when this call returns. Weights in its files are mapped, and an open file needs no
        // name.
        let folder = exchange::temporary(&std::env::temp_dir())?;
        let (source, target) = (folder.path().join("model.onnx"), folder.path().join("folded.onnx"));
        save(&fixed, &source, WeightStorage::Copy)?;
        let options = SessionOptions {
            optimisation: OptimisationLevel::Basic,
            optimised_model_path: Some(target.clone()),
            ..SessionOptions::default()
        };
        Session::open(&self.environment, &source, &options).map_err(|error| refused(&self.path, &error))?;
        let mut folded = tileforge_graph::load(&target)?;
        // Unchanged weights refer to the original file again, not to the copy in the temporary folder.
        for (name, weight) in &mut folded.weights {
            if let Some(original) = model.weights.get(name)
                && original.data_type() == weight.data_type()
                && original.dims() == weight.dims()
                && weight.file_range().is_some_and(|(file, _)| file.path() != target)
            {
                *weight = original.clone();
            }
        }
        folded.metadata.clone_from(&model.metadata);
        folded.producer.clone_from(&model.producer);
        folded.name.clone_from(&model.name);
        folded.opsets = used_opsets(&folded);
        Ok(folded)
    }
}

/// The opsets that nodes use: ONNX Runtime lists every opset that it knows.
fn used_opsets(model: &Model) -> Vec<Opset> {
    let used: BTreeSet<&str> = model.nodes.iter().map(|node| node.domain.as_str()).chain([""]).collect();
    let sets: BTreeMap<&str, &Opset> = model.opsets.iter().map(|set| (set.domain.as_str(), set)).collect();
    used.into_iter().filter_map(|domain| sets.get(domain).copied().cloned()).collect()
}

/// An error of ONNX Runtime about a file, with the file's path.
pub(super) fn refused(path: &Path, error: &tileforge_session::Error) -> Error {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    Error::input(path, format!("ONNX Runtime does not take it: {}", tileforge_files::bounded(text)))
}

/// Refuses graphs whose known values alone need more memory than is available: ONNX Runtime would end the process.
pub(super) fn check_memory(model: &Model) -> Result<()> {
    let (Some((node, bytes)), Some(available)) = (model.peak(), tileforge_session::available_memory()) else {
        return Ok(());
    };
    if bytes <= available {
        return Ok(());
    }
    let reason = format!(
        "its values take {} MB, and this machine has {} MB of memory left",
        bytes / 1_000_000,
        available / 1_000_000
    );
    Err(tileforge_graph::Error::Node { node: node.name.clone(), operator: node.operator.clone(), reason }.into())
}
