//! Convolutions as nodes of [`Convolution3x3`].

use std::collections::{HashMap, HashSet};

use super::operators::{Convolution3x3, OWN_DOMAIN};
use super::replacements::Replacements;
use super::uses::Uses;
use super::weights::Weights;
use crate::Attribute;
use crate::known::{attribute, is};
use crate::proto::{AttributeProto, GraphProto, NodeProto};
use crate::rewrite::Names;

/// A convolution that the operator can compute.
pub(crate) struct Found {
    /// Its number in the graph.
    pub(crate) place: usize,
    /// Those of its results and values.
    pub(crate) channels: [usize; 2],
    /// That of a fused convolution.
    activation: Activation,
}

/// All that the operator can compute.
pub(crate) fn found(graph: &GraphProto, weights: &Weights<'_>) -> Vec<Found> {
    let of = |(place, node)| {
        let (channels, activation) = computed(weights, node)?;
        Some(Found { place, channels, activation })
    };
    graph.node.iter().enumerate().filter_map(of).collect()
}

/// Replaces these convolutions, with the activations after them and the joins before them that it computes, too.
pub(crate) fn replace(
    graph: &GraphProto,
    weights: &Weights<'_>,
    uses: &Uses<'_>,
    found: Vec<Found>,
    names: &mut Names,
    replaced: &mut Replacements,
) {
    let joined = joined(uses, graph, &found.iter().map(|found| found.place).collect());
    replaced.dropped.extend(joined.values().map(|(place, _)| *place));
    for Found { place, channels: [outputs, _], mut activation } in found {
        let node = &graph.node[place];
        let mut output = &node.output[0];
        if activation == Activation::None
            && let Some(after) = activation_after(uses, graph, weights, node, outputs)
        {
            replaced.dropped.extend(after.nodes);
            (activation, output) = (after.activation, after.output);
        }
        let parts = node.input.first().and_then(|values| joined.get(values.as_str())).map(|(_, parts)| *parts);
        replaced.made.insert(place, operator(node, parts, activation, output, names));
    }
}

/// The channels of results and values of a convolution that the operator can compute, and its activation.
fn computed(weights: &Weights<'_>, node: &NodeProto) -> Option<([usize; 2], Activation)> {
    let is_plain = is(node, "Conv") || node.op_type() == "FusedConv" && node.domain() == "com.microsoft";
    if !is_plain || !matches!(node.input.len(), 2 | 3) || node.output.len() != 1 {
        return None;
    }
    let [outputs, inputs, 3, 3] = *weights.dims(&node.input[1])? else { return None };
    if let Some(bias) = node.input.get(2).filter(|bias| !bias.is_empty())
        && weights.dims(bias)? != [outputs]
    {
        return None;
    }
    let is_few = |pad: &i64| usize::try_from(*pad).is_ok_and(|pad| pad <= Convolution3x3::MOST_PADS);
    let fits = node.attribute.iter().all(|attribute| match attribute.name() {
        "auto_pad" => matches!(attribute.s(), b"" | b"NOTSET"),
        "group" => attribute.i() == 1,
        "strides" | "dilations" => attribute.ints == [1, 1],
        "kernel_shape" => attribute.ints == [3, 3],
        "pads" => attribute.ints.len() == 4 && attribute.ints.iter().all(is_few),
        "activation" | "activation_params" => true,
        _ => false,
    });
    let channels = [usize::try_from(outputs).ok()?, usize::try_from(inputs).ok()?];
    let activation = Activation::of(node)?;
    (fits && !channels.contains(&0)).then_some((channels, activation))
}

