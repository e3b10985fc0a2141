//! A model: nodes over named values, weights, and metadata.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

use crate::budget::{self, Budget};
use crate::infer::{self, Operand, Problem};
use crate::{Attribute, Error, Result, TensorType, Weight};
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};

const TOO_LARGE: &str = "larger than memory can address";

/// The version of an operator set that a model uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opset {
    /// The operator domain; empty for ONNX's own operators.
    pub domain: String,
    /// The version of the set.
    pub version: i64,
}

/// A named input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The value's name.
    pub name: String,
    /// The value's type.
    pub ty: TensorType,
}

/// One application of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// A unique name: the checkpoint path of the layer, and the operator.
    pub name: String,
    /// The operator, as ONNX names it.
    pub operator: String,
    /// The operator's domain; empty for ONNX's own operators.
    pub domain: String,
    /// Names of values; empty for an optional input that is left out.
    pub inputs: Vec<String>,
    /// Names of values; empty for an optional output that is left out.
    pub outputs: Vec<String>,
    /// Attributes by name, in a fixed order so that the same graph always gives the same bytes.
    pub attributes: BTreeMap<String, Attribute>,
}

impl Node {
    /// Whether it applies this one of ONNX's own operators.
    pub fn is(&self, operator: &str) -> bool {
        self.domain.is_empty() && self.operator == operator
    }

    /// The value of an attribute, if it is there and a whole number.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attributes.get(name) {
            Some(Attribute::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The values of an attribute, if it is there and a list of whole numbers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attributes.get(name) {
            Some(Attribute::Ints(values)) => Some(values),
            _ => None,
        }
    }

    /// The value of an attribute, if it is there and a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.attributes.get(name) {
            Some(Attribute::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// An ONNX model. Nodes are in an order in which they can run.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The graph's name.
    pub name: String,
    /// The program that made the model, and its version.
    pub producer: (String, String),
    /// The version of ONNX's file format.
    pub ir_version: i64,
    /// Operator sets in use.
    pub opsets: Vec<Opset>,
    /// Key and value pairs about the model as a whole (`metadata_props`).
    pub metadata: BTreeMap<String, String>,
    /// The inputs.
    pub inputs: Vec<Port>,
    /// The outputs.
    pub outputs: Vec<Port>,
    /// The operators, in execution order.
    pub nodes: Vec<Node>,
    /// The constant tensors (initializers) by name, in order of first use.
    pub weights: IndexMap<String, Weight>,
    /// The types of the nodes' outputs, where they are known.
    pub types: HashMap<String, TensorType>,
}

impl Model {
    /// The type of a value of any kind, if it is known.
    pub fn type_of(&self, name: &str) -> Option<TensorType> {
        let port = || self.inputs.iter().find(|port| port.name == name).map(|port| port.ty.clone());
        let weight =
            || self.weights.get(name).map(|weight| TensorType::new(weight.data_type(), weight.dims().iter().copied()));
        self.types.get(name).cloned().or_else(port).or_else(weight)
    }

    /// Number of elements of all weights together.
    pub fn parameters(&self) -> u64 {
        self.weights.values().map(|weight| weight.elements() as u64).sum()
    }

