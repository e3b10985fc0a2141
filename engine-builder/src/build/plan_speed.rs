//! The speed gate of an 8-bit plan. It needs no GPU: it compares the least times of two plans.

use std::ops::ControlFlow;
use std::path::Path;

use tileforge_engine::manifest::Gate;
use tileforge_graph::Model;
use tileforge_tensorrt::LeastTimes;

use crate::Result;
use crate::rtx::{BuiltPlan, PlanJob, build_plan};

/// The least time of an FP16 plan divided by the least time of the engine's plan: a ratio of two bounds, not measured.
const LEAST_TIME_OF_FP16: &str = "least_time_of_fp16_over_own";

/// The gate of the graph `file`: `own` is the least time of its plan, `in_fp16` is the same graph in FP16. `None` if
/// the FP16 plan's program or the GPU's rates are not known.
///
/// # Errors
/// The builder refuses the graph in FP16, or a file cannot be read or written.
pub(super) fn gate(
    job: &PlanJob<'_>,
    (file, own): (&str, LeastTimes),
    mut in_fp16: Model,
    floor: f64,
    scratch: &Path,
) -> Result<Option<Gate>> {
    let rival = scratch.join("fp16.plan");
    let mut quiet = |_: &_| ControlFlow::Continue(());
    let BuiltPlan { program, .. } = build_plan(job, &mut in_fp16, "fp16.onnx", scratch, &rival, &mut quiet)?;
    Ok(program.ok().zip(job.gpu).map(|(program, gpu)| Gate {
        name: LEAST_TIME_OF_FP16.into(),
        graph: file.to_owned(),
        value: own.speed_over(&gpu.least_times(&program)),
        floor,
    }))
}
