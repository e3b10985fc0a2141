//! Which values of a graph are constant floats.

use std::collections::{HashMap, HashSet};

use crate::known::{attribute, is_standard};
use crate::proto::tensor_proto::{DataLocation, DataType};
use crate::proto::{AttributeProto, GraphProto, TensorProto};

/// The lengths of a graph's constant FP32 weights, by their names. Inputs of the graph are not constant. Weights in
/// fewer bits are, if the session makes floats of them while it is opened.
pub(crate) struct Weights<'g> {
    lengths: HashMap<&'g str, &'g [i64]>,
    stored: HashMap<&'g str, &'g TensorProto>,
}

impl<'g> Weights<'g> {
    pub(crate) fn of(graph: &'g GraphProto, dequantises: bool) -> Self {
        let inputs: HashSet<&str> = graph.input.iter().map(|input| input.name()).collect();
        let fixed = graph.initializer.iter().filter(|tensor| !inputs.contains(tensor.name()));
        let stored: HashMap<&str, &TensorProto> = fixed.map(|tensor| (tensor.name(), tensor)).collect();
        let is_float = |tensor: &TensorProto| tensor.data_type() == DataType::Float as i32;
        let floats = stored.iter().filter(|(_, tensor)| is_float(tensor)).map(|(name, tensor)| (*name, &*tensor.dims));
        let returned: HashSet<&str> = graph.output.iter().map(|output| output.name()).collect();
        let folded = graph.node.iter().filter(|node| is_standard(node.domain())).filter_map(|node| {
            let of_scale = || stored.get(node.input.get(1)?.as_str());
            let is_folded = match node.op_type() {
                "Cast" => attribute(node, "to").map(AttributeProto::i) == Some(DataType::Float as i64),
                "DequantizeLinear" => dequantises && of_scale().is_some_and(|scale| is_float(scale)),
                _ => false,
            };
            let output = node.output.first()?.as_str();
            // ONNX Runtime computes these while it opens the graph, if nothing but stored weights is needed.
            let is_constant = node.input.iter().all(|name| name.is_empty() || stored.contains_key(name.as_str()));
            if !is_folded || !is_constant || returned.contains(output) {
                return None;
            }
            Some((output, &*stored.get(node.input.first()?.as_str())?.dims))
        });
        let lengths = floats.chain(folded).collect();
        Self { lengths, stored }
    }

    /// The lengths of an FP32 weight.
    pub(crate) fn dims(&self, name: &str) -> Option<&'g [i64]> {
        self.lengths.get(name).copied()
    }

    /// Whether a weight has one value for each of so many channels, along the channels of images.
    pub(crate) fn is_of_channels(&self, name: &str, channels: usize) -> bool {
        match self.dims(name) {
            Some([length, 1, 1] | [1, length, 1, 1]) => usize::try_from(*length) == Ok(channels),
            _ => false,
        }
    }

    /// An FP32 weight of one number that the file itself holds.
    pub(crate) fn number(&self, name: &str) -> Option<f32> {
        let is_one = |tensor: &&&TensorProto| tensor.dims.iter().all(|length| *length == 1);
        let tensor = self.stored.get(name).filter(is_one)?;
        if tensor.data_location() == DataLocation::External || self.dims(name).is_none() {
            return None;
        }
        match (&tensor.raw_data, tensor.float_data.as_slice()) {
            (Some(raw), _) => Some(f32::from_le_bytes(raw.as_ref().try_into().ok()?)),
            (None, [number]) => Some(*number),
            _ => None,
        }
    }
}
