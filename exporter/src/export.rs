//! From a checkpoint to a model.

use crate::arch::{Network, detect_task};
use crate::nn::{Parameters, Scope};
use crate::{Checkpoint, Error, Result, Shapes, Task};
use std::collections::BTreeMap;
use tileforge_graph::{Model, Trace};

/// The operator set of our graphs and the file format that goes with it: the lowest with the operators that we emit
/// (Gelu came with 20), since TensorRT's parsers lag behind.
pub(crate) const OPSET: i64 = 20;
pub(crate) const IR_VERSION: i64 = 9;
/// Those of graphs with the operator Attention.
const ATTENTION_OPSET: i64 = 23;
const ATTENTION_IR_VERSION: i64 = 11;

/// A model, and what was recognised to make it.
#[derive(Debug)]
pub struct Export {
    /// The recognised network.
    pub network: Box<dyn Network>,
    /// The graph with its metadata. Weights still stand in the checkpoint.
    pub model: Model,
}

/// Makes the model of a checkpoint. `hints` say what its tensors do not tell.
///
/// # Errors
/// The architecture is unknown, a tensor is missing, left over or of a wrong shape, or `shapes` do not fit the network.
pub fn export(checkpoint: &Checkpoint, shapes: &Shapes, hints: &BTreeMap<String, String>) -> Result<Export> {
    export_task(checkpoint, None, shapes, hints)
}

/// As [`export`], of a checkpoint of which several graphs are made: the one for `task`.
///
/// # Errors
/// As [`export`].
pub fn export_task(
    checkpoint: &Checkpoint,
    task: Option<Task>,
    shapes: &Shapes,
    hints: &BTreeMap<String, String>,
) -> Result<Export> {
    let network = detect_task(checkpoint, task, hints)?;
    let parameters = Parameters::of(checkpoint);
    let trace = Trace::new(network.architecture(), IR_VERSION, OPSET);
    network.build(&Scope::root(&trace, &parameters), shapes)?;
    // A wrong tensor explains any error of a layer that followed from it.
    if let Some(problems) = parameters.problems(|name| network.ignores(name)) {
        return Err(Error::Tensors {
            path: checkpoint.path().to_owned(),
            architecture: describe(network.as_ref()),
            problems,
            hint: "the file is damaged, or it is a variant that is not supported: `exporter inspect` shows what was recognised",
        });
    }
    let mut model = trace.finish()?;
    shapes.check_names(&model.inputs)?;
    if model.nodes.iter().any(|node| node.operator == "Attention") {
        model.ir_version = ATTENTION_IR_VERSION;
        model.opsets.iter_mut().for_each(|set| set.version = ATTENTION_OPSET);
    }
    model.producer = ("Tileforge exporter".into(), env!("CARGO_PKG_VERSION").into());
    model.metadata = network.contract().metadata();
    model.metadata.insert("tileforge.architecture".into(), network.architecture().into());
    let hyperparameters =
        network.hyperparameters().map_err(|e| Error::Option(format!("{}: {e}", network.architecture())))?;
    model.metadata.insert("tileforge.hyperparameters".into(), hyperparameters.to_string());
    model.metadata.insert("tileforge.parameters".into(), parameters.elements().to_string());
    Ok(Export { network, model })
}

fn describe(network: &dyn Network) -> String {
    match network.hyperparameters() {
        Ok(hyperparameters) => format!("{} {hyperparameters}", network.architecture()),
        Err(_) => network.architecture().into(),
    }
}
