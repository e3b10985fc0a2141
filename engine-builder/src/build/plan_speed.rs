//! The gate of an 8-bit plan's speed. No GPU is here, so the least times of two plans are compared.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use tileforge_engine::manifest::{Gate, Graph};
use tileforge_graph::Model;
use tileforge_tensorrt::Program;

use crate::rtx::{BuiltPlan, PlanJob, build_plan};
use crate::{Error, Result};

/// How many times the least time of an FP16 plan is that of the engine's plan: a bound against a bound, not measured.
pub(super) const LEAST_TIME_OF_FP16: &str = "least_time_of_fp16_over_own";

/// The gate of a graph that has its plan in the engine at `staging`, and that is `in_fp16` in that precision. Of two
/// ratios, the smaller counts: one with all in the GPU's cache that fits there, one with nothing in it. So a plan that
/// moves more bytes does not pass because a cache may hold them.
///
/// `None` if the GPU's rates or a plan's program are not known.
///
/// # Errors
/// The builder refuses the graph in FP16, or a file cannot be read or written.
pub(super) fn gate(
    job: &PlanJob<'_>,
    graph: &Graph,
    mut in_fp16: Model,
    floor: f64,
    staging: &Path,
    scratch: &Path,
) -> Result<Option<Gate>> {
    let (Some(gpu), Some(plan)) = (job.gpu, &graph.plan) else { return Ok(None) };
    let path = staging.join(&plan.file);
    let mut own = File::open(&path).map_err(|source| Error::file(&path, "read", source))?;
    let (order, rival) = ((job.builder, job.capabilities, job.options), scratch.join("fp16.plan"));
    let mut quiet = |_: &_| ControlFlow::Continue(());
    let BuiltPlan { program, .. } = build_plan(order, &mut in_fp16, "fp16.onnx", scratch, &rival, &mut quiet)?;
    let (Ok(own), Ok(rival)) = (Program::read(&mut own), program) else { return Ok(None) };
    let ratios = [gpu, gpu.without_cache()].map(|gpu| {
        let own = gpu.least_seconds(&own).max(f64::MIN_POSITIVE);
        gpu.least_seconds(&rival) / own
    });
    let value = ratios[0].min(ratios[1]);
    Ok(Some(Gate { name: LEAST_TIME_OF_FP16.into(), graph: graph.file.clone(), value, floor }))
}
