//! Building an engine directory.

use crate::coverage::Coverage;
use crate::gate;
use crate::lint::{self, lint};
use crate::optimise::optimised;
use crate::portable::{self, Compiler, NotCompiled};
use crate::precision::{self, Converted, Job, PrecisionOptions, Sensitivity, Trial};
use crate::profile::{Profile, ProviderOptions};
use crate::rtx::{PlanJob, PlanProgram, PlanReport, add_plans};
use crate::samples::views;
use crate::source::{AnySize, Graphs};
use crate::{Error, Measurement, PartOrder, Progress, Result, Source};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, Provider, Shapes};
use tileforge_engine::manifest::{
    BuiltWith, Gate, Graph, Manifest, Model as ModelRecord, Recipe, SCHEMA, SelfTest, Target,
};
use tileforge_engine::store::{self, Store};
use tileforge_engine::{WEIGHTS_FILE, exchange};
use tileforge_files::outputs;
use tileforge_graph::rewrite::fold_weight_casts;
use tileforge_graph::{Dim, Model, WeightStorage};
use tileforge_session::{Environment, SessionOptions, compiled, selftest};

const SELFTEST_FILE: &str = "selftest.safetensors";

/// An engine that was written.
#[derive(Debug)]
pub struct Built {
    /// The engine directory.
    pub directory: PathBuf,
    /// The manifest, with the figures of the gates.
    pub manifest: Manifest,
    /// Why the engine is portable; `None` if it needs no compiling or was compiled for its GPU.
    pub portable: Option<NotCompiled>,
    /// What the plans for RTX GPUs cost.
    pub plans: Vec<PlanReport>,
    /// Bytes of all its files together.
    pub bytes: u64,
    /// The speed gates that it passed, for an INT8 engine of CPUs. They are not part of the engine, because times
    /// differ from build to build.
    pub speed: Vec<Gate>,
    /// What each layer costs, the most sensitive first; filled if it was asked for, or if layers had to fall back.
    pub sensitivity: Vec<Sensitivity>,
}

/// How plans for RTX GPUs are built.
#[derive(Debug, Clone)]
pub struct Plans {
    /// The program that builds one plan; `None`: engines for RTX GPUs are portable.
    pub program: Option<PlanProgram>,
    /// Plans that are built at the same time.
    pub jobs: usize,
}

/// Builds the engine of an order at `directory`, which must be free or hold an older engine. `recipe` is recorded for
/// another build.
///
/// The engine is written under a temporary name and renamed at the end, so a build that fails or is killed leaves no
/// half engine.
///
/// # Errors
/// The options do not suit the profile's precision, the source has no graph for the profile's tiles, ONNX Runtime
/// refuses a graph, a gate is missed, or a file cannot be written.
pub fn build(
    environment: &Environment,
    progress: &dyn Progress,
    order: &PartOrder<'_>,
    recipe: Option<Recipe>,
    plans: &Plans,
    directory: &Path,
) -> Result<Built> {
    let name = tileforge_engine::engine_name(directory)?.to_owned();
    let PartOrder { source, profile, options } = order;
    let order = Order { name, recipe, source, profile, options };
    check_output(&[&order], &[], directory)?;
    let prepared = Prepared::new(environment, progress, order, plans)?;
    let parent = exchange::place_for(directory)?;
    let staging = exchange::temporary(parent)?;
    let built = prepared.write(environment, progress, staging.path(), parent, directory)?;
    exchange::put_in_place(staging, directory)?;
    Ok(built)
}

/// What an engine is to be made of.
pub(crate) struct Order<'a> {
    /// The engine's name.
    pub(crate) name: String,
    /// What its manifest says about how it was ordered.
    pub(crate) recipe: Option<Recipe>,
    pub(crate) source: &'a Source,
    pub(crate) profile: &'a Profile,
    pub(crate) options: &'a PrecisionOptions,
}

