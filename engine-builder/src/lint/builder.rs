//! A lint that uses NVIDIA's builder for RTX GPUs.

use super::{Finding, LintReport, Severity, Target, lint};
use crate::rtx::{PlanBuilder, prepare};
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::path::Path;
use tileforge_graph::{Model, WeightStorage, save};
use tileforge_tensorrt::{BuildOptions, ComputeCapability, Error as PlanError, Progress};

/// Lints a graph with NVIDIA's builder: it builds a plan, which is discarded. `scratch` is a folder for the plan.
///
/// # Errors
/// A file cannot be written, or the builder cannot be used. A refusal is a finding.
pub fn lint_with_builder(
    model: &Model,
    builder: &PlanBuilder,
    capabilities: &[ComputeCapability],
    scratch: &Path,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<LintReport> {
    let mut report = lint(model, Target::TensorRtRtx);
    let mut refuse = |node: Option<String>, operator: Option<String>, message: String| {
        report.findings.insert(0, Finding { severity: Severity::Error, node, operator, message });
    };
    if let Some(port) = model.inputs.iter().find(|port| port.ty.fixed_dims().is_none()) {
        let message = format!("expected fixed sizes of the input `{}`, found {}", port.name, port.ty);
        refuse(None, None, message);
        return Ok(report);
    }
    let (graph, plan) = (scratch.join("model.onnx"), scratch.join("model.plan"));
    let mut prepared = model.clone();
    prepare(&mut prepared)?;
    save(&prepared, &graph, WeightStorage::Copy)?;
    match builder.build(&graph, "the graph", capabilities, &BuildOptions::default(), &plan, progress) {
        Ok(_) => {}
        Err(Error::Plan(
            PlanError::Parse { refusal, .. }
            | PlanError::Refused { refusal, .. }
            | PlanError::Precision { refusal, .. },
        )) => {
            let operator = refusal.nodes.first().and_then(|name| {
                let node = model.nodes.iter().find(|node| node.name == *name)?;
                Some(node.operator.clone())
            });
            refuse(refusal.nodes.first().cloned(), operator, refusal.reason.clone());
        }
        Err(error) => return Err(error),
    }
    Ok(report)
}
