//! Building an engine directory.
//!
//! | module | holds |
//! |---|---|
//! | `graphs` | the engine's graphs, converted and written |
//! | `measured` | what they compute beside the graphs as they were exported: gates and self-test |
//! | `memory` | refuses shapes that this machine cannot measure |
//! | `batches` | whether batches change a sample's results |
//! | `tiling` | how well tiles join |

mod batches;
mod graphs;
mod measured;
mod memory;
mod plan_speed;
mod tiling;

use crate::coverage::Coverage;
use crate::gate;
use crate::lint::{self, lint};
use crate::portable::{self, Compiler, NotCompiled};
use crate::precision::{Job, PrecisionOptions, Sensitivity, openvino_options};
use crate::profile::{Device, Profile, ProviderOptions};
use crate::rtx::{PlanJob, PlanProgram, PlanReport, add_plans};
use crate::source::Graphs;
use crate::{Error, PartOrder, Progress, Result, Source};
pub(crate) use graphs::file_names;
use graphs::{EngineGraph, Written, write_graphs};
use measured::{Measured, measure, with_blame, with_peaks};
use memory::check_memory;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, Provider};
use tileforge_engine::manifest::{BuiltWith, Gate, Graph, Manifest, Model as ModelRecord, Recipe, SCHEMA, Target};
use tileforge_engine::store::{self, Store};
use tileforge_engine::{WEIGHTS_FILE, exchange, folder};
use tileforge_files::outputs;
use tileforge_graph::Model;
use tileforge_session::{Environment, SessionOptions, compiled};

/// An engine that was written.
#[derive(Debug)]
pub struct Built {
    /// The engine directory.
    pub directory: PathBuf,
    /// The manifest, with the figures of the gates.
    pub manifest: Manifest,
    /// Why the engine is portable; `None` if it needs no compiling or was compiled for its GPU.
    pub portable: Option<NotCompiled>,
    /// Build time, memory and size of each plan for RTX GPUs.
    pub plans: Vec<PlanReport>,
    /// Bytes of all its files together.
    pub bytes: u64,
    /// The passed speed gates: of an INT8 or BF16 engine for a processor, or of an 8-bit engine with plans. They are
    /// not stored in the engine, because times differ from build to build.
    pub speed: Vec<Gate>,
    /// The quality cost of each layer, the most sensitive layer first; filled on request, or if layers had to fall
    /// back.
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
/// The engine is written under a temporary name and renamed at the end, so a failed or killed build leaves no
/// incomplete engine.
///
/// # Errors
/// The options do not suit the profile's precision, the source has no graph for the profile's tiles, ONNX Runtime
/// refuses a graph, a gate is missed, or a file cannot be written.
pub fn build(
    environment: &Environment,
    progress: &dyn Progress,
    order: &PartOrder<'_>,
    recipe: Option<Box<Recipe>>,
    plans: &Plans,
    directory: &Path,
) -> Result<Built> {
    let (staging, built) = stage(environment, progress, order, recipe, plans, directory)?;
    exchange::put_in_place(staging, directory)?;
    Ok(built)
}

/// Builds the engine of an order in a temporary folder beside `directory`, its final place.
pub(crate) fn stage(
    environment: &Environment,
    progress: &dyn Progress,
    order: &PartOrder<'_>,
    recipe: Option<Box<Recipe>>,
    plans: &Plans,
    directory: &Path,
) -> Result<(exchange::Temporary, Built)> {
    let name = tileforge_engine::engine_name(directory)?.to_owned();
    let PartOrder { source, profile, options } = order;
    let order = Order { name, recipe, source, profile, options };
    check_output(&[&order], &[], directory)?;
    let prepared = Prepared::new(environment, progress, order, plans)?;
    let parent = exchange::place_for(directory)?;
    let staging = exchange::temporary(parent)?;
    let built = prepared.write(environment, progress, staging.path(), parent, directory)?;
    Ok((staging, built))
}

/// The description of an engine to build.
pub(crate) struct Order<'a> {
    /// The engine's name.
    pub(crate) name: String,
    /// The recipe that its manifest records.
    pub(crate) recipe: Option<Box<Recipe>>,
    pub(crate) source: &'a Source,
    pub(crate) profile: &'a Profile,
    pub(crate) options: &'a PrecisionOptions,
}

