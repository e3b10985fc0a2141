//! Splits tensors of any number of samples into samples, and joins results.

use std::sync::Arc;

use ndarray::{ArrayD, IxDyn};
use parking_lot::Mutex;
use tileforge_contract::{Axis, Contract, DataType, Sizes, TensorSpec};
use tileforge_engine::Graph;
use tileforge_session::{Named, Tensor, TensorInfo};

use crate::error::{Error, Result};
use crate::host::{Group, Network, Values, shapes_text};

/// Number of groups from which on unused ones are dropped. A graph of any size has one group for each requested size.
const GROUPS_MAXIMUM: usize = 32;

/// Whether samples of several requests may run together: they are separate, and the host takes values of their types.
pub(super) fn are_separate(contract: &Contract) -> bool {
    let is_taken = |spec: &TensorSpec| matches!(spec.data_type, DataType::F32 | DataType::I64 | DataType::I32);
    contract.has_separate_samples() && contract.inputs.iter().chain(&contract.outputs).all(is_taken)
}

/// The record of the graph that takes samples of these sizes, for any number of samples: a graph of fixed sizes, else
/// one of any size.
pub(super) fn record_for<'g>(
    contract: &Contract,
    graphs: impl Iterator<Item = &'g Graph> + Clone,
    sizes: Sizes,
) -> Option<Graph> {
    let of = |graph: &Graph, fixed: bool| {
        let batch = graph.sizes(contract).ok()?.batch;
        let inputs = contract.input_shapes(&Sizes { batch, ..sizes }).ok()?;
        if fixed { (graph.inputs == inputs).then(|| graph.clone()) } else { graph.for_inputs(contract, &inputs) }
    };
    graphs.clone().find_map(|graph| of(graph, true)).or_else(|| graphs.clone().find_map(|graph| of(graph, false)))
}

/// The information about a tensor before a request names a size: the lengths that all graphs share.
pub(super) fn information(contract: &Contract, spec: &TensorSpec, shapes: &[&[usize]], any_size: bool) -> TensorInfo {
    let separate = are_separate(contract);
    let length = |(place, axis): (usize, &Axis)| {
        let is_free = match axis {
            Axis::Batch => separate,
            Axis::Height(_) | Axis::Width(_) => any_size,
            _ => false,
        };
        let first = shapes.first().and_then(|shape| shape.get(place)).copied();
        let same = shapes.iter().all(|shape| shape.get(place).copied() == first);
        first.filter(|_| same && !is_free)
    };
    TensorInfo {
        name: spec.name.clone(),
        data_type: Some(spec.data_type),
        shape: spec.axes.iter().enumerate().map(length).collect(),
    }
}

/// The groups of graphs whose samples run together.
#[derive(Default)]
pub(super) struct Groups(Mutex<Vec<(Sizes, Arc<Group>)>>);

impl Groups {
    /// The group for samples of these sizes.
    pub(super) fn of(&self, network: &Network, sizes: Sizes) -> Result<Arc<Group>> {
        let sizes = Sizes { batch: 1, ..sizes };
        let mut groups = self.0.lock();
        if let Some((_, group)) = groups.iter().find(|(known, _)| *known == sizes) {
            return Ok(group.clone());
        }
        let contract = network.contract();
        let record = record_for(contract, network.graphs().iter().map(|(graph, _)| graph), sizes);
        let wanted = || shapes_text(&contract.input_shapes(&sizes).unwrap_or_default());
        let record = record.ok_or_else(|| network.no_graph(wanted()))?;
        let group = network.group_of(&record, usize::MAX, |_| true)?;
        if groups.len() >= GROUPS_MAXIMUM {
            groups.retain(|(_, group)| Arc::strong_count(group) > 1);
        }
        groups.push((sizes, group.clone()));
        Ok(group)
    }
}

