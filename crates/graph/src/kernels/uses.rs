//! Which nodes read which values, and which make them.

use std::collections::HashMap;

use crate::proto::{GraphProto, NodeProto};
use crate::rewrite::reads_within_attribute;

/// Which nodes read which values.
pub(crate) struct Uses<'g> {
    readers: HashMap<&'g str, Vec<usize>>,
    makers: HashMap<&'g str, usize>,
}

impl<'g> Uses<'g> {
    /// Values that the graph returns or that nested graphs read are also used by a node that does not exist.
    pub(crate) fn of(graph: &'g GraphProto) -> Self {
        let mut uses: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, node) in graph.node.iter().enumerate() {
            node.input.iter().for_each(|name| uses.entry(name).or_default().push(place));
            // The branches of an If can read the values around it.
            for name in node.attribute.iter().flat_map(reads_within_attribute) {
                uses.entry(name).or_default().push(usize::MAX);
            }
        }
        graph.output.iter().for_each(|output| uses.entry(output.name()).or_default().push(usize::MAX));
        let outputs =
            |(place, node): (usize, &'g NodeProto)| node.output.iter().map(move |name| (name.as_str(), place));
        Self { readers: uses, makers: graph.node.iter().enumerate().flat_map(outputs).collect() }
    }

    /// The node that makes a value.
    pub(crate) fn maker(&self, graph: &'g GraphProto, value: &str) -> Option<(usize, &'g NodeProto)> {
        let place = *self.makers.get(value)?;
        Some((place, graph.node.get(place)?))
    }

    /// The nodes that read a value; `None` if others read it as well.
    pub(crate) fn readers(&self, graph: &'g GraphProto, value: &str) -> Option<Vec<(usize, &'g NodeProto)>> {
        let places = self.readers.get(value)?;
        places.iter().map(|place| Some((*place, graph.node.get(*place)?))).collect()
    }

    /// The one node that reads a value.
    pub(crate) fn reader(&self, graph: &'g GraphProto, value: &str) -> Option<(usize, &'g NodeProto)> {
        match self.readers(graph, value)?.as_slice() {
            [one] if one.1.output.len() == 1 => Some(*one),
            _ => None,
        }
    }
}
