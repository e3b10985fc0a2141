//! Graphs in a form that OpenVINO reads from memory and computes as ONNX defines.

use std::collections::HashMap;
use std::path::Path;

use prost::Message;

use crate::external::{ExternalTensor, describe};
use crate::known::{integers, is, ranks};
use crate::message::decode_message;
use crate::proto::tensor_proto::DataLocation;
use crate::proto::{NodeProto, StringStringEntryProto};
use crate::{Attribute, Error, Result};

/// The location that marks weights in this process's memory: their offset is an address. A file that already contains
/// this location could name any address, so it must not be loaded.
pub const IN_MEMORY: &str = "*/_ORT_MEM_ADDR_/*";

/// The ONNX file with these bytes for OpenVINO. Each external weight of its graph is read from this process's memory
/// instead, at the address that `address` returns. External tensors in nodes' attributes and in nested graphs do not
/// change. `path` is the file's path, for errors.
///
/// The axes of Gather become negative, so that they count from the end. OpenVINO 2026.4.1 folds a Gather that reorders
/// channels into the weights of the next convolution, but applies the inverse order there. It does this only if the
/// axis counts from the beginning.
///
/// # Errors
/// The bytes are not an ONNX model; a weight has an unknown type, impossible sizes, or an invalid location; or
/// OpenVINO may compute a Gather wrongly, and the rank of its input is not known.
pub fn for_openvino(bytes: &[u8], path: &Path, address: impl Fn(&ExternalTensor) -> usize) -> Result<Vec<u8>> {
    let mut model = decode_message(bytes, path)?;
    let ranks = ranks(&model, path);
    let Some(graph) = &mut model.graph else { return Err(Error::format(path, "it has no graph")) };
    let orders: HashMap<String, Vec<i64>> =
        graph.initializer.iter().filter_map(|tensor| Some((tensor.name().to_owned(), integers(tensor)?))).collect();
    for node in graph.node.iter_mut().filter(|node| is(node, "Gather")) {
        count_from_the_end(node, &ranks, &orders).map_err(|reason| Error::format(path, reason))?;
    }
    for tensor in graph.initializer.iter_mut().filter(|tensor| tensor.data_location() == DataLocation::External) {
        let described =
            describe(tensor).map_err(|reason| Error::format(path, format!("weight `{}`: {reason}", tensor.name())))?;
        let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
        tensor.external_data = vec![
            entry("location", IN_MEMORY.into()),
            entry("offset", address(&described).to_string()),
            entry("length", described.length.to_string()),
        ];
    }
    Ok(model.encode_to_vec())
}

fn count_from_the_end(
    node: &mut NodeProto,
    ranks: &HashMap<String, usize>,
    orders: &HashMap<String, Vec<i64>>,
) -> Result<(), String> {
    let place = node.attribute.iter().position(|attribute| attribute.name() == "axis");
    let axis = place.map_or(0, |place| node.attribute[place].i());
    if axis < 0 {
        return Ok(());
    }
    let rank = node.input.first().and_then(|data| ranks.get(data)).and_then(|rank| i64::try_from(*rank).ok());
    let Some(rank) = rank else {
        let order = node.input.get(1).and_then(|indices| orders.get(indices));
        // An order that only swaps pairs is its own inverse.
        return match order.filter(|order| is_other_than_its_inverse(order)) {
            Some(_) => Err(format!("`{}`: expected a Gather of values with a known number of axes", node.name())),
            None => Ok(()),
        };
    };
    let counted = Attribute::Int(axis - rank).to_onnx("axis");
    match place {
        Some(place) => node.attribute[place] = counted,
        None => node.attribute.push(counted),
    }
    Ok(())
}

/// Whether the numbers are a permutation that differs from its inverse.
fn is_other_than_its_inverse(order: &[i64]) -> bool {
    let count = order.len();
    let place = |index: &i64| usize::try_from(if *index < 0 { index + count as i64 } else { *index }).ok();
    let places: Option<Vec<usize>> = order.iter().map(|index| place(index).filter(|place| *place < count)).collect();
    let Some(places) = places else { return false };
    let mut sorted = places.clone();
    sorted.sort_unstable();
    sorted.iter().copied().eq(0..count) && places.iter().enumerate().any(|(at, to)| places[*to] != at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_swap_pairs_are_their_own_inverse() {
        for (order, other) in [
            (&[0, 1, 2][..], false),
            (&[2, 1, 0], false),
            (&[1, 0, 3, 2], false),
            (&[-1, 1, 0], false),
            (&[1, 2, 0], true),
            (&[0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11], true),
            // These choose and repeat.
            (&[0, 0, 1], false),
            (&[1, 2, 3], false),
            (&[], false),
        ] {
            assert_eq!(is_other_than_its_inverse(order), other, "{order:?}");
        }
    }
}