/// Checks that options suit precisions, and that nothing that is read would be replaced.
pub(crate) fn check_output(orders: &[&Order<'_>], files: &[PathBuf], directory: &Path) -> Result<()> {
    let mut inputs = files.to_vec();
    for Order { source, profile, options, .. } in orders {
        options.check(profile.precision)?;
        inputs.extend(source.files());
        inputs.extend(options.calibration.clone());
    }
    outputs::check(&[directory], &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>()).map_err(Error::Output)
}

/// An engine whose graphs were made, and that this machine can build as far as is known at once.
pub(crate) struct Prepared<'a> {
    order: Order<'a>,
    compiler: Result<Compiler, NotCompiled>,
    plan_jobs: usize,
    graphs: Graphs,
    coverage: Coverage,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(
        environment: &Environment,
        progress: &dyn Progress,
        order: Order<'a>,
        plans: &Plans,
    ) -> Result<Self> {
        let Order { source, profile, options, .. } = &order;
        let compiler = portable::compiler(environment, profile, plans.program.as_ref());
        progress.begin("making the graphs", 1);
        let graphs = source.graphs(profile)?;
        progress.step();
        let names = file_names(&graphs.fixed)?;
        let coverage = Coverage::of(source.contract(), profile.precision, options, &graphs.fixed, &names)?;
        let mut run_here =
            graphs.fixed.iter().zip(&coverage.is_run).filter_map(|(model, is_run)| is_run.then_some(model));
        run_here.try_for_each(|model| check_memory(source, model))?;
        let prepared = Self { compiler, plan_jobs: plans.jobs, graphs, coverage, order };
        // Graphs that TensorRT cannot take are refused before anything is measured.
        let named = names.into_iter().zip(&prepared.graphs.fixed);
        let named = named.map(|(name, model)| Ok((name, Cow::Borrowed(model))));
        check_for_tensorrt(prepared.is_judged_by_table(), named)?;
        Ok(prepared)
    }

    /// The engine's graphs as they were exported, the smallest first.
    pub(crate) fn exported(&self) -> Vec<Model> {
        if self.graphs.any_size.is_empty() {
            return self.graphs.fixed.clone();
        }
        self.graphs.any_size.iter().map(|any_size| any_size.model.clone()).collect()
    }

    /// Whether a table of operators says what TensorRT takes. NVIDIA's builder is the better judge, where it is here.
    fn is_judged_by_table(&self) -> bool {
        match self.order.profile.provider {
            Provider::TensorRt => true,
            Provider::TensorRtRtx => self.compiler.is_err(),
            Provider::Cuda | Provider::Cpu => false,
        }
    }

    /// Writes the engine to the empty folder `staging`, and what is only needed meanwhile to a folder in `parent`.
    /// `directory` is where the engine will be, for errors.
    pub(crate) fn write(
        self,
        environment: &Environment,
        progress: &dyn Progress,
        staging: &Path,
        parent: &Path,
        directory: &Path,
    ) -> Result<Built> {
        let &Order { source, profile, options, .. } = &self.order;
        let coverage = self.coverage.clone();
        let job = Job {
            environment,
            progress,
            precision: profile.precision,
            provider: profile.provider,
            contract: source.contract(),
            floors: &profile.floors,
            options,
            coverage: &coverage,
        };
        let scratch = exchange::temporary(parent)?;
        let written = write_engine(self, &job, staging, scratch.path());
        // Both folders are gone when somebody reads the message.
        let place = |error: Error| error.relocated(staging, directory).relocated(scratch.path(), directory);
        Ok(Built { directory: directory.to_owned(), ..written.map_err(place)? })
    }
}

