//! Graphs that differ only in the number of samples, and how samples run on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tileforge_contract::{Axis, DataType, Shapes, Sizes, TensorSpec};
use tileforge_engine::Graph;
use tileforge_session::{Buffer, Cancel, Session};

use super::core::Core;
use super::pool::Memory;
use super::queue::Key;
use super::values::Values;
use super::variants::{Variant, Variants};
use crate::error::{Error, Result};

/// Graphs of an engine that differ only in the number of samples. Samples of one group may run together.
pub(crate) struct Group {
    pub(super) core: Arc<Core>,
    id: u64,
    pub(super) variants: Variants,
    /// The graphs whose size or batch is free, as they are in the group's size and for so many samples.
    resized: BTreeMap<Variant, (Graph, Sizes)>,
    pub(super) inputs: Vec<Row>,
    pub(super) outputs: Vec<Row>,
}

/// One sample's part of a tensor.
pub(super) struct Row {
    pub(super) name: String,
    data_type: DataType,
    /// The shape without the batch axis; the whole shape if the tensor is shared.
    shape: Vec<usize>,
    /// Whether all samples of a run share this tensor.
    shared: bool,
}

impl Row {
    /// The row of a tensor of this shape, or `None` where the graph lacks it.
    fn of(spec: &TensorSpec, shapes: &Shapes) -> Option<Self> {
        let shape = shapes.get(&spec.name)?;
        let shared = spec.axes.first() != Some(&Axis::Batch);
        let shape = if shared { shape.clone() } else { shape.get(1..)?.to_vec() };
        Some(Self { name: spec.name.clone(), data_type: spec.data_type, shape, shared })
    }

    /// The number of elements of one sample.
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn shape(&self, batch: usize) -> Vec<usize> {
        if self.shared { self.shape.clone() } else { [&[batch], self.shape.as_slice()].concat() }
    }

    /// Reads the values of sample `at` from a buffer.
    fn read(&self, from: &Buffer, at: usize) -> Result<Values> {
        fn part<T: Clone>(values: &[T], at: usize, length: usize) -> Result<Vec<T>> {
            values.get(at..at + length).map(<[T]>::to_vec).ok_or_else(|| Error::internal("group"))
        }
        let (at, length) = (at * self.len(), self.len());
        Ok(match self.data_type {
            DataType::I64 => Values::I64(part(from.as_slice()?, at, length)?),
            DataType::I32 => Values::I32(part(from.as_slice()?, at, length)?),
            _ => Values::F32(part(from.as_slice()?, at, length)?),
        })
    }
}

/// Tensors of a run.
pub(super) struct Tensors {
    group: u64,
    batch: usize,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

impl Group {
    /// The graphs that take the inputs of `record` with at most `most` samples; if all have more, the smallest graph.
    /// Only outputs that `wanted` accepts are read.
    pub(super) fn new(
        id: u64,
        core: &Arc<Core>,
        record: &Graph,
        most: usize,
        wanted: impl Fn(&TensorSpec) -> bool,
    ) -> Result<Self> {
        let internal = || Error::internal("group");
        let contract = &core.contract;
        let rows = |specs: &[TensorSpec], shapes: &Shapes, wanted: &dyn Fn(&TensorSpec) -> bool| {
            let specs = specs.iter().filter(|spec| wanted(spec));
            specs.map(|spec| Row::of(spec, shapes).ok_or_else(internal)).collect::<Result<Vec<_>>>()
        };
        let inputs = rows(&contract.inputs, &record.inputs, &|_| true)?;
        let outputs = rows(&contract.outputs, &record.outputs, &wanted)?;
        let same = |shapes: &Shapes| {
            rows(&contract.inputs, shapes, &|_| true)
                .is_ok_and(|rows| rows.iter().zip(&inputs).all(|(row, own)| row.shape == own.shape))
        };
        let wanted = contract.sizes(&record.inputs)?;
        let resized_to = |graph: &Graph, batch: usize| {
            let resized = graph.resized(contract, Sizes { batch, ..wanted }).ok()?;
            let sizes = resized.sizes(contract).ok()?;
            same(&resized.inputs).then_some((resized, sizes))
        };
        let (mut variants, mut resized) = (Vec::new(), BTreeMap::new());
        for (graph, (own, sizes)) in core.graphs.iter().enumerate() {
            let largest = sizes.batch.max(1);
            for batch in if own.any_batch { 1..=largest } else { largest..=largest } {
                let variant = Variant { graph, batch };
                if own.any_batch || !same(&own.inputs) {
                    let Some(found) = resized_to(own, batch) else { break };
                    resized.insert(variant, found);
                }
                variants.push(variant);
            }
        }
        let variants = Variants::new(variants, most).ok_or_else(internal)?;
        Ok(Self { core: core.clone(), id, variants, resized, inputs, outputs })
    }

