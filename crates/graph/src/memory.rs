//! The memory that a run of a graph needs, apart from weights.

use crate::{Attribute, Model, Node, TensorType};
use std::collections::{BTreeSet, HashMap};

/// Operators whose output can overwrite an input that no later node reads.
const IN_PLACE: [&str; 15] = [
    "Add",
    "Cos",
    "Div",
    "Gelu",
    "LeakyRelu",
    "Max",
    "Min",
    "Mish",
    "Mul",
    "PRelu",
    "Relu",
    "Sigmoid",
    "Sin",
    "Sub",
    "Tanh",
];

/// Operators whose output is their first input under another name.
const ALIASES: [&str; 2] = ["Identity", "Reshape"];

impl Model {
    /// The node that reads and writes the most bytes, and their number: a run needs at least this much memory. `None`
    /// if no node has known sizes.
    pub fn largest_step(&self) -> Option<(&Node, u64)> {
        let sizes = self.sizes();
        let bytes = |names: &[String]| names.iter().map(|name| sizes.of(name)).fold(0, u64::saturating_add);
        let steps = self.nodes.iter().map(|node| (node, bytes(&node.inputs).saturating_add(bytes(&node.outputs))));
        steps.filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes)
    }

    /// The node at which a run in the graph's order needs the most memory, and the number of bytes of all values that
    /// are still read at that node. An operator overwrites its input if it can. `None` if no node has known sizes.
    pub fn peak(&self) -> Option<(&Node, u64)> {
        let sizes = self.sizes();
        let mut same_as = HashMap::new();
        for node in self.nodes.iter().filter(|node| ALIASES.contains(&node.operator.as_str())) {
            if let (Some(of), Some(output)) = (node.inputs.first(), node.outputs.first()) {
                same_as.insert(output.as_str(), value(&same_as, of));
            }
        }
        let mut last = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            last.extend(node.inputs.iter().map(|name| (value(&same_as, name), index)));
        }
        // The caller holds inputs and receives outputs, so both live until the end.
        last.extend(self.inputs.iter().chain(&self.outputs).map(|port| (value(&same_as, &port.name), usize::MAX)));
        let mut live = self.inputs.iter().map(|port| sizes.of(&port.name)).fold(0, u64::saturating_add);
        let mut peak: Option<(&Node, u64)> = None;
        for (index, node) in self.nodes.iter().enumerate() {
            let read: BTreeSet<&str> = node.inputs.iter().map(|name| value(&same_as, name)).collect();
            let mut ends: Vec<u64> =
                read.into_iter().filter(|name| last.get(name) == Some(&index)).map(|name| sizes.of(name)).collect();
            let made = node.outputs.iter().filter(|name| !same_as.contains_key(name.as_str()));
            for output in made.clone() {
                let bytes = sizes.of(output);
                let place = ends.iter().position(|other| *other == bytes);
                if let Some(place) = place.filter(|_| IN_PLACE.contains(&node.operator.as_str())) {
                    ends.swap_remove(place);
                } else {
                    live = live.saturating_add(bytes);
                }
            }
            if live > peak.map_or(0, |(_, most)| most) {
                peak = Some((node, live));
            }
            // A value without a reader is freed at once.
            ends.extend(made.filter(|name| !last.contains_key(name.as_str())).map(|name| sizes.of(name)));
            live = ends.into_iter().fold(live, u64::saturating_sub);
        }
        peak
    }

    /// The same graph in an order in which ONNX Runtime needs less memory: leaves (nodes whose outputs no other node
    /// reads) are moved to the end, in reverse order.
    ///
    /// ONNX Runtime begins with the last leaf, computes what it needs, and continues with the leaf before. If a
    /// network outputs caches of its layers and, last, a picture, the inputs of all these layers would stay in memory
    /// until the picture is done.
    #[must_use]
    pub fn with_leaves_last(&self) -> Self {
        let mut ordered = self.clone();
        // Graphs in attributes may read values that no node names.
        let holds_graphs = |node: &Node| node.attributes.values().any(|one| matches!(one, Attribute::Other(_)));
        if self.nodes.iter().any(holds_graphs) {
            return ordered;
        }
        let read: BTreeSet<&str> = self.nodes.iter().flat_map(|node| &node.inputs).map(String::as_str).collect();
        let (inner, leaves): (Vec<Node>, Vec<Node>) = std::mem::take(&mut ordered.nodes)
            .into_iter()
            .partition(|node| node.outputs.iter().any(|output| read.contains(output.as_str())));
        ordered.nodes = inner.into_iter().chain(leaves.into_iter().rev()).collect();
        ordered
    }

    fn sizes(&self) -> Sizes<'_> {
        let ports = self.inputs.iter().map(|port| (port.name.as_str(), &port.ty));
        Sizes(self.types.iter().map(|(name, ty)| (name.as_str(), ty)).chain(ports).collect())
    }
}

