//! Every architecture with 8-bit activations, in the hands of NVIDIA's builder for RTX GPUs. It needs no GPU. The other
//! precisions need no calibration, so an end-to-end test builds them.

use super::uncalibrated;
use crate::rtx;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;
use tileforge_contract::{Precision, Provider};
use tileforge_exporter::arch::{Entry, registry};
use tileforge_graph::{Model, Node, Port, WeightStorage, save};
use tileforge_tensorrt::ComputeCapability::{self, Sm86, Sm89, Sm120};
use tileforge_tensorrt::{BuildOptions, ElementType, Kind, Library, Program};

/// What an input's dimension becomes that the graph leaves open.
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

/// The layers that have 8-bit inputs and 8-bit weights in the graph, and that the plan computes in another type.
fn widened(model: &Model, program: &Program) -> BTreeSet<String> {
    let makers: BTreeMap<&str, &Node> =
        model.nodes.iter().flat_map(|node| node.outputs.iter().map(move |output| (output.as_str(), node))).collect();
    let is_8_bit = |node: &&Node| {
        let from_8_bits = |input: &String| makers.get(input.as_str()).is_some_and(|node| node.is("DequantizeLinear"));
        ["Conv", "MatMul", "Gemm"].contains(&node.operator.as_str()) && node.inputs.iter().take(2).all(from_8_bits)
    };
    let in_8_bits = program.operations.iter().filter(|operation| {
        operation.kind != Kind::Pass && matches!(operation.element, Some(ElementType::Int8 | ElementType::Fp8))
    });
    let in_8_bits: BTreeSet<&str> = in_8_bits.flat_map(|operation| &operation.layers).map(String::as_str).collect();
    let layers = model.nodes.iter().filter(is_8_bit).map(|node| node.name.clone());
    layers.filter(|layer| !in_8_bits.contains(layer.as_str())).collect()
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

#[test]
fn every_architecture_in_8_bits_is_built_for_every_rtx_gpu_that_computes_in_them() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.onnxruntime/lib");
    let library = Library::load(&library).unwrap_or_else(|error| panic!("{error}; run `make setup RTX=1`"));
    let cases: [(Precision, &[ComputeCapability]); 2] =
        [(Precision::Int8, &[Sm86, Sm89, Sm120]), (Precision::Fp8, &[Sm89, Sm120])];
    let (mut refusals, mut plans) = (Vec::new(), 0);
    for architecture in registry() {
        let folder = tempfile::tempdir().unwrap();
        let model = tiny(architecture);
        for (precision, capabilities) in cases {
            let mut quantised = quantised(&model, precision);
            rtx::prepare(&mut quantised).unwrap();
            let graph = folder.path().join(format!("{precision}.onnx"));
            save(&quantised, &graph, WeightStorage::Inline).unwrap();
            for capability in capabilities {
                let options = BuildOptions::default();
                match library.build(&graph, &[*capability], &options, &mut |_| ControlFlow::Continue(())) {
                    Ok(plan) => {
                        plans += 1;
                        let program = Program::read(&mut Cursor::new(plan.bytes())).unwrap();
                        let widened = widened(&quantised, &program);
                        if !widened.is_empty() {
                            refusals.push(format!(
                                "{} {precision} {capability}: not in 8 bits: {widened:?}",
                                architecture.name
                            ));
                        }
                    }
                    Err(error) => refusals.push(format!("{} {precision} {capability}: {error}", architecture.name)),
                }
            }
        }
    }
    println!("{plans} plans, {} refusals", refusals.len());
    assert!(refusals.is_empty(), "{plans} plans built; refused:\n{}", refusals.join("\n"));
}
