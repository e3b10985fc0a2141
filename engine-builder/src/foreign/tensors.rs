//! Networks whose tensors have no meaning to the runtime, and contracts that the user wrote.

use super::fold::Folding;
use super::opened::{Foreign, safe_precisions};
use super::wrap::{Form, Wrapping, with_plain_names};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_contract::{Axis, Contract, Extent, Meaning, ReceptiveField, Shapes, Sizes, Task, TensorSpec};
use tileforge_exporter::foreign::ForeignGraph;
use tileforge_graph::{DataType, Dim, Model, Port};

/// A graph for the task `tensors`.
///
/// The first axis is a batch if it is free. Other free axes are independent lengths; the names in the file distinguish
/// them.
pub(super) fn open(path: &Path, graph: ForeignGraph, folding: Folding) -> Result<Foreign> {
    let safe_precisions = safe_precisions(&graph);
    let model = in_known_types(path, with_plain_names(graph.model), &BTreeMap::new())?;
    let kinds = Kinds::of(path, &model)?;
    let spec = |port: &Port, axes: Vec<Axis>| TensorSpec {
        name: port.name.clone(),
        data_type: port.ty.data_type,
        axes,
        meaning: Meaning::Values,
    };
    let inputs: Vec<TensorSpec> =
        model.inputs.iter().map(|port| Ok(spec(port, kinds.axes(path, port)?))).collect::<Result<_>>()?;
    let mut contract = Contract {
        task: Task::Tensors,
        inputs,
        outputs: Vec::new(),
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions,
    };
    let outputs = output_axes(path, &model, &contract, &kinds, &folding)?;
    contract.outputs = model.outputs.iter().zip(outputs).map(|(port, axes)| spec(port, axes)).collect();
    contract.validate()?;
    finished(model, contract, folding)
}

/// A graph with a contract that the user wrote.
pub(super) fn with_contract(
    path: &Path,
    graph: ForeignGraph,
    contract: &Contract,
    folding: Folding,
) -> Result<Foreign> {
    let types: BTreeMap<&str, DataType> = contract
        .inputs
        .iter()
        .chain(&contract.outputs)
        .map(|tensor| (tensor.name.as_str(), tensor.data_type))
        .collect();
    if let Some(tensor) = contract.outputs.iter().find(|tensor| tensor.data_type != DataType::F32) {
        let reason = format!("`{}`: expected f32 for an output, found {}", tensor.name, tensor.data_type);
        return Err(Error::input(path, reason));
    }
    let model = in_known_types(path, graph.model, &types)?;
    for (what, ports, tensors) in
        [("inputs", &model.inputs, &contract.inputs), ("outputs", &model.outputs, &contract.outputs)]
    {
        let names = |names: Vec<&str>| names.join(", ");
        let expected: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let found: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        if expected != found {
            let reason =
                format!("the contract's {what} are {}, and those of the file are {}", names(expected), names(found));
            return Err(Error::input(path, reason));
        }
        for (tensor, port) in tensors.iter().zip(ports) {
            let fits = |(axis, dim): (&Axis, &Dim)| match (axis, dim) {
                (Axis::Channels(length) | Axis::Fixed(length), Dim::Fixed(found)) => length == found,
                _ => true,
            };
            let known = what == "inputs" || model.types.contains_key(&port.name);
            let same = tensor.axes.len() == port.ty.dims.len() && tensor.axes.iter().zip(&port.ty.dims).all(fits);
            if known && !same {
                let axes = tensor.axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let reason = format!("`{}`: the contract has [{axes}], and the file {}", tensor.name, port.ty);
                return Err(Error::input(path, reason));
            }
        }
    }
    finished(model, contract.clone(), folding)
}

fn finished(model: Model, contract: Contract, folding: Folding) -> Result<Foreign> {
    if Folding::is_complete(&model) {
        return Ok(Foreign { model, contract, folding: None });
    }
    let fixed: Option<Shapes> =
        model.inputs.iter().map(|port| Some((port.name.clone(), port.ty.fixed_dims()?))).collect();
    match fixed {
        Some(shapes) => Ok(Foreign { model: folding.of_shapes(&model, &shapes)?, contract, folding: None }),
        None => Ok(Foreign { model, contract, folding: Some(folding) }),
    }
}

/// The graph with FP32 inputs and outputs, and INT64 for integer inputs.
fn in_known_types(path: &Path, model: Model, wanted: &BTreeMap<&str, DataType>) -> Result<Model> {
    let form = |port: &Port, is_input: bool| {
        let own = port.ty.data_type;
        // Gates and self-tests compare floats, so integer outputs become floats.
        let known = if own.is_float() || !is_input { DataType::F32 } else { DataType::I64 };
        let to = wanted.get(port.name.as_str()).copied().unwrap_or(known);
        Form { data_type: (own != to).then_some(to), ..Form::default() }
    };
    let ports: Vec<(bool, Port)> = (model.inputs.iter().map(|port| (true, port.clone())))
        .chain(model.outputs.iter().map(|port| (false, port.clone())))
        .collect();
    if let Some((_, port)) =
        ports.iter().find(|(_, port)| matches!(port.ty.data_type, DataType::F8E4M3 | DataType::F8E5M2))
    {
        return Err(Error::input(path, format!("`{}`: tensors of {} cannot be given", port.name, port.ty.data_type)));
    }
    let mut wrapping = Wrapping::new(model);
    for (is_input, port) in &ports {
        match is_input {
            true => wrapping.input(&port.name, &form(port, true))?,
            false => wrapping.output(&port.name, &form(port, false))?,
        }
    }
    wrapping.finish()
}

