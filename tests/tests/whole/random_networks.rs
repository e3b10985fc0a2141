//! The networks of the registry, with random weights and values.

use end_to_end::{Graph, THREADS};
use ndarray::{ArrayD, Axis as Along, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tileforge_contract::{Axis, Contract, DataType, Extent, Meaning, Sizes, Task, TensorSpec};
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, Noise, Shapes, export_task, synthesise};
use tileforge_graph::{WeightStorage, save};
use tileforge_session::{Result, SessionOptions};

/// Samples of a batch.
pub(crate) const BATCH: usize = 3;

/// Height and width, or the next lengths that a network takes, with the numbers of threads for a batch. Odd sizes end
/// in the middle of a vector register.
const TRIED: [([usize; 2], &[usize]); 2] = [([45, 47], &THREADS), ([48, 48], &[4])];

fn sizes(contract: &Contract, batch: usize, [height, width]: [usize; 2]) -> Sizes {
    let size = |of: fn(&TensorSpec) -> Option<Extent>| contract.inputs.iter().find_map(of);
    let side = |extent: Option<Extent>, side: usize| extent.map_or(1, |extent| extent.size_for(side));
    Sizes {
        batch,
        height: side(size(TensorSpec::height), height),
        width: side(size(TensorSpec::width), width),
        frames: size(TensorSpec::frames).map_or(1, |extent| extent.minimum),
        tokens: contract.inputs.iter().find_map(TensorSpec::most_tokens).unwrap_or(7),
    }
}

fn batch_axis(spec: &TensorSpec) -> Option<Along> {
    spec.axes.iter().position(|axis| matches!(axis, Axis::Batch)).map(Along)
}

/// The part of a tensor for one sample; the whole tensor if the samples share it.
pub(crate) fn of_sample(spec: &TensorSpec, values: &ArrayD<f32>, sample: usize) -> ArrayD<f32> {
    match batch_axis(spec) {
        Some(axis) => values.slice_axis(axis, Slice::from(sample..=sample)).to_owned(),
        None => values.clone(),
    }
}

/// Values of an input, different for each sample.
fn values(contract: &Contract, spec: &TensorSpec, sizes: &Sizes, noise: &mut Noise) -> ArrayD<f32> {
    let shape = contract.input_shapes(sizes).unwrap().remove(&spec.name).unwrap();
    ArrayD::from_shape_simple_fn(shape, || match spec.meaning {
        Meaning::Tokens { vocabulary } => ((noise.next_signed() * 0.5 + 0.5) * (vocabulary - 1) as f32).floor(),
        Meaning::Timestep { range: [low, high] } | Meaning::Guidance { range: [low, high] } => {
            low + (noise.next_signed() * 0.5 + 0.5) * (high - low)
        }
        _ => noise.next_signed() * 0.5 + 0.5,
    })
}

/// The graphs of one network for one sample and for a batch, and values for both.
pub(crate) struct RandomNetwork<'a> {
    /// Architecture, preset and size.
    pub(crate) name: String,
    pub(crate) contract: &'a Contract,
    folder: &'a Path,
    /// The inputs of the batch.
    pub(crate) inputs: Vec<ArrayD<f32>>,
}

/// Outputs by name.
pub(crate) type Outputs = Vec<(String, ArrayD<f32>)>;

impl RandomNetwork<'_> {
    fn export(&self, checkpoint: &Path, sides: [usize; 2]) {
        let of = |batch| Shapes::from(self.contract.input_shapes(&sizes(self.contract, batch, sides)).unwrap());
        let mut graphs = [1, BATCH].map(|batch| (batch.to_string(), of(batch))).to_vec();
        graphs.extend(self.has_any_batch().then(|| ("any".into(), of(BATCH).with_free_batch())));
        for (name, shapes) in graphs {
            let checkpoint = Checkpoint::open(checkpoint).unwrap();
            let exported = export_task(&checkpoint, Some(self.contract.task), &shapes, &BTreeMap::new());
            let model = exported.unwrap_or_else(|error| panic!("{}: {error}", self.name)).model;
            save(&model, &self.folder.join(format!("{name}.onnx")), WeightStorage::Copy).unwrap();
        }
    }

    /// Whether engines for CPUs have one graph for any number of its samples.
    pub(crate) fn has_any_batch(&self) -> bool {
        matches!(self.contract.task, Task::Unet | Task::TextEncoder) && self.contract.has_separate_samples()
    }

    /// Whether it processes clips instead of pictures.
    pub(crate) fn is_of_clips(&self) -> bool {
        self.contract.inputs.iter().any(|input| input.frames().is_some())
    }

    /// The inputs of each single sample.
    pub(crate) fn samples(&self) -> Vec<Vec<ArrayD<f32>>> {
        let of_each = |sample: usize| {
            let pairs = self.contract.inputs.iter().zip(&self.inputs);
            pairs.map(|(spec, values)| of_sample(spec, values, sample)).collect()
        };
        (0..BATCH).map(of_each).collect()
    }

    /// The outputs of a graph, which is named after the number of its samples, for each of these inputs.
    pub(crate) fn run(
        &self,
        graph: &str,
        options: &SessionOptions,
        inputs: &[Vec<ArrayD<f32>>],
    ) -> Result<Vec<Outputs>> {
        let mut graph = Graph::open(&self.folder.join(format!("{graph}.onnx")), options)?;
        let mut one = |inputs: &Vec<ArrayD<f32>>| {
            let pairs = self.contract.inputs.iter().zip(inputs);
            let views: Vec<_> = pairs.map(|(spec, values)| (spec.name.as_str(), values.view())).collect();
            graph.run(&views)
        };
        inputs.iter().map(&mut one).collect()
    }
}

/// Passes each network whose presets are for tests to `show`, in several sizes, with numbers of threads for each.
/// Returns the architectures.
pub(crate) fn each(mut show: impl FnMut(&RandomNetwork<'_>, &[usize])) -> BTreeSet<&'static str> {
    let work = tempfile::tempdir().unwrap();
    let checkpoint = work.path().join("checkpoint.safetensors");
    let mut shown = BTreeSet::new();
    for entry in registry() {
        for (preset, network) in entry.presets() {
            if !preset.starts_with("tiny") {
                continue;
            }
            let contract = network.contract();
            synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
            let mut tried = BTreeSet::new();
            for (sides, threads) in TRIED {
                let sizes = sizes(&contract, BATCH, sides);
                if !tried.insert([sizes.height, sizes.width]) {
                    continue;
                }
                let name = format!("{} {preset} {}×{}", entry.name, sizes.height, sizes.width);
                let mut noise = Noise::new(7);
                let inputs = contract.inputs.iter().map(|spec| values(&contract, spec, &sizes, &mut noise)).collect();
                let network = RandomNetwork { name, contract: &contract, folder: work.path(), inputs };
                network.export(&checkpoint, sides);
                show(&network, threads);
            }
            shown.insert(entry.name);
        }
    }
    shown
}
