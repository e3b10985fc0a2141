//! Whether batches change a sample's results: found by running the engine's own graphs.
//!
//! A host puts samples of different requests into one run only where neighbours change no byte. That holds for our own
//! networks in FP32, by a test (tests/tests/whole/batches.rs). Kernels of other precisions, and of graphs that other
//! programs wrote, may round differently at another place of a batch, and a foreign network may even mix its samples.
//! So each engine for ONNX Runtime's CPU kernels is compared when it is built, and its manifest says what was found.

use std::path::{Path, PathBuf};

use tileforge_contract::{Axis, Contract, DataType, Provider, Sizes, TensorSpec};
use tileforge_graph::Model;
use tileforge_session::{Cancel, Environment, Session, SessionOptions, Tensor};

use super::graphs::EngineGraph;
use super::memory::check_memory;
use crate::fixed::{fixed_shapes, fixed_sizes};
use crate::precision::Job;
use crate::samples::{Sample, sample, views};
use crate::{Result, Source};

/// The numbers of threads of a session, the same on every machine: ONNX Runtime divides an operator's work by this
/// number, and some kernels round differently at the ends of the parts.
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// The same for a large size, which takes long, and for numbers of samples between others: undivided, and in the
/// smallest parts.
const ENDS_OF_THREADS: [usize; 2] = [1, 8];

/// Whether each sample of a batch has the same bytes as alone. `None` if that was not compared: no graph takes several
/// samples, no processor runs the engine through ONNX Runtime, or the calibration budget does not suffice.
///
/// Networks for clips are not compared. Their kernels are known to round differently in a batch, and a host never puts
/// clips of different requests into one run.
pub(super) fn change_no_byte(
    source: &Source,
    job: &Job<'_>,
    fixed: &[Model],
    graphs: &[EngineGraph],
    staging: &Path,
) -> Result<Option<bool>> {
    if job.provider != Provider::Cpu || job.contract.inputs.iter().any(|input| input.frames().is_some()) {
        return Ok(None);
    }
    let groups = groups(job.contract, fixed, graphs, staging)?;
    let comparisons = comparisons(&groups);
    let network = Network { environment: job.environment, options: job.session_options(), contract: job.contract };
    let mut left = job.options.budget.operations() / 2;
    let mut compared = None;
    let steps = comparisons.iter().map(|comparison| comparison.threads.len()).sum();
    job.progress.begin("comparing batches with single samples", steps);
    for comparison in comparisons {
        // The gates do not run every batch of every size, so the memory is checked here.
        let rest = left.checked_sub(comparison.operations());
        match rest.filter(|_| check_memory(source, comparison.together.model).is_ok()) {
            Some(rest) => left = rest,
            // Without the largest batch in the smallest size, nothing is said.
            None if compared.is_none() => break,
            None => continue,
        }
        if let Some(threads) = network.differs(&comparison, &|| job.progress.step())? {
            job.progress.note(&format!(
                "{}: a sample beside others has other bytes than alone (with threads: {threads}); so samples share a \
                 run with those of other requests only if these allow rounding (`allows_rounding`)",
                comparison.together.name()
            ));
            return Ok(Some(false));
        }
        compared = Some(true);
    }
    if let (None, Some(group)) = (compared, groups.first()) {
        let file = group.last().map(Variant::name).unwrap_or_default();
        job.progress.note(&format!(
            "{file}: the calibration budget (--calibration-budget) or this machine's memory does not suffice to \
             compare its samples with single ones"
        ));
    }
    Ok(compared)
}

/// A graph of the engine for a number of samples.
#[derive(Clone)]
struct Variant<'m> {
    batch: usize,
    /// The exported graph, with fixed shapes.
    model: &'m Model,
    /// Whether there is no exported graph for this number. Then `model` takes the next larger one.
    is_between: bool,
    /// The engine's graph.
    file: PathBuf,
}

impl Variant<'_> {
    fn name(&self) -> String {
        self.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// The graphs that differ only in the number of samples: a group for each size, the smallest first, and in each group
/// the smallest batch first. Sizes in which each graph takes one sample are left out.
fn groups<'m>(
    contract: &Contract,
    fixed: &'m [Model],
    graphs: &[EngineGraph],
    staging: &Path,
) -> Result<Vec<Vec<Variant<'m>>>> {
    let mut groups: Vec<(Sizes, Vec<Variant<'m>>)> = Vec::new();
    for model in fixed {
        let (sizes, inputs) = (fixed_sizes(contract, model)?, fixed_shapes(&model.inputs)?);
        // A graph of free sizes stands for the graphs of fixed sizes.
        let mut takes = graphs.iter().filter(|graph| graph.record.for_inputs(contract, &inputs).is_some());
        let Some(graph) = takes.next() else { continue };
        let file = staging.join(&graph.record.file);
        let variant = Variant { batch: sizes.batch.max(1), model, is_between: false, file };
        let size = Sizes { batch: 1, ..sizes };
        match groups.iter_mut().find(|(known, _)| *known == size) {
            Some((_, group)) => group.push(variant),
            None => groups.push((size, vec![variant])),
        }
    }
    let mut groups: Vec<Vec<Variant<'m>>> = groups.into_iter().map(|(_, group)| group).collect();
    for group in &mut groups {
        group.sort_by_key(|variant| variant.batch);
        // Only a graph of any batch stands for several.
        if let [first, .., last] = group.as_slice()
            && first.file == last.file
        {
            *group = with_numbers_between(group);
        }
    }
    groups.retain(|group| group.last().is_some_and(|largest| largest.batch > 1));
    Ok(groups)
}

