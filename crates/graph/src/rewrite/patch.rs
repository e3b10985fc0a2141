//! The replacement of one node.

use crate::{Attribute, Model, Node, Weight};
use std::collections::{HashMap, HashSet};

/// The names that a graph uses, for nodes and for values.
#[derive(Debug)]
pub struct Names {
    used: HashSet<String>,
    /// The last number behind each base.
    numbers: HashMap<String, u64>,
}

impl Names {
    /// The names of a model.
    pub fn new(model: &Model) -> Self {
        let nodes = model.nodes.iter().flat_map(|node| node.outputs.iter().chain([&node.name]));
        let inputs = model.inputs.iter().map(|port| &port.name);
        Self::of(nodes.chain(inputs).chain(model.weights.keys()).cloned())
    }

    pub(crate) fn of(used: impl Iterator<Item = String>) -> Self {
        Self { used: used.collect(), numbers: HashMap::new() }
    }

    /// Reserves a name that nothing uses yet: `base`, or `base.1`, `base.2`, …
    pub fn take(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        while !self.used.insert(name.clone()) {
            let number = self.numbers.entry(base.to_owned()).or_default();
            *number += 1;
            name = format!("{base}.{number}");
        }
        name
    }
}

/// The nodes that replace one node, in the order in which they run, and the weights that they need.
///
/// An empty patch removes the node.
#[derive(Debug)]
pub struct Patch<'n> {
    names: &'n mut Names,
    pub(super) nodes: Vec<Node>,
    pub(super) weights: Vec<(String, Weight)>,
    pub(super) absorbed: Vec<usize>,
}

impl<'n> Patch<'n> {
    /// An empty patch for a graph that uses `names`.
    pub fn new(names: &'n mut Names) -> Self {
        Patch { names, nodes: Vec::new(), weights: Vec::new(), absorbed: Vec::new() }
    }

    /// Reserves a name that nothing uses yet: `base`, or `base.1`, `base.2`, …
    pub fn name(&mut self, base: &str) -> String {
        self.names.take(base)
    }

    /// Adds a given node, such as the replaced one with other inputs, outputs or attributes.
    pub fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Adds a new node with one new output, and returns the name that both have.
    pub fn node(
        &mut self,
        base: &str,
        operator: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) -> String {
        let name = self.name(base);
        self.add(name.clone(), operator, inputs, attributes, vec![name.clone()]);
        name
    }

    /// Adds a new node that makes `output`, an output of the replaced node.
    pub fn node_for(
        &mut self,
        output: &str,
        base: &str,
        operator: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) {
        let name = self.name(base);
        self.add(name, operator, inputs, attributes, vec![output.to_owned()]);
    }

    /// Adds a node of another operator that has the replaced node's name and outputs.
    pub fn substitute(
        &mut self,
        replaced: &Node,
        operator: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) {
        self.add(replaced.name.clone(), operator, inputs, attributes, replaced.outputs.clone());
    }

    fn add(
        &mut self,
        name: String,
        operator: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
        outputs: Vec<String>,
    ) {
        self.nodes.push(Node {
            name,
            operator: operator.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            outputs,
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        });
    }

    /// Adds a weight, and returns its name.
    pub fn weight(&mut self, base: &str, weight: Weight) -> String {
        let name = self.name(base);
        self.weights.push((name.clone(), weight));
        name
    }

    /// Makes `output`, an output of the replaced node, a weight.
    pub fn weight_for(&mut self, output: &str, weight: Weight) {
        self.weights.push((output.to_owned(), weight));
    }

    /// Also replaces the node at `position` of the original graph, which must come after the replaced node. The rule is
    /// not called for it.
    pub fn absorb(&mut self, position: usize) {
        self.absorbed.push(position);
    }
}
