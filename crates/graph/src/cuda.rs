//! Graphs in a form that ONNX Runtime's CUDA provider runs whole.

use std::collections::HashSet;
use std::path::Path;

use prost::Message;

use crate::message::decode_message;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::tensor_proto::DataType;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use crate::{Error, Result};

/// The first opset whose InstanceNormalization the CUDA provider of ONNX Runtime 1.31 has no kernel for.
const WITHOUT_INSTANCE_NORMALISATION: i64 = 22;
/// InstanceNormalization's default.
const EPSILON: f32 = 1e-5;

/// The ONNX file with these bytes for ONNX Runtime's CUDA provider, which would run these nodes on the processor:
///
/// - InstanceNormalization of opset 22 and later becomes means, differences and products, in FP32.
/// - A ConvTranspose whose padding begins wider than it ends gets the same padding on both sides, and the difference as
///   `output_padding`. This is the same convolution.
///
/// `path` is the file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn for_cuda(bytes: &[u8], path: &Path) -> Result<Vec<u8>> {
    let mut model = decode_message(bytes, path)?;
    let opset = model.opset_import.iter().find(|opset| is_standard(opset.domain())).map_or(0, |opset| opset.version());
    let Some(graph) = &mut model.graph else { return Err(Error::format(path, "it has no graph")) };
    graph.node.iter_mut().filter(|node| is(node, "ConvTranspose")).for_each(pad_both_sides);
    if opset >= WITHOUT_INSTANCE_NORMALISATION {
        let mut names = names(graph);
        let mut added = Vec::new();
        let nodes = std::mem::take(&mut graph.node);
        for node in nodes {
            if is(&node, "InstanceNormalization") && node.input.len() == 3 && node.output.len() == 1 {
                let mut parts = Parts { node: &node, names: &mut names, nodes: &mut graph.node, weights: &mut added };
                parts.normalise();
            } else {
                graph.node.push(node);
            }
        }
        graph.initializer.append(&mut added);
    }
    Ok(model.encode_to_vec())
}

fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

fn is(node: &NodeProto, operator: &str) -> bool {
    node.op_type() == operator && is_standard(node.domain())
}

/// Every name of a node, a value or a weight.
fn names(graph: &GraphProto) -> HashSet<String> {
    let nodes =
        graph.node.iter().flat_map(|node| node.input.iter().chain(&node.output).cloned().chain([node.name().into()]));
    let weights = graph.initializer.iter().map(|tensor| tensor.name().to_owned());
    nodes.chain(weights).collect()
}

fn integers(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Ints as i32),
        ints: values.to_vec(),
        ..AttributeProto::default()
    }
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
        let more = pads[axis] - pads[axes + axis];
        if more < 0 || output[axis] + more >= strides[axis].max(1) && more > 0 {
            return;
        }
        pads[axes + axis] += more;
        output[axis] += more;
    }
    node.attribute.retain(|attribute| !matches!(attribute.name(), "pads" | "output_padding"));
    node.attribute.extend([integers("pads", &pads), integers("output_padding", &output)]);
}

/// What replaces one InstanceNormalization.
struct Parts<'p> {
    node: &'p NodeProto,
    names: &'p mut HashSet<String>,
    nodes: &'p mut Vec<NodeProto>,
    weights: &'p mut Vec<TensorProto>,
}

impl Parts<'_> {
    fn normalise(&mut self) {
        let [x, scale, bias] = [0, 1, 2].map(|place| self.node.input[place].clone());
        let epsilon = self.node.attribute.iter().find(|attribute| attribute.name() == "epsilon");
        let epsilon = epsilon.map_or(EPSILON, AttributeProto::f);
        let rows = self.integers("rows", &[0, 0, -1]);
        let last = self.integers("last", &[2]);
        let of_channels = self.integers("channels", &[1, -1, 1]);
        let epsilon = self.weight("epsilon", DataType::Float, &[], epsilon.to_le_bytes().to_vec());

        let shape = self.push("Shape", &[&x], Vec::new());
        let flat = self.push("Reshape", &[&x, &rows], Vec::new());
        let to = AttributeProto {
            name: Some("to".into()),
            r#type: Some(AttributeType::Int as i32),
            i: Some(DataType::Float as i64),
            ..AttributeProto::default()
        };
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
        let name = self.take("Reshape");
        self.nodes.push(NodeProto {
            name: Some(name),
            op_type: Some("Reshape".into()),
            input: vec![moved, shape],
            output: self.node.output.clone(),
            ..NodeProto::default()
        });
    }

    /// A name below the node's that nothing else has.
    fn take(&mut self, part: &str) -> String {
        let base = if self.node.name().is_empty() { self.node.output[0].as_str() } else { self.node.name() };
        let names = (0_usize..).map(|number| format!("{base}/{part}.{number}"));
        let name = names.into_iter().find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(name.clone());
        name
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
