//! Graphs in a form that ONNX Runtime's CUDA provider runs whole.

use std::collections::HashMap;
use std::path::Path;

use prost::Message;

use crate::known::{self, attribute, is, is_standard, names, ranks};
use crate::message::decode_message;
use crate::proto::tensor_proto::DataType;
use crate::proto::{AttributeProto, NodeProto, TensorProto};
use crate::rewrite::Names;
use crate::{Attribute, Error, Result};

/// The first opset whose InstanceNormalization and MaxPool the CUDA provider of ONNX Runtime 1.31 has no kernels for.
const WITHOUT_KERNELS: i64 = 22;
/// A maximum of more values than this stays a MaxPool.
const LARGEST_WINDOW: i64 = 4;
/// InstanceNormalization's default.
const EPSILON: f32 = 1e-5;

/// The ONNX file with these bytes for ONNX Runtime's CUDA provider. It would run these nodes on the processor:
///
/// - InstanceNormalization of opset 22 and later becomes means, differences and products, in FP32.
/// - MaxPool of opset 22 and later, of windows that do not overlap, becomes the maximum of every second row and column,
///   or every third.
/// - A ConvTranspose whose padding begins wider than it ends gets the same padding on both sides, and the difference as
///   `output_padding`. This is the same convolution.
///
/// And it fails in these nodes, if it moves the channels of images to the end:
///
/// - A Pad that names its axes gets paddings for all of them.
///
/// `path` is the file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn for_cuda(bytes: &[u8], path: &Path) -> Result<Vec<u8>> {
    let mut model = decode_message(bytes, path)?;
    let opset = model.opset_import.iter().find(|opset| is_standard(opset.domain())).map_or(0, |opset| opset.version());
    // Ranks are inferred from the whole graph, and seldom needed.
    let names_axes = |node: &NodeProto| is(node, "Pad") && node.input.len() > 3;
    let ranks = model.graph.iter().flat_map(|graph| &graph.node).any(names_axes).then(|| ranks(&model, path));
    let ranks = ranks.unwrap_or_default();
    let Some(graph) = &mut model.graph else { return Err(Error::format(path, "it has no graph")) };
    graph.node.iter_mut().filter(|node| is(node, "ConvTranspose")).for_each(pad_both_sides);
    let constants: HashMap<String, Vec<i64>> = graph
        .initializer
        .iter()
        .filter_map(|tensor| Some((tensor.name().to_owned(), known::integers(tensor)?)))
        .collect();
    let mut names = names(graph);
    let mut added = Vec::new();
    for node in std::mem::take(&mut graph.node) {
        let (nodes, weights) = (&mut graph.node, &mut added);
        let mut parts = Parts { node: &node, names: &mut names, nodes, weights };
        let is_replaced = match node.op_type() {
            _ if !is_standard(node.domain()) => false,
            "InstanceNormalization" if opset >= WITHOUT_KERNELS => parts.normalise(),
            "MaxPool" if opset >= WITHOUT_KERNELS => parts.pool(),
            "Pad" => parts.pad_all_axes(&ranks, &constants),
            _ => false,
        };
        if !is_replaced {
            graph.node.push(node);
        }
    }
    graph.initializer.append(&mut added);
    Ok(model.encode_to_vec())
}

fn integers(name: &str, values: &[i64]) -> AttributeProto {
    Attribute::Ints(values.to_vec()).to_onnx(name)
}

/// Moves the difference of a wider beginning to `output_padding`, which has to be less than the stride.
fn pad_both_sides(node: &mut NodeProto) {
    let of = |name: &str| node.attribute.iter().position(|attribute| attribute.name() == name);
    let values = |place: Option<usize>| place.map(|place| node.attribute[place].ints.clone());
    let Some(mut pads) = values(of("pads")) else { return };
    let axes = pads.len() / 2;
    let mut output = values(of("output_padding")).unwrap_or_else(|| vec![0; axes]);
    let strides = values(of("strides")).unwrap_or_else(|| vec![1; axes]);
    if of("output_shape").is_some() || output.len() != axes || strides.len() != axes {
        return;
    }
    for axis in 0..axes {
        let more = pads[axis].checked_sub(pads[axes + axis]).filter(|more| *more >= 0);
        let padded = more.and_then(|more| output[axis].checked_add(more));
        let Some(padded) = padded.filter(|padded| more == Some(0) || *padded < strides[axis]) else { return };
        pads[axes + axis] = pads[axis];
        output[axis] = padded;
    }
    node.attribute.retain(|attribute| !matches!(attribute.name(), "pads" | "output_padding"));
    node.attribute.extend([integers("pads", &pads), integers("output_padding", &output)]);
}

/// What replaces one node.
struct Parts<'p> {
    node: &'p NodeProto,
    names: &'p mut Names,
    nodes: &'p mut Vec<NodeProto>,
    weights: &'p mut Vec<TensorProto>,
}

