//! What becomes of a graph's nodes.

use std::collections::{HashMap, HashSet};

use crate::proto::{GraphProto, NodeProto};

/// Nodes in the place of others.
#[derive(Default)]
pub(crate) struct Replacements {
    /// What replaces a node, by its number in the graph.
    pub(crate) made: HashMap<usize, Vec<NodeProto>>,
    /// The nodes that others compute, too.
    pub(crate) dropped: HashSet<usize>,
}

impl Replacements {
    /// Changes the graph.
    pub(crate) fn apply(mut self, graph: &mut GraphProto) {
        for (place, node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
            match self.made.remove(&place) {
                Some(made) => graph.node.extend(made),
                None if self.dropped.contains(&place) => {}
                None => graph.node.push(node),
            }
        }
    }
}
