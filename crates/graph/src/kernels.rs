//! Graphs with nodes of this project's operators, for a runtime that brings their kernels.

mod attentions;
mod convolutions;
mod operators;
mod replacements;
mod uses;
mod weights;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

use prost::Message;

use crate::attribute::graphs;
use crate::dim::Dim;
use crate::known::{self, is_standard};
use crate::message::decode_message;
use crate::proto::{GraphProto, OperatorSetIdProto};
use crate::{Error, Result};

pub use operators::{Attention, Convolution3x3, OWN_DOMAIN};

use attentions::Known;
use replacements::Replacements;
use uses::Uses;
use weights::Weights;

/// The ONNX file with these bytes, with nodes of our operators in the place of those that they can compute. `None`:
/// there are none.
///
/// Prepared weights of convolutions take `bytes_of` outputs and inputs. Together they take no more than `most_bytes`:
/// those come first that are used in the most places. Without `dequantises`, weights in 8 bits stay: the session
/// computes with them. `path` is the file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn with_kernels(
    bytes: &[u8],
    path: &Path,
    dequantises: bool,
    most_bytes: usize,
    bytes_of: impl Fn([usize; 2]) -> usize,
) -> Result<Option<Vec<u8>>> {
    let mut model = decode_message(bytes, path)?;
    let Some(graph) = &model.graph else { return Err(Error::format(path, "it has no graph")) };
    // A file's own nodes of the operators would run with what the file says. And functions can have an operator's name.
    if has_our_nodes(graph) || !model.functions.is_empty() {
        return Ok(None);
    }
    let (weights, uses) = (Weights::of(graph, dequantises), Uses::of(graph));
    let mut convolutions = convolutions::found(graph, &weights);
    let of = |found: &convolutions::Found| Cost { place: found.place, bytes: bytes_of(found.channels), pixels: 0 };
    let mut costs: Vec<Cost> = convolutions.iter().map(of).collect();
    let is_much = costs.iter().map(|cost| cost.bytes).fold(0, usize::saturating_add) > most_bytes;
    let has_attention = attentions::may_be_in(graph);
    let types = if is_much || has_attention { known::types(&model, path) } else { HashMap::new() };
    if is_much {
        for cost in &mut costs {
            cost.pixels = types.get(&graph.node[cost.place].output[0]).map_or(0, |ty| pixels(&ty.dims));
        }
        costs.sort_by_key(|cost| (Reverse(cost.pixels), cost.bytes));
        let chosen = chosen(&costs, most_bytes);
        convolutions.retain(|found| chosen.contains(&found.place));
    }
    let mut replaced = Replacements::default();
    convolutions::replace(graph, &weights, &uses, convolutions, &mut known::names(graph), &mut replaced);
    // ONNX Runtime takes the last one.
    let opset = model.opset_import.iter().rfind(|opset| is_standard(opset.domain())).map_or(0, |opset| opset.version());
    let graph_of = Known { graph, weights: &weights, uses: &uses, types: &types, is_last_by_default: opset >= 13 };
    attentions::replace(&graph_of, &mut replaced);
    if replaced.made.is_empty() {
        return Ok(None);
    }
    replaced.apply(model.graph.get_or_insert_default());
    model.opset_import.retain(|opset| opset.domain() != OWN_DOMAIN);
    model.opset_import.push(OperatorSetIdProto { domain: Some(OWN_DOMAIN.into()), version: Some(1) });
    Ok(Some(model.encode_to_vec()))
}

/// Whether a node of the graph, or of graphs within it, is of our domain.
fn has_our_nodes(graph: &GraphProto) -> bool {
    graph
        .node
        .iter()
        .any(|node| node.domain() == OWN_DOMAIN || node.attribute.iter().flat_map(graphs).any(has_our_nodes))
}

/// What a convolution costs.
struct Cost {
    /// Its number in the graph.
    place: usize,
    /// Those of its prepared weights.
    bytes: usize,
    /// The pixels of its results, where each of its weights is used.
    pixels: usize,
}

/// The nodes whose weights fit, one after the other.
fn chosen(costs: &[Cost], most_bytes: usize) -> Vec<usize> {
    let mut left = most_bytes;
    let fits = |cost: &&Cost| {
        let rest = left.checked_sub(cost.bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    costs.iter().filter(fits).map(|cost| cost.place).collect()
}

/// What a length that is not known counts as, to compare sizes.
const SOME_LENGTH: usize = 64;

/// The pixels of images with these lengths.
fn pixels(lengths: &[Dim]) -> usize {
    let length = |dim: &Dim| match dim {
        Dim::Fixed(length) => *length,
        Dim::Symbol { multiply, divide, .. } => SOME_LENGTH.saturating_mul(*multiply) / (*divide).max(1),
    };
    match lengths {
        [_, _, height, width] => length(height).saturating_mul(length(width)),
        _ => 0,
    }
}
