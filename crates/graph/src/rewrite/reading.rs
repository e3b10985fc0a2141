//! Which nodes read which values.

use crate::attribute::graphs;
use crate::proto::{AttributeProto, GraphProto};
use crate::{Attribute, Model, Node};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The values that a node reads.
pub fn reads(node: &Node) -> impl Iterator<Item = &str> {
    node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty())
}

/// The names that graphs in a node's attributes read, such as the branches of If. They include values of the outer
/// graph.
pub fn reads_within(node: &Node) -> BTreeSet<&str> {
    let graphs = node.attributes.values().filter_map(|attribute| match attribute {
        Attribute::Other(other) => Some(&**other),
        _ => None,
    });
    graphs.flat_map(reads_within_attribute).collect()
}

/// The names that the graphs of an attribute read.
pub(crate) fn reads_within_attribute(attribute: &AttributeProto) -> Vec<&str> {
    fn of(graph: &GraphProto) -> Vec<&str> {
        let outputs = graph.output.iter().map(|info| info.name());
        let nodes = graph.node.iter().flat_map(|node| {
            node.input.iter().map(String::as_str).chain(node.attribute.iter().flat_map(reads_within_attribute))
        });
        outputs.chain(nodes).collect()
    }
    graphs(attribute).flat_map(of).collect()
}

/// The nodes that read each value of a graph, by their positions.
#[derive(Debug)]
pub struct Readers<'m>(HashMap<&'m str, Vec<usize>>);

impl<'m> Readers<'m> {
    /// The readers among `nodes`.
    pub fn new(nodes: &'m [Node]) -> Self {
        let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (position, node) in nodes.iter().enumerate() {
            for name in reads(node) {
                readers.entry(name).or_default().push(position);
            }
        }
        Readers(readers)
    }

    /// The nodes that read a value. A node that reads it twice is listed twice.
    pub fn all(&self, value: &str) -> &[usize] {
        self.0.get(value).map_or(&[], Vec::as_slice)
    }

    /// The node that reads a value, if it is the only one and reads it once.
    pub fn only(&self, value: &str) -> Option<usize> {
        match self.all(value) {
            [position] => Some(*position),
            _ => None,
        }
    }
}

/// Removes the nodes and weights that no output depends on. Nodes must be in an order in which they can run.
pub fn remove_unread(model: &mut Model) {
    let mut needed: HashSet<String> = model.outputs.iter().map(|port| port.name.clone()).collect();
    let mut kept = Vec::with_capacity(model.nodes.len());
    for node in std::mem::take(&mut model.nodes).into_iter().rev() {
        if node.outputs.iter().any(|name| needed.contains(name)) {
            needed.extend(reads(&node).chain(reads_within(&node)).map(str::to_owned));
            kept.push(node);
        }
    }
    kept.reverse();
    model.nodes = kept;
    model.weights.retain(|name, _| needed.contains(name));
}
