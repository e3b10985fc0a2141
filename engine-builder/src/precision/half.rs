//! FP16 and BF16: typed tensors, with a Cast wherever two types meet.
//!
//! The model's inputs and outputs stay FP32: pixels come from 8 or 16 bits and go back there, the runtime's buffers are
//! the same for every engine, and one Cast at each end costs next to nothing.

use super::rewrite::{Rewrite, readers, reads, with_plain_weights};
use crate::Result;
use std::collections::{BTreeSet, HashMap, HashSet};
use tileforge_graph::{Attribute, DataType, Model, Node, Opset};

/// The model with weights and activations in `half`, f16 or bf16. The nodes of `islands`, and those that [`stays_fp32`]
/// names, compute in FP32.
///
/// # Errors
/// A weight cannot be cast, or the result does not fit the operators' rules.
pub(crate) fn to_half(model: &Model, half: DataType, islands: &BTreeSet<String>) -> Result<Model> {
    let model = with_plain_weights(model)?;
    let single = fp32_nodes(&model, islands);
    let (rewrite, nodes) = Rewrite::of(&model);
    let mut pass = Pass { rewrite, half, model: &model, alias: HashMap::new(), typed: HashMap::new() };
    for (node, single) in nodes.into_iter().zip(single) {
        pass.add(node, single);
    }
    pass.rewrite.model.opsets.iter_mut().for_each(|set| {
        // Conv, InstanceNormalization and others take bfloat16 from opset 22 on.
        if half == DataType::Bf16 && set.domain.is_empty() {
            *set = Opset { version: set.version.max(BF16_OPSET), ..set.clone() };
        }
    });
    if half == DataType::Bf16 {
        pass.rewrite.model.ir_version = pass.rewrite.model.ir_version.max(BF16_IR_VERSION);
    }
    pass.rewrite.finish()
}

const BF16_OPSET: i64 = 22;
/// The file format that came with it (<https://github.com/onnx/onnx/blob/main/docs/Versioning.md>).
const BF16_IR_VERSION: i64 = 10;

/// Operators that compute positions or long sums, where 11 bits lose whole pixels whatever the values are.
fn stays_fp32(node: &Node) -> bool {
    matches!(
        node.operator.as_str(),
        "GridSample" | "CumSum" | "Sin" | "Cos" | "Exp" | "Pow" | "Range" | "ReduceSum" | "ReduceMean"
    )
}

/// Operators that move or select elements and so work on any type.
pub(super) fn only_moves(node: &Node) -> bool {
    node.domain.is_empty()
        && matches!(
            node.operator.as_str(),
            "Concat"
                | "DepthToSpace"
                | "Expand"
                | "Flatten"
                | "Gather"
                | "GatherND"
                | "Identity"
                | "Pad"
                | "Reshape"
                | "Slice"
                | "SpaceToDepth"
                | "Split"
                | "Squeeze"
                | "Transpose"
                | "Unsqueeze"
        )
}

/// Whether a value is of the type that a node computes in: those that are not say sizes, positions or scales.
fn follows_the_type(model: &Model, node: &Node, input: usize) -> bool {
    let is_f32 = model.type_of(&node.inputs[input]).is_some_and(|ty| ty.data_type == DataType::F32);
    is_f32 && !(node.operator == "Resize" && input > 0)
}

/// For each node, whether it computes in FP32.
fn fp32_nodes(model: &Model, islands: &BTreeSet<String>) -> Vec<bool> {
    let nodes = &model.nodes;
    // Values that positions are computed of: back from every grid, up to the layers that predict it.
    let mut positions: HashSet<&str> = HashSet::new();
    let mut single = vec![false; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        let of_positions = node.outputs.iter().any(|name| positions.contains(name.as_str()));
        // A Cast says its type itself.
        single[index] = islands.contains(&node.name) || stays_fp32(node) || of_positions || node.operator == "Cast";
        let predicts = matches!(node.operator.as_str(), "Conv" | "Gemm" | "MatMul");
        if node.operator == "GridSample" {
            positions.extend(node.inputs.get(1).map(String::as_str));
        } else if of_positions && !predicts {
            positions.extend(reads(node));
        } else if of_positions {
            single[index] = islands.contains(&node.name);
        }
    }
    // What only moves values between FP32 nodes does so in FP32, which saves a Cast at both ends; and codes that they
    // alone read become FP32 at once, since they may stand for what FP16 cannot hold.
    let readers = readers(nodes);
    for (index, node) in nodes.iter().enumerate().rev() {
        let mut next = node.outputs.iter().flat_map(|name| readers.get(name.as_str()).into_iter().flatten()).peekable();
        if (only_moves(node) || node.operator == "DequantizeLinear")
            && next.peek().is_some()
            && next.all(|reader| single[*reader])
        {
            single[index] = true;
        }
    }
    single
}

struct Pass<'a> {
    rewrite: Rewrite,
    half: DataType,
    /// The model before, with its types.
    model: &'a Model,
    /// Where a value is made in `half`: the name that it has there.
    alias: HashMap<String, String>,
    /// Values and weights in their other type, so that each is cast once.
    typed: HashMap<(String, DataType), String>,
}

