//! Every architecture becomes plans in every precision and for every kind of RTX GPU, built by NVIDIA's own builder.
//! It needs no GPU.

use end_to_end::{command, repository, run, words};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tileforge_contract::Precision;
use tileforge_engine_builder::rtx::{self, PlanBuilder, PlanProgram};
use tileforge_engine_builder::{Error, convert_graph, map_parallel};
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, export, synthesise};
use tileforge_graph::{Attribute, DataType, Model, Node, Opset, Port, TensorType, WeightStorage, load, save};
use tileforge_tensorrt::ComputeCapability::{Sm86, Sm89, Sm120};
use tileforge_tensorrt::{BuildOptions, ComputeCapability, PlanHeader, Program};

const CAPABILITIES: [ComputeCapability; 3] = [Sm86, Sm89, Sm120];

/// The size of an input's dimension that the graph leaves open.
const OPEN_SIZE: usize = 64;

/// The builder of the program `engine-builder`, which builds each plan in a process of its own.
fn builder() -> PlanBuilder {
    let command = command("engine-builder", ["build-plan"]);
    let program = PlanProgram {
        program: command.get_program().into(),
        arguments: command.get_args().map(Into::into).collect(),
        library: None,
    };
    PlanBuilder::new(&program, &repository(".onnxruntime/lib"))
        .unwrap_or_else(|error| panic!("{error}; run `make setup RTX=1`"))
}

fn build(builder: &PlanBuilder, graph: &Path, capabilities: &[ComputeCapability]) -> Result<(), Error> {
    let (name, plan) = (graph.display().to_string(), graph.with_extension("plan"));
    let mut progress = |_: &_| ControlFlow::Continue(());
    let _ = builder.build(graph, &name, capabilities, &BuildOptions::default(), &plan, &mut progress)?;
    let plan = std::fs::read(&plan).unwrap();
    assert_eq!(PlanHeader::read(&plan).unwrap().capabilities, capabilities);
    let program = Program::read(&mut Cursor::new(plan)).unwrap_or_else(|error| panic!("{graph:?}: {error}"));
    let unknown: Vec<_> = program.operations.iter().filter(|operation| operation.multiply_adds.is_none()).collect();
    assert!(unknown.is_empty(), "{graph:?}: how many products these have is not known: {unknown:#?}");
    Ok(())
}

/// The graph with fixed sizes.
fn fixed(model: &Model) -> Model {
    let open = |port: &&Port| port.ty.fixed_dims().is_none();
    let sizes = |port: &Port| {
        let dims = port.ty.dims.iter().zip(0..);
        let size =
            |(dim, axis): (&tileforge_graph::Dim, usize)| dim.fixed().unwrap_or(if axis == 0 { 1 } else { OPEN_SIZE });
        (port.name.clone(), dims.map(size).collect())
    };
    model.specialised(&model.inputs.iter().filter(open).map(sizes).collect()).unwrap()
}

/// The graphs of the preset `tiny`, by precision.
fn tiny(architecture: &str, folder: &Path) -> Vec<(Precision, PathBuf)> {
    let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    let checkpoint = folder.join("checkpoint.safetensors");
    synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
    let exported =
        export(&Checkpoint::open(&checkpoint).unwrap(), &network.example_shapes(), &BTreeMap::new()).unwrap();
    let path = folder.join("exported.onnx");
    save(&fixed(&exported.model), &path, WeightStorage::Inline).unwrap();
    let graph = |precision: Precision| {
        let mut converted = path.clone();
        if precision != Precision::Fp32 {
            converted = folder.join(format!("{precision}.onnx"));
            convert_graph(&path, precision, &BTreeSet::new(), &converted).unwrap();
        }
        let mut model = load(&converted).unwrap();
        rtx::prepare(&mut model).unwrap();
        let prepared = folder.join(format!("{precision}-prepared.onnx"));
        save(&model, &prepared, WeightStorage::Inline).unwrap();
        (precision, prepared)
    };
    [Precision::Fp32, Precision::Fp16, Precision::Bf16, Precision::Int8].map(graph).into()
}

/// The builder of release 1.7.1 crashes on NaDiT's graph, in which the video and the text share INT8 weights (weights
/// only). It fails with an internal error on LaMa's graph, which has 8-bit matrices of the Fourier transforms. Engines
/// have neither: their INT8 also has 8-bit activations, which the builder supports. The builder runs in its own
/// process, so a crash becomes an error.
const FAILS: [(&str, Precision, i32, &str); 2] = [
    ("NaDiT", Precision::Int8, 1, "the builder of its plan failed: it crashed"),
    ("LaMa", Precision::Int8, 4, "tensorrt-rtx would not take this graph: 1 error"),
];

