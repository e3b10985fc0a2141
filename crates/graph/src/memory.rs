//! The memory that a run of a graph needs, apart from weights.

use crate::{Model, Node, TensorType};
use std::collections::{BTreeSet, HashMap};

/// Operators whose output can take the place of an input that nobody reads afterwards.
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
    /// The node that reads and writes most, and how many bytes: a run needs at least as much memory. `None` where no
    /// node has known sizes.
    pub fn largest_step(&self) -> Option<(&Node, u64)> {
        let sizes = self.sizes();
        let bytes = |names: &[String]| names.iter().map(|name| sizes.of(name)).fold(0, u64::saturating_add);
        let steps = self.nodes.iter().map(|node| (node, bytes(&node.inputs).saturating_add(bytes(&node.outputs))));
        steps.filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes)
    }

    /// The node at which a run in the graph's order needs most memory, and how many bytes: those of all values that are
    /// still read, where an operator writes over its input if it can. `None` where no node has known sizes.
    pub fn peak(&self) -> Option<(&Node, u64)> {
        let sizes = self.sizes();
        let mut same_as: HashMap<&str, &str> = HashMap::new();
        for node in self.nodes.iter().filter(|node| ALIASES.contains(&node.operator.as_str())) {
            if let (Some(of), Some(output)) = (node.inputs.first(), node.outputs.first()) {
                same_as.insert(output, same_as.get(of.as_str()).copied().unwrap_or(of));
            }
        }
        let value = |name: &'_ String| same_as.get(name.as_str()).copied().unwrap_or(name.as_str()).to_owned();
        let values = |names: &[String]| names.iter().map(value).collect::<BTreeSet<String>>();
        let mut last: HashMap<String, usize> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            last.extend(values(&node.inputs).into_iter().map(|name| (name, index)));
        }
        // The caller holds inputs, and gets outputs.
        last.extend(self.inputs.iter().chain(&self.outputs).map(|port| (value(&port.name), usize::MAX)));
        let mut live = self.inputs.iter().map(|port| sizes.of(&port.name)).fold(0, u64::saturating_add);
        let mut peak: Option<(&Node, u64)> = None;
        for (index, node) in self.nodes.iter().enumerate() {
            let mut ends: Vec<u64> = values(&node.inputs)
                .iter()
                .filter(|name| last.get(*name) == Some(&index))
                .map(|name| sizes.of(name))
                .collect();
            let made = node.outputs.iter().filter(|name| !same_as.contains_key(name.as_str()));
            for output in made.clone() {
                let bytes = sizes.of(output);
                let place = ends.iter().position(|other| *other == bytes);
                match place.filter(|_| IN_PLACE.contains(&node.operator.as_str())) {
                    Some(place) => drop(ends.swap_remove(place)),
                    None => live = live.saturating_add(bytes),
                }
            }
            if live > peak.map_or(0, |(_, most)| most) {
                peak = Some((node, live));
            }
            // What nobody reads is gone at once.
            ends.extend(made.filter(|name| !last.contains_key(*name)).map(|name| sizes.of(name)));
            live = ends.into_iter().fold(live, u64::saturating_sub);
        }
        peak
    }

    fn sizes(&self) -> Sizes<'_> {
        let ports = self.inputs.iter().map(|port| (port.name.as_str(), &port.ty));
        Sizes(self.types.iter().map(|(name, ty)| (name.as_str(), ty)).chain(ports).collect())
    }
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
    use crate::{DataType, Model, Node, Port, TensorType};

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
        // A value is counted once where it is read twice, and one that nobody reads is gone at once.
        assert_eq!(peak(&[("Softmax", &["x"], "unread"), ("Mul", &["x", "x"], "y")]), Some(("to unread".into(), 800)));
        let mut square = nodes.to_vec();
        square[4] = ("Add", &["d", "d"], "y");
        assert_eq!(peak(&square), Some(("to b".into(), 1200)));
        // Another name is no other value: x, a, and b, which needs a place of its own.
        let renamed: [(&str, &[&str], &str); 4] = [
            ("Softmax", &["x"], "a"),
            ("Identity", &["a"], "again"),
            ("Relu", &["again"], "b"),
            ("Add", &["b", "a"], "y"),
        ];
        assert_eq!(peak(&renamed), Some(("to b".into(), 1200)));
        assert_eq!(Model::default().peak(), None);
    }
}
