//! Repeated channels for ONNX Runtime's CPU kernels: nearest enlargement before DepthToSpace is a Gather of channels,
//! which is not in the blocked layout of convolutions. A 1×1 convolution with a single 1 in each filter is the same, to
//! the bit, and the sum that it goes into is then computed within the other convolution.

use super::rewrite::{Rewrite, only_reader, readers};
use crate::Result;
use std::collections::HashMap;
use tileforge_graph::{Attribute, DataType, Model, Node, Weight};

/// The model with a convolution for every Gather of channels whose one reader adds it to a convolution's output.
///
/// # Errors
/// Indices cannot be read, or the result does not fit the operators' rules.
pub(super) fn as_convolutions(model: &Model) -> Result<Model> {
    let readers = readers(&model.nodes);
    let chosen = model.nodes.iter().map(|node| one_hot(model, node, &readers)).collect::<Result<Vec<_>>>()?;
    let (mut rewrite, nodes) = Rewrite::of(model);
    for (mut node, weight) in nodes.into_iter().zip(chosen) {
        if let Some(weight) = weight {
            let filters = rewrite.weight(&format!("{}/filters", node.name), weight);
            node.operator = "Conv".into();
            node.inputs[1] = filters;
            node.attributes = [("kernel_shape".to_owned(), Attribute::from(vec![1_i64, 1]))].into();
        }
        rewrite.model.nodes.push(node);
    }
    rewrite.finish()
}

/// The filters `[filters, channels, 1, 1]` that do what a node does, if it is such a Gather.
fn one_hot(model: &Model, node: &Node, readers: &HashMap<&str, Vec<usize>>) -> Result<Option<Weight>> {
    let channels =
        match model.type_of(node.inputs.first().map_or("", String::as_str)).and_then(|ty| ty.fixed_dims()).as_deref() {
            Some([_, channels, _, _]) => *channels,
            _ => return Ok(None),
        };
    let indices =
        node.inputs.get(1).and_then(|name| model.weights.get(name)).filter(|indices| indices.dims().len() == 1);
    let (Some(indices), true) =
        (indices, node.operator == "Gather" && node.attributes.get("axis") == Some(&Attribute::Int(1)))
    else {
        return Ok(None);
    };
    let makes =
        |name: &String| model.nodes.iter().any(|other| other.operator == "Conv" && other.outputs.contains(name));
    let Some(sum) = only_reader(readers, &node.outputs[0]).map(|position| &model.nodes[position]) else {
        return Ok(None);
    };
    if sum.operator != "Add" || !sum.inputs.iter().any(makes) {
        return Ok(None);
    }
    let mut filters = vec![0_f32; indices.elements() * channels];
    for (filter, index) in indices.to_i64s()?.into_iter().enumerate() {
        // Negative ones count from the end.
        let channel = usize::try_from(if index < 0 { index + channels as i64 } else { index });
        match channel.ok().filter(|channel| *channel < channels) {
            Some(channel) => filters[filter * channels + channel] = 1.0,
            None => return Ok(None),
        }
    }
    let bytes: Vec<u8> = filters.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(Some(Weight::from_bytes(DataType::F32, vec![indices.elements(), channels, 1, 1], bytes)?))
}