/// Writes all files of an engine to `staging`. What is only needed meanwhile goes to `scratch`.
fn write_engine(prepared: Prepared<'_>, job: &Job<'_>, staging: &Path, scratch: &Path) -> Result<Built> {
    let environment = job.environment;
    let judged_by_table = prepared.is_judged_by_table();
    let Prepared { order: Order { name, recipe, source, profile, .. }, compiler, plan_jobs, graphs, .. } = prepared;
    let Written { graphs, graph_sha256, converted } = write_graphs(source, job, &graphs, staging, scratch)?;
    let written = |graph: &EngineGraph| {
        Ok((graph.record.file.clone(), Cow::Owned(tileforge_graph::load(staging.join(&graph.record.file))?)))
    };
    check_for_tensorrt(judged_by_table, graphs.iter().map(written))?;
    let Measured { gates, speed, selftest } = measure(source, job, &graphs, &converted, staging, scratch)?;
    let all: Vec<&Gate> = gates.iter().chain(&speed).collect();
    gate::check(&all).map_err(|error| with_blame(error, &converted, job, scratch))?;
    // Nothing reads the references any more, and plans need the space: each has all weights again.
    let unused = scratch.join(WEIGHTS_FILE);
    if unused.exists() {
        fs::remove_file(&unused).map_err(|e| Error::file(&unused, "remove", e))?;
    }
    let mut records: Vec<Graph> = graphs.into_iter().map(|graph| graph.record).collect();
    let plans = match &compiler {
        Ok(Compiler::TensorRtRtx(builder)) => {
            let (capabilities, options) = (profile.plan_capabilities(), profile.plan_options());
            let plans = PlanJob { builder, capabilities: &capabilities, options: &options, jobs: plan_jobs };
            add_plans(&plans, &mut records, staging, scratch, job.progress)?
        }
        _ => Vec::new(),
    };
    let by_tensorrt = matches!(profile.provider, Provider::TensorRt | Provider::TensorRtRtx);
    let mut manifest = Manifest {
        schema: SCHEMA,
        name,
        producer: producer(),
        recipe,
        model: ModelRecord {
            architecture: source.architecture().into(),
            licence: source.licence().map(str::to_owned),
            checkpoint_sha256: source.checkpoint_sha256()?,
            graph_sha256,
            parameters: source.parameters(),
        },
        contract: job.contract.clone(),
        precision: profile.precision,
        islands: converted.islands,
        calibration: converted.calibration,
        left_out: job.coverage.left_out.clone(),
        target: Target {
            profile: profile.name.clone(),
            provider: profile.provider,
            compute_capability: profile.device.as_ref().map(|device| device.compute_capability.to_string()),
            portable: compiler.is_err(),
            streams: profile.streams,
            tensorrt_rtx: if profile.provider == Provider::TensorRtRtx {
                owned(profile.tensorrt_rtx_options())
            } else {
                BTreeMap::new()
            },
            tensorrt: if by_tensorrt { owned(profile.tensorrt_options()) } else { BTreeMap::new() },
            cuda: if profile.provider == Provider::Cpu { BTreeMap::new() } else { owned(profile.cuda_options()) },
        },
        built_with: BuiltWith {
            onnxruntime: environment.library().version().into(),
            operating_system: std::env::consts::OS.into(),
            processor: std::env::consts::ARCH.into(),
        },
        graphs: records,
        gates,
        selftest,
        files: exchange::files(staging)?,
    };
    if let Ok(Compiler::TensorRt(gpu)) = &compiler {
        compile(environment, job.progress, &manifest, *gpu, staging)?;
        manifest.files = exchange::files(staging)?;
    }
    let bytes = manifest.files.values().map(|file| file.bytes).sum();
    exchange::write_manifest(&manifest, staging)?;
    let (directory, portable) = (staging.to_owned(), compiler.err());
    Ok(Built { directory, manifest, portable, plans, bytes, speed, sensitivity: converted.sensitivity })
}

/// What manifests name as the program that wrote them.
pub(crate) fn producer() -> String {
    format!("engine-builder {}", env!("CARGO_PKG_VERSION"))
}

/// Compiles every graph of the engine in `staging` on a GPU of this machine. The timing cache goes beside the plan.
fn compile(
    environment: &Environment,
    progress: &dyn Progress,
    manifest: &Manifest,
    gpu: u32,
    staging: &Path,
) -> Result<()> {
    let store = Store::at(staging.join(store::FOLDER));
    let provider_options = manifest.target.tensorrt.clone();
    let options =
        SessionOptions { provider: Provider::TensorRt, provider_options, device: gpu, ..SessionOptions::default() };
    progress.begin("compiling", manifest.graphs.len());
    for graph in &manifest.graphs {
        let facts = compiled::facts(manifest, graph, &options.provider_options, environment, gpu);
        let facts = facts.ok_or_else(|| tileforge_session::Error::CannotCompile { graph: graph.file.clone() })?;
        let make = |place: &Path| compiled::compile(environment, &staging.join(&graph.file), &options, place);
        store.get_or_make(&facts, make)?;
        let lock = store.lock_file(&facts);
        fs::remove_file(&lock).map_err(|e| Error::file(&lock, "remove", e))?;
        progress.step();
    }
    Ok(())
}