impl Parts<'_> {
    fn normalise(&mut self) -> bool {
        if self.node.input.len() != 3 || self.node.output.len() != 1 {
            return false;
        }
        let [x, scale, bias] = [0, 1, 2].map(|place| self.node.input[place].clone());
        let epsilon = attribute(self.node, "epsilon").map_or(EPSILON, AttributeProto::f);
        let rows = self.integers("rows", &[0, 0, -1]);
        let last = self.integers("last", &[2]);
        let of_channels = self.integers("channels", &[1, -1, 1]);
        let epsilon = self.weight("epsilon", DataType::Float, &[], epsilon.to_le_bytes().to_vec());

        let shape = self.push("Shape", &[&x], Vec::new());
        let flat = self.push("Reshape", &[&x, &rows], Vec::new());
        let to = Attribute::Int(DataType::Float as i64).to_onnx("to");
        let wide = self.push("Cast", &[&flat], vec![to]);
        let mean = self.push("ReduceMean", &[&wide, &last], Vec::new());
        let centred = self.push("Sub", &[&wide, &mean], Vec::new());
        let squares = self.push("Mul", &[&centred, &centred], Vec::new());
        let variance = self.push("ReduceMean", &[&squares, &last], Vec::new());
        let variance = self.push("Add", &[&variance, &epsilon], Vec::new());
        let deviation = self.push("Sqrt", &[&variance], Vec::new());
        let normalised = self.push("Div", &[&centred, &deviation], Vec::new());
        let narrow = self.push("CastLike", &[&normalised, &x], Vec::new());
        let scale = self.push("Reshape", &[&scale, &of_channels], Vec::new());
        let bias = self.push("Reshape", &[&bias, &of_channels], Vec::new());
        let scaled = self.push("Mul", &[&narrow, &scale], Vec::new());
        let moved = self.push("Add", &[&scaled, &bias], Vec::new());
        self.last("Reshape", vec![moved, shape]);
        true
    }

    /// The maximum of the first row and column of each window, of the second, and so on.
    fn pool(&mut self) -> bool {
        let values = |name: &str| {
            let found = attribute(self.node, name);
            found.map_or(&[][..], |attribute| &attribute.ints)
        };
        let (kernel, strides) = (values("kernel_shape"), values("strides"));
        let is_plain = ["pads", "dilations", "ceil_mode", "storage_order", "auto_pad"].iter().all(|name| {
            let found = attribute(self.node, name);
            found.is_none_or(|attribute| match *name {
                "dilations" => attribute.ints.iter().all(|&step| step == 1),
                "auto_pad" => attribute.s() == b"NOTSET",
                _ => attribute.i() == 0 && attribute.ints.iter().all(|&pad| pad == 0),
            })
        });
        let &[height, width] = kernel else { return false };
        let is_small = height > 0 && width > 0 && height.saturating_mul(width) <= LARGEST_WINDOW;
        if kernel != strides || !is_plain || !is_small || self.node.output.len() != 1 || self.node.input.len() != 1 {
            return false;
        }
        let x = self.node.input[0].clone();
        let (axes, steps) = (self.integers("axes", &[2, 3]), self.integers("steps", &[height, width]));
        // The last window is whole, so the first of its rows ends before the others do.
        let end = |place: i64, length: i64| if place + 1 == length { i64::MAX } else { place + 1 - length };
        let mut slices = Vec::new();
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
            let from = self.integers("from", &[row, column]);
            let to = self.integers("to", &[end(row, height), end(column, width)]);
            slices.push(self.push("Slice", &[&x, &from, &to, &axes, &steps], Vec::new()));
        }
        self.last("Max", slices);
        true
    }

    /// The transformation of layouts of ONNX Runtime 1.31 takes paddings of some axes for those of all.
    fn pad_all_axes(&mut self, ranks: &HashMap<String, usize>, constants: &HashMap<String, Vec<i64>>) -> bool {
        let constant = |place: usize| self.node.input.get(place).and_then(|name| constants.get(name));
        let (Some(pads), Some(axes)) = (constant(1), constant(3)) else { return false };
        let Some(&rank) = self.node.input.first().and_then(|x| ranks.get(x)) else { return false };
        let mut all = vec![0; 2 * rank];
        if pads.len() != 2 * axes.len() {
            return false;
        }
        for (place, &axis) in axes.iter().enumerate() {
            let axis = usize::try_from(if axis < 0 { axis + rank as i64 } else { axis });
            let Some(axis) = axis.ok().filter(|axis| *axis < rank) else { return false };
            (all[axis], all[rank + axis]) = (pads[place], pads[axes.len() + place]);
        }
        let pads = self.integers("pads", &all);
        let mut input = self.node.input[..3].to_vec();
        input[1] = pads;
        if input[2].is_empty() {
            input.pop();
        }
        self.nodes.push(NodeProto { input, ..self.node.clone() });
        true
    }

    /// Adds the node that makes what the replaced node made.
    fn last(&mut self, operator: &str, input: Vec<String>) {
        let name = self.take(operator);
        self.nodes.push(NodeProto {
            name: Some(name),
            op_type: Some(operator.into()),
            input,
            output: self.node.output.clone(),
            ..NodeProto::default()
        });
    }

    /// A name below the node's that nothing else has.
    fn take(&mut self, part: &str) -> String {
        let output = self.node.output.first().map_or("", String::as_str);
        let base = if self.node.name().is_empty() { output } else { self.node.name() };
        self.names.take(&format!("{base}/{part}"))
    }

    fn push(&mut self, operator: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        let name = self.take(operator);
        self.nodes.push(NodeProto {
            name: Some(name.clone()),
            op_type: Some(operator.into()),
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![name.clone()],
            attribute,
            ..NodeProto::default()
        });
        name
    }

    fn integers(&mut self, part: &str, values: &[i64]) -> String {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.weight(part, DataType::Int64, &[values.len() as i64], raw)
    }

    fn weight(&mut self, part: &str, data_type: DataType, dims: &[i64], raw: Vec<u8>) -> String {
        let name = self.take(part);
        self.weights.push(TensorProto {
            name: Some(name.clone()),
            data_type: Some(data_type as i32),
            dims: dims.to_vec(),
            raw_data: Some(raw.into()),
            ..TensorProto::default()
        });
        name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use std::collections::HashSet;

    use super::*;
    use crate::proto::GraphProto;
    use crate::proto::{ModelProto, OperatorSetIdProto};

    /// The nodes of a graph of one node, after the change.
    fn changed(node: NodeProto, weights: Vec<TensorProto>) -> Vec<NodeProto> {
        let model = ModelProto {
            opset_import: vec![OperatorSetIdProto { version: Some(23), ..OperatorSetIdProto::default() }],
            graph: Some(GraphProto { node: vec![node], initializer: weights, ..GraphProto::default() }),
            ..ModelProto::default()
        };
        let bytes = for_cuda(&model.encode_to_vec(), Path::new("model.onnx")).unwrap();
        decode_message(bytes.as_slice(), Path::new("model.onnx")).unwrap().graph.unwrap().node
    }

    fn node(operator: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let op_type = Some(operator.to_owned());
        NodeProto { op_type, input: names(inputs), output: names(outputs), attribute, ..NodeProto::default() }
    }

    #[test]
    fn nodes_that_break_the_rules_stay_as_they_are() {
        let numbers = |name: &str, values: &[i64]| TensorProto {
            name: Some(name.into()),
            data_type: Some(DataType::Int64 as i32),
            dims: vec![values.len() as i64],
            int64_data: values.to_vec(),
            ..TensorProto::default()
        };
        let windows = |sizes: &[i64]| vec![integers("kernel_shape", sizes), integers("strides", sizes)];
        let around = |pads: &[i64], strides: &[i64]| vec![integers("pads", pads), integers("strides", strides)];
        let (most, least) = (i64::MAX, i64::MIN);
        for broken in [
            node("MaxPool", &[], &["y"], windows(&[2, 2])),
            node("MaxPool", &["x"], &[], windows(&[2, 2])),
            node("MaxPool", &["x"], &["y"], windows(&[-2, -2])),
            node("MaxPool", &["x"], &["y"], windows(&[most, most])),
            node("MaxPool", &["x"], &["y"], windows(&[2])),
            node("InstanceNormalization", &["x"], &["y"], Vec::new()),
            node("InstanceNormalization", &["x", "s", "b"], &[], Vec::new()),
            node("ConvTranspose", &["x", "w"], &["y"], around(&[most, 0, least, 0], &[2, 2])),
            node("ConvTranspose", &["x", "w"], &["y"], around(&[most, 0, 0, 0], &[most, 2])),
            node("ConvTranspose", &["x", "w"], &["y"], around(&[1, 1, 0], &[2, 2])),
            node("Pad", &["x", "pads", "", "axes"], &[], Vec::new()),
        ] {
            let weights = vec![numbers("pads", &[1, 1]), numbers("axes", &[least])];
            let found = changed(broken.clone(), weights);
            let operators: Vec<&str> = found.iter().map(NodeProto::op_type).collect();
            assert_eq!(operators, [broken.op_type()], "{broken:?}");
        }
    }

    #[test]
    fn names_that_are_taken_are_not_given_again() {
        let taken: Vec<String> =
            (1..40).map(|number| format!("y/Shape.{number}")).chain(["y/Shape".to_owned()]).collect();
        let weights = taken.iter().map(|name| TensorProto { name: Some(name.clone()), ..TensorProto::default() });
        let found = changed(node("InstanceNormalization", &["x", "s", "b"], &["y"], Vec::new()), weights.collect());
        let made: HashSet<&String> = found.iter().flat_map(|node| &node.output).collect();
        assert!(found.len() == made.len() && taken.iter().all(|name| !made.contains(name)), "{made:?}");
    }
}
