//! Models of older operator sets in the operators of a newer one.
//!
//! Each rule follows the operator's entry and its older versions in <https://onnx.ai/onnx/operators/>. Most of them
//! turn an attribute into an input.

use super::Names;
use crate::attribute;
use crate::proto::GraphProto;
use crate::{Attribute, DataType, Error, Model, Node, Opset, Result, Weight};
use std::collections::{BTreeMap, HashSet};

/// The opset that models are converted to: the opset of exported graphs.
const TARGET: i64 = 20;
/// The oldest opset that is converted. In older opsets, attributes control broadcasting.
const OLDEST: i64 = 7;
/// The version of the file format that came with the target
/// (<https://github.com/onnx/onnx/blob/main/docs/Versioning.md>).
const TARGET_IR_VERSION: i64 = 9;

/// Reductions whose axes became an input in opset 18. The axes of ReduceSum became an input in opset 13.
const REDUCTIONS: [&str; 9] = [
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
];

/// The model with the operators of opset 20, if its own opset is older. A model of a newer opset does not change.
///
/// Nodes and values keep their names. `Dropout`, which does nothing outside of training, becomes Identity.
///
/// # Errors
/// [`Error::Node`]: a node cannot be converted; or the model uses an opset before 7.
pub fn to_current_opset(model: &Model) -> Result<Model> {
    let mut made = model.clone();
    made.ir_version = made.ir_version.max(TARGET_IR_VERSION);
    let own = model.opsets.iter().find(|set| set.domain.is_empty()).map(|set| set.version);
    let version = match own {
        Some(version) if version >= TARGET => TARGET,
        Some(version) if version >= OLDEST => version,
        // Without operators of ONNX's own domain, there is nothing to convert.
        None if model.nodes.iter().all(|node| !node.domain.is_empty()) => TARGET,
        found => {
            let found = found.map_or_else(|| "none".to_owned(), |version| version.to_string());
            return Err(Error::Graph(format!("expected an operator set of {OLDEST} or newer, found {found}")));
        }
    };
    for set in made.opsets.iter_mut().filter(|set| set.domain.is_empty()) {
        *set = Opset { version: set.version.max(TARGET), ..set.clone() };
    }
    let mut names = Names::new(model);
    let nodes = std::mem::take(&mut made.nodes);
    let read: HashSet<String> = nodes
        .iter()
        .flat_map(|node| &node.inputs)
        .chain(model.outputs.iter().map(|port| &port.name))
        .cloned()
        .collect();
    let mut added = BTreeMap::new();
    for node in nodes {
        let is_read = |name: &String| read.contains(name);
        let mut conversion = Conversion {
            version,
            model,
            names: &mut names,
            weights: &mut added,
            before: Vec::new(),
            after: Vec::new(),
        };
        let fail = |reason: String| Error::Node { node: node.name.clone(), operator: node.operator.clone(), reason };
        let converted =
            if node.domain.is_empty() { conversion.convert(node.clone(), &is_read).map_err(fail)? } else { node };
        let Conversion { before, after, .. } = conversion;
        made.nodes.extend(before.into_iter().chain([converted]).chain(after));
    }
    made.weights.extend(added);
    Ok(made)
}

struct Conversion<'a> {
    version: i64,
    model: &'a Model,
    names: &'a mut Names,
    weights: &'a mut BTreeMap<String, Weight>,
    /// Nodes that run before the converted one, and behind it.
    before: Vec<Node>,
    after: Vec<Node>,
}

