//! Linear layers as nodes of [`Linear`].

use super::operators::{Linear, OWN_DOMAIN};
use super::replacements::Replacements;
use super::uses::Uses;
use super::weights::Weights;
use crate::Attribute;
use crate::known::{attribute, is};
use crate::proto::{AttributeProto, GraphProto, NodeProto};

/// A linear layer that the operator can compute.
pub(crate) struct Found {
    /// Its number in the graph.
    pub(crate) place: usize,
    /// The lengths of a row of results, and of values.
    pub(crate) channels: [usize; 2],
    bias: Option<String>,
    /// Whether the weights are a row for each output.
    by_output: bool,
    has_gelu: bool,
    /// The nodes after it that it computes, too.
    after: Vec<usize>,
    /// Its results.
    output: String,
}

/// All that the operator can compute.
pub(crate) fn found(graph: &GraphProto, weights: &Weights<'_>, uses: &Uses<'_>) -> Vec<Found> {
    let of = |(place, node): (usize, &NodeProto)| {
        let mut found = layer(weights, place, node)?;
        if is(node, "MatMul") {
            found.add_bias(graph, weights, uses);
        }
        found.add_gelu(graph, weights, uses);
        Some(found)
    };
    graph.node.iter().enumerate().filter_map(of).collect()
}

/// Replaces these layers.
pub(crate) fn replace(graph: &GraphProto, found: Vec<Found>, replaced: &mut Replacements) {
    for Found { place, bias, by_output, has_gelu, after, output, .. } in found {
        let node = &graph.node[place];
        let [values, weights, ..] = node.input.as_slice() else { continue };
        let flag = |name: &str, is_set: bool| Attribute::Int(is_set.into()).to_onnx(name);
        let made = NodeProto {
            name: node.name.clone(),
            op_type: Some(Linear::NAME.into()),
            domain: Some(OWN_DOMAIN.into()),
            input: vec![values.clone(), weights.clone(), bias.unwrap_or_default()],
            output: vec![output],
            attribute: vec![flag("by_output", by_output), flag("gelu", has_gelu)],
            ..NodeProto::default()
        };
        replaced.dropped.extend(after);
        replaced.made.insert(place, vec![made]);
    }
}

/// A node that the operator can compute.
fn layer(weights: &Weights<'_>, place: usize, node: &NodeProto) -> Option<Found> {
    let output = match node.output.as_slice() {
        [output] => output.clone(),
        _ => return None,
    };
    let [rows, columns] = *weights.dims(node.input.get(1)?)? else { return None };
    let [rows, columns] = [usize::try_from(rows).ok()?, usize::try_from(columns).ok()?];
    let by_output = match node.op_type() {
        "MatMul" if is(node, "MatMul") && node.input.len() == 2 => false,
        "Gemm" if is(node, "Gemm") => {
            let is_one = |name| attribute(node, name).is_none_or(|attribute| attribute.f() == 1.0);
            let is_set = |name| attribute(node, name).is_some_and(|attribute| attribute.i() != 0);
            if is_set("transA") || !is_one("alpha") || !is_one("beta") {
                return None;
            }
            is_set("transB")
        }
        _ => return None,
    };
    let channels = if by_output { [rows, columns] } else { [columns, rows] };
    let bias = node.input.get(2).filter(|bias| !bias.is_empty()).cloned();
    let fits = bias.as_ref().is_none_or(|bias| is_bias(weights, bias, channels[0]));
    let is_layer = fits && !channels.contains(&0) && weights.dims(&node.input[0]).is_none();
    is_layer.then_some(Found { place, channels, bias, by_output, has_gelu: false, after: Vec::new(), output })
}

/// Whether a weight has one value for each of so many outputs.
fn is_bias(weights: &Weights<'_>, name: &str, outputs: usize) -> bool {
    weights.dims(name).is_some_and(|dims| matches!(dims, [length] if usize::try_from(*length) == Ok(outputs)))
}

impl Found {
    /// Takes the node that alone reads the results.
    fn take(&mut self, place: usize, node: &NodeProto) {
        self.after.push(place);
        self.output.clone_from(&node.output[0]);
    }

    /// Takes the bias that is added to a product.
    fn add_bias(&mut self, graph: &GraphProto, weights: &Weights<'_>, uses: &Uses<'_>) {
        let Some((place, node)) = uses.reader(graph, &self.output).filter(|(_, node)| is(node, "Add")) else { return };
        let other = match node.input.as_slice() {
            [a, b] if *a == self.output => b,
            [a, b] if *b == self.output => a,
            _ => return,
        };
        if is_bias(weights, other, self.channels[0]) {
            self.bias = Some(other.clone());
            self.take(place, node);
        }
    }

    /// Takes the Gelu after the layer. ONNX Runtime's has a bias of its own where the layer had none.
    fn add_gelu(&mut self, graph: &GraphProto, weights: &Weights<'_>, uses: &Uses<'_>) {
        let Some((place, node)) = uses.reader(graph, &self.output) else { return };
        let is_microsoft = |operator: &str| node.op_type() == operator && node.domain() == "com.microsoft";
        let is_exact =
            attribute(node, "approximate").is_none_or(|text| matches!(AttributeProto::s(text), b"" | b"none"));
        let is_gelu = is(node, "Gelu") && is_exact || is_microsoft("Gelu");
        let bias = node.input.get(1).filter(|bias| {
            let is_ours = node.input.first() == Some(&self.output) && self.bias.is_none();
            is_microsoft("BiasGelu") && is_ours && is_bias(weights, bias, self.channels[0])
        });
        if !is_gelu && bias.is_none() {
            return;
        }
        self.bias = bias.cloned().or(self.bias.take());
        self.has_gelu = true;
        self.take(place, node);
    }
}
