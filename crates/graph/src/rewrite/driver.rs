//! One driver applies the patches of every rule.

use super::{Names, Patch, reads, remove_unread};
use crate::{Error, Model, Node, Result};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

/// A rule that replaces nodes.
pub trait Rule {
    /// The replacement of `node`, which is at `position` of the original model; `None` if the node stays.
    ///
    /// Rules are called once for each node, in the order in which nodes run, except for absorbed nodes
    /// ([`Patch::absorb`]).
    ///
    /// # Errors
    /// The rule cannot be applied to this node.
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>>;
}

/// The model with a rule's patches applied. Dead nodes and weights are removed, nodes are sorted into an order in which
/// they can run, and all types are inferred again, which checks the patches against the operators' rules.
///
/// Where patches leave the order valid, nodes and weights keep it: a rule without patches changes nothing.
///
/// # Errors
/// The rule fails, or its patches make an invalid graph: a value is read that nothing makes, or is made twice; a weight
/// or node name is used twice; nodes read each other's outputs in a circle; or an operator's inputs do not fit it.
pub fn apply(model: &Model, rule: &mut impl Rule) -> Result<Model> {
    let mut names = Names::new(model);
    let mut made = model.clone();
    let nodes = std::mem::take(&mut made.nodes);
    let count = nodes.len();
    let mut absorbed = BTreeSet::new();
    // A model that was read from a file may use one name for several nodes, so only new names are checked.
    let before: HashSet<&str> = model.nodes.iter().map(|node| node.name.as_str()).collect();
    let mut added = HashSet::new();
    for (position, node) in nodes.into_iter().enumerate() {
        if absorbed.remove(&position) {
            continue;
        }
        let fail = |reason: String| Error::Node { node: node.name.clone(), operator: node.operator.clone(), reason };
        let Some(patch) = rule.patch(position, &node, &mut names)? else {
            made.nodes.push(node);
            continue;
        };
        for other in &patch.absorbed {
            if !(position + 1..count).contains(other) || !absorbed.insert(*other) {
                return Err(fail(format!("its patch absorbs node {other}: expected a later node, and each node once")));
            }
        }
        let replaced =
            |name: &str| name == node.name || patch.absorbed.iter().any(|other| model.nodes[*other].name == name);
        for (at, new) in patch.nodes.iter().enumerate() {
            let is_new = !replaced(&new.name);
            let is_taken = is_new && (before.contains(new.name.as_str()) || !added.insert(new.name.clone()));
            if is_taken || patch.nodes[..at].iter().any(|other| other.name == new.name) {
                return Err(fail(format!("its patch adds the node `{}`, and there is another of that name", new.name)));
            }
        }
        for (name, weight) in patch.weights {
            let is_input = model.inputs.iter().any(|port| port.name == name);
            if is_input || made.weights.insert(name.clone(), weight).is_some() {
                return Err(fail(format!("its patch adds the weight `{name}`, and there is another of that name")));
            }
        }
        made.nodes.extend(patch.nodes);
    }
    sort(&mut made)?;
    remove_unread(&mut made);
    made.infer_types()?;
    Ok(made)
}

/// Sorts nodes after the nodes that make their inputs. Nodes that could run in either order keep their order, so a
/// valid order does not change.
fn sort(model: &mut Model) -> Result<()> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (position, node) in model.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            let other = makers.insert(output, position).map(|other| &model.nodes[other].name);
            let fed = model.weights.contains_key(output) || model.inputs.iter().any(|port| port.name == *output);
            if other.is_some() || fed {
                let other = other.map_or("an input or a weight".into(), |name| format!("the node `{name}`"));
                return Err(Error::Graph(format!(
                    "the value `{output}` is made twice: by the node `{}` and by {other}",
                    node.name
                )));
            }
        }
    }
    let makers_of = |node: &Node| reads(node).filter_map(|name| makers.get(name).copied()).collect::<BTreeSet<_>>();
    if model.nodes.iter().enumerate().all(|(at, node)| makers_of(node).iter().all(|maker| *maker < at)) {
        return Ok(());
    }
    let mut waits_for: Vec<usize> = Vec::with_capacity(model.nodes.len());
    let mut unblocks: Vec<Vec<usize>> = vec![Vec::new(); model.nodes.len()];
    for (position, node) in model.nodes.iter().enumerate() {
        let makers = makers_of(node);
        waits_for.push(makers.len());
        makers.into_iter().for_each(|maker| unblocks[maker].push(position));
    }
    let mut ready: BinaryHeap<_> = (0..waits_for.len()).filter(|at| waits_for[*at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(waits_for.len());
    while let Some(Reverse(position)) = ready.pop() {
        order.push(position);
        for next in &unblocks[position] {
            waits_for[*next] -= 1;
            if waits_for[*next] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    if let Some(stuck) = waits_for.iter().position(|makers| *makers > 0) {
        let name = &model.nodes[stuck].name;
        return Err(Error::Graph(format!("the node `{name}` waits for its own output, through the nodes before it")));
    }
    let mut nodes: Vec<Option<Node>> = std::mem::take(&mut model.nodes).into_iter().map(Some).collect();
    model.nodes = order.into_iter().filter_map(|position| nodes[position].take()).collect();
    Ok(())
}

#[cfg(test)]
mod tests;
