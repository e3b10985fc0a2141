//! Finds, without a GPU, what TensorRT's ONNX parser would refuse or run differently.
//!
//! For TensorRT 10 and 11, the lint knows the parser's published table of operators and types, the restrictions beside
//! that table, and the rules of strongly typed networks, the only kind that TensorRT 11 has. The parser has the last
//! word. For RTX GPUs, NVIDIA's builder itself is asked ([`lint_with_builder`]).

mod builder;
mod channels;
mod context;
mod operators;
mod report;
mod restrictions;
mod target;

pub use builder::lint_with_builder;
pub use report::{Finding, LintReport, Severity};
pub use target::Target;

use context::Context;
use operators::{Support, support, type_name};
use report::Findings;
use std::collections::{BTreeSet, HashSet};
use tileforge_graph::{DataType, Model, Node};

/// Finds what TensorRT does not accept, without TensorRT itself. The types of the model's values must be inferred, as
/// [`tileforge_graph::load`] does.
pub fn lint(model: &Model, target: Target) -> LintReport {
    let mut findings = Findings::default();
    check_opsets(model, target, &mut findings);
    check_names(model, &mut findings);
    check_ports(model, &mut findings);
    let context = Context::new(model);
    for node in &model.nodes {
        check_node(&context, node, target, &mut findings);
        channels::check(model, node, &mut findings);
    }
    findings.0.sort_by_key(|finding| finding.severity);
    LintReport { target, findings: findings.0 }
}

fn check_opsets(model: &Model, target: Target, findings: &mut Findings) {
    let Some((oldest, newest)) = target.opsets() else { return };
    for set in &model.opsets {
        if set.domain.is_empty() && !(oldest..=newest).contains(&set.version) {
            let message = format!("expected an opset of {oldest} to {newest}, found {}", set.version);
            findings.about(Severity::Error, None, message);
        }
    }
}

/// Messages, precision rules and timing caches refer to nodes by name.
fn check_names(model: &Model, findings: &mut Findings) {
    let mut nodes = HashSet::new();
    let mut values: HashSet<&str> =
        model.inputs.iter().map(|port| port.name.as_str()).chain(model.weights.keys().map(String::as_str)).collect();
    for node in &model.nodes {
        if node.name.is_empty() {
            findings.about(
                Severity::Warning,
                Some(node),
                "the node has no name; TensorRT gives it one that says nothing".into(),
            );
        } else if !nodes.insert(node.name.as_str()) {
            findings.about(
                Severity::Warning,
                Some(node),
                "another node has this name; layers cannot be told apart".into(),
            );
        }
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if !values.insert(output) {
                findings.error(node, format!("its output `{output}` has the name of another value"));
            }
        }
    }
}

fn check_ports(model: &Model, findings: &mut Findings) {
    for port in &model.inputs {
        if port.ty.fixed_dims().is_none() {
            let message = format!(
                "the input `{}` is {}: dynamic sizes need a profile of shapes, and give slower engines",
                port.name, port.ty
            );
            findings.about(Severity::Warning, None, message);
        }
    }
    for port in model.inputs.iter().chain(&model.outputs) {
        if port.ty.data_type == DataType::I64 {
            let message = format!("`{}` is INT64, which TensorRT computes in twice the memory of INT32", port.name);
            findings.about(Severity::Warning, None, message);
        }
    }
}

fn check_node(context: &Context<'_>, node: &Node, target: Target, findings: &mut Findings) {
    if !node.domain.is_empty() {
        findings.error(node, format!("expected ONNX's own operators, found one of the domain `{}`", node.domain));
        return;
    }
    if target == Target::TensorRtRtx {
        check_strong_typing(context, node, findings);
        return;
    }
    match support(&node.operator, target) {
        Support::No => findings.error(node, "TensorRT's parser does not take this operator"),
        Support::Unknown => findings.error(node, "this operator is not in the parser's table"),
        Support::Since(version) => {
            findings.error(node, format!("TensorRT's parser takes this operator from {version} on"))
        }
        Support::Yes(types) => check_types(context, node, &types, findings),
    }
    check_strong_typing(context, node, findings);
    restrictions::check(context, node, findings);
}

/// The types in the table are the types of the data, which is the first input (for `Where` the second one). Other
/// inputs are indices and shapes.
fn check_types(context: &Context<'_>, node: &Node, types: &[&str], findings: &mut Findings) {
    let data = context.input(node, usize::from(node.operator == "Where"));
    let found = data.and_then(|name| context.type_of(name)).map(type_name);
    if let Some(found) = found
        && !types.contains(&found)
        // Shapes and indices are INT64 in ONNX, and are computed on the host while the engine is built.
        && !(found == "INT64" && data.is_some_and(|name| context.is_constant(name)))
    {
        findings.error(node, format!("expected data of {}, found {found}", types.join(", ")));
    }
    if node.operator == "Cast"
        && let Some(to) = node.outputs.first().and_then(|name| context.type_of(name)).map(type_name)
        && !types.contains(&to)
    {
        findings.error(node, format!("expected a cast to {}, found {to}", types.join(", ")));
    }
}

/// A strongly typed network converts nothing by itself, so it refuses a node whose inputs are floats of several types.
fn check_strong_typing(context: &Context<'_>, node: &Node, findings: &mut Findings) {
    // These operators change the type by definition. Scales and regions are FP32, whatever the type of the data.
    if matches!(node.operator.as_str(), "Resize" | "QuantizeLinear" | "DequantizeLinear" | "CastLike" | "Cast") {
        return;
    }
    let floats = node.inputs.iter().filter_map(|name| context.type_of(name)).filter(|ty| ty.is_float());
    let found: BTreeSet<&str> = floats.map(type_name).collect();
    if found.len() > 1 {
        let found: Vec<&str> = found.into_iter().collect();
        findings.error(
            node,
            format!("expected inputs of one float type, found {}; a Cast is missing", found.join(" and ")),
        );
    }
}

#[cfg(test)]
mod tests;
