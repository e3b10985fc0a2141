//! What a graph from a file may ask for.
//!
//! A file of some kilobytes can describe a graph that takes gigabytes: millions of empty nodes, or constants that
//! double with every node. Everything here is checked before the memory is taken.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

use crate::infer::{Extent, Operand};
use crate::{Model, Node, TensorType};
use std::collections::{HashMap, HashSet};

/// The limits on a graph from a file. The defaults are far above what networks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Nodes, weights, ports and their parts: names, attributes, dimensions. Each takes some hundred bytes.
    pub entries: usize,
    /// How deep graphs are nested in attributes.
    pub depth: usize,
    /// Bytes of constants that are computed from the weights, in addition to [`Budget::growth`] times the weights'
    /// bytes.
    pub constants: u64,
    /// How much larger than the weights the constants may be. A cast to FP32 of quantised weights takes four times as
    /// much, and a reordering behind it as much again.
    pub growth: u64,
    /// Values of an integer tensor that is computed from shapes. A shape has fewer than ten.
    pub extents: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { entries: 1 << 20, depth: 8, constants: 64 << 20, growth: 16, extents: 1 << 12 }
    }
}

impl Budget {
    /// Checks the bytes of an ONNX model before it is decoded.
    ///
    /// Errors in the format are left to the decoder.
    ///
    /// # Errors
    /// The limit that the model exceeds.
    pub(crate) fn check_file(&self, bytes: &[u8]) -> Result<(), String> {
        let mut left = self.entries;
        fields(bytes)
            .filter(|field| field.number == MODEL_GRAPH)
            .try_for_each(|graph| self.check_graph(graph.content, self.depth, &mut left))
    }

