//! Nodes of attention.

use std::fmt::Display;
use std::sync::Arc;

use ort::operator::{ComputeContext, Kernel, KernelContext, OperatorInput, OperatorOutput, ShapeInferenceContext};
use ort::value::{TensorElementType, ValueType};
use tileforge_graph::Attention as Described;
use tileforge_kernels::{Attention, Bias, Lengths};

use super::memory::Memory;
use super::operator::{self, lengths};

/// The operator.
pub(super) struct Operator(pub(super) Arc<Memory>);

/// One node.
pub(super) struct Node {
    heads: usize,
    /// `None`: one over the square root of a head's width.
    scale: Option<f32>,
    memory: Arc<Memory>,
}

fn refused(problem: impl Display) -> ort::Error {
    operator::refused(Described::NAME, problem)
}

impl ort::operator::Operator for Operator {
    type Kernel<'attr> = Node;

    fn name(&self) -> &str {
        Described::NAME
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        let float = TensorElementType::Float32;
        let fixed = (0..Described::FIXED_INPUTS).map(move |_| OperatorInput::required(float));
        fixed.chain([OperatorInput::variadic(0).homogenous(float)])
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn create_kernel<'attr>(&self, context: &KernelContext<'attr>) -> ort::Result<Node> {
        let heads = context.get::<i64>("heads").and_then(|heads| usize::try_from(heads).ok());
        let heads = heads.filter(|heads| *heads > 0).ok_or_else(|| refused("it has no number of heads"))?;
        let Self(memory) = self;
        Ok(Node { heads, scale: context.get("scale"), memory: memory.clone() })
    }

    fn infer_shape(&self, context: &mut ShapeInferenceContext) -> ort::Result<()> {
        let inputs = context.inputs();
        let [
            ValueType::Tensor { shape: queries, dimension_symbols, .. },
            _,
            ValueType::Tensor { shape: values, .. },
            ..,
        ] = inputs.as_slice()
        else {
            return Ok(());
        };
        let (Some(last), true) = (queries.len().checked_sub(1), queries.len() == values.len()) else { return Ok(()) };
        let (mut shape, mut names) = (queries.to_vec(), dimension_symbols.to_vec());
        names.resize(shape.len(), String::new());
        (shape[last], names[last]) = (values[last], String::new());
        operator::state(context, shape, names)
    }
}

impl Node {
    /// Samples, tokens, and the width of a head.
    fn tokens(&self, shape: &[i64]) -> ort::Result<[usize; 3]> {
        let found = match *lengths(shape) {
            [samples, tokens, all] if all % self.heads == 0 => Some([samples, tokens, all / self.heads]),
            [samples, tokens, heads, width] if heads == self.heads => Some([samples, tokens, width]),
            _ => None,
        };
        found.ok_or_else(|| refused(format!("expected tokens of {} heads, found {shape:?}", self.heads)))
    }
}

/// A bias of scores of these lengths.
fn bias<'b>(shape: &[i64], values: &'b [f32], of_scores: [usize; 4]) -> ort::Result<Bias<'b>> {
    let found = || {
        let (mut all, found) = ([1; 4], lengths(shape));
        all.get_mut(4_usize.checked_sub(found.len())?..)?.copy_from_slice(&found);
        let are_shared = all.iter().zip(of_scores).take(3).all(|(found, of_scores)| [1, of_scores].contains(found));
        (are_shared && all[3] == of_scores[3]).then_some(Bias { values, lengths: all })
    };
    found().ok_or_else(|| refused(format!("a bias of {shape:?} does not fit scores of {of_scores:?}")))
}

impl Kernel for Node {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        let count = context.num_inputs()?;
        let inputs = (0..count).map(|place| context.input(place)).filter_map(ort::Result::transpose);
        let inputs = inputs.collect::<ort::Result<Vec<_>>>()?;
        let inputs = inputs.iter().map(|input| input.try_extract_tensor::<f32>()).collect::<ort::Result<Vec<_>>>()?;
        let [(of_queries, q), (of_keys, k), (of_values, v), biases @ ..] = inputs.as_slice() else {
            return Err(refused("expected queries, keys and values"));
        };
        let [samples, queries, width] = self.tokens(of_queries)?;
        let ([samples_k, keys, width_k], [samples_v, values, value_width]) =
            (self.tokens(of_keys)?, self.tokens(of_values)?);
        if [samples_k, samples_v] != [samples; 2] || width_k != width || values != keys {
            return Err(refused(format!("{of_queries:?}, {of_keys:?} and {of_values:?} do not fit each other")));
        }
        let heads = self.heads;
        let biases = biases.iter().map(|(shape, values)| bias(shape, values, [samples, heads, queries, keys]));
        let biases = biases.collect::<ort::Result<Vec<_>>>()?;
        let mut shape = of_queries.to_vec();
        if let (Some(last), Some(width)) = (shape.last_mut(), of_values.last()) {
            *last = *width;
        }
        let mut results = context.output(0, shape)?.ok_or_else(|| refused("it has no place for results"))?;
        let (_, results) = results.try_extract_tensor_mut::<f32>()?;
        let lengths = Lengths { samples, heads, queries, keys, width, value_width };
        self.memory.count_thread(Attention::scratch_bytes(&lengths));
        let scale = self.scale.unwrap_or_else(|| (width as f32).sqrt().recip());
        let attention = Attention::new(scale).map_err(refused)?;
        let ran = attention.run(&lengths, [q, k, v], &biases, results, &self.memory.scratch, operator::each(context));
        ran.map_err(|error| operator::failed(Described::NAME, error))
    }
}