/// The variants of a graph of any batch, and the numbers between theirs, which a host runs, too.
fn with_numbers_between<'m>(exported: &[Variant<'m>]) -> Vec<Variant<'m>> {
    let mut all: Vec<Variant<'m>> = Vec::new();
    for variant in exported {
        let next = all.last().map_or(variant.batch, |before| before.batch + 1);
        all.extend((next..variant.batch).map(|batch| Variant { batch, is_between: true, ..variant.clone() }));
        all.push(variant.clone());
    }
    all
}

/// A batch that is compared with each of its samples alone.
struct Comparison<'g, 'm> {
    alone: &'g Variant<'m>,
    together: &'g Variant<'m>,
    /// Each on so many threads.
    threads: &'static [usize],
}

impl Comparison<'_, '_> {
    fn operations(&self) -> u64 {
        let [one, all] = [self.alone, self.together].map(|variant| variant.model.operations());
        let lone_runs = self.together.batch + self.threads.len() - 1;
        one.saturating_mul(lone_runs as u64).saturating_add(all.saturating_mul(self.threads.len() as u64))
    }
}

/// The comparisons of an engine, the most telling first.
///
/// Whether kernels round differently in a batch follows from the shapes: ONNX Runtime divides an operator's work into
/// parts of whole rows or blocks, and where there are few rows, as in the smallest size, the division follows the
/// batch and the number of threads most closely. In the largest size, work is also cut for the processor's caches, and
/// sizes between the two are divided in one of these ways. So for engines of many sizes two suffice: the largest batch
/// is compared in the smallest and in the largest size, and the batches between one sample and the largest only in the
/// smallest size, where that costs little.
fn comparisons<'g, 'm>(groups: &'g [Vec<Variant<'m>>]) -> Vec<Comparison<'g, 'm>> {
    let [smallest, .., largest] = groups else {
        return groups.first().map(|group| batches_of(group)).unwrap_or_default();
    };
    let mut comparisons = batches_of(smallest);
    if let [alone, ..] = largest.as_slice()
        && let Some(together) = largest.last()
    {
        comparisons.insert(comparisons.len().min(1), Comparison { alone, together, threads: &ENDS_OF_THREADS });
    }
    comparisons
}

/// Each batch of more than one sample, the largest first.
fn batches_of<'g, 'm>(group: &'g [Variant<'m>]) -> Vec<Comparison<'g, 'm>> {
    let Some(alone) = group.first() else { return Vec::new() };
    let batches = group.iter().rev().filter(|variant| variant.batch > 1);
    let threads = |variant: &Variant<'_>| if variant.is_between { &ENDS_OF_THREADS[..] } else { &THREADS };
    batches.map(|together| Comparison { alone, together, threads: threads(together) }).collect()
}

/// What runs the graphs of an engine.
struct Network<'n> {
    environment: &'n Environment,
    options: SessionOptions,
    contract: &'n Contract,
}

/// The bytes of each output of one sample.
type Outputs = Vec<Vec<u8>>;

