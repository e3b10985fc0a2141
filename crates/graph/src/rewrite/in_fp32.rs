//! Nodes that compute in FP32 within a graph in half precision.

use super::half::to;
use super::{Names, Patch, Rule, apply};
use crate::{DataType, Model, Node, Result};

/// The model with the nodes at positions that `selected` marks in FP32, between Casts: weights become FP32 and results
/// are rounded to `half` (f16 or bf16) as before.
///
/// # Errors
/// `selected` does not have one entry for each node, a weight cannot be cast, or the result breaks the operators'
/// rules.
pub fn in_fp32(model: &Model, half: DataType, selected: &[bool]) -> Result<Model> {
    super::one_for_each_node(model, selected)?;
    apply(model, &mut InFp32 { model, half, selected })
}

struct InFp32<'a> {
    /// The original model, with its types.
    model: &'a Model,
    half: DataType,
    selected: &'a [bool],
}

impl Rule for InFp32<'_> {
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        if !self.selected[position] {
            return Ok(None);
        }
        let is_half = |name: &str| self.model.type_of(name).is_some_and(|ty| ty.data_type == self.half);
        let (mut patch, mut node) = (Patch::new(names), node.clone());
        for input in node.inputs.iter_mut().filter(|input| !input.is_empty() && is_half(input)) {
            let base = format!("{input}/f32");
            *input = match self.model.weights.get(input) {
                Some(weight) => patch.weight(&base, weight.cast(DataType::F32)?),
                None => patch.node(&base, "Cast", &[input], [to(DataType::F32)]),
            };
        }
        let mut narrowed = Vec::new();
        for output in node.outputs.iter_mut().filter(|output| !output.is_empty() && is_half(output)) {
            let wide = patch.name(&format!("{output}/f32"));
            narrowed.push((wide.clone(), std::mem::replace(output, wide)));
        }
        patch.push(node);
        for (wide, output) in narrowed {
            patch.node_for(&output, &format!("{output}/Cast"), "Cast", &[&wide], [to(self.half)]);
        }
        Ok(Some(patch))
    }
}
