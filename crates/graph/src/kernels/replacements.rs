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
    /// Replaces some nodes by one, in the place of the last of them. It is not done if another node replaces one of
    /// them, too, or if a value that the new node reads is no more made: `makers` make these.
    pub(crate) fn replace(&mut self, nodes: &[usize], makers: &[usize], place: usize, made: NodeProto) {
        let is_taken = |node: &usize| self.made.contains_key(node) || self.dropped.contains(node);
        if nodes.iter().chain([&place]).any(is_taken) || makers.iter().any(|maker| self.dropped.contains(maker)) {
            return;
        }
        self.dropped.extend(nodes);
        self.made.insert(place, vec![made]);
    }

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
