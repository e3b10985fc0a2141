//! The facts about a graph that several rules need.

use std::collections::HashSet;

use tileforge_graph::{DataType, Model, Node};

/// A model, with the facts that several rules need.
pub(super) struct Context<'m> {
    pub(super) model: &'m Model,
    /// The values of `Constant` nodes.
    constants: HashSet<&'m str>,
    pub(super) opset: i64,
}

impl<'m> Context<'m> {
    pub(super) fn new(model: &'m Model) -> Self {
        let constants = model.nodes.iter().filter(|node| node.operator == "Constant").flat_map(|node| &node.outputs);
        let opset = model.opsets.iter().find(|set| set.domain.is_empty()).map_or(0, |set| set.version);
        Self { model, constants: constants.map(String::as_str).collect(), opset }
    }

    /// The name of an input, if the node has it.
    pub(super) fn input<'n>(&self, node: &'n Node, position: usize) -> Option<&'n str> {
        node.inputs.get(position).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether a value is known when the engine is built.
    pub(super) fn is_constant(&self, name: &str) -> bool {
        self.model.weights.contains_key(name) || self.constants.contains(name)
    }

    pub(super) fn type_of(&self, name: &str) -> Option<DataType> {
        self.model.type_of(name).map(|ty| ty.data_type)
    }

    pub(super) fn rank(&self, name: &str) -> Option<usize> {
        self.model.type_of(name).map(|ty| ty.dims.len())
    }
}
