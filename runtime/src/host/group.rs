//! Graphs that differ in the number of their samples alone, and how samples run on them.

use std::sync::Arc;

use tileforge_contract::{Axis, DataType, Shapes, TensorSpec};
use tileforge_engine::Graph;
use tileforge_session::{Buffer, Cancel, Session};

use super::core::Core;
use super::queue::Key;
use super::values::Values;
use crate::error::{Error, Result};

/// Graphs of an engine that differ in the number of their samples alone: what may run together on them.
pub(crate) struct Group {
    pub(super) core: Arc<Core>,
    id: u64,
    /// Numbers of graphs with their batch, the smallest first; never empty.
    variants: Vec<Variant>,
    pub(super) inputs: Vec<Row>,
    pub(super) outputs: Vec<Row>,
}

/// A graph of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) graph: usize,
    pub(super) batch: usize,
}

/// One sample's part of a tensor.
pub(super) struct Row {
    pub(super) name: String,
    data_type: DataType,
    /// Without the axis of samples, unless all samples share it.
    shape: Vec<usize>,
    /// All samples of a run have the same.
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

    /// Numbers of one sample.
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn shape(&self, batch: usize) -> Vec<usize> {
        if self.shared { self.shape.clone() } else { [&[batch], self.shape.as_slice()].concat() }
    }

    /// One sample's numbers of a buffer.
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
    /// The graphs that take what `record` takes, at most `most` samples at once; all have more: the smallest one. Of
    /// the outputs, `wanted` are read.
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
        let alike = |graph: &Graph| {
            let same = |inputs: &Shapes| {
                rows(&contract.inputs, inputs, &|_| true).is_ok_and(|rows| {
                    rows.iter().zip(&inputs_of(record, contract)).all(|(row, shape)| row.shape == *shape)
                })
            };
            let resized = || {
                let sizes = contract.sizes(&record.inputs).ok()?;
                Some(graph.resized(contract, sizes).ok()?.inputs)
            };
            same(&graph.inputs) || resized().is_some_and(|inputs| same(&inputs))
        };
        let of = |(graph, (record, sizes)): (usize, &(Graph, tileforge_contract::Sizes))| {
            alike(record).then_some(Variant { graph, batch: sizes.batch.max(1) })
        };
        let mut variants: Vec<Variant> = core.graphs.iter().enumerate().filter_map(of).collect();
        variants.sort_by_key(|variant| variant.batch);
        variants.dedup_by_key(|variant| variant.batch);
        let fitting = variants.iter().filter(|variant| variant.batch <= most).count().max(1);
        variants.truncate(fitting);
        if variants.is_empty() {
            return Err(internal());
        }
        Ok(Self { core: core.clone(), id, variants, inputs, outputs })
    }

    /// What a sample may run with.
    pub(super) fn key(&self, inputs: &[Values]) -> Key {
        let shared = self.inputs.iter().zip(inputs).filter(|(row, _)| row.shared);
        Key { group: self.id, shared: shared.flat_map(|(_, values)| values.bytes()).collect() }
    }

    /// Refuses a sample of other lengths.
    pub(super) fn check(&self, inputs: &[Values]) -> Result<()> {
        let fits = |(row, values): (&Row, &Values)| values.fit(row.len());
        let all = inputs.len() == self.inputs.len() && self.inputs.iter().zip(inputs).all(fits);
        if all { Ok(()) } else { Err(Error::internal("group")) }
    }

    /// The outputs that are read, in their order.
    pub(crate) fn output_names(&self) -> Vec<&str> {
        self.outputs.iter().map(|row| row.name.as_str()).collect()
    }

    /// The file name of the graph that runs first of so many samples.
    pub(crate) fn file_for(&self, samples: usize) -> String {
        let graph = self.largest(samples.min(self.core.batch())).graph;
        self.core.graphs.get(graph).map(|(graph, _)| graph.file.clone()).unwrap_or_default()
    }

    /// Samples in its largest run.
    pub(crate) fn batch(&self) -> usize {
        self.variants.last().map_or(1, |variant| variant.batch)
    }

    /// Samples in the largest run that memory allows now.
    pub(crate) fn allowed(&self) -> usize {
        self.largest(self.core.batch()).batch
    }

    /// The graph for most samples, of which there are at most so many; if all have more, the smallest.
    pub(super) fn largest(&self, most: usize) -> Variant {
        let fits = self.variants.iter().rev().find(|variant| variant.batch <= most);
        fits.or(self.variants.first()).copied().unwrap_or(Variant { graph: 0, batch: 1 })
    }

    /// The next smaller number of samples in a run, if there is one.
    pub(super) fn smaller_than(&self, batch: usize) -> Option<usize> {
        self.variants.iter().rev().map(|variant| variant.batch).find(|smaller| *smaller < batch)
    }

    /// Samples in its smallest run.
    pub(super) fn least(&self) -> usize {
        self.variants.first().map_or(1, |variant| variant.batch)
    }

    /// Whether a graph is one of it.
    pub(super) fn has(&self, graph: usize) -> bool {
        self.variants.iter().any(|variant| variant.graph == graph)
    }

    /// Whether a graph of it runs more samples than this.
    pub(super) fn is_larger(&self, graph: usize, batch: usize) -> bool {
        self.variants.iter().any(|variant| variant.graph == graph && variant.batch > batch)
    }

    /// How many runs so many samples take alone.
    pub(crate) fn runs(&self, count: usize) -> usize {
        self.runs_of(count, self.core.batch()).len()
    }

    /// The runs of so many samples, with at most `most` in each: as large as there are graphs for.
    pub(super) fn runs_of(&self, mut count: usize, most: usize) -> Vec<(Variant, usize)> {
        let mut runs = Vec::new();
        while count > 0 {
            let variant = self.largest(most.min(count));
            let samples = variant.batch.min(count);
            runs.push((variant, samples));
            count -= samples;
        }
        runs
    }

    /// The tensors of a run: the same as of the run before, if that was of this group and batch.
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

    /// Writes samples to the inputs. What stands for no sample is zeros.
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

/// The shapes of a graph's rows, in the contract's order.
fn inputs_of(graph: &Graph, contract: &tileforge_contract::Contract) -> Vec<Vec<usize>> {
    let rows = contract.inputs.iter().filter_map(|spec| Row::of(spec, &graph.inputs));
    rows.map(|row| row.shape).collect()
}
