//! Graphs whose 3×3 convolutions are nodes of an operator of this project, for a runtime that brings its kernels.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use prost::Message;

use crate::attribute::graphs;
use crate::dim::Dim;
use crate::known::{self, attribute, is, is_standard};
use crate::message::decode_message;
use crate::proto::tensor_proto::DataType;
use crate::proto::{AttributeProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto};
use crate::rewrite::{Names, reads_within_attribute};
use crate::{Attribute, Error, Result};

/// The operator that computes a 3×3 convolution with a stride of 1, and an activation.
///
/// | input | shape | |
/// |---|---|---|
/// | values | N×C×H×W | |
/// | weights | K×C×3×3 | a weight of the graph |
/// | bias | K | optional |
/// | slope | K values, or one | optional: what negative results are multiplied by |
/// | rise | K values, or one | optional: results that are not negative are multiplied by it and the slope's sum |
/// | more values | N×C×H×W each | any number: channels behind those of the first input |
///
/// | attribute | |
/// |---|---|
/// | pads | rows above, columns before, rows below, columns after |
/// | slope | what negative results are multiplied by, where there is no such input |
pub struct Convolution3x3;

impl Convolution3x3 {
    /// The operator's domain.
    pub const DOMAIN: &str = "tileforge";
    /// Its name.
    pub const NAME: &str = "Convolution3x3";
    /// The inputs before those that any number of may follow. A node names all of them; empty: left out.
    pub const FIXED_INPUTS: usize = 5;
    /// The most rows or columns of zeros on a side.
    pub const MOST_PADS: usize = 2;
}