    fn check_graph(&self, bytes: &[u8], depth: usize, left: &mut usize) -> Result<(), String> {
        let depth =
            depth.checked_sub(1).ok_or_else(|| format!("expected graphs nested {} deep at most", self.depth))?;
        for part in fields(bytes) {
            self.take(1, left)?;
            // Others are texts.
            if !GRAPH_MESSAGES.contains(&part.number) {
                continue;
            }
            for field in fields(part.content) {
                self.take(1, left)?;
                if part.number != GRAPH_NODE || field.number != NODE_ATTRIBUTE {
                    continue;
                }
                for value in fields(field.content) {
                    self.take(1, left)?;
                    if matches!(value.number, ATTRIBUTE_GRAPH | ATTRIBUTE_GRAPHS) {
                        self.check_graph(value.content, depth, left)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&self, entries: usize, left: &mut usize) -> Result<(), String> {
        *left = left.checked_sub(entries).ok_or_else(|| {
            format!("expected a graph of at most {} nodes, weights, names and attributes, found more", self.entries)
        })?;
        Ok(())
    }

    /// The constants of a model. Nodes are added in execution order.
    pub(crate) fn constants<'m>(&self, model: &'m Model) -> Constants<'m> {
        let weights = model.weights.values().map(crate::Weight::byte_length).fold(0, u64::saturating_add);
        let left = self.constants.saturating_add(weights.saturating_mul(self.growth));
        Constants { names: model.weights.keys().map(String::as_str).collect(), left }
    }
}

/// Values that follow from the weights alone. ONNX Runtime computes them when a session is opened.
pub(crate) struct Constants<'m> {
    names: HashSet<&'m str>,
    left: u64,
}

impl<'m> Constants<'m> {
    /// Adds the outputs of a node, if they are constants.
    ///
    /// # Errors
    /// The constants together are too large.
    pub(crate) fn add(
        &mut self,
        node: &'m Node,
        operands: &[Option<Operand<'_>>],
        types: &HashMap<&str, TensorType>,
    ) -> Result<(), String> {
        if !node.inputs.iter().all(|name| name.is_empty() || self.names.contains(name.as_str())) {
            return Ok(());
        }
        let asked = asked_for(node, operands);
        for name in &node.outputs {
            let bytes = asked.or_else(|| types.get(name.as_str())?.byte_length()).unwrap_or(0);
            self.left = self.left.checked_sub(bytes).ok_or_else(|| {
                format!("its output `{name}` is a constant of {bytes} bytes, far more than the weights it is made of")
            })?;
            self.names.insert(name);
        }
        Ok(())
    }
}

/// The output bytes of ConstantOfShape, Expand or Tile, if the sizes are constant.
fn asked_for(node: &Node, operands: &[Option<Operand<'_>>]) -> Option<u64> {
    let integers = |index: usize| {
        let operand = operands.get(index).copied().flatten()?;
        match operand.contents {
            Some(contents) => contents.iter().map(number).collect(),
            None => operand.constant.filter(|constant| constant.elements() <= 64)?.to_i64s().ok(),
        }
    };
    let product = |values: Vec<i64>| {
        values.iter().try_fold(1_u64, |product, &value| product.checked_mul(u64::try_from(value).ok()?))
    };
    // Elements of at most eight bytes.
    match node.operator.as_str() {
        "ConstantOfShape" => Some(product(integers(0)?)?.saturating_mul(8)),
        "Expand" => Some(product(integers(1)?)?.saturating_mul(8)),
        "Tile" => {
            let of = operands.first().copied().flatten()?.ty.byte_length()?;
            Some(product(integers(1)?)?.saturating_mul(of))
        }
        _ => None,
    }
}

fn number(extent: &Extent) -> Option<i64> {
    match extent {
        Extent::Number(number) => Some(*number),
        Extent::Size(_) => None,
    }
}

/// Whether values that are computed from shapes are few enough to be kept.
pub(crate) fn are_few(extents: &[Extent]) -> bool {
    extents.len() <= Budget::default().extents
}

/// Numbers of fields in <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.
const MODEL_GRAPH: u64 = 7;
const GRAPH_NODE: u64 = 1;
/// Nodes, weights, inputs, outputs, types of values, annotations, sparse weights and metadata.
const GRAPH_MESSAGES: [u64; 8] = [GRAPH_NODE, 5, 11, 12, 13, 14, 15, 16];
const NODE_ATTRIBUTE: u64 = 5;
const ATTRIBUTE_GRAPH: u64 = 6;
const ATTRIBUTE_GRAPHS: u64 = 11;

/// A field of a message, with its content where that has a length.
struct Field<'b> {
    number: u64,
    content: &'b [u8],
}

/// The fields of a message, up to the first that is damaged.
/// <https://protobuf.dev/programming-guides/encoding/>
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        let tag = varint(&mut bytes)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut bytes)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(Field { number: tag >> 3, content: if tag & 7 == 2 { content } else { &[] } })
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::integer_division)]

    use super::*;
    use crate::{DataType, Weight};

    /// A field of a message, with its content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn millions_of_empty_parts_are_refused_before_they_are_decoded() {
        let parts = |number: u8, count: usize| field(7, &[number << 3 | 2, 0].repeat(count));
        let check = |bytes: &[u8]| Budget::default().check_file(bytes);
        for number in [1, 5, 11, 12, 13] {
            assert!(check(&parts(number, 2 << 20)).unwrap_err().contains("found more"), "{number}");
            assert_eq!(check(&parts(number, 1000)), Ok(()));
        }
        // Inputs of one node, and values of one attribute.
        let inputs = field(7, &field(1, &[10, 0].repeat(2 << 20)));
        assert!(check(&inputs).is_err());
        let values = field(7, &field(1, &field(5, &[0x40, 1].repeat(2 << 20))));
        assert!(check(&values).is_err());
        // Graphs within graphs.
        let mut nested = Vec::new();
        for _ in 0..9 {
            nested = field(1, &field(5, &field(6, &nested)));
        }
        assert!(check(&field(7, &nested)).unwrap_err().contains("nested"));
        // A long text is one entry.
        assert_eq!(check(&field(7, &field(10, &b"doc ".repeat(1 << 20)))), Ok(()));
        // The decoder reports damage.
        assert_eq!(check(&[0x3a, 0xff]), Ok(()));
    }

    /// A graph whose constant of one number is doubled by `count` nodes.
    fn doubling(count: usize) -> Model {
        let mut model = Model::default();
        let one = Weight::from_bytes(DataType::I64, vec![1], vec![0; 8]).unwrap();
        model.weights.insert("c0".into(), one);
        model.nodes = (0..count)
            .map(|at| Node {
                name: format!("double.{at}"),
                operator: "Concat".into(),
                domain: String::new(),
                inputs: vec![format!("c{at}"); 2],
                outputs: vec![format!("c{}", at + 1)],
                attributes: [("axis".to_owned(), crate::Attribute::Int(0))].into(),
            })
            .collect();
        model
    }

    #[test]
    fn constants_that_double_are_refused() {
        doubling(20).infer_types().unwrap();
        let error = doubling(30).infer_types().unwrap_err().to_string();
        assert!(error.contains("double.2") && error.contains("is a constant of"), "{error}");
        let mut shape = Model::default();
        let sizes =
            Weight::from_bytes(DataType::I64, vec![2], [1_i64 << 20; 2].map(i64::to_le_bytes).concat()).unwrap();
        shape.weights.insert("sizes".into(), sizes);
        shape.nodes.push(Node {
            operator: "ConstantOfShape".into(),
            inputs: vec!["sizes".into()],
            ..doubling(1).nodes.remove(0)
        });
        assert!(shape.infer_types().is_err());
    }
}