/// What a convolution does with its results.
#[derive(Clone, Debug, PartialEq)]
enum Activation {
    None,
    /// Multiplies negative ones by a number.
    Slope(f32),
    /// Applies an operator without attributes, which becomes a node of its own.
    Node(&'static str),
    /// Multiplies negative ones by the values of a weight.
    Slopes(String),
    /// Multiplies all by those of the first weight, and adds those that are not negative, times the second.
    SlopesAndRises(String, String),
}

impl Activation {
    /// That of a fused convolution. `None`: one that the operator lacks.
    fn of(node: &NodeProto) -> Option<Self> {
        let Some(name) = attribute(node, "activation") else { return Some(Self::None) };
        let parameters = attribute(node, "activation_params").map_or(&[][..], |attribute| &attribute.floats);
        match (name.s(), parameters) {
            (b"", _) => Some(Self::None),
            (b"Relu", _) => Some(Self::Slope(0.0)),
            (b"LeakyRelu", [slope]) => Some(Self::Slope(*slope)),
            (b"Sigmoid", _) => Some(Self::Node("Sigmoid")),
            (b"Tanh", _) => Some(Self::Node("Tanh")),
            _ => None,
        }
    }
}

/// LeakyRelu's default.
const SLOPE: f32 = 0.01;

/// The nodes that replace a convolution. `parts`: the values that are joined to its values.
fn operator(
    node: &NodeProto,
    parts: Option<&[String]>,
    activation: Activation,
    output: &str,
    names: &mut Names,
) -> Vec<NodeProto> {
    let mut inputs = node.input.clone();
    inputs.resize(3, String::new());
    let pads = attribute(node, "pads").map_or_else(|| vec![0; 4], |pads| pads.ints.clone());
    let mut attributes = vec![Attribute::Ints(pads).to_onnx("pads")];
    let mut after = None;
    match activation {
        Activation::None => {}
        Activation::Slope(slope) => attributes.push(Attribute::Float(slope).to_onnx("slope")),
        Activation::Node(operator) => after = Some(operator),
        Activation::Slopes(slope) => inputs.push(slope),
        Activation::SlopesAndRises(slope, rise) => inputs.extend([slope, rise]),
    }
    inputs.resize(Convolution3x3::FIXED_INPUTS, String::new());
    if let Some([first, more @ ..]) = parts {
        inputs[0].clone_from(first);
        inputs.extend_from_slice(more);
    }
    let result = if after.is_some() { names.take(&format!("{output}/before")) } else { output.to_owned() };
    let of = |operator: &str, domain: &str, inputs: Vec<String>, output: String| NodeProto {
        op_type: Some(operator.into()),
        domain: Some(domain.into()),
        input: inputs,
        output: vec![output],
        ..NodeProto::default()
    };
    let mut convolution = of(Convolution3x3::NAME, OWN_DOMAIN, inputs, result.clone());
    convolution.name.clone_from(&node.name);
    convolution.attribute = attributes;
    let after = after.map(|operator| of(operator, "", vec![result], output.to_owned()));
    std::iter::once(convolution).chain(after).collect()
}

/// An activation after a convolution.
struct After<'g> {
    activation: Activation,
    /// The nodes that compute it.
    nodes: Vec<usize>,
    /// Its results.
    output: &'g String,
}

/// The joined channels that only chosen convolutions read: by their name, the node that joins them, and its inputs.
fn joined<'g>(
    uses: &Uses<'g>,
    graph: &'g GraphProto,
    chosen: &HashSet<usize>,
) -> HashMap<&'g str, (usize, &'g [String])> {
    let joins = graph.node.iter().enumerate().filter(|(_, node)| {
        let axis = attribute(node, "axis").map(AttributeProto::i);
        is(node, "Concat") && matches!(axis, Some(1 | -3)) && node.output.len() == 1 && !node.input.is_empty()
    });
    let joins = joins.filter_map(|(place, node)| {
        let name = node.output[0].as_str();
        let readers = uses.readers(graph, name)?;
        let reads = |(place, reader): &(usize, &NodeProto)| {
            chosen.contains(place) && reader.input.iter().filter(|input| *input == name).count() == 1
        };
        readers.iter().all(reads).then_some((name, (place, node.input.as_slice())))
    });
    joins.collect()
}

/// The activation of a convolution's results, if nothing else reads them.
fn activation_after<'g>(
    uses: &Uses<'g>,
    graph: &'g GraphProto,
    weights: &Weights<'_>,
    node: &NodeProto,
    channels: usize,
) -> Option<After<'g>> {
    let value = &node.output[0];
    if let Some((place, after)) = uses.reader(graph, value) {
        let activation = match after.op_type() {
            "Relu" if is(after, "Relu") => Activation::Slope(0.0),
            "LeakyRelu" if is(after, "LeakyRelu") => {
                Activation::Slope(attribute(after, "alpha").map_or(SLOPE, AttributeProto::f))
            }
            "PRelu" if is(after, "PRelu") && after.input.first() == Some(value) => {
                let slope = after.input.get(1).filter(|slope| weights.is_of_channels(slope, channels))?;
                Activation::Slopes(slope.clone())
            }
            _ => return None,
        };
        return Some(After { activation, nodes: vec![place], output: &after.output[0] });
    }
    // PRelu as products of the values and of their positive part.
    let readers = uses.readers(graph, value)?;
    let [(_, _), (_, _)] = readers.as_slice() else { return None };
    let (relu, rectified) = readers.iter().find(|(_, node)| is(node, "Relu"))?;
    let (scale, scaled) = readers.iter().find(|(_, node)| is(node, "Mul"))?;
    let factor = |node: &NodeProto, of: &str| {
        let other = match node.input.as_slice() {
            [a, b] if a == of => b,
            [a, b] if b == of => a,
            _ => return None,
        };
        weights.is_of_channels(other, channels).then(|| other.clone())
    };
    let slope = factor(scaled, value)?;
    let positive = rectified.output.first()?;
    let (raise, raised) = uses.reader(graph, positive).filter(|(_, node)| is(node, "Mul"))?;
    let rise = factor(raised, positive)?;
    let (sum, added) = uses.reader(graph, &raised.output[0]).filter(|(_, node)| is(node, "Add"))?;
    let (same, _) = uses.reader(graph, scaled.output.first()?)?;
    (same == sum && added.input.len() == 2).then(|| After {
        activation: Activation::SlopesAndRises(slope, rise),
        nodes: vec![*relu, *scale, raise, sum],
        output: &added.output[0],
    })
}
