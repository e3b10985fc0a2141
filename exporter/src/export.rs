//! From a checkpoint to a model.

use crate::arch::{Network, detect_task};
use crate::nn::{Parameters, Scope};
use crate::{Checkpoint, Error, Result, Shapes, Task};
use std::collections::BTreeMap;
use tileforge_contract::{ARCHITECTURE_KEY, Axis, CONTRACT_KEY, Contract, Extent, HYPERPARAMETERS_KEY, PARAMETERS_KEY};
use tileforge_graph::{Dim, Model, Trace};

/// The operator set of our graphs: the lowest one with the operators that we emit (Gelu came with 20), because
/// TensorRT's parsers support new sets late. The IR version is the file format of that set.
pub(crate) const OPSET: i64 = 20;
pub(crate) const IR_VERSION: i64 = 9;
/// The versions for graphs with the operator Attention.
const ATTENTION_OPSET: i64 = 23;
const ATTENTION_IR_VERSION: i64 = 11;

/// A model, and the network that was detected.
#[derive(Debug)]
pub struct Export {
    /// The detected network.
    pub network: Box<dyn Network>,
    /// The graph with its metadata. The weights are still in the checkpoint.
    pub model: Model,
}

/// Makes the model of a checkpoint. `hints` are values of hyperparameters that the tensors do not determine.
///
/// # Errors
/// The architecture is unknown, a tensor is missing, left over or of a wrong shape, or `shapes` do not fit the network.
pub fn export(checkpoint: &Checkpoint, shapes: &Shapes, hints: &BTreeMap<String, String>) -> Result<Export> {
    export_task(checkpoint, None, shapes, hints)
}

/// As [`export`], for a checkpoint that gives several graphs: makes the one for `task`.
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
    let parameters = Parameters::new(checkpoint);
    let trace = Trace::new(network.architecture(), IR_VERSION, OPSET);
    network.build(&Scope::root(&trace, &parameters), shapes)?;
    // Wrong tensors can cause errors in later layers, so they are reported first.
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

/// Checks that the graph has exactly the tensors of the contract: names, element types and axes.
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

/// Whether a dimension of the graph matches an axis of the contract.
///
/// A fixed length may be one that the axis does not allow, because such a graph pads inside. A dynamic length must grow
/// with the axis. The graph may count in smaller units than the contract: its `height` may be two units of height in
/// the contract. It must then do so everywhere; `units` holds this factor for each name.
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
