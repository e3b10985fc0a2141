//! Builds every architecture with 8-bit activations with NVIDIA's builder for RTX GPUs. It needs no GPU. The other
//! precisions need no calibration, so an end-to-end test builds them.

use super::uncalibrated;
use crate::{map_parallel, rtx};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::{env, thread};
use tileforge_contract::{Precision, Provider};
use tileforge_exporter::arch::{Entry, registry};
use tileforge_graph::{Model, Node, Port, WeightStorage, save};
use tileforge_tensorrt::ComputeCapability::{self, Sm86, Sm89, Sm120};
use tileforge_tensorrt::{BuildOptions, ElementType, Library, Operation, OperationKind, Program};

/// The size of an input's dimension that the graph leaves open.
const OPEN_SIZE: usize = 64;

/// The graph of the preset `tiny`, with fixed sizes.
fn tiny(architecture: &Entry) -> Model {
    let model = crate::tests::preset(architecture.name, "tiny");
    let sizes = |port: &Port| {
        let sides = port.ty.dims.iter().enumerate();
        let side = |(axis, dim): (usize, &tileforge_graph::Dim)| dim.fixed().unwrap_or([1, OPEN_SIZE][axis.min(1)]);
        (port.name.clone(), sides.map(side).collect())
    };
    let open = model.inputs.iter().filter(|port| port.ty.fixed_dims().is_none());
    model.specialised(&open.map(sizes).collect()).unwrap()
}

/// The model with its default layers in 8 bits.
fn quantised(model: &Model, precision: Precision) -> Model {
    let made = uncalibrated(model, precision, Provider::TensorRtRtx).unwrap();
    let made = made.unwrap_or_else(|| panic!("{} has no layer for {precision}", model.name));
    assert!(made.nodes.iter().any(|node| node.operator == "QuantizeLinear"), "{} {precision}", model.name);
    made
}

/// Whether a kernel of a plan computes in 8 bits.
fn is_in_8_bits(operation: &Operation) -> bool {
    matches!(operation.element, Some(ElementType::Int8 | ElementType::Fp8))
}

/// The layers that have 8-bit inputs and 8-bit weights in the graph, but another type in the plan.
fn widened(model: &Model, program: &Program) -> BTreeSet<String> {
    let makers: BTreeMap<&str, &Node> =
        model.nodes.iter().flat_map(|node| node.outputs.iter().map(move |output| (output.as_str(), node))).collect();
    let is_8_bit = |node: &&Node| {
        let from_8_bits = |input: &String| makers.get(input.as_str()).is_some_and(|node| node.is("DequantizeLinear"));
        ["Conv", "MatMul", "Gemm"].contains(&node.operator.as_str()) && node.inputs.iter().take(2).all(from_8_bits)
    };
    let in_8_bits =
        program.operations.iter().filter(|operation| operation.kind != OperationKind::Pass && is_in_8_bits(operation));
    let in_8_bits: BTreeSet<&str> = in_8_bits.flat_map(|operation| &operation.layers).map(String::as_str).collect();
    let layers = model.nodes.iter().filter(is_8_bit).map(|node| node.name.clone());
    layers.filter(|layer| !in_8_bits.contains(layer.as_str())).collect()
}

/// The 8-bit convolutions of a plan that write more than 16 bits for each value: their results would move twice the
/// bytes.
fn written_in_32_bits(model: &Model, program: &Program) -> BTreeSet<String> {
    let layer = |name: &String| model.nodes.iter().find(|node| node.is("Conv") && node.name == *name);
    let elements = |node: &Node| Some(model.type_of(&node.outputs[0])?.fixed_dims()?.iter().product::<usize>());
    let in_8_bits = program
        .operations
        .iter()
        .filter(|operation| operation.kind == OperationKind::Convolution && is_in_8_bits(operation));
    let is_wide = |operation: &&Operation| {
        let most = operation.layers.iter().filter_map(layer).map(|node| elements(node).unwrap()).max();
        operation.written_bytes > 2 * most.unwrap() as u64
    };
    in_8_bits.filter(is_wide).flat_map(|operation| operation.layers.clone()).collect()
}