/// Checks that the options suit the precisions, and that the output would replace no input file.
pub(crate) fn check_output(orders: &[&Order<'_>], files: &[PathBuf], directory: &Path) -> Result<()> {
    let mut inputs = files.to_vec();
    for Order { source, profile, options, .. } in orders {
        options.check(profile.precision)?;
        inputs.extend(source.files());
        inputs.extend(options.calibration.clone());
    }
    outputs::check(&[directory], &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>()).map_err(Error::Output)
}

/// An engine with exported graphs that has passed the quick checks: the memory of this machine and TensorRT's
/// operators.
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
        if self.graphs.free.is_empty() {
            return self.graphs.fixed.clone();
        }
        self.graphs.free.iter().map(|graph| graph.model.clone()).collect()
    }

    /// Whether the operator table decides what TensorRT accepts. NVIDIA's builder decides instead where it is
    /// available.
    fn is_judged_by_table(&self) -> bool {
        match self.order.profile.provider {
            Provider::TensorRt => true,
            Provider::TensorRtRtx => self.compiler.is_err(),
            Provider::Cuda | Provider::OpenVino | Provider::Cpu => false,
        }
    }

    /// Writes the engine to the empty folder `staging`, and temporary files to a folder in `parent`. `directory` is
    /// the engine's final place; errors name it.
    pub(crate) fn write(
        self,
        environment: &Environment,
        progress: &dyn Progress,
        staging: &Path,
        parent: &Path,
        directory: &Path,
    ) -> Result<Built> {
        let Order { source, profile, options, .. } = &self.order;
        let job = Job {
            environment,
            progress,
            precision: profile.precision,
            provider: profile.provider,
            contract: source.contract(),
            floors: &profile.floors,
            options,
            coverage: &self.coverage,
            own_kernels: profile.provider == Provider::Cpu,
        };
        let scratch = exchange::temporary(parent)?;
        let written = write_engine(&self, &job, staging, scratch.path());
        // Both temporary folders are removed before the user reads the message.
        let place = |error: Error| error.relocated(staging, directory).relocated(scratch.path(), directory);
        Ok(Built { directory: directory.to_owned(), ..written.map_err(place)? })
    }
}

