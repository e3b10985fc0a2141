//! FP32 graphs whose weights are stored in half precision.

use super::half::to;
use super::layers::layer_weight;
use super::{Names, Patch, Rule, apply};
use crate::{DataType, Model, Node, Result};
use std::collections::{BTreeSet, HashMap};

/// The model with weights stored in `half` (f16 or bf16), each behind a Cast to FP32.
///
/// This applies to the weights of the layers in `rounded`, and to the weights of any node that were widened from
/// `half`, so that nothing is lost.
///
/// The model has no Cast of a weight ([`fold_weight_casts`](super::fold_weight_casts)).
///
/// # Errors
/// The result breaks the operators' rules.
pub fn weights_in_half(model: &Model, half: DataType, rounded: &BTreeSet<String>) -> Result<Model> {
    apply(model, &mut StoredHalf { model, half, rounded, casts: HashMap::new() })
}

struct StoredHalf<'a> {
    model: &'a Model,
    half: DataType,
    rounded: &'a BTreeSet<String>,
    /// Weights behind their Cast.
    casts: HashMap<String, String>,
}

impl Rule for StoredHalf<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let is_rounded = layer_weight(self.model, node).is_some() && self.rounded.contains(&node.name);
        let (mut patch, mut node) = (Patch::new(names), node.clone());
        let mut is_changed = false;
        for (position, input) in node.inputs.iter_mut().enumerate() {
            let Some(weight) = self.model.weights.get(input).filter(|weight| weight.data_type() == DataType::F32)
            else {
                continue;
            };
            if !(is_rounded && position == 1 || weight.is_widened_from(self.half)) {
                continue;
            }
            let cast = match self.casts.get(input) {
                Some(cast) => cast.clone(),
                None => {
                    let stored = patch.weight(&format!("{input}/{}", self.half), weight.cast(self.half)?);
                    patch.node(&format!("{input}/Cast"), "Cast", &[&stored], [to(DataType::F32)])
                }
            };
            self.casts.insert(input.clone(), cast.clone());
            *input = cast;
            is_changed = true;
        }
        patch.push(node);
        Ok(is_changed.then_some(patch))
    }
}