fn owned(options: ProviderOptions) -> BTreeMap<String, String> {
    options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A graph of the engine.
struct EngineGraph {
    record: Graph,
    /// For each size that is run for the gates, the file of the graph of that size as it was exported.
    references: Vec<PathBuf>,
    /// An FP32 graph that rounds as this graph does on its target; set if running this graph here would not show that
    /// rounding.
    emulation: Option<PathBuf>,
}

/// What [`write_graphs`] made.
struct Written {
    graphs: Vec<EngineGraph>,
    /// SHA-256 of the last graph before any pass.
    graph_sha256: String,
    converted: Converted,
}

/// A graph that is written to the engine, before its conversion.
struct Planned<'m> {
    model: &'m Model,
    /// Of the graph, not optimised.
    record: Graph,
    references: Vec<PathBuf>,
}

/// What the engine's graphs will be, and which of the files `references` of its graphs of fixed sizes they are measured
/// against.
fn planned<'m>(job: &Job<'_>, graphs: &'m Graphs, references: &[PathBuf]) -> Result<Vec<Planned<'m>>> {
    let run: Vec<Option<&PathBuf>> =
        references.iter().zip(&job.coverage.is_run).map(|(reference, is_run)| is_run.then_some(reference)).collect();
    let record =
        |file, inputs, outputs, any_size| Graph { file, inputs, outputs, any_size, optimised: false, plan: None };
    if graphs.any_size.is_empty() {
        let each = graphs.fixed.iter().zip(file_names(&graphs.fixed)?).zip(run);
        let planned = each.map(|((model, name), reference)| {
            let record = record(name, fixed_shapes(&model.inputs), fixed_shapes(&model.outputs), false);
            Planned { model, record, references: reference.into_iter().cloned().collect() }
        });
        return Ok(planned.collect());
    }
    let each = graphs.any_size.iter().map(|AnySize { model, largest }| {
        let (inputs, outputs) = (job.contract.input_shapes(largest)?, job.contract.output_shapes(largest)?);
        let of_batch = |model: &Model| {
            let sizes = job.contract.sizes(&fixed_shapes(&model.inputs));
            sizes.is_ok_and(|sizes| sizes.batch == largest.batch)
        };
        let own = graphs.fixed.iter().zip(&run).filter(|(model, _)| of_batch(model));
        let references = own.filter_map(|(_, reference)| reference.cloned()).collect();
        Ok(Planned { model, record: record(file_name(model)?, inputs, outputs, true), references })
    });
    each.collect()
}

/// The shapes of ports that have fixed ones.
fn fixed_shapes(ports: &[tileforge_graph::Port]) -> Shapes {
    ports.iter().filter_map(|port| Some((port.name.clone(), port.ty.fixed_dims()?))).collect()
}