/// The values of each sample, in the contract's order of inputs.
pub(super) fn split(contract: &Contract, mut inputs: Vec<(String, Tensor)>, batch: usize) -> Result<Vec<Vec<Values>>> {
    let mut samples: Vec<Vec<Values>> = (0..batch).map(|_| Vec::with_capacity(contract.inputs.len())).collect();
    for spec in &contract.inputs {
        let place = inputs.iter().position(|(name, _)| *name == spec.name);
        let (_, tensor) = inputs.swap_remove(place.ok_or_else(|| Error::internal("samples"))?);
        check_type(contract, &spec.name, tensor.data_type())?;
        let rows = match tensor {
            Tensor::F32(array) => rows(array, batch, Values::F32),
            Tensor::I64(array) => rows(array, batch, Values::I64),
            Tensor::I32(array) => rows(array, batch, Values::I32),
            _ => return Err(Error::internal("samples")),
        };
        samples.iter_mut().zip(rows).for_each(|(sample, row)| sample.push(row));
    }
    Ok(samples)
}

fn rows<T: Copy>(array: ArrayD<T>, batch: usize, of: impl Fn(Vec<T>) -> Values) -> Vec<Values> {
    let values =
        if array.is_standard_layout() { array.into_raw_vec_and_offset().0 } else { array.iter().copied().collect() };
    if batch == 1 {
        return vec![of(values)];
    }
    let row = (values.len() / batch.max(1)).max(1);
    values.chunks_exact(row).map(|row| of(row.to_vec())).collect()
}

/// The outputs of all samples, each as one tensor, in the contract's order.
pub(super) fn join(contract: &Contract, sizes: &Sizes, samples: Vec<Vec<Values>>) -> Result<Named> {
    let shapes = contract.output_shapes(sizes)?;
    let mut columns: Vec<Vec<Values>> = contract.outputs.iter().map(|_| Vec::with_capacity(samples.len())).collect();
    for sample in samples {
        columns.iter_mut().zip(sample).for_each(|(column, values)| column.push(values));
    }
    let tensor = |(spec, column): (&TensorSpec, Vec<Values>)| {
        let shape = shapes.get(&spec.name).ok_or_else(|| Error::internal("samples"))?;
        Ok((spec.name.clone(), joined(shape, column)?))
    };
    contract.outputs.iter().zip(columns).map(tensor).collect()
}

fn joined(shape: &[usize], column: Vec<Values>) -> Result<Tensor> {
    fn array<T>(shape: &[usize], rows: Vec<Vec<T>>) -> Result<ArrayD<T>> {
        let values = rows.into_iter().reduce(|mut values, row| {
            values.extend(row);
            values
        });
        let values = values.ok_or_else(|| Error::internal("samples"))?;
        ArrayD::from_shape_vec(IxDyn(shape), values).map_err(|_| Error::internal("samples"))
    }
    fn all<T>(column: Vec<Values>, row: impl Fn(Values) -> Option<Vec<T>>) -> Result<Vec<Vec<T>>> {
        column.into_iter().map(row).collect::<Option<_>>().ok_or_else(|| Error::internal("samples"))
    }
    Ok(match column.first() {
        Some(Values::F32(_)) => Tensor::F32(array(shape, all(column, |values| values.into_f32().ok())?)?),
        Some(Values::I64(_)) => {
            let row = |values| if let Values::I64(row) = values { Some(row) } else { None };
            Tensor::I64(array(shape, all(column, row)?)?)
        }
        Some(Values::I32(_)) => {
            let row = |values| if let Values::I32(row) = values { Some(row) } else { None };
            Tensor::I32(array(shape, all(column, row)?)?)
        }
        Some(Values::Zeros) | None => return Err(Error::internal("samples")),
    })
}

pub(super) fn check_type(contract: &Contract, name: &str, found: DataType) -> Result<()> {
    let expected = contract.input(name).map_or(DataType::F32, |input| input.data_type);
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (format!("elements of {expected}"), format!("elements of {found}"));
    Err(Error::Tensor { tensor: name.into(), expected, found })
}
