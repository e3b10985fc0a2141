//! The graph that a receptive field is found in.

use super::field::Field;
use crate::{Model, Node};
use std::collections::HashMap;

/// A model of fixed sizes, and the fields of the values so far. Values without a field are constants.
pub(super) struct Graph<'m> {
    pub(super) model: &'m Model,
    pub(super) dims: HashMap<&'m str, Vec<usize>>,
    pub(super) fields: HashMap<&'m str, Field>,
}

impl Graph<'_> {
    pub(super) fn dims(&self, node: &Node, index: usize) -> Result<&[usize], String> {
        let name = node.inputs.get(index).map_or("", String::as_str);
        self.dims.get(name).map(Vec::as_slice).ok_or_else(|| format!("the sizes of its input {index} are not known"))
    }

    pub(super) fn output_dims(&self, node: &Node) -> Result<&[usize], String> {
        let name = node.outputs.first().map_or("", String::as_str);
        self.dims.get(name).map(Vec::as_slice).ok_or_else(|| "the sizes of its output are not known".to_owned())
    }

    pub(super) fn field(&self, node: &Node, index: usize) -> Option<&Field> {
        self.fields.get(node.inputs.get(index)?.as_str())
    }

    /// The constant integers of an input, if the node has this input.
    pub(super) fn integers(&self, node: &Node, index: usize) -> Result<Option<Vec<i64>>, String> {
        let Some(name) = node.inputs.get(index).filter(|name| !name.is_empty()) else { return Ok(None) };
        let weight = self.model.weights.get(name).filter(|weight| weight.elements() <= 1 << 16);
        weight
            .and_then(|weight| weight.to_i64s().ok())
            .map(Some)
            .ok_or_else(|| format!("its input {index} is no constant"))
    }
}
