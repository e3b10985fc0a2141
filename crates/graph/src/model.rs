//! A model: nodes over named values, weights, and metadata.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

use crate::{Attribute, TensorType, Weight};
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};

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
    /// Whether the node applies this operator of ONNX's own domain.
    pub fn is(&self, operator: &str) -> bool {
        self.domain.is_empty() && self.operator == operator
    }

    /// The value of an attribute, if it exists and is an integer.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attributes.get(name) {
            Some(Attribute::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The values of an attribute, if it exists and is a list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attributes.get(name) {
            Some(Attribute::Ints(values)) => Some(values),
            _ => None,
        }
    }

    /// The value of an attribute, if it exists and is a text.
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
}
