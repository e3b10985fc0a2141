//! Nodes before and after a graph, so that pictures have the runtime's one form: `[batch, channels, height, width]` of
//! FP32, red, green, blue.

use crate::Result;
use std::collections::BTreeMap;
use tileforge_graph::rewrite::{Names, reads_within};
use tileforge_graph::{Attribute, DataType, Model, Node, Port, Weight};

/// The conversion between a tensor of the contract and a tensor of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Form {
    /// The order of the file's axes in terms of the contract's axes: `[0, 2, 3, 1]` for channels-last.
    pub(super) axes: Option<[i64; 4]>,
    /// Whether the file has blue first.
    pub(super) reversed: bool,
    /// The mean that is subtracted from each channel, and the deviation that it is divided by.
    pub(super) normalisation: Option<([f32; 3], [f32; 3])>,
    /// The bounds that values are clamped to after rounding, for integers.
    pub(super) bounds: Option<[f32; 2]>,
    /// The element type in the contract, if the file's is another one.
    pub(super) data_type: Option<DataType>,
}

/// A graph that gets nodes at its inputs and outputs.
pub(super) struct Wrapping {
    names: Names,
    model: Model,
    front: Vec<Node>,
    behind: Vec<Node>,
}

impl Wrapping {
    pub(super) fn new(model: Model) -> Self {
        Self { names: Names::new(&model), model, front: Vec::new(), behind: Vec::new() }
    }

    /// Gives an input the contract's form.
    pub(super) fn input(&mut self, name: &str, form: &Form) -> Result<()> {
        let Some(at) = self.model.inputs.iter().position(|port| port.name == name) else { return Ok(()) };
        let own = self.model.inputs[at].ty.data_type;
        let mut chain =
            Chain { front: true, wrapping: self, base: name.to_owned(), value: name.to_owned(), nodes: Vec::new() };
        chain.reverse(form)?;
        if let Some((mean, deviation)) = form.normalisation {
            chain.channels("Sub", "mean", mean)?;
            chain.channels("Div", "deviation", deviation)?;
        }
        chain.transpose(form.axes);
        if let Some(bounds) = form.bounds {
            chain.node("Round", &[], []);
            chain.clip(bounds)?;
        }
        if form.data_type.is_some() {
            chain.cast(own);
        }
        let (value, nodes) = (chain.value, chain.nodes);
        if nodes.is_empty() {
            return Ok(());
        }
        self.refuse_within(name)?;
        for input in self.model.nodes.iter_mut().flat_map(|node| &mut node.inputs).filter(|input| *input == name) {
            input.clone_from(&value);
        }
        self.front.extend(nodes);
        let port = &mut self.model.inputs[at];
        if let Some(axes) = form.axes {
            // The file's axis k is the contract's axes[k].
            let mut dims = port.ty.dims.clone();
            for (dim, to) in port.ty.dims.iter().zip(axes) {
                if let Some(place) = usize::try_from(to).ok().and_then(|to| dims.get_mut(to)) {
                    place.clone_from(dim);
                }
            }
            port.ty.dims = dims;
        }
        port.ty.data_type = form.data_type.unwrap_or(own);
        Ok(())
    }

    /// Gives an output the contract's form.
    pub(super) fn output(&mut self, name: &str, form: &Form) -> Result<()> {
        let inner = self.names.take(&format!("{name}/own"));
        let mut chain =
            Chain { front: false, wrapping: self, base: name.to_owned(), value: inner.clone(), nodes: Vec::new() };
        if let Some(data_type) = form.data_type {
            chain.cast(data_type);
        }
        chain.transpose(form.axes);
        if let Some((mean, deviation)) = form.normalisation {
            chain.channels("Mul", "deviation", deviation)?;
            chain.channels("Add", "mean", mean)?;
        }
        chain.reverse(form)?;
        let mut nodes = chain.nodes;
        let Some(last) = nodes.last_mut() else { return Ok(()) };
        self.refuse_within(name)?;
        last.outputs = vec![name.to_owned()];
        let values = self.model.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs));
        values.filter(|value| *value == name).for_each(|value| value.clone_from(&inner));
        self.behind.extend(nodes);
        if let Some(port) = self.model.outputs.iter_mut().find(|port| port.name == name) {
            port.ty.data_type = form.data_type.unwrap_or(port.ty.data_type);
        }
        Ok(())
    }

    /// Subgraphs within nodes read values by name, and these names now belong to other values.
    fn refuse_within(&self, name: &str) -> Result<()> {
        match self.model.nodes.iter().find(|node| reads_within(node).contains(name)) {
            None => Ok(()),
            Some(node) => Err(tileforge_graph::Error::Node {
                node: node.name.clone(),
                operator: node.operator.clone(),
                reason: format!("a graph in it reads `{name}`, whose form has to be changed"),
            }
            .into()),
        }
    }

    /// The graph with its new inputs and outputs.
    pub(super) fn finish(self) -> Result<Model> {
        let Self { mut model, mut front, behind, .. } = self;
        front.append(&mut model.nodes);
        front.extend(behind);
        model.nodes = front;
        model.types.clear();
        model.infer_types()?;
        Ok(model)
    }
}

