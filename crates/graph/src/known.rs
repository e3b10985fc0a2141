//! What an ONNX file says of its values without its weights.

use std::collections::HashMap;
use std::path::Path;

use prost::Message;

use crate::dim::{Dim, TensorType};
use crate::load::decode;
use crate::proto::tensor_proto::{DataLocation, DataType};
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
    tensor_shape_proto, type_proto,
};
use crate::rewrite::Names;

/// The values of a one-dimensional tensor of 64-bit integers that the file itself holds.
pub(crate) fn integers(tensor: &TensorProto) -> Option<Vec<i64>> {
    let is_plain = tensor.data_type() == DataType::Int64 as i32 && tensor.dims.len() == 1;
    if !is_plain || tensor.data_location() == DataLocation::External {
        return None;
    }
    match &tensor.raw_data {
        Some(raw) => {
            Some(raw.chunks_exact(8).filter_map(|bytes| Some(i64::from_le_bytes(bytes.try_into().ok()?))).collect())
        }
        None => Some(tensor.int64_data.clone()),
    }
}

/// The number of axes of each value, where it can be inferred.
pub(crate) fn ranks(model: &ModelProto, path: &Path) -> HashMap<String, usize> {
    lengths(model, path).into_iter().map(|(name, dims)| (name, dims.len())).collect()
}

/// The lengths of each value, where they can be inferred.
pub(crate) fn lengths(model: &ModelProto, path: &Path) -> HashMap<String, Vec<Dim>> {
    types(model, path).into_iter().map(|(name, ty)| (name, ty.dims)).collect()
}

/// The type of each value, where it can be inferred.
pub(crate) fn types(model: &ModelProto, path: &Path) -> HashMap<String, TensorType> {
    // Weights in other files count as inputs, so that no file is opened.
    let mut whole = model.clone();
    let graph: &mut GraphProto = whole.graph.get_or_insert_default();
    let (external, own) = std::mem::take(&mut graph.initializer)
        .into_iter()
        .partition(|tensor: &TensorProto| tensor.data_location() == DataLocation::External);
    graph.initializer = own;
    graph.input.retain(|input| !external.iter().any(|tensor: &TensorProto| tensor.name() == input.name()));
    graph.input.extend(external.iter().map(declared));
    let Ok(model) = decode(whole.encode_to_vec().into(), path) else { return HashMap::new() };
    let inputs = model.inputs.into_iter().map(|port| (port.name, port.ty));
    inputs.chain(model.types).collect()
}

/// An input with the type and the sizes of a weight.
fn declared(tensor: &TensorProto) -> ValueInfoProto {
    let dim = |&length: &i64| tensor_shape_proto::Dimension {
        value: Some(tensor_shape_proto::dimension::Value::DimValue(length)),
        ..Default::default()
    };
    let shape = TensorShapeProto { dim: tensor.dims.iter().map(dim).collect() };
    let kind = type_proto::Tensor { elem_type: tensor.data_type, shape: Some(shape) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(kind)), ..Default::default() };
    ValueInfoProto { name: tensor.name.clone(), r#type: Some(kind), ..Default::default() }
}

/// Every name of a node, a value or a weight.
pub(crate) fn names(graph: &GraphProto) -> Names {
    let nodes =
        graph.node.iter().flat_map(|node| node.input.iter().chain(&node.output).cloned().chain([node.name().into()]));
    let weights = graph.initializer.iter().map(|tensor| tensor.name().to_owned());
    let inputs = graph.input.iter().map(|input| input.name().to_owned());
    Names::of(nodes.chain(weights).chain(inputs))
}

/// A node's attribute.
pub(crate) fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name() == name)
}

/// Whether these are ONNX's own operators.
pub(crate) fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

/// Whether a node applies this operator of ONNX's own.
pub(crate) fn is(node: &NodeProto, operator: &str) -> bool {
    node.op_type() == operator && is_standard(node.domain())
}