impl Pass<'_> {
    fn add(&mut self, mut node: Node, single: bool) {
        let wanted = if single { DataType::F32 } else { self.half };
        for input in 0..node.inputs.len() {
            let name = node.inputs[input].clone();
            if name.is_empty() {
                continue;
            }
            // Sizes are read of whatever type there is.
            let data_type = match node.operator.as_str() {
                "Shape" => self.alias.get(&name).map_or(DataType::F32, |_| self.half),
                _ if follows_the_type(self.model, &node, input) => wanted,
                _ => DataType::F32,
            };
            let is_float = self.model.type_of(&name).is_some_and(|ty| ty.data_type == DataType::F32);
            if is_float {
                node.inputs[input] = self.value(&name, data_type);
            }
        }
        let mut outputs = Vec::new();
        for output in &mut node.outputs {
            let is_float = self.model.types.get(output).is_some_and(|ty| ty.data_type == DataType::F32);
            if single || !is_float {
                continue;
            }
            if self.rewrite.model.outputs.iter().any(|port| port.name == *output) {
                let half = self.rewrite.name(&format!("{output}/{}", self.half));
                outputs.push((output.clone(), half.clone()));
                self.alias.insert(output.clone(), half.clone());
                *output = half;
            } else {
                self.alias.insert(output.clone(), output.clone());
            }
        }
        self.rewrite.model.nodes.push(node);
        for (output, half) in outputs {
            let name = self.rewrite.name(&format!("{output}/Cast"));
            let to = [("to", Attribute::from(i64::from(DataType::F32.to_onnx())))];
            self.rewrite.node_with_outputs(&name, "Cast", &[&half], &to, std::slice::from_ref(&output));
            self.typed.insert((output.clone(), DataType::F32), output);
        }
    }

    /// The name of an FP32 value of the model before, in a type.
    fn value(&mut self, name: &str, data_type: DataType) -> String {
        let is = if self.alias.contains_key(name) { self.half } else { DataType::F32 };
        if is == data_type {
            return self.alias.get(name).cloned().unwrap_or_else(|| name.to_owned());
        }
        let key = (name.to_owned(), data_type);
        if let Some(known) = self.typed.get(&key) {
            return known.clone();
        }
        let made = match self.model.weights.get(name).map(|weight| weight.cast(data_type)) {
            // `with_plain_weights` has left floats only, and those can be cast.
            Some(Ok(weight)) => self.rewrite.weight(&format!("{name}/{data_type}"), weight),
            _ => {
                let from = self.alias.get(name).cloned().unwrap_or_else(|| name.to_owned());
                let to = [("to", Attribute::from(i64::from(data_type.to_onnx())))];
                self.rewrite.node(&format!("{name}/{data_type}"), "Cast", &[&from], &to)
            }
        };
        self.typed.insert(key, made.clone());
        made
    }
}

/// The model in FP32 with every value and weight rounded as `half` rounds it: what a half-precision engine computes
/// where sums are kept in FP32, for processors that have no kernels of that type.
///
/// `model` is the result of [`to_half`].
///
/// # Errors
/// The result does not fit the operators' rules.
pub(crate) fn emulated(model: &Model, half: DataType) -> Result<Model> {
    let (mut rewrite, nodes) = Rewrite::of(model);
    let [to_half, to_f32] = [half, DataType::F32].map(|to| [("to", Attribute::from(i64::from(to.to_onnx())))]);
    for weight in rewrite.model.weights.values_mut() {
        if weight.data_type() == half {
            *weight = weight.cast(DataType::F32)?;
        }
    }
    for mut node in nodes {
        if node.operator == "Cast" && node.attributes.get("to") == Some(&to_half[0].1) {
            let rounded = rewrite.node(&format!("{}/rounded", node.name), "Cast", &[&node.inputs[0]], &to_half);
            rewrite.node_with_outputs(&node.name, "Cast", &[&rounded], &to_f32, &node.outputs);
            continue;
        }
        let halves: Vec<String> = node
            .outputs
            .iter()
            .filter(|name| model.types.get(*name).is_some_and(|ty| ty.data_type == half))
            .cloned()
            .collect();
        if halves.is_empty() || only_moves(&node) {
            rewrite.model.nodes.push(node);
            continue;
        }
        let mut exact = Vec::new();
        for output in node.outputs.iter_mut().filter(|name| halves.contains(name)) {
            let name = rewrite.name(&format!("{output}/exact"));
            exact.push((name.clone(), std::mem::replace(output, name)));
        }
        let name = node.name.clone();
        rewrite.model.nodes.push(node);
        for (exact, output) in exact {
            let rounded = rewrite.node(&format!("{name}/rounded"), "Cast", &[&exact], &to_half);
            let cast = rewrite.name(&format!("{name}/widened"));
            rewrite.node_with_outputs(&cast, "Cast", &[&rounded], &to_f32, std::slice::from_ref(&output));
        }
    }
    rewrite.finish()
}