    /// Infers the type of every value again from the inputs, and the outputs' types with them.
    ///
    /// The output of an unknown operator keeps its type from the file, if there is one.
    ///
    /// # Errors
    /// A node's inputs do not fit its operator, or a node reads a value that nothing before it makes.
    pub fn infer_types(&mut self) -> Result<()> {
        let declared = std::mem::take(&mut self.types);
        let mut types: HashMap<&str, TensorType> =
            self.inputs.iter().map(|port| (port.name.as_str(), port.ty.clone())).collect();
        for (name, weight) in &self.weights {
            types.insert(name, TensorType::new(weight.data_type(), weight.dims().iter().copied()));
        }
        let mut unknown = std::collections::HashSet::new();
        let mut contents: HashMap<&str, Vec<infer::Extent>> = HashMap::new();
        if let Some(port) = self.inputs.iter().find(|port| port.ty.is_too_large()) {
            return Err(Error::Graph(format!("the input `{}` is {}, {TOO_LARGE}", port.name, port.ty)));
        }
        let mut constants = Budget::default().constants(self);
        for node in &self.nodes {
            let fail =
                |reason: String| Error::Node { node: node.name.clone(), operator: node.operator.clone(), reason };
            let mut operands = Vec::with_capacity(node.inputs.len());
            let mut complete = true;
            for name in &node.inputs {
                let ty = types.get(name.as_str());
                if ty.is_none() && !name.is_empty() {
                    if node.outputs.contains(name) {
                        return Err(fail(format!("it reads its own output `{name}`: graphs have no loops")));
                    }
                    if !unknown.contains(name.as_str()) {
                        return Err(fail(format!("it reads `{name}`, which no input, weight or earlier node makes")));
                    }
                    complete = false;
                }
                let contents = contents.get(name.as_str()).map(Vec::as_slice);
                operands.push(ty.map(|ty| Operand { ty, constant: self.weights.get(name), contents }));
            }
            let made = infer::contents(node, &operands).filter(|made| budget::are_few(made));
            let inferred = if complete { infer::infer(node, &operands) } else { Err(Problem::UnknownOperator) };
            let inferred = match inferred {
                Ok(inferred) => inferred.into_iter().map(Some).collect(),
                Err(Problem::UnknownOperator) => {
                    node.outputs.iter().map(|name| declared.get(name).cloned()).collect::<Vec<_>>()
                }
                Err(Problem::Mismatch(reason)) => return Err(fail(reason)),
            };
            let mut found = Vec::with_capacity(node.outputs.len());
            for (name, ty) in node.outputs.iter().zip(inferred) {
                match ty {
                    Some(ty) if ty.is_too_large() => {
                        return Err(fail(format!("its output `{name}` is {ty}, {TOO_LARGE}")));
                    }
                    Some(ty) => found.push((name.as_str(), ty)),
                    None => drop(unknown.insert(name.as_str())),
                }
            }
            let found: HashMap<&str, TensorType> = found.into_iter().collect();
            constants.add(node, &operands, &found).map_err(fail)?;
            types.extend(found);
            if let (Some(made), Some(name)) = (made, node.outputs.first()) {
                contents.insert(name, made);
            }
        }
        for port in &mut self.outputs {
            if let Some(ty) = types.get(port.name.as_str()) {
                port.ty = ty.clone();
            } else if !unknown.contains(port.name.as_str()) {
                return Err(Error::Graph(format!("nothing makes the output `{}`", port.name)));
            }
        }
        let made = self.nodes.iter().flat_map(|node| &node.outputs);
        self.types = made.filter_map(|name| Some((name.clone(), types.get(name.as_str())?.clone()))).collect();
        Ok(())
    }

    /// The same model for other input shapes; all other types are inferred.
    ///
    /// # Errors
    /// There is no such input, the number of dimensions or a fixed size differs, or an operator does not accept the
    /// shapes.
    pub fn specialised(&self, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Self> {
        let mut model = self.clone();
        for (name, dims) in shapes {
            let names: Vec<&str> = self.inputs.iter().map(|port| port.name.as_str()).collect();
            let Some(port) = model.inputs.iter_mut().find(|port| port.name == *name) else {
                return Err(Error::Graph(format!("no input `{name}`; the inputs are {}", names.join(", "))));
            };
            let fits = |(old, new): (&crate::Dim, &usize)| old.fixed().is_none_or(|old| old == *new);
            if port.ty.dims.len() != dims.len() || !port.ty.dims.iter().zip(dims).all(fits) {
                return Err(Error::Graph(format!("the input `{name}` is {}; it cannot become {dims:?}", port.ty)));
            }
            port.ty = TensorType::new(port.ty.data_type, dims.iter().copied());
        }
        model.infer_types()?;
        Ok(model)
    }
}
