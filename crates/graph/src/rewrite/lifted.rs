//! Half-precision models in FP32, so that another precision can be chosen for them.

use super::half::to;
use crate::{Attribute, DataType, Error, Model, Node, Result};

/// Whether a model computes in half precision, or has weights, inputs or outputs in it.
pub fn is_half(model: &Model) -> bool {
    let ports = model.inputs.iter().chain(&model.outputs).map(|port| port.ty.data_type);
    let weights = model.weights.values().map(crate::Weight::data_type);
    let casts = model.nodes.iter().filter_map(cast_target);
    ports.chain(weights).chain(casts).any(is_16_bit)
}

/// The model with every FP16 and BF16 value in FP32. Weights keep their values, and are still descriptions of the
/// stored bytes. A Cast to half precision becomes a Cast to FP32: its rounding was part of the half precision.
///
/// The types of intermediate values are dropped, because they have changed.
///
/// # Errors
/// [`Error::Node`]: a node holds a graph, which may have values in half precision.
pub fn lifted_to_fp32(model: &Model) -> Result<Model> {
    if !is_half(model) {
        return Ok(model.clone());
    }
    let mut made = model.clone();
    made.types.clear();
    for port in made.inputs.iter_mut().chain(&mut made.outputs).filter(|port| is_16_bit(port.ty.data_type)) {
        port.ty.data_type = DataType::F32;
    }
    for weight in made.weights.values_mut().filter(|weight| is_16_bit(weight.data_type())) {
        *weight = weight.cast(DataType::F32)?;
    }
    for node in &mut made.nodes {
        lift(node)?;
    }
    Ok(made)
}

fn lift(node: &mut Node) -> Result<()> {
    let fail = |reason: &str| Error::Node {
        node: node.name.clone(),
        operator: node.operator.clone(),
        reason: reason.to_owned(),
    };
    if node.attributes.values().any(|attribute| matches!(attribute, Attribute::Other(other) if other.g.is_some())) {
        return Err(fail("it holds a graph, which may compute in half precision; give the network in FP32"));
    }
    let half = |number: &i64| i32::try_from(*number).ok().and_then(DataType::from_onnx).is_some_and(is_16_bit);
    // Attributes that state a type: of Cast, of random and identity matrices, and of dequantised values.
    for name in ["to", "dtype", "output_dtype", "stash_type", "softmax_precision"] {
        if matches!(node.attributes.get(name), Some(Attribute::Int(number)) if half(number)) {
            let (_, fp32) = to(DataType::F32);
            node.attributes.insert(name.to_owned(), fp32);
        }
    }
    if let Some(Attribute::Tensor(value)) = node.attributes.get_mut("value")
        && let Some(data_type) = DataType::from_onnx(value.data_type()).filter(|data_type| is_16_bit(*data_type))
    {
        let dims = value.dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<Vec<_>, _>>();
        let dims = dims.map_err(|_| Error::Graph(format!("node `{}`: negative sizes", node.name)))?;
        let bytes = match &value.raw_data {
            Some(raw) => raw.to_vec(),
            None => value.int32_data.iter().flat_map(|v| v.to_le_bytes().into_iter().take(2)).collect(),
        };
        let values = crate::Weight::from_bytes(data_type, dims, bytes)?.to_f32s()?;
        value.data_type = Some(DataType::F32.to_onnx());
        value.int32_data.clear();
        value.raw_data = Some(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into());
    }
    Ok(())
}

fn cast_target(node: &Node) -> Option<DataType> {
    DataType::from_onnx(i32::try_from(node.int("to").filter(|_| node.is("Cast"))?).ok()?)
}

fn is_16_bit(data_type: DataType) -> bool {
    matches!(data_type, DataType::F16 | DataType::Bf16)
}
