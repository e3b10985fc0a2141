//! Folds Casts of weights into the weights.

use super::{Names, Patch, Rule, apply};
use crate::{Attribute, DataType, Model, Node, Result, Weight};
use std::collections::HashMap;

/// The model with every Cast of a floating-point weight folded into that weight. The new weight is still a description
/// of the stored bytes: nothing is computed until it is written.
///
/// An exported graph has such a Cast after every weight that is stored in half precision.
///
/// # Errors
/// The result breaks the operators' rules.
pub fn fold_weight_casts(model: &Model) -> Result<Model> {
    apply(model, &mut FoldWeightCasts { model, folded: HashMap::new() })
}

struct FoldWeightCasts<'a> {
    /// The original model.
    model: &'a Model,
    /// Values that became weights, which a later Cast may read.
    folded: HashMap<String, Weight>,
}

impl Rule for FoldWeightCasts<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let ("Cast", [input], [output]) = (node.operator.as_str(), node.inputs.as_slice(), node.outputs.as_slice())
        else {
            return Ok(None);
        };
        let weight = self.folded.get(input).or_else(|| self.model.weights.get(input));
        let target = match node.attributes.get("to") {
            Some(Attribute::Int(number)) => i32::try_from(*number).ok().and_then(DataType::from_onnx),
            _ => None,
        };
        let (Some(weight), Some(target)) = (weight, target) else { return Ok(None) };
        // A node must compute each output of the model.
        let is_output = self.model.outputs.iter().any(|port| port.name == *output);
        if is_output || !weight.data_type().is_float() || !target.is_float() {
            return Ok(None);
        }
        let cast = weight.cast(target)?;
        self.folded.insert(output.clone(), cast.clone());
        let mut patch = Patch::new(names);
        patch.weight_for(output, cast);
        Ok(Some(patch))
    }
}
