use super::super::Readers;
use super::*;
use crate::{Attribute, DataType, Port, TensorType, Weight};
use proptest::prelude::*;

fn tensor() -> TensorType {
    TensorType::new(DataType::F32, [2_usize, 3])
}

fn weight() -> Weight {
    Weight::zeros(DataType::F32, vec![2, 3]).unwrap()
}

fn node(name: &str, inputs: &[String]) -> Node {
    Node {
        name: name.into(),
        operator: if inputs.len() == 1 { "Relu" } else { "Add" }.into(),
        domain: String::new(),
        inputs: inputs.to_vec(),
        outputs: vec![format!("{name}/out")],
        attributes: [].into(),
    }
}

/// A graph of elementwise nodes over two inputs and a weight. The node at a position reads one or two of the values
/// before it; `reads` gives their numbers, modulo the number of values. `outputs` marks the nodes whose values are
/// outputs; the last node's value always is one.
fn graph(reads: &[(usize, usize)], outputs: &[bool]) -> Model {
    let mut values = vec!["a".to_owned(), "b".to_owned(), "w".to_owned()];
    let mut model = Model {
        inputs: ["a", "b"].map(|name| Port { name: name.into(), ty: tensor() }).into(),
        weights: [("w".to_owned(), weight())].into_iter().collect(),
        ..Model::default()
    };
    for (position, (first, second)) in reads.iter().enumerate() {
        let [first, second] = [first, second].map(|at| values[at % values.len()].clone());
        let inputs = if first == second { vec![first] } else { vec![first, second] };
        let node = node(&format!("n{position}"), &inputs);
        values.push(node.outputs[0].clone());
        if position + 1 == reads.len() || outputs[position % outputs.len()] {
            model.outputs.push(Port { name: node.outputs[0].clone(), ty: tensor() });
        }
        model.nodes.push(node);
    }
    remove_unread(&mut model);
    model.infer_types().unwrap();
    model
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    None,
    Before,
    After,
    Substitute,
    AbsorbReader,
    Weight,
    /// The following changes may break the graph.
    Remove,
    MakeTwice,
    ReadLater,
    SameName,
    SameWeight,
    AbsorbEarlier,
}

const VALID: [Change; 6] =
    [Change::None, Change::Before, Change::After, Change::Substitute, Change::AbsorbReader, Change::Weight];
const INVALID: [Change; 6] =
    [Change::Remove, Change::MakeTwice, Change::ReadLater, Change::SameName, Change::SameWeight, Change::AbsorbEarlier];

/// Changes each node in its own way.
struct Changes<'a> {
    model: &'a Model,
    changes: &'a [Change],
    absorbed: BTreeSet<usize>,
}

fn apply_all(model: &Model, changes: &[Change]) -> Result<Model> {
    apply(model, &mut Changes { model, changes, absorbed: BTreeSet::new() })
}

impl Rule for Changes<'_> {
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        assert!(!self.absorbed.contains(&position), "an absorbed node was shown");
        let mut patch = Patch::new(names);
        let mut changed = node.clone();
        let output = node.outputs[0].clone();
        let is_output = self.model.outputs.iter().any(|port| port.name == output);
        match self.changes[position % self.changes.len()] {
            Change::None => return Ok(None),
            Change::Before => {
                changed.inputs[0] = patch.node(&node.name, "Relu", &[&node.inputs[0]], []);
                patch.push(changed);
            }
            Change::After => {
                let exact = patch.name(&output);
                changed.outputs = vec![exact.clone()];
                patch.push(changed);
                patch.node_for(&output, &node.name, "Relu", &[&exact], []);
            }
            Change::Substitute => {
                let added = patch.weight("w", weight());
                let slope = [("alpha", Attribute::from(0.5_f32))];
                let leaky = patch.node("n0", "LeakyRelu", &[&node.inputs[0]], slope);
                patch.substitute(node, "Add", &[&leaky, &added], []);
            }
            Change::AbsorbReader => {
                let reader = Readers::new(&self.model.nodes).only(&output);
                let reader = reader.filter(|reader| !is_output && self.absorbed.insert(*reader));
                let Some(reader) = reader else { return Ok(None) };
                patch.absorb(reader);
                patch.push(changed);
                patch.push(self.model.nodes[reader].clone());
            }
            Change::Weight if is_output => return Ok(None),
            Change::Weight => patch.weight_for(&output, weight()),
            Change::Remove => {}
            Change::MakeTwice => {
                patch.push(changed);
                patch.node_for(&output, "again", "Relu", &[&node.inputs[0]], []);
            }
            Change::ReadLater => {
                changed.inputs = self.model.nodes[self.model.nodes.len() - 1].outputs.clone();
                changed.operator = "Relu".into();
                patch.push(changed);
            }
            Change::SameName => {
                changed.name = self.model.nodes[(position + 1) % self.model.nodes.len()].name.clone();
                patch.push(changed);
            }
            Change::SameWeight => {
                patch.weight_for("w", weight());
                patch.push(changed);
            }
            Change::AbsorbEarlier => {
                patch.absorb(position);
                patch.push(changed);
            }
        }
        Ok(Some(patch))
    }
}