impl Network<'_> {
    /// The number of threads with which a sample of the batch has other bytes than alone on one thread; `None` if no
    /// byte differs. `step` is called after each number of threads.
    fn differs(&self, comparison: &Comparison<'_, '_>, step: &dyn Fn()) -> Result<Option<usize>> {
        let Comparison { alone, together, threads } = *comparison;
        let given = |number| sample(self.contract, alone.model, number);
        let mut samples = (0..together.batch).map(given).collect::<Result<Vec<Sample>>>()?;
        share(self.contract, &mut samples);
        let mut expected: Vec<Outputs> = Vec::new();
        for &threads in threads {
            let mut session = self.open(alone, threads)?;
            // How the work of a lone sample is divided among threads does not depend on its values, so beyond one
            // thread one sample suffices.
            let count = if expected.is_empty() { samples.len() } else { 1 };
            for (place, sample) in samples.iter().enumerate().take(count) {
                let found = self.run(&mut session, alone.batch, std::slice::from_ref(sample))?.swap_remove(0);
                match expected.get(place) {
                    Some(expected) if *expected != found => return Ok(Some(threads)),
                    Some(_) => {}
                    None => expected.push(found),
                }
            }
            // One session is in memory at a time.
            drop(session);
            if self.run(&mut self.open(together, threads)?, together.batch, &samples)? != expected {
                return Ok(Some(threads));
            }
            step();
        }
        Ok(None)
    }

    fn open(&self, variant: &Variant<'_>, threads: usize) -> Result<Session> {
        let options = SessionOptions { threads: Some(threads), ..self.options.clone() };
        Ok(Session::open(self.environment, &variant.file, &options)?)
    }

    /// The outputs of each sample in one run of a graph for `batch` samples. As in a host's runs, the places of
    /// missing samples are zeros, and inputs without a batch axis are the first sample's.
    fn run(&self, session: &mut Session, batch: usize, samples: &[Sample]) -> Result<Vec<Outputs>> {
        let inputs = self.contract.inputs.iter().map(|spec| Ok((spec.name.clone(), joined(spec, batch, samples)?)));
        let inputs = inputs.collect::<Result<Sample>>()?;
        let made = session.run(&views(&inputs), &Cancel::new())?;
        let bytes = |(name, tensor): &(String, Tensor)| {
            (self.contract.output(name).is_some_and(is_by_sample), tensor.to_bytes())
        };
        let bytes: Vec<(bool, Vec<u8>)> = made.iter().map(bytes).collect();
        let of_sample = |place: usize| {
            let part =
                |(has_rows, bytes): &(bool, Vec<u8>)| if *has_rows { row(bytes, batch, place) } else { bytes.clone() };
            bytes.iter().map(part).collect()
        };
        Ok((0..samples.len()).map(of_sample).collect())
    }
}

/// Whether a tensor has a part for each sample. A host shares any other tensor among the samples of a run.
fn is_by_sample(spec: &TensorSpec) -> bool {
    spec.axes.first() == Some(&Axis::Batch)
}

/// Gives all samples the first one's values of the inputs that the samples of a run share. A host puts only such
/// samples into one run.
fn share(contract: &Contract, samples: &mut [Sample]) {
    let Some((first, others)) = samples.split_first_mut() else { return };
    let shared: Vec<&str> =
        contract.inputs.iter().filter(|spec| !is_by_sample(spec)).map(|spec| spec.name.as_str()).collect();
    for (name, tensor) in first.iter().filter(|(name, _)| shared.contains(&name.as_str())) {
        for (_, other) in others.iter_mut().flatten().filter(|(other, _)| other == name) {
            other.clone_from(tensor);
        }
    }
}

/// The part of the sample at a place of a batch.
fn row(bytes: &[u8], batch: usize, place: usize) -> Vec<u8> {
    let length = bytes.len() / batch.max(1);
    bytes.get(place * length..(place + 1) * length).unwrap_or_default().to_vec()
}