    /// Bytes of a memory that a session of one of its graphs counts for with so many samples.
    pub(super) fn bytes(&self, variant: Variant, memory: Memory) -> u64 {
        match self.resized.get(&variant) {
            Some((record, sizes)) => self.core.bytes_in(record, sizes, memory),
            None => self.core.bytes(variant.graph, memory),
        }
    }

    /// The key of a sample: samples with equal keys may run together.
    pub(super) fn key(&self, inputs: &[Values]) -> Key {
        let shared = self.inputs.iter().zip(inputs).filter(|(row, _)| row.shared);
        Key { group: self.id, shared: shared.flat_map(|(_, values)| values.bytes()).collect() }
    }

    /// Refuses a sample whose inputs have the wrong number or lengths.
    pub(super) fn check(&self, inputs: &[Values]) -> Result<()> {
        let fits = |(row, values): (&Row, &Values)| values.has_length(row.len());
        let all = inputs.len() == self.inputs.len() && self.inputs.iter().zip(inputs).all(fits);
        if all { Ok(()) } else { Err(Error::internal("group")) }
    }

    /// The outputs that are read, in their order.
    pub(crate) fn output_names(&self) -> Vec<&str> {
        self.outputs.iter().map(|row| row.name.as_str()).collect()
    }

    /// The file name of the graph of the first run for so many samples.
    pub(crate) fn file_for(&self, samples: usize) -> String {
        let graph = self.variants.largest(samples.min(self.core.batch())).graph;
        self.core.graphs.get(graph).map(|(graph, _)| graph.file.clone()).unwrap_or_default()
    }

    /// Samples in the group's largest run.
    pub(crate) fn batch(&self) -> usize {
        self.variants.batch()
    }

    /// Samples in the largest run that memory allows now.
    pub(crate) fn allowed(&self) -> usize {
        self.variants.largest(self.core.batch()).batch
    }

    /// How many runs `count` samples need if no others join them.
    pub(crate) fn runs(&self, count: usize) -> usize {
        self.variants.runs_of(count, self.core.batch()).len()
    }

    /// The tensors of a run: `kept` if it has this group and batch, else new ones.
    pub(super) fn tensors(&self, session: &Session, batch: usize, kept: Option<Tensors>) -> Result<Tensors> {
        if let Some(kept) = kept.filter(|kept| (kept.group, kept.batch) == (self.id, batch)) {
            return Ok(kept);
        }
        let buffers = session.buffers()?;
        let make = |rows: &[Row]| -> Result<Vec<Buffer>> {
            rows.iter().map(|row| Ok(buffers.zeros(row.data_type, &row.shape(batch))?)).collect()
        };
        Ok(Tensors { group: self.id, batch, inputs: make(&self.inputs)?, outputs: make(&self.outputs)? })
    }

    /// Writes samples to the inputs. Fills the unused places of the batch with zeros.
    pub(super) fn write<'v>(&self, tensors: &mut Tensors, samples: impl Iterator<Item = &'v [Values]>) -> Result<()> {
        let mut count = 0;
        for (place, sample) in samples.enumerate() {
            for ((row, buffer), values) in self.inputs.iter().zip(&mut tensors.inputs).zip(sample) {
                values.write(buffer, if row.shared { 0 } else { place * row.len() }, row.len())?;
            }
            count = place + 1;
        }
        for (row, buffer) in self.inputs.iter().zip(&mut tensors.inputs).filter(|(row, _)| !row.shared) {
            (count..tensors.batch).try_for_each(|place| Values::Zeros.write(buffer, place * row.len(), row.len()))?;
        }
        Ok(())
    }

    /// The outputs of one sample.
    pub(super) fn read(&self, tensors: &Tensors, place: usize) -> Result<Vec<Values>> {
        self.outputs.iter().zip(&tensors.outputs).map(|(row, buffer)| row.read(buffer, place)).collect()
    }

    /// Runs a session of one of its graphs on the tensors.
    pub(super) fn run(&self, session: &mut Session, tensors: &mut Tensors, cancel: &Cancel) -> Result<()> {
        let Tensors { inputs, outputs, .. } = tensors;
        let given = self.inputs.iter().map(|row| row.name.as_str()).zip(inputs.iter());
        let mut made: Vec<_> = self.outputs.iter().map(|row| row.name.as_str()).zip(outputs).collect();
        Ok(session.run_into(&given.collect::<Vec<_>>(), &mut made, cancel)?)
    }
}
