//! The restrictions of the parser's table (its column "Restrictions"), and the rules of quantisation.

use super::context::Context;
use super::operators::type_name;
use super::report::{Findings, Severity};
use tileforge_graph::{Attribute, DataType, Node};

/// Checks one node whose operator the parser supports.
pub(super) fn check(context: &Context<'_>, node: &Node, findings: &mut Findings) {
    match node.operator.as_str() {
        "Resize" => resize(node, findings),
        "Pad" => constant(context, node, 3, "axes", findings),
        "Slice" => constant(context, node, 3, "axes", findings),
        "Squeeze" | "Unsqueeze" => constant(context, node, 1, "axes", findings),
        "CumSum" => constant(context, node, 1, "axis", findings),
        "OneHot" => constant(context, node, 1, "depth", findings),
        operator if operator.starts_with("Reduce") => constant(context, node, 1, "axes", findings),
        "QuantizeLinear" | "DequantizeLinear" => quantisation(context, node, findings),
        "AveragePool" | "LpPool" => pool(context, node, findings),
        "MaxPool" => {
            pool(context, node, findings);
            only_output(node, "Y", findings);
        }
        "LayerNormalization" => only_output(node, "Y", findings),
        // NVIDIA/TensorRT#4738.
        "Attention" => only_output(node, "Y", findings),
        "GroupNormalization" if context.opset < 21 => {
            let message = "its scale and bias are per group before opset 21, and per channel from 21 on";
            findings.about(Severity::Warning, Some(node), message.into());
        }
        "GridSample" => {
            let rank = context.input(node, 0).and_then(|name| context.rank(name));
            if rank.is_some_and(|rank| rank != 4) {
                findings.error(node, format!("expected an input of 4 dimensions, found {}", rank.unwrap_or_default()));
            }
        }
        "ScatterND" => one_of(node, "reduction", "none", &["none"], findings),
        "TopK" if node.int("sorted").unwrap_or(1) != 1 => findings.error(node, "expected `sorted` = 1"),
        "Constant" => {
            for name in ["sparse_value", "value_string", "value_strings"] {
                if node.attributes.contains_key(name) {
                    findings.error(node, format!("the attribute `{name}` is not taken"));
                }
            }
        }
        "EyeLike" => {
            let known = context.input(node, 0).and_then(|name| context.model.type_of(name)?.fixed_dims());
            if known.is_none() {
                findings.error(node, "expected an input of fixed sizes");
            }
        }
        _ => {}
    }
}

fn text<'n>(node: &'n Node, name: &str, default: &'n str) -> &'n str {
    match node.attributes.get(name) {
        Some(Attribute::Text(text)) => text,
        _ => default,
    }
}

/// Checks that a text attribute has one of the supported values.
fn one_of(node: &Node, name: &str, default: &str, taken: &[&str], findings: &mut Findings) {
    let found = text(node, name, default);
    if !taken.contains(&found) {
        findings.error(node, format!("expected `{name}` to be one of {}, found {found}", taken.join(", ")));
    }
}

fn resize(node: &Node, findings: &mut Findings) {
    one_of(node, "mode", "nearest", &["nearest", "linear"], findings);
    let transformations = ["half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners"];
    one_of(node, "coordinate_transformation_mode", "half_pixel", &transformations, findings);
    one_of(node, "keep_aspect_ratio_policy", "stretch", &["stretch"], findings);
    if text(node, "mode", "nearest") == "nearest" {
        let roundings = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"];
        one_of(node, "nearest_mode", "round_prefer_floor", &roundings, findings);
    }
    if node.int("antialias").unwrap_or(0) != 0 {
        findings.error(node, "expected no antialiasing");
    }
    if let Some(Attribute::Ints(axes)) = node.attributes.get("axes")
        && !axes.iter().copied().eq(0..axes.len() as i64)
    {
        findings.error(node, format!("expected `axes` to be all of them in order, found {axes:?}"));
    }
}

/// Checks that an input is known when the engine is built.
fn constant(context: &Context<'_>, node: &Node, position: usize, what: &str, findings: &mut Findings) {
    if let Some(name) = context.input(node, position)
        && !context.is_constant(name)
    {
        findings.error(node, format!("expected its {what} to be an initializer, found the computed value `{name}`"));
    }
}

fn only_output(node: &Node, name: &str, findings: &mut Findings) {
    if node.outputs.iter().skip(1).any(|output| !output.is_empty()) {
        findings.error(node, format!("expected the output {name} only, found {}", node.outputs.join(", ")));
    }
}

fn pool(context: &Context<'_>, node: &Node, findings: &mut Findings) {
    // Batch, channels, and at most three more dimensions.
    if let Some(rank) = context.input(node, 0).and_then(|name| context.rank(name))
        && !(4..=5).contains(&rank)
    {
        findings.error(node, format!("expected 2 or 3 spatial dimensions, found {}", rank.saturating_sub(2)));
    }
    if let Some(Attribute::Ints(dilations)) = node.attributes.get("dilations")
        && dilations.iter().any(|dilation| *dilation != 1)
    {
        findings.error(node, format!("expected dilations of 1, found {dilations:?}"));
    }
}

/// TensorRT's integers are symmetric: signed, with a zero point of 0; and scales divide.
fn quantisation(context: &Context<'_>, node: &Node, findings: &mut Findings) {
    let scales = context.input(node, 1).and_then(|name| Some((name, context.model.weights.get(name)?)));
    if let Some((name, scales)) = scales
        && let Ok(values) = scales.cast(DataType::F32).and_then(|scales| scales.to_f32s())
        && let Some(wrong) = values.into_iter().find(|scale| !(scale.is_finite() && *scale > 0.0))
    {
        findings.error(node, format!("expected scales above 0, found {wrong} in `{name}`"));
    }
    // Without a zero point, the quantised type is UINT8 by ONNX's definition, unless opset 21's attribute says
    // otherwise.
    let Some(zero_point) = context.input(node, 2) else {
        if node.operator == "QuantizeLinear" && node.int("output_dtype").unwrap_or(0) == 0 {
            findings.error(node, "expected a zero point of INT8, found none, which means UINT8");
        }
        return;
    };
    match context.type_of(zero_point) {
        Some(DataType::I8 | DataType::F8E4M3) | None => {}
        Some(other) => {
            findings.error(node, format!("expected a zero point of INT8 or FP8, found {}", type_name(other)))
        }
    }
    match context.model.weights.get(zero_point) {
        None if !context.is_constant(zero_point) => {
            findings.error(
                node,
                format!("expected its zero point to be an initializer, found the computed value `{zero_point}`"),
            );
        }
        // The number 0 has only zero bits in every type that is supported here.
        Some(weight) if weight.to_bytes().is_ok_and(|bytes| bytes.iter().any(|byte| *byte != 0)) => {
            findings.error(node, format!("expected a zero point of 0, found another in `{zero_point}`"));
        }
        _ => {}
    }
}
