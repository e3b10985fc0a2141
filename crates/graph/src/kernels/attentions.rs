//! Attention as nodes of [`Attention`].

use std::collections::HashMap;

use super::operators::{Attention, OWN_DOMAIN};
use super::replacements::Replacements;
use super::uses::Uses;
use super::weights::Weights;
use crate::dim::{Dim, TensorType};
use crate::known::{attribute, is};
use crate::proto::{AttributeProto, GraphProto, NodeProto};
use crate::{Attribute, DataType};

/// `[batch, tokens, heads, width]` to `[batch, heads, tokens, width]`, and back.
const HEADS_FIRST: [i64; 4] = [0, 2, 1, 3];
/// `[batch, tokens, heads, width]` to `[batch, heads, width, tokens]`.
const TOKENS_LAST: [i64; 4] = [0, 2, 3, 1];

/// What is known of a graph.
pub(crate) struct Known<'g> {
    pub(crate) graph: &'g GraphProto,
    pub(crate) weights: &'g Weights<'g>,
    pub(crate) uses: &'g Uses<'g>,
    /// The types of values.
    pub(crate) types: &'g HashMap<String, TensorType>,
    /// Whether Softmax is of the last axis where it has no attribute, as it is from opset 13 on.
    pub(crate) is_last_by_default: bool,
}

/// Whether a graph has nodes that could be attention.
pub(crate) fn may_be_in(graph: &GraphProto) -> bool {
    graph.node.iter().any(|node| is(node, "Softmax") || is(node, "Attention"))
}

/// Replaces attention where the operator can compute it.
pub(crate) fn replace(known: &Known<'_>, replaced: &mut Replacements) {
    for (place, node) in known.graph.node.iter().enumerate() {
        let found = if is(node, "Attention") { known.of_operator(place, node) } else { known.of_nodes(place, node) };
        if let Some(Found { place, made, dropped }) = found {
            let makers: Vec<usize> =
                made.input.iter().filter_map(|input| Some(known.uses.maker(known.graph, input)?.0)).collect();
            replaced.replace(&dropped, &makers, place, made);
        }
    }
}

/// The most biases of attention.
const MOST_BIASES: usize = 8;

/// Attention that the operator can compute.
struct Found {
    /// The node, or the last of them.
    place: usize,
    made: NodeProto,
    /// The others.
    dropped: Vec<usize>,
}

/// A node of the operator in the place of another.
fn operator(node: &NodeProto, inputs: Vec<String>, heads: usize, scale: Option<f32>) -> NodeProto {
    let heads = Attribute::Int(i64::try_from(heads).unwrap_or(i64::MAX)).to_onnx("heads");
    NodeProto {
        name: node.name.clone(),
        op_type: Some(Attention::NAME.into()),
        domain: Some(OWN_DOMAIN.into()),
        input: inputs,
        output: node.output.clone(),
        attribute: std::iter::once(heads).chain(scale.map(|scale| Attribute::Float(scale).to_onnx("scale"))).collect(),
        ..NodeProto::default()
    }
}

