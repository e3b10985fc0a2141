//! Building an engine directory.

use crate::gate::{self, Measurement};
use crate::lint::{self, lint};
use crate::optimise::optimised;
use crate::profile::{Profile, Tile};
use crate::test_image::test_image;
use crate::{Error, Result, Source, engine_files, portable};
use graph::Model;
use ndarray::ArrayD;
use runtime::engine::manifest::{BuiltWith, Gate, Graph, Manifest, Model as ModelRecord, Precision, SCHEMA, SelfTest, Target};
use runtime::engine::{MANIFEST_FILE, selftest};
use runtime::onnxruntime;
use runtime::provider::Provider;
use runtime::session::{OptimisationLevel, Session, SessionOptions};
use std::fs;
use std::path::{Path, PathBuf};

const WEIGHTS_FILE: &str = "model.weights";
const SELFTEST_FILE: &str = "selftest.safetensors";
/// Largest error of the self-test on another box, over the output's range: other processors round differently in the last bits.
const SELFTEST_TOLERANCE: f64 = 1e-4;

/// An engine that was written.
#[derive(Debug)]
pub struct Built {
    /// The engine directory.
    pub directory: PathBuf,
    /// Its manifest, with the gates' figures.
    pub manifest: Manifest,
    /// Bytes of all its files together.
    pub bytes: u64,
}

/// Builds the engine of `source` for `profile` at `directory`, which may hold an older engine, and nothing else.
///
/// The engine is written beside its place and renamed at the end: a build that fails or is killed leaves no half engine.
///
/// # Errors
/// The source does not give a graph for the profile's tiles, ONNX Runtime refuses one, a gate is not passed, or a file cannot be
/// written.
pub fn build(source: &Source, profile: &Profile, directory: &Path) -> Result<Built> {
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| Error::input(directory, "expected the name of an engine directory"))?;
    let parent = engine_files::place_for(directory)?;
    if profile.precision != Precision::Fp32 {
        let reason = format!("this version builds fp32 engines, and the profile {} asks for {}", profile.name, profile.precision);
        return Err(Error::input(source.path(), format!("{reason}; give --precision fp32")));
    }
    let staging = engine_files::temporary(parent)?;
    let scratch = engine_files::temporary(parent)?;

    let mut tiles = source.tiles(profile.tiles_for(source.task()));
    tiles.sort_by_key(|tile| tile.height * tile.width);
    let (graphs, graph_sha256) = write_graphs(source, profile, &tiles, staging.path(), scratch.path())?;
    check_for_tensorrt(profile, &graphs, staging.path())?;
    let (gates, selftest) = measure(source, profile, &graphs, staging.path(), scratch.path())?;
    gate::check(&gates)?;

    let interface = source.interface();
    let manifest = Manifest {
        schema: SCHEMA,
        name,
        producer: format!("engine-builder {}", env!("CARGO_PKG_VERSION")),
        model: ModelRecord {
            architecture: source.architecture().into(),
            licence: source.licence().map(str::to_owned),
            checkpoint_sha256: source.checkpoint_sha256()?,
            graph_sha256,
            parameters: source.parameters(),
        },
        interface: interface.clone(),
        precision: profile.precision,
        target: Target {
            profile: profile.name.clone(),
            provider: profile.provider,
            compute_capability: profile.device.as_ref().map(|device| device.compute_capability.to_string()),
            portable: portable::reason_for_portable(profile).is_some(),
        },
        built_with: BuiltWith {
            onnxruntime: onnxruntime::load(None)?.version().into(),
            operating_system: std::env::consts::OS.into(),
            processor: std::env::consts::ARCH.into(),
        },
        graphs: graphs.into_iter().map(|graph| graph.record).collect(),
        gates,
        selftest,
        files: engine_files::files(staging.path())?,
    };
    let bytes = manifest.files.values().map(|file| file.bytes).sum();
    write_manifest(&manifest, staging.path())?;
    engine_files::put_in_place(staging, directory)?;
    Ok(Built { directory: directory.to_owned(), manifest, bytes })
}

/// A graph of the engine: its record, and the same graph before ONNX Runtime touched it.
struct EngineGraph {
    record: Graph,
    reference: PathBuf,
    /// The input's shape, `[1, channels, height, width]`.
    input: Vec<usize>,
}