/// Writes the graphs with one weight file for all.
fn write_graphs(source: &Source, job: &Job<'_>, graphs: &Graphs, staging: &Path, scratch: &Path) -> Result<Written> {
    let write = |models: &[&Model], paths: &[PathBuf], folder: &Path| {
        let pairs: Vec<(&Model, &Path)> = models.iter().copied().zip(paths.iter().map(PathBuf::as_path)).collect();
        tileforge_graph::save_sharing_weights(&pairs, &folder.join(WEIGHTS_FILE))
    };
    let references: Vec<PathBuf> = file_names(&graphs.fixed)?.iter().map(|name| scratch.join(name)).collect();
    write(&graphs.fixed.iter().collect::<Vec<_>>(), &references, scratch)?;
    let (Some(smallest), Some(largest)) = (graphs.fixed.first().zip(references.first()), references.last()) else {
        return Err(Error::input(source.path(), "the profile has no tile for it"));
    };
    let planned = planned(job, graphs, &references)?;
    let models: Vec<&Model> = planned.iter().map(|planned| planned.model).collect();
    let mut converted = precision::convert(job, &models, (smallest.0, smallest.1), scratch)?;
    let paths_in =
        |folder: &Path| -> Vec<PathBuf> { planned.iter().map(|planned| folder.join(&planned.record.file)).collect() };
    // Fusions are stored for FP32 engines of CPUs only. In other types, ONNX Runtime would store Casts for what its CPU
    // kernels lack, and 8-bit graphs in this processor's form. TensorRT fuses by itself and does not know ONNX
    // Runtime's own operators.
    let optimise = job.precision == Precision::Fp32 && job.provider == Provider::Cpu;
    let unfused = scratch.join("unfused");
    let mut folded = Vec::new();
    if optimise {
        // ONNX Runtime would compute 16-bit weights in 32 bits, and store them in each fused graph, which cannot have
        // 2 GB. Weights in 32 bits stay in the file that all graphs share.
        folded = converted.models.iter().map(fold_weight_casts).collect::<Result<_, _>>()?;
        fs::create_dir(&unfused).map_err(|e| Error::file(&unfused, "create", e))?;
        write(&folded.iter().collect::<Vec<_>>(), &paths_in(&unfused), &unfused)?;
    }
    let mut folded = folded.into_iter();
    let mut written = Vec::new();
    for (model, Planned { record, references, .. }) in converted.models.iter_mut().zip(&planned) {
        let optimised = match folded.next() {
            Some(folded) => optimised(job.environment, &folded, &unfused.join(&record.file), model.nodes.len())?,
            None => None,
        };
        let record = Graph { optimised: optimised.is_some(), ..record.clone() };
        written.push(EngineGraph { record, references: references.clone(), emulation: None });
        if let Some(optimised) = optimised {
            *model = optimised;
        }
    }
    write(&converted.models.iter().collect::<Vec<_>>(), &paths_in(staging), staging)?;
    for graph in written.iter_mut().filter(|graph| !graph.references.is_empty()) {
        // Of the file, so that it points into the engine's own weights.
        let model = tileforge_graph::load(staging.join(&graph.record.file))?;
        if let Some(emulation) = precision::emulation(&model, job.provider)? {
            let path = scratch.join(format!("emulated-{}", graph.record.file));
            tileforge_graph::save(&emulation, &path, WeightStorage::LinkUndigested)?;
            graph.emulation = Some(path);
        }
    }
    let graph_sha256 = tileforge_engine::digest::sha256_file(largest)?.sha256;
    Ok(Written { graphs: written, graph_sha256, converted })
}

/// Checks that TensorRT 10, which ONNX Runtime uses, takes the graphs of an engine, as far as its table of operators
/// tells.
fn check_for_tensorrt<'m>(
    judged_by_table: bool,
    mut graphs: impl Iterator<Item = Result<(String, Cow<'m, Model>)>>,
) -> Result<()> {
    if !judged_by_table {
        return Ok(());
    }
    graphs.try_for_each(|graph| {
        let (name, model) = graph?;
        lint(&model, lint::Target::TensorRt10).check(&name)
    })
}