impl Conversion<'_> {
    fn convert(&mut self, mut node: Node, is_read: &impl Fn(&String) -> bool) -> Result<Node, String> {
        let version = self.version;
        let older = |than: i64| version < than;
        let inner = node.attributes.values().flat_map(graphs).find_map(|graph| changed(graph, version));
        if let Some(operator) = inner {
            return Err(format!(
                "it holds a graph with {operator} of opset {version}, which is not converted there; export the network \
                 with opset {TARGET}"
            ));
        }
        match node.operator.as_str() {
            "Upsample" => self.upsample(&mut node)?,
            "Resize" => self.resize(&mut node)?,
            "Slice" if older(10) => {
                for name in ["starts", "ends"] {
                    let values = integers(&mut node, name)?.ok_or_else(|| format!("attribute `{name}` is missing"))?;
                    self.push_integers(&mut node, name, values)?;
                }
                if let Some(axes) = integers(&mut node, "axes")? {
                    self.push_integers(&mut node, "axes", axes)?;
                }
            }
            "TopK" if older(10) => {
                if let Some(Attribute::Int(k)) = node.attributes.remove("k") {
                    self.push_integers(&mut node, "k", vec![k])?;
                }
            }
            "Clip" if older(11) => {
                for name in ["min", "max"] {
                    let bound = match node.attributes.remove(name) {
                        Some(Attribute::Float(bound)) => self.floats(&node, name, &[bound], Vec::new())?,
                        _ => String::new(),
                    };
                    node.inputs.push(bound);
                }
            }
            "Pad" if older(11) => {
                let pads = integers(&mut node, "pads")?.ok_or("attribute `pads` is missing")?;
                self.push_integers(&mut node, "pads", pads)?;
                if let Some(Attribute::Float(value)) = node.attributes.remove("value") {
                    let value = self.floats(&node, "value", &[value], Vec::new())?;
                    node.inputs.push(value);
                }
            }
            "Scatter" => node.operator = "ScatterElements".into(),
            "Dropout" => dropout(&mut node, self.model, is_read)?,
            "Squeeze" | "Unsqueeze" | "ReduceSum" if older(13) => self.axes_as_input(&mut node)?,
            operator if older(18) && REDUCTIONS.contains(&operator) => self.axes_as_input(&mut node)?,
            "Split" => {
                if older(13)
                    && let Some(split) = integers(&mut node, "split")?
                {
                    self.push_integers(&mut node, "split", split)?;
                }
                if older(18) && node.inputs.len() < 2 {
                    let parts = i64::try_from(node.outputs.len()).map_err(|_| "it has too many outputs")?;
                    node.attributes.insert("num_outputs".into(), parts.into());
                }
            }
            "Softmax" | "LogSoftmax" | "Hardmax" if older(13) => self.softmax(&mut node)?,
            "BatchNormalization" if older(14) => {
                if node.int("spatial") == Some(0) {
                    return Err("statistics for each position (`spatial` 0) have no newer form".into());
                }
                if node.outputs.iter().skip(1).any(is_read) {
                    return Err("its outputs for training are read".into());
                }
                node.outputs.truncate(1);
                ["spatial", "is_test", "consumed_inputs"].iter().for_each(|name| drop(node.attributes.remove(*name)));
            }
            "GridSample" if older(20) => {
                let mode = match node.text("mode") {
                    Some("bilinear") | None => "linear",
                    Some("bicubic") => "cubic",
                    Some(other) => other,
                };
                let mode = mode.to_owned();
                node.attributes.insert("mode".into(), Attribute::Text(mode));
            }
            "DFT" if older(20) => return Err("its axis is an attribute, which is not converted".into()),
            _ => {}
        }
        Ok(node)
    }

    /// `scales` is an attribute before opset 9, and an input since. Positions are computed as in opset 9.
    fn upsample(&mut self, node: &mut Node) -> Result<(), String> {
        if let Some(Attribute::Floats(scales)) = node.attributes.remove("scales") {
            let count = scales.len();
            let scales = self.floats(node, "scales", &scales, vec![count])?;
            node.inputs.push(scales);
        }
        node.operator = "Resize".into();
        node.inputs.insert(1.min(node.inputs.len()), String::new());
        asymmetric(node);
        Ok(())
    }

    fn resize(&mut self, node: &mut Node) -> Result<(), String> {
        if self.version < 11 {
            node.inputs.insert(1.min(node.inputs.len()), String::new());
            asymmetric(node);
        }
        if node.text("coordinate_transformation_mode") == Some("tf_half_pixel_for_nn") {
            return Err("the positions `tf_half_pixel_for_nn` are not in newer operator sets".into());
        }
        // Empty scales mean no scales: the sizes follow.
        for name in node.inputs.iter_mut().skip(1) {
            let is_empty = |weight: &Weight| weight.elements() == 0;
            if self.model.weights.get(name).is_some_and(is_empty) {
                name.clear();
            }
        }
        Ok(())
    }

    /// Before opset 13, all axes from `axis` on were one.
    fn softmax(&mut self, node: &mut Node) -> Result<(), String> {
        let axis = node.int("axis").unwrap_or(1);
        node.attributes.insert("axis".into(), Attribute::Int(-1));
        if axis == -1 {
            return Ok(());
        }
        let ([x], [y]) = (node.inputs.as_slice(), node.outputs.as_slice()) else {
            return Err("expected one input and one output".into());
        };
        let (x, y) = (x.clone(), y.clone());
        let flat = self.names.take(&format!("{}/flat", node.name));
        let soft = self.names.take(&format!("{}/soft", node.name));
        let shape = self.names.take(&format!("{}/shape", node.name));
        self.before.push(plain(&flat, "Flatten", &[&x], &flat, [("axis", Attribute::Int(axis))]));
        node.inputs = vec![flat];
        node.outputs = vec![soft.clone()];
        self.after.push(plain(&shape, "Shape", &[&x], &shape, []));
        let back = self.names.take(&format!("{}/back", node.name));
        self.after.push(plain(&back, "Reshape", &[&soft, &shape], &y, []));
        Ok(())
    }

    fn axes_as_input(&mut self, node: &mut Node) -> Result<(), String> {
        match integers(node, "axes")? {
            Some(axes) => self.push_integers(node, "axes", axes),
            None => Ok(()),
        }
    }

    fn push_integers(&mut self, node: &mut Node, name: &str, values: Vec<i64>) -> Result<(), String> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let weight = Weight::from_bytes(DataType::I64, vec![values.len()], bytes).map_err(|e| e.to_string())?;
        let name = self.names.take(&format!("{}/{name}", node.name));
        self.weights.insert(name.clone(), weight);
        node.inputs.push(name);
        Ok(())
    }

    fn floats(&mut self, node: &Node, name: &str, values: &[f32], dims: Vec<usize>) -> Result<String, String> {
        let weight = Weight::from_f32s(dims, values).map_err(|e| e.to_string())?;
        let name = self.names.take(&format!("{}/{name}", node.name));
        self.weights.insert(name.clone(), weight);
        Ok(name)
    }
}