/// The free axes of a graph's inputs, by their symbolic names.
struct Kinds(BTreeMap<String, fn(Extent) -> Axis>);

/// Axes for lengths other than the batch.
const FREE: [fn(Extent) -> Axis; 3] = [Axis::Height, Axis::Width, Axis::Frames];

impl Kinds {
    fn of(path: &Path, model: &Model) -> Result<Self> {
        let mut found = BTreeMap::new();
        let batches: Vec<String> = model
            .inputs
            .iter()
            .filter_map(|port| port.ty.dims.first())
            .filter(|dim| dim.fixed().is_none())
            .map(Dim::to_string)
            .collect();
        let mut free = FREE.into_iter();
        for port in &model.inputs {
            for dim in port.ty.dims.iter().filter(|dim| dim.fixed().is_none()) {
                let name = dim.to_string();
                if batches.contains(&name) || found.contains_key(&name) {
                    continue;
                }
                let Some(axis) = free.next() else {
                    let reason = format!(
                        "`{}` is {}: expected three free sizes beside the batch at most; give a contract",
                        port.name, port.ty
                    );
                    return Err(Error::input(path, reason));
                };
                found.insert(name, axis);
            }
        }
        Ok(Self(found))
    }

    fn axes(&self, path: &Path, port: &Port) -> Result<Vec<Axis>> {
        let axis = |dim: &Dim| match dim.fixed() {
            Some(0) => Err(Error::input(path, format!("`{}` is {}, which holds nothing", port.name, port.ty))),
            Some(length) => Ok(Axis::Fixed(length)),
            None => Ok(self.0.get(&dim.to_string()).map_or(Axis::Batch, |axis| axis(Extent::multiple_of(1)))),
        };
        port.ty.dims.iter().map(axis).collect()
    }
}

/// The axes of the outputs: how their lengths follow from the input lengths, found by trying several sizes.
fn output_axes(
    path: &Path,
    model: &Model,
    contract: &Contract,
    kinds: &Kinds,
    folding: &Folding,
) -> Result<Vec<Vec<Axis>>> {
    const BASE: usize = 24;
    let is_used = |axis: Axis| contract.inputs.iter().flat_map(|input| &input.axes).any(|own| *own == axis);
    let base = Sizes { batch: 1, height: BASE, width: BASE, frames: BASE, tokens: 1 };
    let lengths = |sizes: Sizes| -> Result<Vec<Vec<usize>>> {
        let folded = folding.of_shapes(model, &contract.input_shapes(&sizes)?)?;
        let dims = |port: &Port| {
            let known = folded.type_of(&port.name).filter(|_| folded.types.contains_key(&port.name));
            known.and_then(|ty| ty.fixed_dims()).ok_or_else(|| {
                Error::input(
                    path,
                    format!("the sizes of its output `{}` depend on values, not on sizes alone", port.name),
                )
            })
        };
        folded.outputs.iter().map(dims).collect()
    };
    let at_base = lengths(base)?;
    let mut axes: Vec<Vec<Axis>> =
        at_base.iter().map(|dims| dims.iter().map(|length| Axis::Fixed(*length)).collect()).collect();
    let one = Extent::multiple_of(1);
    let mut varied = vec![];
    if is_used(Axis::Batch) {
        varied.push((Sizes { batch: 2, ..base }, None));
    }
    for axis in kinds.0.values() {
        let sizes = match axis(one) {
            Axis::Height(_) => Sizes { height: BASE + 8, ..base },
            Axis::Width(_) => Sizes { width: BASE + 8, ..base },
            _ => Sizes { frames: BASE + 8, ..base },
        };
        varied.push((sizes, Some(*axis)));
    }
    for (sizes, axis) in varied {
        let other = lengths(sizes)?;
        for ((own, before), after) in axes.iter_mut().zip(&at_base).zip(&other) {
            for ((own, before), after) in
                own.iter_mut().zip(before).zip(after).filter(|((_, before), after)| before != after)
            {
                let unclear = || {
                    Error::input(
                        path,
                        format!("its outputs have sizes that follow from no size of an input: {before} became {after}"),
                    )
                };
                *own = match axis {
                    None if (*before, *after) == (1, 2) => Axis::Batch,
                    None => return Err(unclear()),
                    Some(axis) => {
                        let step =
                            after.checked_sub(*before).filter(|more| more.is_multiple_of(8)).map(|more| more / 8);
                        let step = step.filter(|step| *step > 0).ok_or_else(unclear)?;
                        let offset = before.checked_signed_diff(step * BASE).ok_or_else(unclear)?;
                        axis(Extent::multiple_of(step).plus(offset))
                    }
                };
            }
        }
    }
    Ok(axes)
}
