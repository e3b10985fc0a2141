//! A text form of models for snapshots and reviews: one line for each node, in execution order.

use crate::{Attribute, Model, Weight};
use std::fmt::Write;

/// The model as text. Equal models give equal texts. The text contains the values of small integer constants, but of
/// no other weights.
pub fn to_text(model: &Model) -> String {
    let mut text = String::new();
    let opsets: Vec<String> = model
        .opsets
        .iter()
        .map(|set| format!("{}{}{}", set.domain, if set.domain.is_empty() { "" } else { " " }, set.version))
        .collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "model {} (opset {})", model.name, opsets.join(", "));
    for (key, value) in &model.metadata {
        let _ = writeln!(text, "  {key} = {value}");
    }
    for port in &model.inputs {
        let _ = writeln!(text, "input {}: {}", port.name, port.ty);
    }
    for node in &model.nodes {
        let inputs: Vec<String> = node.inputs.iter().map(|name| operand(model, name)).collect();
        let domain = if node.domain.is_empty() { String::new() } else { format!("{}.", node.domain) };
        let types: Vec<String> =
            node.outputs.iter().map(|name| model.types.get(name).map_or("?".into(), ToString::to_string)).collect();
        let _ = write!(text, "{} = {domain}{}({})", node.outputs.join(", "), node.operator, inputs.join(", "));
        for (name, value) in &node.attributes {
            let _ = write!(text, " {name}={}", attribute(value));
        }
        let _ = writeln!(text, " : {}", types.join(", "));
    }
    for port in &model.outputs {
        let _ = writeln!(text, "output {}: {}", port.name, port.ty);
    }
    text
}

fn operand(model: &Model, name: &str) -> String {
    match model.weights.get(name) {
        None if name.is_empty() => "-".into(),
        None => name.into(),
        Some(weight) => small_constant(weight).unwrap_or_else(|| format!("{name}: {weight:?}")),
    }
}

fn small_constant(weight: &Weight) -> Option<String> {
    if weight.elements() > 16 {
        return None;
    }
    weight.to_i64s().ok().map(|values| format!("{values:?}"))
}

fn attribute(attribute: &Attribute) -> String {
    match attribute {
        Attribute::Int(value) => value.to_string(),
        Attribute::Ints(values) => format!("{values:?}"),
        Attribute::Float(value) => value.to_string(),
        Attribute::Floats(values) => format!("{values:?}"),
        Attribute::Text(text) => text.clone(),
        Attribute::Tensor(_) => "(tensor)".into(),
        Attribute::Other(_) => "(other)".into(),
    }
}