/// The graphs of an architecture that the builder refuses and should take. Each precision is built for one of the
/// GPUs, in turn from the GPU `first` on; with `TILEFORGE_EVERY_PLAN` for each of them, which takes three times as
/// long. One plan for all GPUs would show less, because it is no larger than a plan for one of them.
fn refusals(builder: &PlanBuilder, architecture: &str, first: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let of_each = if std::env::var_os("TILEFORGE_EVERY_PLAN").is_some() { CAPABILITIES.len() } else { 1 };
    let mut refusals = Vec::new();
    for ((precision, graph), first) in tiny(architecture, folder.path()).into_iter().zip(first..) {
        let fails = FAILS.iter().find(|(name, of, ..)| (*name, *of) == (architecture, precision));
        for capability in CAPABILITIES.into_iter().cycle().skip(first).take(of_each) {
            if let Some((.., code, why)) = fails {
                let capability = capability.to_string();
                let lint = words(&[&"lint", &graph, &"--target", &"tensorrt-rtx", &"--capability", &capability]);
                let _ = run("engine-builder", lint).failure(*code, &[why]);
            } else if let Err(error) = build(builder, &graph, &[capability]) {
                refusals.push(format!("{architecture} {precision} {capability}: {error}"));
            }
        }
    }
    refusals
}

/// Uses all cores: each plan is built in its own process. Architectures begin with different GPUs, so that each
/// precision is also built for each GPU.
#[test]
fn every_architecture_is_built_in_every_precision_and_for_every_kind_of_gpu() {
    let builder = builder();
    let cores = std::thread::available_parallelism().unwrap().get();
    let architectures: Vec<_> = registry().iter().map(|entry| entry.name).zip(0..).collect();
    let refusals = map_parallel(&architectures, cores, |(name, first)| refusals(&builder, name, *first)).concat();
    assert!(refusals.is_empty(), "refused:\n{}", refusals.join("\n"));
}

/// One Attention of 3 heads.
fn attention_graph(data_type: DataType, tokens: usize, width: usize, causal: bool, masked: bool, rank: usize) -> Model {
    let port = |name: &str| {
        let dims = if rank == 3 { vec![1, tokens, 3 * width] } else { vec![1, 3, tokens, width] };
        Port { name: name.into(), ty: TensorType::new(data_type, dims) }
    };
    let mut inputs = vec![port("q"), port("k"), port("v")];
    if masked {
        inputs.push(Port { name: "mask".into(), ty: TensorType::new(data_type, [tokens, tokens]) });
    }
    let mut attributes: BTreeMap<String, Attribute> = BTreeMap::new();
    attributes.insert("is_causal".into(), i64::from(causal).into());
    if rank == 3 {
        attributes.insert("q_num_heads".into(), 3.into());
        attributes.insert("kv_num_heads".into(), 3.into());
    }
    let node = Node {
        name: "text.0/Attention".into(),
        operator: "Attention".into(),
        domain: String::new(),
        inputs: inputs.iter().map(|port| port.name.clone()).collect(),
        outputs: vec!["y".into()],
        attributes,
    };
    Model {
        name: "attention".into(),
        ir_version: 10,
        opsets: vec![Opset { domain: String::new(), version: 23 }],
        outputs: vec![port("y")],
        inputs,
        nodes: vec![node],
        ..Model::default()
    }
}

/// Exactly the attention that the builder refuses is written out: our table of its kernels is correct.
#[test]
fn attention_is_written_out_where_the_builder_has_no_kernel() {
    let (builder, folder) = (builder(), tempfile::tempdir().unwrap());
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for data_type in [DataType::F32, DataType::F16, DataType::Bf16] {
        for (causal, masked) in [(false, false), (true, false), (false, true), (true, true)] {
            for width in [8, 9, 17, 64, 256, 257] {
                for rank in [3, 4] {
                    let mut model = attention_graph(data_type, 77, width, causal, masked, rank);
                    let path = folder.path().join("model.onnx");
                    save(&model, &path, WeightStorage::Inline).unwrap();
                    let kernel = build(&builder, &path, &CAPABILITIES).is_ok();
                    let count = rtx::prepare(&mut model).unwrap().attentions;
                    tried += 1;
                    if kernel != (count == 0) {
                        wrong.push(format!(
                            "{data_type} causal {causal} masked {masked} width {width} rank {rank}: builds {kernel}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried}, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