/// Checks everything that makes a graph valid, without the driver's code.
fn assert_valid(model: &Model, before: &Model) {
    let mut known: HashSet<&str> = model.inputs.iter().map(|port| port.name.as_str()).collect();
    for name in model.weights.keys() {
        assert!(known.insert(name), "`{name}` is an input and a weight");
    }
    let mut names = HashSet::new();
    for node in &model.nodes {
        assert!(names.insert(&node.name), "two nodes `{}`", node.name);
        for input in &node.inputs {
            assert!(known.contains(input.as_str()), "`{}` reads `{input}` too early", node.name);
        }
        for output in &node.outputs {
            assert!(known.insert(output), "`{output}` is made twice");
            assert_eq!(model.types.get(output), Some(&tensor()), "{output}");
        }
    }
    assert_eq!((&model.inputs, &model.outputs), (&before.inputs, &before.outputs));
    let read: HashSet<&str> = model
        .nodes
        .iter()
        .flat_map(|node| &node.inputs)
        .chain(model.outputs.iter().map(|port| &port.name))
        .map(String::as_str)
        .collect();
    assert!(read.is_subset(&known), "an output is not made: {read:?}");
    assert!(model.weights.keys().all(|name| read.contains(name.as_str())), "a weight is dead");
    for node in &model.nodes {
        assert!(node.outputs.iter().any(|output| read.contains(output.as_str())), "`{}` is dead", node.name);
    }
}

fn graphs() -> impl Strategy<Value = Model> {
    let reads = prop::collection::vec((0..100_usize, 0..100_usize), 1..14);
    (reads, prop::collection::vec(any::<bool>(), 1..4)).prop_map(|(reads, outputs)| graph(&reads, &outputs))
}

fn some_of(changes: &'static [Change]) -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(prop::sample::select(changes), 1..14)
}

proptest! {
    #[test]
    fn patches_keep_a_graph_valid(model in graphs(), changes in some_of(&VALID)) {
        assert_valid(&apply_all(&model, &changes).unwrap(), &model);
    }

    #[test]
    fn patches_that_would_break_a_graph_are_refused(
        model in graphs(),
        changes in some_of(&VALID),
        broken in prop::sample::select(&INVALID[..]),
        at in 0..14_usize,
    ) {
        let mut changes = changes;
        let count = changes.len();
        changes[at % count] = broken;
        if let Ok(made) = apply_all(&model, &changes) {
            assert_valid(&made, &model);
        }
    }

    #[test]
    fn a_rule_without_patches_changes_nothing(model in graphs()) {
        let made = apply_all(&model, &[Change::None]).unwrap();
        prop_assert_eq!(&made.nodes, &model.nodes);
        prop_assert!(made.weights.keys().eq(model.weights.keys()));
        prop_assert_eq!(&made.types, &model.types);
    }
}

/// a → n0 → n1 → n2, and n3 adds n1 and n2.
fn chain() -> Model {
    graph(&[(0, 0), (3, 3), (4, 4), (4, 5)], &[false])
}

#[test]
fn every_way_to_break_a_graph_is_named() {
    let model = chain();
    for (change, expected) in [
        (Change::Remove, "it reads `n0/out`, which no input, weight or earlier node makes"),
        (Change::MakeTwice, "the value `n0/out` is made twice: by the node `again` and by the node `n0`"),
        (Change::ReadLater, "the node `n0` waits for its own output"),
        (Change::SameName, "its patch adds the node `n1`, and there is another of that name"),
        (Change::SameWeight, "its patch adds the weight `w`, and there is another of that name"),
        (Change::AbsorbEarlier, "its patch absorbs node 0: expected a later node"),
    ] {
        let changes = [change, Change::None, Change::None, Change::None];
        let mut model = model.clone();
        if change == Change::SameWeight {
            model = graph(&[(0, 2), (3, 3), (4, 4), (4, 5)], &[false]);
        }
        let error = apply_all(&model, &changes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_absorbed_node_runs_after_what_it_reads() {
    // n3 reads n0 and n2. n0 absorbs it, so n3 comes before n1 and n2 in the patches.
    let model = graph(&[(0, 0), (1, 1), (4, 4), (3, 5)], &[false]);
    let made = apply_all(&model, &[Change::AbsorbReader, Change::None, Change::None, Change::None]).unwrap();
    let names: Vec<&str> = made.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n0", "n1", "n2", "n3"]);
}

#[test]
fn names_of_patches_are_free() {
    let made = apply_all(&chain(), &[Change::Before]).unwrap();
    let names: Vec<&str> = made.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n0.1", "n0", "n1.1", "n1", "n2.1", "n2", "n3.1", "n3"]);
}

#[test]
fn what_a_weight_replaces_is_gone() {
    let changes = [Change::None, Change::Weight, Change::None, Change::None];
    let made = apply_all(&chain(), &changes).unwrap();
    let names: Vec<&str> = made.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!((names, made.weights.keys().map(String::as_str).collect()), (vec!["n2", "n3"], vec!["n1/out"]));
}