/// A chain of nodes.
struct Chain<'w> {
    front: bool,
    wrapping: &'w mut Wrapping,
    base: String,
    value: String,
    nodes: Vec<Node>,
}

impl Chain<'_> {
    fn node<const N: usize>(&mut self, operator: &str, more: &[String], attributes: [(&str, Attribute); N]) {
        let place = if self.front { "in" } else { "out" };
        let name = self.wrapping.names.take(&format!("{}/{place}/{operator}", self.base));
        self.nodes.push(Node {
            name: name.clone(),
            operator: operator.into(),
            domain: String::new(),
            inputs: std::iter::once(self.value.clone()).chain(more.iter().cloned()).collect(),
            outputs: vec![name.clone()],
            attributes: attributes
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<BTreeMap<_, _>>(),
        });
        self.value = name;
    }

    fn weight(&mut self, name: &str, data_type: DataType, dims: &[usize], bytes: Vec<u8>) -> Result<String> {
        let place = if self.front { "in" } else { "out" };
        let name = self.wrapping.names.take(&format!("{}/{place}/{name}", self.base));
        self.wrapping.model.weights.insert(name.clone(), Weight::from_bytes(data_type, dims.to_vec(), bytes)?);
        Ok(name)
    }

    fn channels(&mut self, operator: &str, name: &str, values: [f32; 3]) -> Result<()> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let weight = self.weight(name, DataType::F32, &[1, 3, 1, 1], bytes)?;
        self.node(operator, &[weight], []);
        Ok(())
    }

    /// Reverses the order of the channels.
    fn reverse(&mut self, form: &Form) -> Result<()> {
        if form.reversed {
            let bytes = [2_i64, 1, 0].iter().flat_map(|place| place.to_le_bytes()).collect();
            let places = self.weight("places", DataType::I64, &[3], bytes)?;
            self.node("Gather", &[places], [("axis", Attribute::Int(1))]);
        }
        Ok(())
    }

    fn transpose(&mut self, axes: Option<[i64; 4]>) {
        let Some(axes) = axes else { return };
        let order = if self.front {
            // Entry k of the file's axes is the contract's axis axes[k].
            axes
        } else {
            inverse(axes)
        };
        self.node("Transpose", &[], [("perm", Attribute::Ints(order.to_vec()))]);
    }

    fn clip(&mut self, [low, high]: [f32; 2]) -> Result<()> {
        let low = self.weight("least", DataType::F32, &[], low.to_le_bytes().to_vec())?;
        let high = self.weight("most", DataType::F32, &[], high.to_le_bytes().to_vec())?;
        self.node("Clip", &[low, high], []);
        Ok(())
    }

    fn cast(&mut self, to: DataType) {
        self.node("Cast", &[], [("to", Attribute::Int(i64::from(to.to_onnx())))]);
    }
}

fn inverse(axes: [i64; 4]) -> [i64; 4] {
    let mut inverse = [0; 4];
    for (from, to) in axes.iter().enumerate() {
        if let Some(place) = usize::try_from(*to).ok().and_then(|to| inverse.get_mut(to)) {
            *place = from as i64;
        }
    }
    inverse
}

/// Replaces names that a contract does not allow.
pub(super) fn with_plain_names(mut model: Model) -> Model {
    let mut names = Names::new(&model);
    let is_plain = |name: &str| !name.is_empty() && name.len() <= 256 && !name.chars().any(char::is_control);
    let ports: Vec<Port> = model.inputs.iter().chain(&model.outputs).cloned().collect();
    for port in ports.into_iter().filter(|port| !is_plain(&port.name)) {
        let base: String = port.name.chars().filter(|c| !c.is_control()).take(48).collect();
        let new = names.take(if base.is_empty() { "tensor" } else { &base });
        let values = model.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs));
        let ports = model.inputs.iter_mut().chain(&mut model.outputs).map(|port| &mut port.name);
        values.chain(ports).filter(|value| **value == port.name).for_each(|value| value.clone_from(&new));
        if let Some(ty) = model.types.remove(&port.name) {
            model.types.insert(new, ty);
        }
    }
    model
}
