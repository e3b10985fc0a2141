//! A model as an ONNX message.

use super::store::WeightStore;
use crate::proto::tensor_proto::DataLocation;
use crate::proto::tensor_shape_proto::{Dimension, dimension};
use crate::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};
use crate::{Dim, Model, Node, Result, TensorType, Weight};

/// The message of a model. Its weights go to `store`.
pub(super) fn to_onnx(model: &Model, store: &mut WeightStore<'_>) -> Result<ModelProto> {
    let mut initializer = Vec::with_capacity(model.weights.len());
    for (name, weight) in &model.weights {
        initializer.push(tensor(name, weight, store)?);
    }
    let is_output = |name: &str| model.outputs.iter().any(|port| port.name == name);
    let made = model.nodes.iter().flat_map(|node| &node.outputs).filter(|name| !is_output(name));
    let graph = GraphProto {
        name: Some(model.name.clone()),
        node: model.nodes.iter().map(node).collect(),
        initializer,
        input: model.inputs.iter().map(|port| value_info(&port.name, &port.ty)).collect(),
        output: model.outputs.iter().map(|port| value_info(&port.name, &port.ty)).collect(),
        value_info: made.filter_map(|name| Some(value_info(name, model.types.get(name)?))).collect(),
        ..GraphProto::default()
    };
    let entry = |(key, value): (&String, &String)| StringStringEntryProto {
        key: Some(key.clone()),
        value: Some(value.clone()),
    };
    let opset =
        |set: &crate::Opset| OperatorSetIdProto { domain: Some(set.domain.clone()), version: Some(set.version) };
    Ok(ModelProto {
        ir_version: Some(model.ir_version),
        opset_import: model.opsets.iter().map(opset).collect(),
        producer_name: Some(model.producer.0.clone()),
        producer_version: Some(model.producer.1.clone()),
        graph: Some(graph),
        metadata_props: model.metadata.iter().map(entry).collect(),
        ..ModelProto::default()
    })
}

fn node(node: &Node) -> NodeProto {
    NodeProto {
        name: Some(node.name.clone()),
        op_type: Some(node.operator.clone()),
        domain: (!node.domain.is_empty()).then(|| node.domain.clone()),
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        attribute: node.attributes.iter().map(|(name, value)| value.to_onnx(name)).collect(),
        ..NodeProto::default()
    }
}

fn tensor(name: &str, weight: &Weight, store: &mut WeightStore<'_>) -> Result<TensorProto> {
    let mut proto = TensorProto {
        name: Some(name.into()),
        data_type: Some(weight.data_type().to_onnx()),
        dims: weight.dims().iter().map(|&dim| dim as i64).collect(),
        ..TensorProto::default()
    };
    match store.place(weight)? {
        None => proto.raw_data = Some(store.inlined(weight)?),
        Some((location, offset)) => {
            let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
            let (offset, length) = (offset.to_string(), weight.byte_length().to_string());
            proto.external_data = vec![entry("location", location), entry("offset", offset), entry("length", length)];
            proto.data_location = Some(DataLocation::External as i32);
        }
    }
    Ok(proto)
}

fn value_info(name: &str, ty: &TensorType) -> ValueInfoProto {
    let dim = |dim: &Dim| {
        let value = match dim {
            Dim::Fixed(size) => dimension::Value::DimValue(*size as i64),
            symbol @ Dim::Symbol { .. } => dimension::Value::DimParam(symbol.to_string()),
        };
        Dimension { value: Some(value), denotation: None }
    };
    let shape = TensorShapeProto { dim: ty.dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(ty.data_type.to_onnx()), shape: Some(shape) };
    let ty = TypeProto { denotation: None, value: Some(type_proto::Value::TensorType(tensor)) };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..ValueInfoProto::default() }
}