/// Sets the coordinate and rounding modes that Upsample and the first Resize have.
fn asymmetric(node: &mut Node) {
    node.attributes.insert("coordinate_transformation_mode".into(), "asymmetric".into());
    node.attributes.insert("nearest_mode".into(), "floor".into());
}

fn dropout(node: &mut Node, model: &Model, is_read: &impl Fn(&String) -> bool) -> Result<(), String> {
    if node.outputs.get(1).is_some_and(is_read) {
        return Err("its mask is read".into());
    }
    if let Some(mode) = node.inputs.get(2).filter(|name| !name.is_empty()) {
        let is_off =
            model.weights.get(mode).and_then(|weight| weight.to_bytes().ok()).is_some_and(|bytes| *bytes == [0]);
        if !is_off {
            return Err("it is in training mode, or may be; export the network in evaluation mode".into());
        }
    }
    node.operator = "Identity".into();
    node.inputs.truncate(1);
    node.outputs.truncate(1);
    node.attributes.clear();
    Ok(())
}

/// Takes a list of integers from a node's attributes.
fn integers(node: &mut Node, name: &str) -> Result<Option<Vec<i64>>, String> {
    match node.attributes.remove(name) {
        None => Ok(None),
        Some(Attribute::Ints(values)) => Ok(Some(values)),
        Some(_) => Err(format!("expected a list of integers as attribute `{name}`")),
    }
}

