//! From a checkpoint to a model.

use crate::arch::{Network, detect_task};
use crate::nn::{Parameters, Scope};
use crate::{Checkpoint, Error, Result, Shapes, Task};
use std::collections::BTreeMap;
use tileforge_contract::{ARCHITECTURE_KEY, Axis, CONTRACT_KEY, Contract, Extent, HYPERPARAMETERS_KEY, PARAMETERS_KEY};
use tileforge_graph::{Dim, Model, Trace};

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
        });
    }
    let mut model = trace.finish()?;
    shapes.check_names(&model.inputs)?;
    if model.nodes.iter().any(|node| node.operator == "Attention") {
        model.ir_version = ATTENTION_IR_VERSION;
        model.opsets.iter_mut().for_each(|set| set.version = ATTENTION_OPSET);
    }
    model.producer = ("Tileforge exporter".into(), env!("CARGO_PKG_VERSION").into());
    let contract = network.contract();
    check_ports(network.architecture(), &contract, &model)?;
    model.metadata.insert(CONTRACT_KEY.into(), contract.to_json()?);
    model.metadata.insert(ARCHITECTURE_KEY.into(), network.architecture().into());
    let hyperparameters = network
        .hyperparameters()
        .map_err(|source| Error::HyperparametersJson { architecture: network.architecture(), source })?;
    model.metadata.insert(HYPERPARAMETERS_KEY.into(), hyperparameters.to_string());
    model.metadata.insert(PARAMETERS_KEY.into(), parameters.elements().to_string());
    Ok(Export { network, model })
}

fn describe(network: &dyn Network) -> String {
    match network.hyperparameters() {
        Ok(hyperparameters) => format!("{} {hyperparameters}", network.architecture()),
        Err(_) => network.architecture().into(),
    }
}

/// That the graph has exactly the tensors of the contract: names, element types and axes.
fn check_ports(architecture: &str, contract: &Contract, model: &Model) -> Result<()> {
    let mut units = BTreeMap::new();
    for (kind, specs, ports) in
        [("input", &contract.inputs, &model.inputs), ("output", &contract.outputs, &model.outputs)]
    {
        let differs = |expected, found| Error::Promise { architecture: architecture.into(), kind, expected, found };
        if specs.len() != ports.len() {
            let expected = specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(differs(expected, ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ")));
        }
        for (spec, port) in specs.iter().zip(ports) {
            let same = spec.name == port.name
                && spec.data_type == port.ty.data_type
                && spec.axes.len() == port.ty.dims.len()
                && spec.axes.iter().zip(&port.ty.dims).all(|(axis, dim)| matches(axis, dim, &mut units));
            if !same {
                let expected = format!("{}: {}{:?}", spec.name, spec.data_type, spec.axes);
                return Err(differs(expected, format!("{}: {}", port.name, port.ty)));
            }
        }
    }
    Ok(())
}

/// Whether a dimension of the graph is the axis that the contract says.
///
/// A graph of fixed size may take one that the axis does not allow, because it pads within. An open length grows with the axis: a graph may count in smaller units than
/// the contract, and call `height` what the contract calls two units of height, but then it does so everywhere; `units` holds
/// the contract's units in each of the graph's.
fn matches(axis: &Axis, dim: &Dim, units: &mut BTreeMap<&'static str, usize>) -> bool {
    let mut grows = |name: &'static str, extent: &Extent| match dim {
        Dim::Fixed(length) => *length > 0,
        Dim::Symbol { names, multiply, divide, add } => {
            let step = extent.step.saturating_mul(*divide);
            let unit = step / multiply.max(&1);
            names.as_ref() == [name.into()]
                && extent.offset == *add
                && step.is_multiple_of(*multiply)
                && *units.entry(name).or_insert(unit) == unit
        }
    };
    match axis {
        Axis::Channels(length) | Axis::Fixed(length) => dim.fixed() == Some(*length),
        Axis::Batch => dim.fixed().map_or_else(|| *dim == Dim::symbol("batch"), |length| length > 0),
        Axis::Tokens(most) => dim.fixed().map_or_else(
            || *dim == Dim::symbol("sequence"),
            |length| (1..=most.unwrap_or(usize::MAX)).contains(&length),
        ),
        Axis::Height(extent) => grows("height", extent),
        Axis::Width(extent) => grows("width", extent),
        Axis::Frames(extent) => grows("frames", extent),
    }
}
