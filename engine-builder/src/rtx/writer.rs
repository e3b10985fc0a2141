//! A graph that is being rewritten: names that are free, nodes, constants.

use std::collections::{BTreeMap, HashSet};
use tileforge_graph::{Attribute, Model, Node, Weight};

/// A model under construction.
pub(super) struct Writer {
    pub(super) model: Model,
    names: HashSet<String>,
}

impl Writer {
    pub(super) fn new(model: Model) -> Self {
        let made = model.nodes.iter().flat_map(|node| node.outputs.iter().chain([&node.name]));
        let fed = model.inputs.iter().map(|port| &port.name).chain(model.weights.keys());
        let names = made.chain(fed).cloned().collect();
        Writer { model, names }
    }

    /// A constant, which several nodes may share: the same name is the same values.
    pub(super) fn constant(&mut self, name: String, weight: Weight) -> crate::Result<String> {
        if let Some(there) = self.model.weights.get(&name)
            && there.data_type() == weight.data_type()
            && there.dims() == weight.dims()
            && there.to_bytes()? == weight.to_bytes()?
        {
            return Ok(name);
        }
        let name = self.name(&name);
        self.model.weights.insert(name.clone(), weight);
        Ok(name)
    }

    /// A name that nothing has yet.
    pub(super) fn name(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 0_u64;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}.{number}");
        }
        name
    }

    pub(super) fn node(
        &mut self,
        base: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> String {
        let name = self.name(base);
        self.push(&name, operator, inputs, attributes, vec![name.clone()]);
        name
    }

    pub(super) fn last(&mut self, node: &Node, operator: &str, inputs: &[&str]) {
        self.push(&node.name, operator, inputs, &[], vec![node.outputs[0].clone()]);
    }

    pub(super) fn push(
        &mut self,
        name: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        outputs: Vec<String>,
    ) {
        self.model.nodes.push(Node {
            name: name.into(),
            operator: operator.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            outputs,
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect::<BTreeMap<_, _>>(),
        });
    }
}
