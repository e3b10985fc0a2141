//! The plans of an engine: one for each graph, with the model that passes it to ONNX Runtime's provider.

use super::{PlanBuilder, PlanFacts, PlanReport, context_model, prepare};
use crate::{Error, Progress, Result, map_parallel};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tileforge_engine::manifest::{Graph, Plan, PlanFigures};
use tileforge_graph::{DataType, Model, WeightStorage, load, save};
use tileforge_tensorrt::{BuildOptions, ComputeCapability, Gpu, LeastTimes, Program};

/// The builder of plans, its options, and the GPUs.
#[derive(Debug, Clone)]
pub(crate) struct PlanJob<'j> {
    pub(crate) builder: &'j PlanBuilder,
    pub(crate) capabilities: &'j [ComputeCapability],
    pub(crate) options: &'j BuildOptions,
    /// The rates that limit the profile's GPU, if known.
    pub(crate) gpu: Option<Gpu>,
    /// Plans that are built at the same time.
    pub(crate) jobs: usize,
}

/// Builds the plans of the graphs in `engine`, and adds them to the graphs' records. `scratch` is a folder on the same
/// file system.
///
/// # Errors
/// The builder refuses a graph, its process fails, or a file cannot be written.
pub(crate) fn add_plans(
    job: &PlanJob<'_>,
    graphs: &mut [Graph],
    engine: &Path,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<AddedPlan>> {
    let folder = engine.join(Plan::FOLDER);
    fs::create_dir(&folder).map_err(|e| Error::file(&folder, "create", e))?;
    let failed = AtomicBool::new(false);
    let several = job.jobs > 1 && graphs.len() > 1;
    if several {
        progress.begin("building plans", graphs.len());
    }
    let made = map_parallel(graphs, job.jobs, |graph| {
        if failed.load(Ordering::Relaxed) {
            return Err(Error::Plan(tileforge_tensorrt::Error::Cancelled));
        }
        let place = scratch.join(format!("plan-of-{}", graph.file));
        let mut shown = Shown { progress: (!several).then_some(progress), failed: &failed, phase: String::new() };
        let result = one(job, &graph.file, engine, &place, &mut shown);
        if result.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        if several {
            progress.step();
        }
        result
    });
    let mut added = Vec::new();
    let mut cancelled = None;
    for (graph, made) in graphs.iter_mut().zip(made) {
        match made {
            Ok((plan, made)) => {
                graph.plan = Some(plan);
                added.push(made);
            }
            // This build was cancelled because another one failed.
            Err(error @ Error::Plan(tileforge_tensorrt::Error::Cancelled)) => cancelled = Some(error),
            Err(error) => return Err(error),
        }
    }
    cancelled.map_or(Ok(added), Err)
}

/// A plan of an engine's graph.
pub(crate) struct AddedPlan {
    pub(crate) report: PlanReport,
    /// The least time of a run; `None` if the GPU's rates or the plan's program are not known.
    pub(crate) least: Option<LeastTimes>,
}

/// The plan of one graph, and the model around it.
fn one(
    job: &PlanJob<'_>,
    file: &str,
    engine: &Path,
    scratch: &Path,
    shown: &mut Shown<'_>,
) -> Result<(Plan, AddedPlan)> {
    fs::create_dir(scratch).map_err(|e| Error::file(scratch, "create", e))?;
    let mut model = load(engine.join(file))?;
    let stem = file.strip_suffix(".onnx").unwrap_or(file);
    let plan = Path::new(Plan::FOLDER).join(format!("{stem}.plan"));
    let path = engine.join(&plan);
    let built = build_plan(job, &mut model, file, scratch, &path, &mut |step| shown.tell(file, step))?;
    let BuiltPlan { mut report, program } = built;
    let capabilities: Vec<(u32, u32)> = job.capabilities.iter().map(|capability| capability.version()).collect();
    let sha256 = tileforge_engine::digest::sha256_file(&path)?.sha256;
    // A plan is good even if its program cannot be read.
    report.messages.extend(program.as_ref().err().map(ToString::to_string));
    let least = program.as_ref().ok().zip(job.gpu).map(|(program, gpu)| gpu.least_times(program));
    let facts = PlanFacts {
        plan: plan.file_name().map_or(Path::new(""), Path::new),
        graph: file,
        // The name of the provider's runtime cache: the same for the same plan, wherever it is.
        partition: &sha256[..32],
        capabilities: &capabilities,
    };
    let context: PathBuf = Path::new(Plan::FOLDER).join(file);
    save(&context_model(&model.inputs, &model.outputs, &facts)?, &engine.join(&context), WeightStorage::Inline)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let plan = Plan {
        context: text(&context),
        file: text(&plan),
        library: job.builder.release().to_string(),
        compute_capabilities: job.capabilities.iter().map(ToString::to_string).collect(),
        figures: program.ok().map(|program| figures(&program, least)),
    };
    Ok((plan, AddedPlan { report, least }))
}

/// A built plan.
pub(crate) struct BuiltPlan {
    pub(crate) report: PlanReport,
    /// The program of the plan, or why it is not known.
    pub(crate) program: tileforge_tensorrt::Result<Program>,
}

/// Builds the plan of a model in its precision at `path`. Afterwards the model has the form that plans are built from.
/// `name` stands for the model in errors, and is its file name in the folder `scratch`.
pub(crate) fn build_plan(
    job: &PlanJob<'_>,
    model: &mut Model,
    name: &str,
    scratch: &Path,
    path: &Path,
    progress: &mut dyn FnMut(&tileforge_tensorrt::Progress) -> ControlFlow<()>,
) -> Result<BuiltPlan> {
    prepare(model)?;
    let prepared = scratch.join(name);
    save(model, &prepared, WeightStorage::LinkUndigested)?;
    let report = job.builder.build(&prepared, name, job.capabilities, job.options, path, progress);
    let report = report.map_err(|error| with_nodes(error, model))?;
    let mut plan = fs::File::open(path).map_err(|source| Error::file(path, "read", source))?;
    Ok(BuiltPlan { report, program: Program::read(&mut plan) })
}

/// The sums over a plan's program, and the least time of a run.
pub(crate) fn figures(program: &Program, least: Option<LeastTimes>) -> PlanFigures {
    PlanFigures {
        kernels: program.operations.len() as u64,
        moved_bytes: program.moved_bytes(),
        multiply_adds: program.multiply_adds(),
        activation_bytes: program.activation_bytes,
        weight_bytes: program.weight_bytes,
        least_microseconds: least.map(|least| microseconds(least.cached)),
    }
}

/// Converts seconds to whole microseconds.
pub(crate) fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

/// Adds the nodes to the refusal of an element type: the builder does not name them.
fn with_nodes(error: Error, model: &Model) -> Error {
    let Error::Plan(mut error) = error else { return error };
    if let tileforge_tensorrt::Error::Precision { precision, refusal, .. } = &mut error
        && refusal.nodes.is_empty()
    {
        let of = |data_type: DataType| match precision.as_str() {
            "fp8_e4m3" => data_type == DataType::F8E4M3,
            other => data_type.name() == other,
        };
        let uses = |name: &String| model.type_of(name).is_some_and(|ty| of(ty.data_type));
        let nodes = model.nodes.iter().filter(|node| node.inputs.iter().chain(&node.outputs).any(uses));
        refusal.nodes = nodes.map(|node| node.name.clone()).collect();
    }
    Error::Plan(error)
}

/// Reports the builder's phases as stages.
struct Shown<'s> {
    /// `None` if several plans are built at once: their phases would replace each other.
    progress: Option<&'s dyn Progress>,
    /// Whether another plan has failed, so that this one is not needed.
    failed: &'s AtomicBool,
    phase: String,
}

impl Shown<'_> {
    fn tell(&mut self, file: &str, step: &tileforge_tensorrt::Progress) -> ControlFlow<()> {
        if let Some(progress) = self.progress {
            // Phases are nested. The one that began last is shown.
            if step.step == 0 {
                self.phase.clone_from(&step.phase);
                progress.begin(&format!("building the plan of {file}: {}", step.phase), step.steps as usize);
            } else if step.phase == self.phase {
                progress.step();
            }
        }
        if self.failed.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