/// An input of a run: the first row of each sample's tensor, and zeros for the places without a sample.
fn joined(spec: &TensorSpec, batch: usize, samples: &[Sample]) -> Result<Tensor> {
    let wrong = || tileforge_graph::Error::Graph(format!("the input `{}`: expected a value for it", spec.name));
    let of = |sample: &Sample| {
        let (_, tensor) = sample.iter().find(|(name, _)| *name == spec.name)?;
        Some(tensor.clone())
    };
    let tensors = samples.iter().map(|sample| of(sample).ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?;
    let first = tensors.first().ok_or_else(wrong)?;
    if !is_by_sample(spec) {
        return Ok(first.clone());
    }
    let (data_type, mut shape): (DataType, Vec<usize>) = (first.data_type(), first.shape().to_vec());
    let rows = shape.first().copied().unwrap_or(1);
    let mut bytes: Vec<u8> = tensors.iter().flat_map(|tensor| row(&tensor.to_bytes(), rows, 0)).collect();
    bytes.resize(bytes.len() / tensors.len() * batch, 0);
    shape.iter_mut().take(1).for_each(|length| *length = batch);
    Ok(Tensor::from_bytes(data_type, &shape, &bytes).ok_or_else(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_engine::testing;
    use tileforge_graph::{ConvOptions, TensorType, Trace, Value, Weight, WeightStorage};

    /// A convolution on grey pictures of 17×19, and what `change` makes of its result.
    fn model(batch: usize, change: impl Fn(&Value) -> Value) -> Model {
        let trace = Trace::new("batches", 9, 20);
        let image = trace.input("input", TensorType::new(DataType::F32, [batch, 1, 17, 19]));
        let values: Vec<u8> = (0..9).flat_map(|at| (at as f32 * 0.7).sin().to_le_bytes()).collect();
        let filters = trace.weight("filters", Weight::from_bytes(DataType::F32, vec![1, 1, 3, 3], values).unwrap());
        trace.output("output", &change(&image.conv(&filters, None, &ConvOptions::same(3))));
        trace.finish().unwrap()
    }

    /// The number of threads at which the largest of these batches differs from a sample in the smallest.
    fn found(batches: &[usize], change: fn(&Value) -> Value) -> Option<usize> {
        let folder = tempfile::tempdir().unwrap();
        let contract = testing::upscale(1, 1).contract();
        let models: Vec<Model> = batches.iter().map(|batch| model(*batch, change)).collect();
        let variant = |(batch, model): (&usize, _)| {
            let file = folder.path().join(format!("{batch}.onnx"));
            tileforge_graph::save(model, &file, WeightStorage::Inline).unwrap();
            Variant { batch: *batch, model, is_between: false, file }
        };
        let group: Vec<Variant<'_>> = batches.iter().zip(&models).map(variant).collect();
        let environment = crate::tests::environment();
        let network = Network { environment: &environment, options: SessionOptions::default(), contract: &contract };
        network.differs(&batches_of(&group)[0], &|| {}).unwrap()
    }

    #[test]
    fn samples_of_a_batch_are_compared_with_those_alone() {
        for batches in [&[1, 4][..], &[2, 3], &[3]] {
            assert_eq!(found(batches, |made| made.sigmoid()), None, "{batches:?}");
            // The mean of all samples changes the last bits of each.
            assert_eq!(found(batches, |made| made + &made.mean(0).scale(1e-5)), Some(1), "{batches:?}");
        }
    }

    #[test]
    fn what_the_samples_of_a_run_share_is_the_same_in_all() {
        let mut contract = testing::upscale(1, 1).contract();
        let tensor = |value: f32| Tensor::from_bytes(DataType::F32, &[1], &value.to_le_bytes()).unwrap();
        let image = contract.inputs[0].name.clone();
        let mut timestep = contract.inputs[0].clone();
        timestep.name = "timestep".into();
        timestep.axes = Vec::new();
        contract.inputs.push(timestep);
        let sample = |value| vec![(image.clone(), tensor(value)), ("timestep".to_owned(), tensor(10.0 * value))];
        let mut samples = vec![sample(1.0), sample(2.0)];
        share(&contract, &mut samples);
        assert!(samples[1] == [(image.clone(), tensor(2.0)), ("timestep".into(), tensor(10.0))]);
        assert!(samples[0] == sample(1.0));
    }

    #[test]
    fn the_smallest_and_the_largest_size_are_compared() {
        let models: Vec<Model> = (0..4).map(|_| Model::default()).collect();
        let group = |batches: &[usize], size: usize| -> Vec<Variant<'_>> {
            let variant = |(batch, model): (&usize, _)| {
                let file = format!("{size}-{batch}").into();
                Variant { batch: *batch, model, is_between: false, file }
            };
            batches.iter().zip(&models).map(variant).collect()
        };
        let names = |groups: &[Vec<Variant<'_>>]| -> Vec<String> {
            let text = |Comparison { alone, together, threads }: Comparison<'_, '_>| {
                format!("{} {} on {threads:?}", alone.name(), together.name())
            };
            comparisons(groups).into_iter().map(text).collect()
        };
        let groups = [group(&[1, 2, 4, 8], 64), group(&[1, 2, 4], 128), group(&[1, 2], 256)];
        let each = |pairs: &[&str]| pairs.iter().map(|pair| format!("{pair} on [1, 2, 4, 8]")).collect::<Vec<_>>();
        let mut expected = each(&["64-1 64-8", "64-1 64-4", "64-1 64-2"]);
        expected.insert(1, "256-1 256-2 on [1, 8]".into());
        assert_eq!(names(&groups), expected);
        assert_eq!(names(&groups[2..]), each(&["256-1 256-2"]));
        // Samples that are alone in the only graph, and all of them together.
        assert_eq!(names(&[group(&[2], 64)]), each(&["64-2 64-2"]));
        assert_eq!(names(&[group(&[2, 3], 64)]), each(&["64-2 64-3", "64-2 64-2"]));
        assert_eq!(names(&[]), each(&[]));
        // A host runs a graph of any batch with the numbers between, too.
        let all = with_numbers_between(&group(&[1, 2, 5], 64));
        assert_eq!(all.iter().map(|variant| variant.batch).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(all[2..].iter().all(|variant| std::ptr::eq(variant.model, &raw const models[2])));
        let mut expected = each(&["64-1 64-5", "64-1 64-2"]);
        expected.splice(1..1, ["64-1 64-5 on [1, 8]", "64-1 64-5 on [1, 8]"].map(String::from));
        assert_eq!(names(&[all]), expected);
    }
}
