//! FP32 graphs that round as a graph in FP16 or BF16 does.

use super::half::to;
use super::{Names, Patch, Rule, apply, only_moves, reads};
use crate::{DataType, Model, Node, Result, Weight};
use std::collections::{HashMap, HashSet};

/// The model in FP32, with every value and weight rounded as `half` rounds it. On a processor without kernels for
/// `half`, it computes the results of a half-precision engine that keeps sums in FP32.
///
/// `model` is a result of [`to_half`](super::to_half).
///
/// # Errors
/// A weight cannot be cast, or the result breaks the operators' rules.
pub fn rounding_to(model: &Model, half: DataType) -> Result<Model> {
    let mut wider = model.clone();
    let mut stored = HashMap::new();
    for (name, weight) in wider.weights.iter_mut().filter(|(_, weight)| weight.data_type() == half) {
        if weight.elements() >= STORED_FROM {
            stored.insert(name.clone(), weight.clone());
        }
        *weight = weight.cast(DataType::F32)?;
    }
    let mut rounded = apply(&wider, &mut Rounding { model, half })?;
    rounded.weights.retain(|name, _| !stored.contains_key(name));
    apply(&rounded, &mut WidenedWhenRead { stored, widened: HashSet::new() })
}

/// From this number of elements on, a weight stays in half precision and is cast before its first reader. The graph's
/// file then has half the size, and can point into the file that the weights come from. Smaller weights are stored in
/// FP32, because an operator may need them as constants.
const STORED_FROM: usize = 1 << 12;

/// Casts weights before the first node that reads them.
struct WidenedWhenRead {
    /// The weights in half precision, by the names that nodes read them under in FP32.
    stored: HashMap<String, Weight>,
    widened: HashSet<String>,
}

impl Rule for WidenedWhenRead {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let read: Vec<&String> = reads(node)
            .filter_map(|name| self.stored.get_key_value(name).map(|(name, _)| name))
            .filter(|name| self.widened.insert((*name).clone()))
            .collect();
        if read.is_empty() {
            return Ok(None);
        }
        let mut patch = Patch::new(names);
        for name in read {
            let weight = patch.weight(&format!("{name}/stored"), self.stored[name].clone());
            patch.node_for(name, &format!("{name}/widened"), "Cast", &[&weight], [to(DataType::F32)]);
        }
        patch.push(node.clone());
        Ok(Some(patch))
    }
}

struct Rounding<'a> {
    /// The model in half precision, with its types.
    model: &'a Model,
    half: DataType,
}

impl Rule for Rounding<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let mut patch = Patch::new(names);
        let (to_half, to_f32) = (to(self.half), to(DataType::F32));
        if node.operator == "Cast" && node.attributes.get("to") == Some(&to_half.1) {
            let rounded = patch.node(&format!("{}/rounded", node.name), "Cast", &[&node.inputs[0]], [to_half]);
            patch.substitute(node, "Cast", &[&rounded], [to_f32]);
            return Ok(Some(patch));
        }
        let is_half = |name: &String| self.model.types.get(name).is_some_and(|ty| ty.data_type == self.half);
        if only_moves(node) || !node.outputs.iter().any(is_half) {
            return Ok(None);
        }
        let (mut exact_node, mut rounded_outputs) = (node.clone(), Vec::new());
        for output in exact_node.outputs.iter_mut().filter(|output| is_half(output)) {
            let exact = patch.name(&format!("{output}/exact"));
            rounded_outputs.push((exact.clone(), std::mem::replace(output, exact)));
        }
        patch.push(exact_node);
        for (exact, output) in rounded_outputs {
            let rounded = patch.node(&format!("{}/rounded", node.name), "Cast", &[&exact], [to_half.clone()]);
            patch.node_for(&output, &format!("{}/widened", node.name), "Cast", &[&rounded], [to_f32.clone()]);
        }
        Ok(Some(patch))
    }
}
