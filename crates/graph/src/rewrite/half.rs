//! FP16 and BF16: typed tensors, with a Cast wherever two types meet.
//!
//! The model's inputs and outputs stay FP32. Pixels have 8 or 16 bits, callers use the same buffers for every
//! precision, and one Cast at each end costs very little.

use super::{Names, Patch, Rule, apply};
use crate::infer::has_rule;
use crate::{Attribute, DataType, Error, Model, Node, Opset, Result};
use std::collections::HashMap;

/// The model with weights and activations in `half` (f16 or bf16). The nodes at positions that `in_fp32` marks compute
/// in FP32.
///
/// The model has no Cast of a weight ([`fold_weight_casts`](super::fold_weight_casts)).
///
/// # Errors
/// `in_fp32` does not have one entry for each node, a weight cannot be cast, or the result breaks the operators' rules.
pub fn to_half(model: &Model, half: DataType, in_fp32: &[bool]) -> Result<Model> {
    if in_fp32.len() != model.nodes.len() {
        let (expected, found) = (model.nodes.len(), in_fp32.len());
        return Err(Error::Graph(format!("expected a precision for each of {expected} nodes, found {found}")));
    }
    let mut rule = ToHalf { model, half, in_fp32, in_half: HashMap::new(), casts: HashMap::new() };
    if half != DataType::Bf16 {
        return apply(model, &mut rule);
    }
    let mut newer = model.clone();
    for set in newer.opsets.iter_mut().filter(|set| set.domain.is_empty()) {
        *set = Opset { version: set.version.max(BF16_OPSET), ..set.clone() };
    }
    newer.ir_version = newer.ir_version.max(BF16_IR_VERSION);
    apply(&newer, &mut rule)
}

/// From this opset on, Conv, InstanceNormalization and other operators accept bfloat16.
const BF16_OPSET: i64 = 22;
/// The file format that came with that opset (<https://github.com/onnx/onnx/blob/main/docs/Versioning.md>).
const BF16_IR_VERSION: i64 = 10;

struct ToHalf<'a> {
    /// The original model, with its types.
    model: &'a Model,
    half: DataType,
    in_fp32: &'a [bool],
    /// The FP32 values of the original model that are now computed in `half`, and their new names.
    in_half: HashMap<String, String>,
    /// Values and weights after a Cast to a type, so that each is cast once.
    casts: HashMap<(String, DataType), String>,
}

impl Rule for ToHalf<'_> {
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let (mut patch, mut node) = (Patch::new(names), node.clone());
        // The output type of an operator without a rule is not known for another input type.
        let in_fp32 = self.in_fp32[position] || !has_rule(&node);
        for index in 0..node.inputs.len() {
            let name = node.inputs[index].clone();
            if name.is_empty() || !self.is_f32(&name) {
                continue;
            }
            let data_type = match node.operator.as_str() {
                // Reads sizes, so any type is right.
                "Shape" => self.type_now(&name),
                // Scales and sizes, which are FP32 in every precision.
                "Resize" if index > 0 => DataType::F32,
                _ if in_fp32 => DataType::F32,
                _ => self.half,
            };
            node.inputs[index] = self.value(&mut patch, &name, data_type)?;
        }
        let mut outputs = Vec::new();
        for output in &mut node.outputs {
            if in_fp32 || self.model.types.get(output).is_none_or(|ty| ty.data_type != DataType::F32) {
                continue;
            }
            if self.model.outputs.iter().any(|port| port.name == *output) {
                let half = patch.name(&format!("{output}/{}", self.half));
                outputs.push((output.clone(), half.clone()));
                self.in_half.insert(output.clone(), half.clone());
                *output = half;
            } else {
                self.in_half.insert(output.clone(), output.clone());
            }
        }
        patch.push(node);
        for (output, half) in outputs {
            patch.node_for(&output, &format!("{output}/Cast"), "Cast", &[&half], [to(DataType::F32)]);
            self.casts.insert((output.clone(), DataType::F32), output);
        }
        Ok(Some(patch))
    }
}

impl ToHalf<'_> {
    /// Whether a value of the original model is FP32.
    fn is_f32(&self, name: &str) -> bool {
        self.model.type_of(name).is_some_and(|ty| ty.data_type == DataType::F32)
    }

    /// The type in which an FP32 value of the original model is made now.
    fn type_now(&self, name: &str) -> DataType {
        if self.in_half.contains_key(name) { self.half } else { DataType::F32 }
    }

    /// The name of an FP32 value of the original model, in a given type.
    fn value(&mut self, patch: &mut Patch<'_>, name: &str, data_type: DataType) -> Result<String> {
        let made = self.in_half.get(name).cloned().unwrap_or_else(|| name.to_owned());
        if self.type_now(name) == data_type {
            return Ok(made);
        }
        let key = (name.to_owned(), data_type);
        if let Some(known) = self.casts.get(&key) {
            return Ok(known.clone());
        }
        let base = format!("{name}/{data_type}");
        let cast = match self.model.weights.get(name) {
            Some(weight) => patch.weight(&base, weight.cast(data_type)?),
            None => patch.node(&base, "Cast", &[&made], [to(data_type)]),
        };
        self.casts.insert(key, cast.clone());
        Ok(cast)
    }
}

/// The attribute of a Cast to a type.
pub(super) fn to(data_type: DataType) -> (&'static str, Attribute) {
    ("to", Attribute::from(i64::from(data_type.to_onnx())))
}