impl Known<'_> {
    /// ONNX's own operator of rows, without a mask and a cache.
    fn of_operator(&self, place: usize, node: &NodeProto) -> Option<Found> {
        let ([_, _, _], [_]) = (node.input.as_slice(), node.output.as_slice()) else { return None };
        // With four axes, heads come before tokens.
        if node.input.iter().any(|input| self.lengths(input).is_none_or(|lengths| lengths.len() != 3)) {
            return None;
        }
        let (mut heads, mut scale) = ([0; 2], None);
        for attribute in &node.attribute {
            match attribute.name() {
                "q_num_heads" => heads[0] = attribute.i(),
                "kv_num_heads" => heads[1] = attribute.i(),
                "scale" if attribute.f() > 0.0 && attribute.f().is_finite() => scale = Some(attribute.f()),
                "is_causal" if attribute.i() == 0 => {}
                "softcap" if attribute.f() == 0.0 => {}
                _ => return None,
            }
        }
        let count = usize::try_from(heads[0]).ok().filter(|count| *count > 0 && heads[0] == heads[1])?;
        Some(Found { place, made: operator(node, node.input.clone(), count, scale), dropped: Vec::new() })
    }

    /// Products, biases and a softmax.
    fn of_nodes(&self, place: usize, softmax: &NodeProto) -> Option<Found> {
        let is_last = attribute(softmax, "axis").map_or(self.is_last_by_default, |axis| matches!(axis.i(), -1 | 3));
        if !is(softmax, "Softmax") || !is_last {
            return None;
        }
        let mut dropped = vec![place];
        let (scores, mut biases) = (softmax.input.first()?, Vec::new());
        let (mut at, mut product) = self.made_for(scores)?;
        while is(product, "Add") && biases.len() < MOST_BIASES {
            dropped.push(at);
            let [a, b] = product.input.as_slice() else { return None };
            let (scores, bias) = if self.may_be_score(a) { (a, b) } else { (b, a) };
            biases.insert(0, bias.clone());
            (at, product) = self.made_for(scores)?;
        }
        dropped.push(at);
        let Product { scale, is_transposed } = product_of(product)?;
        let [q, k] = product.input.as_slice() else { return None };
        let (q, q_scale) = self.unscaled(q, &mut dropped);
        let weights = softmax.output.first()?;
        let (at, sums) = self.uses.reader(self.graph, weights)?;
        product_of(sums).filter(|sums| sums.scale == 1.0 && !sums.is_transposed)?;
        let [found, v] = sums.input.as_slice() else { return None };
        if found != weights || v == weights {
            return None;
        }
        dropped.push(at);
        let (last, joined) = self.uses.reader(self.graph, sums.output.first()?)?;
        is_transpose(joined, &HEADS_FIRST).then_some(())?;
        let of_keys = if is_transposed { HEADS_FIRST } else { TOKENS_LAST };
        let q = self.transposed(q, &HEADS_FIRST, &mut dropped)?;
        let k = self.transposed(k, &of_keys, &mut dropped)?;
        let v = self.transposed(v, &HEADS_FIRST, &mut dropped)?;
        let heads = self.heads([q, k, v], &biases)?;
        let scale = Some(scale * q_scale).filter(|scale| scale.is_finite())?;
        let inputs = [q, k, v].into_iter().cloned().chain(biases).collect();
        Some(Found { place: last, made: operator(joined, inputs, heads, Some(scale)), dropped })
    }

    /// The node that makes a value for one reader alone.
    fn made_for(&self, value: &str) -> Option<(usize, &NodeProto)> {
        self.uses.reader(self.graph, value)?;
        self.uses.maker(self.graph, value)
    }

    /// Whether a value may be a product of queries and keys, or such a product with biases.
    fn may_be_score(&self, value: &str) -> bool {
        self.made_for(value).is_some_and(|(_, node)| product_of(node).is_some() || is(node, "Add"))
    }

    /// A value before it is multiplied by a number that is a weight, and the number.
    fn unscaled<'v>(&'v self, value: &'v String, dropped: &mut Vec<usize>) -> (&'v String, f32) {
        let found = || {
            let (place, node) = self.made_for(value).filter(|(_, node)| is(node, "Mul"))?;
            let [a, b] = node.input.as_slice() else { return None };
            let (of, number) = self.weights.number(b).map(|b| (a, b)).or_else(|| Some((b, self.weights.number(a)?)))?;
            Some((place, of, number))
        };
        let Some((place, of, number)) = found() else { return (value, 1.0) };
        dropped.push(place);
        (of, number)
    }

    /// A value before it is transposed. The node goes if nothing else reads its results.
    fn transposed<'v>(&'v self, value: &str, order: &[i64; 4], dropped: &mut Vec<usize>) -> Option<&'v String> {
        let (place, node) = self.uses.maker(self.graph, value).filter(|(_, node)| is_transpose(node, order))?;
        dropped.extend(self.uses.reader(self.graph, value).map(|_| place));
        node.input.first()
    }

    /// The lengths of floats in 32 bits.
    fn lengths(&self, name: &str) -> Option<Vec<Dim>> {
        let of_value = || self.types.get(name).filter(|ty| ty.data_type == DataType::F32).map(|ty| ty.dims.clone());
        let of_weight = |dims: &[i64]| {
            let fixed = |length: &i64| usize::try_from(*length).ok().map(Dim::Fixed);
            dims.iter().map(fixed).collect::<Option<Vec<Dim>>>()
        };
        self.weights.dims(name).map_or_else(of_value, of_weight)
    }

    /// The number of heads, if no length is repeated to meet another.
    fn heads(&self, [q, k, v]: [&String; 3], biases: &[String]) -> Option<usize> {
        let [q, k, v] = [q, k, v].map(|name| self.lengths(name));
        let (q, k, v) = (q?, k?, v?);
        let ([batch, queries, heads, width], [batch_k, keys, heads_k, width_k]) = (&*q, &*k) else { return None };
        let [batch_v, values, heads_v, _] = &*v else { return None };
        let is_same = [batch_k, batch_v].iter().all(|found| *found == batch)
            && [heads_k, heads_v].iter().all(|found| *found == heads)
            && width == width_k
            && keys == values;
        let is_shared = |name: &String| {
            let lengths = self.lengths(name)?;
            let of_scores = [batch, heads, queries, keys];
            let all = of_scores.get(4_usize.checked_sub(lengths.len())?..)?;
            let fits = lengths.iter().zip(all).all(|(found, all)| found == *all || *found == Dim::Fixed(1));
            (fits && lengths.last() == Some(keys)).then_some(())
        };
        let are_shared = biases.iter().all(|bias| is_shared(bias).is_some());
        match heads {
            Dim::Fixed(heads) if *heads > 0 && is_same && are_shared => Some(*heads),
            _ => None,
        }
    }
}

/// A product of two values.
struct Product {
    /// What it is multiplied by.
    scale: f32,
    /// Whether the rows of the second one are columns.
    is_transposed: bool,
}

fn product_of(node: &NodeProto) -> Option<Product> {
    if node.input.len() != 2 || node.output.len() != 1 {
        return None;
    }
    if is(node, "MatMul") {
        return Some(Product { scale: 1.0, is_transposed: false });
    }
    if node.op_type() != "FusedMatMul" || node.domain() != "com.microsoft" {
        return None;
    }
    let is_set = |name: &str| attribute(node, name).is_some_and(|attribute| attribute.i() != 0);
    let scale = attribute(node, "alpha").map_or(1.0, AttributeProto::f);
    let is_plain = !["transA", "transBatchA", "transBatchB"].into_iter().any(is_set);
    is_plain.then(|| Product { scale, is_transposed: is_set("transB") })
}

fn is_transpose(node: &NodeProto, order: &[i64; 4]) -> bool {
    is(node, "Transpose") && attribute(node, "perm").is_some_and(|perm| perm.ints == order) && node.output.len() == 1
}
