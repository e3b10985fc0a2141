//! Cuts a graph into pieces that run one after another. Every value of the graph can then be inspected in bounded
//! memory, and is computed once.

use super::{reads, remove_unread};
use crate::{DataType, Model, Node, Port};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Nodes of a model that run together. Every FP32 value that they make is an output.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The nodes as a model, whose inputs are inputs of the whole model and FP32 values of earlier segments.
    pub model: Model,
    /// The values that later segments read. The ones that exist after this segment must be kept.
    pub kept: BTreeSet<String>,
}

/// The segments of a model, in the order in which they run. Each makes at most `bytes` of FP32 values, or the values of
/// one node if those take more.
///
/// Values of other types do not cross a cut: the nodes that make them, such as those that compute shapes, are repeated
/// where they are read. So are Casts of weights, whose results are no activations.
pub fn segments(model: &Model, bytes: usize) -> Vec<Segment> {
    let makers: HashMap<&str, usize> = model
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(at, node)| node.outputs.iter().map(move |output| (output.as_str(), at)))
        .collect();
    let mut segments: Vec<Segment> =
        cuts(model, bytes).windows(2).map(|cut| segment(model, &makers, cut[0]..cut[1])).collect();
    let mut wanted = BTreeSet::new();
    for Segment { model, kept } in segments.iter_mut().rev() {
        *kept = wanted.clone();
        wanted.extend(model.inputs.iter().map(|port| port.name.clone()));
    }
    segments
}

/// The number of bytes that suffices for the values kept between any two segments.
pub fn kept_bytes(model: &Model, segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.kept.iter().map(|name| size(model, name)).sum()).max().unwrap_or(0)
}

/// The positions where segments begin, and the end of the last segment.
fn cuts(model: &Model, bytes: usize) -> Vec<usize> {
    let (mut cuts, mut made) = (vec![0], 0);
    for (at, node) in model.nodes.iter().enumerate() {
        let activations = node.outputs.iter().filter(|output| is_activation(model, node, output));
        let size: usize = activations.map(|output| size(model, output)).sum();
        if made > 0 && made + size > bytes {
            cuts.push(at);
            made = 0;
        }
        made += size;
    }
    cuts.push(model.nodes.len());
    cuts
}

/// Bytes of an FP32 value of fixed shape; 0 for other values, which segments do not output.
fn size(model: &Model, value: &str) -> usize {
    let dims = model.type_of(value).filter(|ty| ty.data_type == DataType::F32).and_then(|ty| ty.fixed_dims());
    dims.map_or(0, |dims| dims.iter().product::<usize>() * 4)
}

/// Whether an output of `node` is an FP32 value and not just a Cast of one weight. A Cast of a weight that is stored
/// in half precision does not depend on the inputs, and all such Casts together are larger than the weights.
fn is_activation(model: &Model, node: &Node, output: &str) -> bool {
    let is_cast_of_weight = node.operator == "Cast" && reads(node).all(|input| model.weights.contains_key(input));
    !is_cast_of_weight && model.types.get(output).is_some_and(|ty| ty.data_type == DataType::F32)
}

fn segment(model: &Model, makers: &HashMap<&str, usize>, range: std::ops::Range<usize>) -> Segment {
    let mut positions: BTreeSet<usize> = range.clone().collect();
    let (mut left, mut inputs): (Vec<usize>, HashSet<&str>) = (range.clone().collect(), HashSet::new());
    while let Some(at) = left.pop() {
        for value in reads(&model.nodes[at]) {
            match makers.get(value) {
                Some(maker) if range.contains(maker) => {}
                Some(&maker) if is_activation(model, &model.nodes[maker], value) => {
                    inputs.insert(value);
                }
                Some(&maker) => {
                    if positions.insert(maker) {
                        left.push(maker);
                    }
                }
                None => {
                    inputs.insert(value);
                }
            }
        }
    }
    let port = |name: &str| model.types.get(name).map(|ty| Port { name: name.to_owned(), ty: ty.clone() });
    let of_model = model.inputs.iter().filter(|port| inputs.contains(port.name.as_str())).cloned();
    // In the order of the nodes, so that two runs give the same graph.
    let of_nodes = model.nodes.iter().flat_map(|node| &node.outputs).filter(|output| inputs.contains(output.as_str()));
    let inputs = of_model.chain(of_nodes.filter_map(|output| port(output))).collect();
    let made = model.nodes[range].iter().flat_map(|node| node.outputs.iter().map(move |output| (node, output)));
    let made = made.filter(|(node, output)| is_activation(model, node, output)).map(|(_, output)| output);
    let outputs = made.filter_map(|output| port(output)).collect();
    let nodes: Vec<Node> = positions.into_iter().map(|at| model.nodes[at].clone()).collect();
    let mut model = Model { inputs, outputs, nodes, ..model.clone() };
    remove_unread(&mut model);
    Segment { model, kept: BTreeSet::new() }
}
