//! What every pass over a graph needs: who reads a value, names that are free, nodes and constants.

use crate::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tileforge_graph::{Attribute, DataType, Model, Node, Weight};

/// A model under construction: passes move nodes into it one by one, with others before and after them.
pub(super) struct Rewrite {
    pub(super) model: Model,
    names: HashSet<String>,
}

impl Rewrite {
    /// An empty graph with everything of `model` but its nodes, which are returned.
    pub(super) fn of(model: &Model) -> (Self, Vec<Node>) {
        let mut model = model.clone();
        let nodes = std::mem::take(&mut model.nodes);
        let made = nodes.iter().flat_map(|node| node.outputs.iter().chain([&node.name]));
        let fed = model.inputs.iter().map(|port| &port.name).chain(model.weights.keys());
        let names = made.chain(fed).cloned().collect();
        (Rewrite { model, names }, nodes)
    }

    /// A name that nothing has yet: `base`, or `base.1`, `base.2`, …
    pub(super) fn name(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 0_u64;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}.{number}");
        }
        name
    }

    /// Adds a node with one output, which has the node's name.
    pub(super) fn node(
        &mut self,
        base: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> String {
        let name = self.name(base);
        self.node_with_outputs(&name, operator, inputs, attributes, std::slice::from_ref(&name));
        name
    }

    /// Adds a node whose names are known to be free.
    pub(super) fn node_with_outputs(
        &mut self,
        name: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        outputs: &[String],
    ) {
        self.model.nodes.push(Node {
            name: name.into(),
            operator: operator.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            outputs: outputs.to_vec(),
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect::<BTreeMap<_, _>>(),
        });
    }

    /// Adds a weight.
    pub(super) fn weight(&mut self, base: &str, weight: Weight) -> String {
        let name = self.name(base);
        self.model.weights.insert(name.clone(), weight);
        name
    }

    /// The finished model: what nothing reads is gone, and types are inferred again, which holds the pass to the
    /// operators' rules.
    pub(super) fn finish(mut self) -> Result<Model> {
        remove_unread(&mut self.model);
        self.model.infer_types()?;
        Ok(self.model)
    }
}

/// The values that a node reads.
pub(super) fn reads(node: &Node) -> impl Iterator<Item = &str> {
    node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty())
}

/// Positions of the nodes that read each value.
pub(super) fn readers(nodes: &[Node]) -> HashMap<&str, Vec<usize>> {
    let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
    for (position, node) in nodes.iter().enumerate() {
        for name in reads(node) {
            readers.entry(name).or_default().push(position);
        }
    }
    readers
}

/// The position of the one node that reads a value, if it is one alone.
pub(super) fn only_reader(readers: &HashMap<&str, Vec<usize>>, value: &str) -> Option<usize> {
    match readers.get(value).map(Vec::as_slice) {
        Some([position]) => Some(*position),
        _ => None,
    }
}

/// Drops nodes and weights that no output depends on.
pub(super) fn remove_unread(model: &mut Model) {
    let mut needed: HashSet<String> = model.outputs.iter().map(|port| port.name.clone()).collect();
    let mut kept = Vec::with_capacity(model.nodes.len());
    for node in std::mem::take(&mut model.nodes).into_iter().rev() {
        if node.outputs.iter().any(|name| needed.contains(name)) {
            needed.extend(reads(&node).map(str::to_owned));
            kept.push(node);
        }
    }
    kept.reverse();
    model.nodes = kept;
    model.weights.retain(|name, _| needed.contains(name));
}

/// The model with every stored half-precision weight as the FP32 weight that it is computed with: the exporter's Cast
/// behind it becomes part of the weight, which stays a description of the stored bytes.
pub(super) fn with_plain_weights(model: &Model) -> Result<Model> {
    let (mut rewrite, nodes) = Rewrite::of(model);
    for node in nodes {
        let weight = node.inputs.first().and_then(|name| rewrite.model.weights.get(name));
        let target = match node.attributes.get("to") {
            Some(Attribute::Int(number)) => i32::try_from(*number).ok().and_then(DataType::from_onnx),
            _ => None,
        };
        match (node.operator.as_str(), weight, target) {
            ("Cast", Some(weight), Some(target)) if weight.data_type().is_float() && target.is_float() => {
                let cast = weight.cast(target)?;
                // An output keeps its node: nothing but nodes may make one.
                if rewrite.model.outputs.iter().any(|port| node.outputs.contains(&port.name)) {
                    rewrite.model.nodes.push(node);
                } else {
                    rewrite.model.weights.insert(node.outputs[0].clone(), cast);
                }
            }
            _ => rewrite.model.nodes.push(node),
        }
    }
    rewrite.finish()
}

/// Names of the nodes that hold most of the arithmetic and of the weights: convolutions and matrix products with a
/// constant weight.
pub(super) fn layers(model: &Model) -> Vec<String> {
    model.nodes.iter().filter(|node| is_layer(model, node)).map(|node| node.name.clone()).collect()
}

/// Whether a node is one of [`layers`].
pub(super) fn is_layer(model: &Model, node: &Node) -> bool {
    let weight = node.inputs.get(1).and_then(|name| model.weights.get(name));
    let matrix = |weight: &Weight| node.operator == "Conv" || weight.dims().len() == 2;
    node.domain.is_empty()
        && matches!(node.operator.as_str(), "Conv" | "Gemm" | "MatMul")
        && weight.is_some_and(matrix)
        && node.inputs.first().is_some_and(|name| !model.weights.contains_key(name))
}

/// Names of the nodes that are not in `chosen`.
pub(super) fn all_but(model: &Model, chosen: &BTreeSet<String>) -> BTreeSet<String> {
    model.nodes.iter().map(|node| node.name.clone()).filter(|name| !chosen.contains(name)).collect()
}