/// Writes all files of an engine to `staging`, and temporary files to `scratch`.
fn write_engine(prepared: &Prepared<'_>, job: &Job<'_>, staging: &Path, scratch: &Path) -> Result<Built> {
    let environment = job.environment;
    let Prepared { order: Order { name, recipe, source, profile, .. }, compiler, plan_jobs, graphs, .. } = prepared;
    let Written { graphs, graph_sha256, converted } = write_graphs(source, job, graphs, staging, scratch)?;
    let written = |graph: &EngineGraph| {
        Ok((graph.record.file.clone(), Cow::Owned(tileforge_graph::load(staging.join(&graph.record.file))?)))
    };
    check_for_tensorrt(prepared.is_judged_by_table(), graphs.iter().map(written))?;
    let mut measured = measure(source, job, &graphs, &converted, staging, scratch)?;
    let plain = Job { own_kernels: false, ..*job };
    let job = if measured.needs_plain_kernels { &plain } else { job };
    if measured.needs_plain_kernels {
        job.progress.note("our kernels miss the gates; ONNX Runtime's are measured");
        measured = measure(source, job, &graphs, &converted, staging, scratch)?;
    }
    let Measured { gates, mut speed, selftest, peaks, .. } = measured;
    let all: Vec<&Gate> = gates.iter().chain(&speed).collect();
    gate::check(&all).map_err(|error| with_blame(error, &converted, job, scratch))?;
    let batches_change_no_byte = batches::change_no_byte(source, job, &prepared.graphs.fixed, &graphs, staging)?;
    // Graphs of free sizes have no fixed tiles: the runtime chooses tiles for each picture.
    let fixed = if prepared.graphs.free.is_empty() { prepared.graphs.fixed.as_slice() } else { &[] };
    let tiling = tiling::measure_tiling(source, job, fixed, scratch)?;
    // The references are no longer needed, and plans need the disk space: each plan contains all weights.
    let unused = scratch.join(WEIGHTS_FILE);
    if unused.exists() {
        fs::remove_file(&unused).map_err(|e| Error::file(&unused, "remove", e))?;
    }
    let record = |graph: EngineGraph| {
        let peaks = peaks.get(&graph.record.file).map_or(&[][..], Vec::as_slice);
        with_peaks(graph.record, job.contract, peaks)
    };
    let mut records: Vec<Graph> = graphs.into_iter().map(record).collect();
    let plans = match compiler {
        Ok(Compiler::TensorRtRtx(builder)) => {
            let (capabilities, options) = (profile.plan_capabilities(), profile.plan_options());
            let gpu = profile.device.as_ref().and_then(Device::limits);
            let plans = PlanJob { builder, capabilities: &capabilities, options: &options, gpu, jobs: *plan_jobs };
            let added = add_plans(&plans, &mut records, staging, scratch, job.progress)?;
            let own = added.last().and_then(|plan| plan.least);
            if let (Precision::Int8 | Precision::Fp8, Some(own), Some(largest), Some(record)) =
                (job.precision, own, prepared.graphs.fixed.last(), records.last())
            {
                let in_fp16 = converted.in_fp16(largest)?;
                speed.extend(plan_speed::gate(&plans, (&record.file, own), in_fp16, job.floors.speed, scratch)?);
                gate::check(&speed.iter().collect::<Vec<_>>())?;
            }
            added.into_iter().map(|plan| plan.report).collect()
        }
        _ => Vec::new(),
    };
    let by_tensorrt = matches!(profile.provider, Provider::TensorRt | Provider::TensorRtRtx);
    let mut manifest = Manifest {
        schema: SCHEMA,
        name: name.clone(),
        producer: producer(),
        recipe: recipe.clone(),
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
            cuda: if profile.provider.is_on_processor() { BTreeMap::new() } else { owned(profile.cuda_options()) },
            openvino: openvino_options(profile.provider, profile.precision),
        },
        built_with: BuiltWith {
            onnxruntime: environment.library().version().into(),
            openvino: openvino_release(environment, profile.provider),
            operating_system: std::env::consts::OS.into(),
            processor: std::env::consts::ARCH.into(),
        },
        graphs: records,
        gates,
        batches_change_no_byte,
        tiling,
        selftest,
        files: folder::files(staging)?,
    };
    if let Ok(Compiler::TensorRt(gpu)) = compiler {
        compile(environment, job.progress, &manifest, *gpu, staging)?;
        manifest.files = folder::files(staging)?;
    }
    let bytes = manifest.files.values().map(|file| file.bytes).sum();
    exchange::write_manifest(&manifest, staging)?;
    let (directory, portable) = (staging.to_owned(), compiler.as_ref().err().cloned());
    Ok(Built { directory, manifest, portable, plans, bytes, speed, sensitivity: converted.sensitivity })
}

/// The release of the loaded OpenVINO; `None` for engines of other providers.
fn openvino_release(environment: &Environment, provider: Provider) -> Option<String> {
    let release = (provider == Provider::OpenVino).then(|| environment.library().openvino_release());
    release?.ok().map(str::to_owned)
}

/// The program and version that manifests record as their producer.
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

/// Checks the graphs of an engine against the operator table of TensorRT 10, the release that ONNX Runtime uses.
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