/// Other programs give scales of activations the shape [1].
#[test]
fn scales_of_one_element_lose_no_8_bits() {
    let library = Library::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.onnxruntime/lib")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let architecture = registry().iter().find(|entry| entry.name == "SRVGGNetCompact").unwrap();
    let mut model = quantised(&tiny(architecture), Precision::Int8);
    let of_activations = |node: &&Node| node.is("QuantizeLinear") && !model.weights.contains_key(&node.inputs[0]);
    let scales: BTreeSet<String> =
        model.nodes.iter().filter(of_activations).flat_map(|node| node.inputs[1..].to_vec()).collect();
    for name in &scales {
        let weight = model.weights.get_mut(name).unwrap();
        *weight = weight.reshaped(vec![1]).unwrap();
    }
    let widened_in_plan = |model: &Model| {
        let graph = folder.path().join("graph.onnx");
        save(model, &graph, WeightStorage::Inline).unwrap();
        let plan = library.build(&graph, &[Sm89], &BuildOptions::default(), &mut |_| ControlFlow::Continue(()));
        widened(model, &Program::read(&mut Cursor::new(plan.unwrap().bytes())).unwrap())
    };
    assert!(!widened_in_plan(&model).is_empty(), "the builder takes such scales now: the rule is not needed");
    assert_eq!(rtx::prepare(&mut model).unwrap().scales, scales.len());
    assert_eq!(widened_in_plan(&model), BTreeSet::new());
}

/// The GPUs that compute in a precision of 8 bits.
const IN_8_BITS: [(Precision, &[ComputeCapability]); 2] =
    [(Precision::Int8, &[Sm86, Sm89, Sm120]), (Precision::Fp8, &[Sm89, Sm120])];

/// The faults in the plans of an architecture. Each precision is built for one of its GPUs, chosen in turn by
/// `position`; with `TILEFORGE_EVERY_PLAN` for each of them, which takes two and a half times as long.
fn faults(library: &Library, architecture: &Entry, position: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny(architecture);
    let mut faults = Vec::new();
    for (precision, capabilities) in IN_8_BITS {
        let mut quantised = quantised(&model, precision);
        rtx::prepare(&mut quantised).unwrap();
        let graph = folder.path().join(format!("{precision}.onnx"));
        save(&quantised, &graph, WeightStorage::Inline).unwrap();
        let of_each = if env::var_os("TILEFORGE_EVERY_PLAN").is_some() { capabilities.len() } else { 1 };
        for capability in capabilities.iter().cycle().skip(position % capabilities.len()).take(of_each) {
            let mut progress = |_: &_| ControlFlow::Continue(());
            let fault = match library.build(&graph, &[*capability], &BuildOptions::default(), &mut progress) {
                Err(error) => error.to_string(),
                Ok(plan) => {
                    let program = Program::read(&mut Cursor::new(plan.bytes())).unwrap();
                    match (widened(&quantised, &program), written_in_32_bits(&quantised, &program)) {
                        (widened, wide) if widened.is_empty() && wide.is_empty() => continue,
                        (widened, wide) => format!("not in 8 bits: {widened:?}; written in 32 bits: {wide:?}"),
                    }
                }
            };
            faults.push(format!("{} {precision} {capability}: {fault}", architecture.name));
        }
    }
    faults
}

/// Set for a process that builds a share of the architectures: its index and the number of shares.
const SHARE: &str = "TILEFORGE_TEST_SHARE";

/// Uses all cores: a process builds one plan at a time, so this program starts itself once for each share.
#[test]
fn every_architecture_is_built_in_8_bits_and_for_every_rtx_gpu_that_computes_in_them() {
    if let Ok(share) = env::var(SHARE) {
        let (share, shares) = share.split_once('/').unwrap();
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.onnxruntime/lib");
        let library = Library::load(&library).unwrap_or_else(|error| panic!("{error}; run `make setup RTX=1`"));
        let mine = registry().iter().zip(0..).skip(share.parse().unwrap()).step_by(shares.parse().unwrap());
        let faults = mine.flat_map(|(architecture, position)| faults(&library, architecture, position));
        let faults: Vec<_> = faults.collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        return;
    }
    let shares: Vec<usize> = (0..thread::available_parallelism().unwrap().get()).collect();
    let test =
        "precision::rtx_tests::every_architecture_is_built_in_8_bits_and_for_every_rtx_gpu_that_computes_in_them";
    let ended = map_parallel(&shares, shares.len(), |share| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env(SHARE, format!("{share}/{}", shares.len()));
        command.output().unwrap()
    });
    for output in ended {
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