/// Refuses shapes that this machine has no memory for, before anything is measured: allocations of that size end the
/// process.
fn check_memory(source: &Source, model: &Model) -> Result<()> {
    let (Some((node, needed)), Some(available)) = (model.largest_step(), tileforge_session::available_memory()) else {
        return Ok(());
    };
    if needed <= available {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let name = file_name(model)?;
    Err(Error::input(
        source.path(),
        format!(
            "{name}: `{}` reads and writes {} MB, and this machine has {} MB of memory left; choose smaller sizes or a \
             smaller batch",
            node.name,
            megabytes(needed),
            megabytes(available)
        ),
    ))
}

/// `model-1x3x256x256.onnx`: named after the shape of the first input; `model-1x3xanyxany.onnx` where sizes are free.
fn file_name(model: &Model) -> Result<String> {
    Ok(format!("model-{}.onnx", shape_text(model, 0)?))
}

/// A name for each graph. Where several have the same shape of the first input, such as those for texts of several
/// lengths, the shape of the next input that tells them apart follows it.
fn file_names(models: &[Model]) -> Result<Vec<String>> {
    let name = |model: &Model| {
        let first = shape_text(model, 0)?;
        let alike = |other: &&Model| shape_text(other, 0).is_ok_and(|other| other == first);
        let alike: Vec<&Model> = models.iter().filter(alike).collect();
        for input in 1..model.inputs.len() {
            let own = shape_text(model, input)?;
            if alike.iter().any(|other| shape_text(other, input).is_ok_and(|other| other != own)) {
                return Ok(format!("model-{first}-{own}.onnx"));
            }
        }
        Ok(format!("model-{first}.onnx"))
    };
    models.iter().map(name).collect()
}

/// "1x3x256x256": the shape of an input.
fn shape_text(model: &Model, input: usize) -> Result<String> {
    let port = model.inputs.get(input).ok_or_else(|| tileforge_graph::Error::Graph("expected an input".into()))?;
    let length = |dim: &Dim| dim.fixed().map_or_else(|| "any".to_owned(), |length| length.to_string());
    Ok(port.ty.dims.iter().map(length).collect::<Vec<_>>().join("x"))
}

/// What [`measure`] found.
struct Measured {
    /// Gates of quality: the same in every build.
    gates: Vec<Gate>,
    /// Gates of speed.
    speed: Vec<Gate>,
    selftest: SelfTest,
}

/// Runs the engine's graphs against their references. Keeps the sample and the output of the smallest size as the
/// self-test.
fn measure(
    source: &Source,
    job: &Job<'_>,
    graphs: &[EngineGraph],
    converted: &Converted,
    staging: &Path,
    scratch: &Path,
) -> Result<Measured> {
    let (mut gates, mut speed) = (Vec::new(), Vec::new());
    let mut selftest = None;
    let runs: usize = graphs.iter().map(|graph| graph.references.len()).sum();
    // Each graph and its reference, on each sample.
    job.progress.begin("measuring graphs against their references", 2 * (runs + converted.judged.len()));
    let ran = || job.progress.step();
    let mut done = 0;
    for graph in graphs {
        let file = graph.emulation.clone().unwrap_or_else(|| staging.join(&graph.record.file));
        // Of a graph that is run in several sizes, the worst counts.
        let mut worst: Option<Measurement> = None;
        for reference in &graph.references {
            let trial = Trial::with_progress(job, reference, &converted.judged, scratch, &ran)?;
            let (measured, outputs) = trial.measure_file(&file, &ran)?;
            worst = Some(worst.map_or(measured, |worst| worst.or_worse(&measured)));
            done += 1;
            // Speed is the purpose of 8 bits. It is measured only where the engine runs: a CPU says nothing about a
            // GPU.
            if job.precision == Precision::Int8 && job.provider == Provider::Cpu && done == runs {
                let rivals = converted.rivals(reference, scratch)?;
                let paths: Vec<&Path> = rivals.iter().map(|(_, path)| path.as_path()).collect();
                let ratios = precision::speed_ratios(job.environment, &paths, &file, trial.sample())?;
                speed.extend(rivals.iter().zip(ratios).map(|((name, _), ratio)| Gate {
                    name: (*name).into(),
                    graph: graph.record.file.clone(),
                    value: ratio,
                    floor: job.floors.speed,
                }));
            }
            if selftest.is_none() {
                let path = staging.join(SELFTEST_FILE);
                // The self-test asks whether another machine computes what this one computed. So it expects the
                // engine's own output, not that of FP32.
                let expected = if job.precision == Precision::Fp32 { trial.reference().clone() } else { outputs };
                selftest::write(&path, &views(trial.sample()), &views(&expected))?;
                let tolerance = selftest_tolerance(job.precision);
                selftest = Some(SelfTest { file: SELFTEST_FILE.into(), graph: graph.record.file.clone(), tolerance });
            }
        }
        gates.extend(
            worst.iter().flat_map(|worst| worst.gates(&graph.record.file, job.floors, graph.emulation.is_some())),
        );
    }
    let selftest = selftest.ok_or_else(|| Error::input(source.path(), "the profile has no tile for it"))?;
    Ok(Measured { gates, speed, selftest })
}

/// Largest error of the self-test on another machine, over the output's range. Processors round differently: in FP32 in
/// the last bits, in 16 bits in the eleventh or eighth bit. In 8 bits, a value between two quantised values may become
/// either.
fn selftest_tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 => 1e-4,
        Precision::Fp16 => 1e-2,
        Precision::Bf16 | Precision::Int8 | Precision::Fp8 => 5e-2,
    }
}

/// A missed gate, together with the layer that costs most quality.
fn with_blame(error: Error, converted: &Converted, job: &Job<'_>, scratch: &Path) -> Error {
    let Error::Gate(text) = error else { return error };
    match converted.worst_layer(job, scratch) {
        Ok(Some(worst)) => Error::Gate(format!("{text}\n  the layer that costs most: {worst}")),
        Ok(None) if job.precision != Precision::Fp32 => {
            Error::Gate(format!("{text}\n  the calibration budget has no runs left to find the layer that costs most"))
        }
        // The worst layer is unknown; the missed gate is what matters.
        _ => Error::Gate(text),
    }
}