/// The value that a name stands for, if it is an alias.
fn value<'m>(same_as: &HashMap<&'m str, &'m str>, name: &'m str) -> &'m str {
    same_as.get(name).copied().unwrap_or(name)
}

/// The bytes of values; 0 where they are not known.
struct Sizes<'m>(HashMap<&'m str, &'m TensorType>);

impl Sizes<'_> {
    fn of(&self, name: &str) -> u64 {
        self.0.get(name).and_then(|ty| ty.byte_length()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Attribute, DataType, Model, Node, Port, TensorType};

    /// A graph of one input, whose nodes are `(operator, inputs, output)`.
    fn graph(dims: [usize; 4], nodes: &[(&str, &[&str], &str)], output: &str) -> Model {
        let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, dims) };
        let node = |(operator, inputs, output): &(&str, &[&str], &str)| Node {
            name: format!("to {output}"),
            operator: (*operator).into(),
            domain: String::new(),
            inputs: inputs.iter().map(|&name| name.into()).collect(),
            outputs: vec![(*output).into()],
            attributes: Default::default(),
        };
        let nodes = nodes.iter().map(node).collect();
        Model { inputs: vec![port("x")], outputs: vec![port(output)], nodes, ..Model::default() }
    }

    #[test]
    fn the_largest_step_counts_what_is_read_and_written() {
        let mut model = graph([1, 3, 100_000, 100_000], &[("Relu", &["x"], "y")], "y");
        model.infer_types().unwrap();
        let (node, bytes) = model.largest_step().unwrap();
        assert_eq!((node.name.as_str(), bytes), ("to y", 2 * 4 * 3 * 10_000_000_000));
        model.inputs[0].ty = TensorType::new(DataType::F32, [usize::MAX / 8, 1 << 20]);
        let error = model.infer_types().unwrap_err().to_string();
        assert!(error.contains("larger than memory can address"), "{error}");
    }

    #[test]
    fn the_peak_counts_what_is_still_read() {
        // 400 bytes each; `a` is read again at the end.
        let nodes: [(&str, &[&str], &str); 5] = [
            ("Softmax", &["x"], "a"),
            ("Softmax", &["a"], "b"),
            ("Relu", &["b"], "c"),
            ("Softmax", &["c"], "d"),
            ("Add", &["d", "a"], "y"),
        ];
        let peak = |nodes: &[(&str, &[&str], &str)]| {
            let mut model = graph([1, 1, 10, 10], nodes, "y");
            model.infer_types().unwrap();
            model.peak().map(|(node, bytes)| (node.name.clone(), bytes))
        };
        // x, a, c and d; Relu wrote over b, and Add writes over d.
        assert_eq!(peak(&nodes), Some(("to d".into(), 1600)));
        // A value that is read twice is counted once, and a value without a reader is freed at once.
        assert_eq!(peak(&[("Softmax", &["x"], "unread"), ("Mul", &["x", "x"], "y")]), Some(("to unread".into(), 800)));
        let mut square = nodes.to_vec();
        square[4] = ("Add", &["d", "d"], "y");
        assert_eq!(peak(&square), Some(("to b".into(), 1200)));
        // An alias is not another value: x, a, and b, which needs its own memory.
        let renamed: [(&str, &[&str], &str); 4] = [
            ("Softmax", &["x"], "a"),
            ("Identity", &["a"], "again"),
            ("Relu", &["again"], "b"),
            ("Add", &["b", "a"], "y"),
        ];
        assert_eq!(peak(&renamed), Some(("to b".into(), 1200)));
        assert_eq!(Model::default().peak(), None);
    }

    #[test]
    fn leaves_stand_at_the_end_the_last_one_first() {
        let nodes: [(&str, &[&str], &str); 5] = [
            ("Relu", &["x"], "a"),
            ("Relu", &["a"], "first cache"),
            ("Relu", &["a"], "b"),
            ("Relu", &["b"], "second cache"),
            ("Relu", &["b"], "y"),
        ];
        let order = |model: &Model| model.nodes.iter().map(|node| node.outputs[0].clone()).collect::<Vec<_>>();
        let mut model = graph([1, 1, 2, 2], &nodes, "y");
        assert_eq!(order(&model.with_leaves_last()), ["a", "b", "y", "second cache", "first cache"]);
        // The order is one in which nodes can run.
        model.with_leaves_last().infer_types().unwrap();
        let unchanged = order(&model);
        let inner = Attribute::Other(Box::default());
        model.nodes[0].attributes.insert("body".into(), inner);
        assert_eq!(order(&model.with_leaves_last()), unchanged);
    }
}