fn plain<const N: usize>(
    name: &str,
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: [(&str, Attribute); N],
) -> Node {
    Node {
        name: name.into(),
        operator: operator.into(),
        domain: String::new(),
        inputs: inputs.iter().map(|name| (*name).to_owned()).collect(),
        outputs: vec![output.into()],
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

/// Operators that are converted, with the first opset of their current form.
const CHANGED: [(&str, i64); 17] = [
    ("Upsample", TARGET),
    ("Resize", 11),
    ("Slice", 10),
    ("TopK", 10),
    ("Clip", 11),
    ("Pad", 11),
    ("Scatter", TARGET),
    ("Squeeze", 13),
    ("Unsqueeze", 13),
    ("ReduceSum", 13),
    ("Split", 18),
    ("Softmax", 13),
    ("LogSoftmax", 13),
    ("Hardmax", 13),
    ("BatchNormalization", 14),
    ("GridSample", TARGET),
    ("DFT", TARGET),
];

/// The graphs in an attribute.
fn graphs(attribute: &Attribute) -> impl Iterator<Item = &GraphProto> {
    let other = match attribute {
        Attribute::Other(other) => Some(other),
        _ => None,
    };
    other.into_iter().flat_map(|other| attribute::graphs(other))
}

/// The first operator of a graph, or of a nested graph, that would need conversion. `Budget` limits the nesting to a
/// few levels.
fn changed(graph: &GraphProto, version: i64) -> Option<String> {
    let is_changed = |operator: &str| {
        let since = CHANGED.iter().find(|(name, _)| *name == operator).map(|(_, since)| *since);
        let reduction = REDUCTIONS.contains(&operator).then_some(18);
        since.or(reduction).is_some_and(|since| version < since)
    };
    graph.node.iter().find_map(|node| {
        let own = is_changed(node.op_type()).then(|| node.op_type().to_owned());
        let inner = || node.attribute.iter().flat_map(attribute::graphs).find_map(|graph| changed(graph, version));
        own.or_else(inner)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, NodeProto};
    use crate::{Port, TensorType};

    /// A graph of one node of an operator set, from `x` to `y`.
    fn model(version: i64, operator: &str, attributes: &[(&str, Attribute)]) -> Model {
        let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, [1, 4, 8, 8]) };
        let mut node = plain("node", operator, &["x"], "y", []);
        node.attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Model {
            opsets: vec![Opset { domain: String::new(), version }],
            inputs: vec![port("x")],
            outputs: vec![port("y")],
            nodes: vec![node],
            ..Model::default()
        }
    }

    fn converted(version: i64, operator: &str, attributes: &[(&str, Attribute)]) -> Model {
        let mut made = to_current_opset(&model(version, operator, attributes)).unwrap();
        assert_eq!(made.opsets[0].version, TARGET);
        made.infer_types().unwrap();
        made
    }

    #[test]
    fn attributes_become_inputs() {
        let ints = |values: &[i64]| Attribute::from(values.to_vec());
        let cut = converted(9, "Slice", &[("starts", ints(&[2])), ("ends", ints(&[6])), ("axes", ints(&[3]))]);
        assert_eq!(cut.outputs[0].ty, TensorType::new(DataType::F32, [1, 4, 8, 4]));
        let mean = converted(17, "ReduceMean", &[("axes", ints(&[1]))]);
        assert_eq!(mean.outputs[0].ty, TensorType::new(DataType::F32, [1, 1, 8, 8]));
        let padded =
            converted(10, "Pad", &[("pads", ints(&[0, 0, 1, 1, 0, 0, 1, 1])), ("value", Attribute::Float(0.5))]);
        assert_eq!(padded.outputs[0].ty, TensorType::new(DataType::F32, [1, 4, 10, 10]));
        let large = converted(8, "Upsample", &[("scales", Attribute::Floats(vec![1.0, 1.0, 2.0, 2.0]))]);
        assert_eq!(large.outputs[0].ty, TensorType::new(DataType::F32, [1, 4, 16, 16]));
        assert_eq!(large.nodes[0].text("nearest_mode"), Some("floor"));
        let clipped = converted(10, "Clip", &[("max", Attribute::Float(1.0))]);
        assert_eq!(clipped.nodes[0].inputs, ["x", "", "node/max"]);
    }

    #[test]
    fn softmax_of_older_sets_is_over_all_axes_behind() {
        let soft = to_current_opset(&model(12, "Softmax", &[])).unwrap();
        let operators: Vec<&str> = soft.nodes.iter().map(|node| node.operator.as_str()).collect();
        assert_eq!(operators, ["Flatten", "Softmax", "Shape", "Reshape"]);
        assert_eq!(to_current_opset(&model(13, "Softmax", &[])).unwrap().nodes.len(), 1);
    }

    #[test]
    fn what_cannot_be_converted_is_named() {
        let refused = |made: Model| to_current_opset(&made).unwrap_err().to_string();
        assert!(refused(model(6, "Relu", &[])).contains("7 or newer"));
        let spatial = refused(model(8, "BatchNormalization", &[("spatial", Attribute::Int(0))]));
        assert!(spatial.contains("node `node`") && spatial.contains("spatial"), "{spatial}");
        let branch = |operator: &str| {
            let inner = NodeProto { op_type: Some(operator.into()), ..NodeProto::default() };
            let graph = GraphProto { node: vec![inner], ..GraphProto::default() };
            let attribute = AttributeProto { g: Some(graph), ..AttributeProto::default() };
            model(12, "If", &[("then_branch", Attribute::Other(Box::new(attribute)))])
        };
        assert!(refused(branch("Squeeze")).contains("Squeeze of opset 12"));
        to_current_opset(&branch("Relu")).unwrap();
    }
}