/// The ONNX file with these bytes, with nodes of [`Convolution3x3`] in the place of convolutions that it can compute,
/// and of activations after them. `None`: there are none.
///
/// Prepared weights take `bytes_of` outputs and inputs. Together they take no more than `most_bytes`: those come first
/// that are used in the most places. Without `dequantises`, weights in 8 bits stay: the session computes with them.
/// `path` is the file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn with_convolutions(
    bytes: &[u8],
    path: &Path,
    dequantises: bool,
    most_bytes: usize,
    bytes_of: impl Fn([usize; 2]) -> usize,
) -> Result<Option<Vec<u8>>> {
    let mut model = decode_message(bytes, path)?;
    let Some(graph) = &model.graph else { return Err(Error::format(path, "it has no graph")) };
    // A file's own nodes of the operator would run with what the file says. And functions can have an operator's name.
    if has_our_nodes(graph) || !model.functions.is_empty() {
        return Ok(None);
    }
    let weights = Weights::of(graph, dequantises);
    let of = |(place, node)| {
        let (channels, activation) = weights.computed(node)?;
        Some(Candidate { place, channels, activation, bytes: bytes_of(channels), pixels: 0 })
    };
    let mut found: Vec<Candidate> = graph.node.iter().enumerate().filter_map(of).collect();
    if found.iter().map(|found| found.bytes).fold(0, usize::saturating_add) > most_bytes {
        let lengths = known::lengths(&model, path);
        for found in &mut found {
            found.pixels = lengths.get(&graph.node[found.place].output[0]).map_or(0, |lengths| pixels(lengths));
        }
        found.sort_by_key(|found| (Reverse(found.pixels), found.bytes));
    }
    let mut left = most_bytes;
    found.retain(|found| {
        let rest = left.checked_sub(found.bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    if found.is_empty() {
        return Ok(None);
    }
    let (mut made, merged) = replacements(graph, &weights, found);
    let graph = model.graph.get_or_insert_default();
    for (place, node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
        match made.remove(&place) {
            Some(made) => graph.node.extend(made),
            None if merged.contains(&place) => {}
            None => graph.node.push(node),
        }
    }
    model.opset_import.retain(|opset| opset.domain() != Convolution3x3::DOMAIN);
    let domain = OperatorSetIdProto { domain: Some(Convolution3x3::DOMAIN.into()), version: Some(1) };
    model.opset_import.push(domain);
    Ok(Some(model.encode_to_vec()))
}

/// Whether a node of the graph, or of graphs within it, is of our domain.
fn has_our_nodes(graph: &GraphProto) -> bool {
    graph.node.iter().any(|node| {
        node.domain() == Convolution3x3::DOMAIN || node.attribute.iter().flat_map(graphs).any(has_our_nodes)
    })
}

/// A convolution that can be replaced.
struct Candidate {
    /// Its number in the graph.
    place: usize,
    /// Those of its results and values.
    channels: [usize; 2],
    /// That of a fused convolution.
    activation: Activation,
    /// Those of its prepared weights.
    bytes: usize,
    /// Those of its results, where their number is known and needed.
    pixels: usize,
}

/// What a length that is not known counts as, to compare sizes.
const SOME_LENGTH: usize = 64;

/// The pixels of images with these lengths.
fn pixels(lengths: &[Dim]) -> usize {
    let length = |dim: &Dim| match dim {
        Dim::Fixed(length) => *length,
        Dim::Symbol { multiply, divide, .. } => SOME_LENGTH.saturating_mul(*multiply) / (*divide).max(1),
    };
    match lengths {
        [_, _, height, width] => length(height).saturating_mul(length(width)),
        _ => 0,
    }
}

/// The lengths of a graph's constant FP32 weights, by their names. Inputs of the graph are not constant. Weights in fewer
/// bits are, if the session makes floats of them while it is opened.
struct Weights<'g>(HashMap<&'g str, &'g [i64]>);

impl<'g> Weights<'g> {
    fn of(graph: &'g GraphProto, dequantises: bool) -> Self {
        let inputs: HashSet<&str> = graph.input.iter().map(|input| input.name()).collect();
        let fixed = graph.initializer.iter().filter(|tensor| !inputs.contains(tensor.name()));
        let stored: HashMap<&str, &TensorProto> = fixed.map(|tensor| (tensor.name(), tensor)).collect();
        let is_float = |tensor: &TensorProto| tensor.data_type() == DataType::Float as i32;
        let floats = stored.iter().filter(|(_, tensor)| is_float(tensor)).map(|(name, tensor)| (*name, &*tensor.dims));
        let returned: HashSet<&str> = graph.output.iter().map(|output| output.name()).collect();
        let folded = graph.node.iter().filter(|node| is_standard(node.domain())).filter_map(|node| {
            let of_scale = || stored.get(node.input.get(1)?.as_str());
            let is_folded = match node.op_type() {
                "Cast" => attribute(node, "to").map(AttributeProto::i) == Some(DataType::Float as i64),
                "DequantizeLinear" => dequantises && of_scale().is_some_and(|scale| is_float(scale)),
                _ => false,
            };
            let output = node.output.first()?.as_str();
            // ONNX Runtime computes these while it opens the graph, if nothing but stored weights is needed.
            let is_constant = node.input.iter().all(|name| name.is_empty() || stored.contains_key(name.as_str()));
            if !is_folded || !is_constant || returned.contains(output) {
                return None;
            }
            Some((output, &*stored.get(node.input.first()?.as_str())?.dims))
        });
        Self(floats.chain(folded).collect())
    }

    /// The lengths of an FP32 weight.
    fn dims(&self, name: &str) -> Option<&'g [i64]> {
        self.0.get(name).copied()
    }

    /// Whether a weight has one value for each of so many channels, along the channels of images.
    fn is_of_channels(&self, name: &str, channels: usize) -> bool {
        match self.dims(name) {
            Some([length, 1, 1] | [1, length, 1, 1]) => usize::try_from(*length) == Ok(channels),
            _ => false,
        }
    }

    /// The channels of results and values of a convolution that the operator can compute, and its activation.
    fn computed(&self, node: &NodeProto) -> Option<([usize; 2], Activation)> {
        let is_plain = is(node, "Conv") || node.op_type() == "FusedConv" && node.domain() == "com.microsoft";
        if !is_plain || !matches!(node.input.len(), 2 | 3) || node.output.len() != 1 {
            return None;
        }
        let [outputs, inputs, 3, 3] = *self.dims(&node.input[1])? else { return None };
        if let Some(bias) = node.input.get(2).filter(|bias| !bias.is_empty())
            && self.dims(bias)? != [outputs]
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

/// What replaces each of these convolutions, by its number in the graph, and which activations after them and joins
/// before them it computes, too.
fn replacements(
    graph: &GraphProto,
    weights: &Weights<'_>,
    found: Vec<Candidate>,
) -> (HashMap<usize, Vec<NodeProto>>, HashSet<usize>) {
    let mut names = known::names(graph);
    let uses = Uses::of(graph);
    let joined = uses.joined(graph, &found.iter().map(|found| found.place).collect());
    let mut merged: HashSet<usize> = joined.values().map(|(place, _)| *place).collect();
    let mut made = HashMap::new();
    for Candidate { place, channels: [outputs, _], mut activation, .. } in found {
        let node = &graph.node[place];
        let mut output = &node.output[0];
        if activation == Activation::None
            && let Some(found) = uses.activation(graph, weights, node, outputs)
        {
            merged.extend(found.nodes);
            (activation, output) = (found.activation, found.output);
        }
        let parts = node.input.first().and_then(|values| joined.get(values.as_str())).map(|(_, parts)| *parts);
        made.insert(place, operator(node, parts, activation, output, &mut names));
    }
    (made, merged)
}

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
    let mut convolution = of(Convolution3x3::NAME, Convolution3x3::DOMAIN, inputs, result.clone());
    convolution.name.clone_from(&node.name);
    convolution.attribute = attributes;
    let after = after.map(|operator| of(operator, "", vec![result], output.to_owned()));
    std::iter::once(convolution).chain(after).collect()
}

/// An activation after a convolution.
struct Found<'g> {
    activation: Activation,
    /// The nodes that compute it.
    nodes: Vec<usize>,
    /// Its results.
    output: &'g String,
}

/// Which nodes read which values.
struct Uses<'g>(HashMap<&'g str, Vec<usize>>);

impl<'g> Uses<'g> {
    /// Values that the graph returns or that nested graphs read are also used by a node that does not exist.
    fn of(graph: &'g GraphProto) -> Self {
        let mut uses: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, node) in graph.node.iter().enumerate() {
            node.input.iter().for_each(|name| uses.entry(name).or_default().push(place));
            // The branches of an If can read the values around it.
            for name in node.attribute.iter().flat_map(reads_within_attribute) {
                uses.entry(name).or_default().push(usize::MAX);
            }
        }
        graph.output.iter().for_each(|output| uses.entry(output.name()).or_default().push(usize::MAX));
        Self(uses)
    }

    /// The nodes that read a value; `None` if others read it as well.
    fn readers(&self, graph: &'g GraphProto, value: &str) -> Option<Vec<(usize, &'g NodeProto)>> {
        let places = self.0.get(value)?;
        places.iter().map(|place| Some((*place, graph.node.get(*place)?))).collect()
    }

    /// The one node that reads a value.
    fn reader(&self, graph: &'g GraphProto, value: &str) -> Option<(usize, &'g NodeProto)> {
        match self.readers(graph, value)?.as_slice() {
            [one] if one.1.output.len() == 1 => Some(*one),
            _ => None,
        }
    }

    /// The joined channels that only chosen convolutions read: by their name, the node that joins them, and its inputs.
    fn joined(&self, graph: &'g GraphProto, chosen: &HashSet<usize>) -> HashMap<&'g str, (usize, &'g [String])> {
        let joins = graph.node.iter().enumerate().filter(|(_, node)| {
            let axis = attribute(node, "axis").map(AttributeProto::i);
            is(node, "Concat") && matches!(axis, Some(1 | -3)) && node.output.len() == 1 && !node.input.is_empty()
        });
        let joins = joins.filter_map(|(place, node)| {
            let name = node.output[0].as_str();
            let readers = self.readers(graph, name)?;
            let reads = |(place, reader): &(usize, &NodeProto)| {
                chosen.contains(place) && reader.input.iter().filter(|input| *input == name).count() == 1
            };
            readers.iter().all(reads).then_some((name, (place, node.input.as_slice())))
        });
        joins.collect()
    }

    /// The activation of a convolution's results, if nothing else reads them.
    fn activation(
        &self,
        graph: &'g GraphProto,
        weights: &Weights<'_>,
        node: &NodeProto,
        channels: usize,
    ) -> Option<Found<'g>> {
        let value = &node.output[0];
        if let Some((place, after)) = self.reader(graph, value) {
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
            return Some(Found { activation, nodes: vec![place], output: &after.output[0] });
        }
        // PRelu as products of the values and of their positive part.
        let readers = self.readers(graph, value)?;
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
        let (raise, raised) = self.reader(graph, positive).filter(|(_, node)| is(node, "Mul"))?;
        let rise = factor(raised, positive)?;
        let (sum, added) = self.reader(graph, &raised.output[0]).filter(|(_, node)| is(node, "Add"))?;
        let (same, _) = self.reader(graph, scaled.output.first()?)?;
        (same == sum && added.input.len() == 2).then(|| Found {
            activation: Activation::SlopesAndRises(slope, rise),
            nodes: vec![*relu, *scale, raise, sum],
            output: &added.output[0],
        })
    }
}
