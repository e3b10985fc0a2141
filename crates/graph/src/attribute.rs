//! Attributes of nodes.

use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto, TensorProto};
use bytes::Bytes;

/// A node's attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// One integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// One number.
    Float(f32),
    /// A list of numbers.
    Floats(Vec<f32>),
    /// A text.
    Text(String),
    /// A constant, as in an ONNX `Constant` node.
    Tensor(Box<TensorProto>),
    /// Another kind, which we never make. It is kept as it was read, so that saving loses nothing.
    Other(Box<AttributeProto>),
}

/// The graphs in an attribute, such as the branches of If.
pub(crate) fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.iter().chain(&attribute.graphs)
}

impl Attribute {
    pub(crate) fn to_onnx(&self, name: &str) -> AttributeProto {
        let mut proto = AttributeProto { name: Some(name.into()), ..Default::default() };
        let mut kind = |k: AttributeType| proto.r#type = Some(k as i32);
        match self {
            Attribute::Int(value) => {
                kind(AttributeType::Int);
                proto.i = Some(*value);
            }
            Attribute::Ints(values) => {
                kind(AttributeType::Ints);
                proto.ints.clone_from(values);
            }
            Attribute::Float(value) => {
                kind(AttributeType::Float);
                proto.f = Some(*value);
            }
            Attribute::Floats(values) => {
                kind(AttributeType::Floats);
                proto.floats.clone_from(values);
            }
            Attribute::Text(text) => {
                kind(AttributeType::String);
                proto.s = Some(Bytes::copy_from_slice(text.as_bytes()));
            }
            Attribute::Tensor(tensor) => {
                kind(AttributeType::Tensor);
                proto.t = Some((**tensor).clone());
            }
            Attribute::Other(other) => return (**other).clone(),
        }
        proto
    }

    pub(crate) fn from_onnx(proto: &AttributeProto) -> Self {
        let text = || proto.s.as_ref().and_then(|s| std::str::from_utf8(s).ok());
        match (AttributeType::try_from(proto.r#type.unwrap_or_default()), text()) {
            (Ok(AttributeType::Int), _) => Attribute::Int(proto.i.unwrap_or_default()),
            (Ok(AttributeType::Ints), _) => Attribute::Ints(proto.ints.clone()),
            (Ok(AttributeType::Float), _) => Attribute::Float(proto.f.unwrap_or_default()),
            (Ok(AttributeType::Floats), _) => Attribute::Floats(proto.floats.clone()),
            (Ok(AttributeType::String), Some(text)) => Attribute::Text(text.into()),
            (Ok(AttributeType::Tensor), _) if proto.t.is_some() => {
                Attribute::Tensor(Box::new(proto.t.clone().unwrap_or_default()))
            }
            _ => Attribute::Other(Box::new(proto.clone())),
        }
    }
}

impl From<i64> for Attribute {
    fn from(value: i64) -> Self {
        Attribute::Int(value)
    }
}

impl From<f32> for Attribute {
    fn from(value: f32) -> Self {
        Attribute::Float(value)
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Attribute::Text(text.into())
    }
}

impl From<Vec<i64>> for Attribute {
    fn from(values: Vec<i64>) -> Self {
        Attribute::Ints(values)
    }
}