/// Writes the graph of each tile with one weight file for all, and returns them with the SHA-256 of the last one before optimisation.
fn write_graphs(source: &Source, profile: &Profile, tiles: &[Tile], staging: &Path, scratch: &Path) -> Result<(Vec<EngineGraph>, String)> {
    let models = tiles.iter().map(|tile| source.graph(*tile)).collect::<Result<Vec<Model>>>()?;
    let names = models.iter().map(file_name).collect::<Result<Vec<String>>>()?;
    let write = |models: &[&Model], folder: &Path| {
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        let pairs: Vec<(&Model, &Path)> = models.iter().copied().zip(paths.iter().map(PathBuf::as_path)).collect();
        graph::save_sharing_weights(&pairs, &folder.join(WEIGHTS_FILE))
    };
    write(&models.iter().collect::<Vec<_>>(), scratch)?;
    let mut graphs = Vec::new();
    let mut kept = Vec::new();
    for (model, name) in models.iter().zip(&names) {
        let reference = scratch.join(name);
        // ONNX Runtime's own fused operators are unknown to TensorRT, which fuses by itself.
        let optimised = if profile.provider == Provider::Cpu { optimised(model, &reference)? } else { None };
        let shapes = |ports: &[graph::Port]| ports.iter().filter_map(|port| Some((port.name.clone(), port.ty.fixed_dims()?))).collect();
        let record =
            Graph { file: name.clone(), inputs: shapes(&model.inputs), outputs: shapes(&model.outputs), optimised: optimised.is_some() };
        let input = record.inputs.get(&source.interface().input).cloned().unwrap_or_default();
        graphs.push(EngineGraph { record, reference, input });
        kept.push(optimised);
    }
    let written: Vec<&Model> = models.iter().zip(&kept).map(|(model, optimised)| optimised.as_ref().unwrap_or(model)).collect();
    write(&written, staging)?;
    let last = names.last().ok_or_else(|| Error::input(source.path(), "the profile has no tile for it"))?;
    Ok((graphs, runtime::digest::sha256_file(&scratch.join(last))?.sha256))
}

/// That the TensorRT which ONNX Runtime uses takes the graphs, if they are for it.
fn check_for_tensorrt(profile: &Profile, graphs: &[EngineGraph], staging: &Path) -> Result<()> {
    if profile.provider == Provider::TensorRt {
        for graph in graphs {
            let file = &graph.record.file;
            lint(&graph::load(staging.join(file))?, lint::Target::TensorRt10).check(file)?;
        }
    }
    Ok(())
}

/// `model-1x3x256x256.onnx`: after the shape of the first input.
fn file_name(model: &Model) -> Result<String> {
    let dims = model.inputs.first().and_then(|port| port.ty.fixed_dims());
    let dims = dims.ok_or_else(|| graph::Error::Graph("expected a first input of fixed shape".into()))?;
    Ok(format!("model-{}.onnx", dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")))
}

/// Runs every graph of the engine against its reference, and keeps the smallest one's input and output as the self-test.
fn measure(source: &Source, profile: &Profile, graphs: &[EngineGraph], staging: &Path, scratch: &Path) -> Result<(Vec<Gate>, SelfTest)> {
    let interface = source.interface();
    // The reference is the graph as it was exported, computed operator by operator.
    let plain = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
    let mut gates = Vec::new();
    let mut selftest = None;
    for graph in graphs {
        let [_, channels, height, width] = *graph.input.as_slice() else {
            return Err(Error::input(scratch, format!("expected an image input, found {:?}", graph.input)));
        };
        let image = test_image(channels, height, width, interface.range);
        let shape_error = |e: ndarray::ShapeError| graph::Error::Graph(e.to_string());
        let image = ArrayD::from_shape_vec(graph.input.clone(), image).map_err(shape_error)?;
        let run = |path: &Path, options: &SessionOptions| -> Result<ArrayD<f32>> {
            let outputs = Session::open(path, options)?.run(&[(&interface.input, image.view())])?;
            let output = outputs.into_iter().find(|(name, _)| *name == interface.output).map(|(_, output)| output);
            output.ok_or_else(|| Error::input(path, format!("the graph gives no output `{}`", interface.output)))
        };
        let reference = run(&graph.reference, &plain)?;
        let found = run(&staging.join(&graph.record.file), &SessionOptions::default())?;
        gates.extend(Measurement::of(&found, &reference).gates(&graph.record.file, &profile.floors));
        if selftest.is_none() {
            let path = staging.join(SELFTEST_FILE);
            selftest::write(&path, &[(&interface.input, image.view())], &[(&interface.output, reference.view())])?;
            selftest = Some(SelfTest { file: SELFTEST_FILE.into(), graph: graph.record.file.clone(), tolerance: SELFTEST_TOLERANCE });
        }
    }
    let selftest = selftest.ok_or_else(|| Error::input(source.path(), "the profile has no tile for it"))?;
    Ok((gates, selftest))
}

fn write_manifest(manifest: &Manifest, staging: &Path) -> Result<()> {
    let path = staging.join(MANIFEST_FILE);
    let text = serde_json::to_string_pretty(manifest).map_err(|e| Error::input(&path, format!("cannot be written as JSON: {e}")))?;
    // What the runtime would refuse must never be shipped.
    Manifest::parse(text.as_bytes())?;
    fs::write(&path, text + "\n").map_err(|e| Error::file(&path, "write", e))
}
