//! Nodes of linear layers.

use std::fmt::Display;
use std::sync::{Arc, LazyLock};

use ort::operator::{ComputeContext, Kernel, KernelContext, OperatorInput, OperatorOutput, ShapeInferenceContext};
use ort::value::{TensorElementType, ValueType};
use tileforge_graph::Linear as Described;
use tileforge_kernels::{self as kernels, Arrangement, Linear};

use super::memory::{Memory, Shared};
use super::operator::{self, constant, floats, lengths};

/// The operator.
pub(super) struct Operator(pub(super) Arc<Memory>);

/// One node.
pub(super) struct Node {
    layer: Arc<Linear>,
    /// The inputs beside the values that it was made of.
    constants: [bool; Described::INPUTS],
    memory: Arc<Memory>,
}

fn refused(problem: impl Display) -> ort::Error {
    operator::refused(Described::NAME, problem)
}

/// The arrangement of the weights that a node states.
fn arrangement(by_output: Option<i64>) -> Arrangement {
    if by_output.unwrap_or(0) == 0 { Arrangement::ByInput } else { Arrangement::ByOutput }
}

/// The lengths of a row of results, and of values, of weights with these lengths.
fn channels([rows, columns]: [usize; 2], arrangement: Arrangement) -> [usize; 2] {
    match arrangement {
        Arrangement::ByInput => [columns, rows],
        Arrangement::ByOutput => [rows, columns],
    }
}

impl ort::operator::Operator for Operator {
    type Kernel<'attr> = Node;

    fn name(&self) -> &str {
        Described::NAME
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        let float = TensorElementType::Float32;
        [OperatorInput::required(float), OperatorInput::required(float), OperatorInput::optional(float)]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn create_kernel<'attr>(&self, context: &KernelContext<'attr>) -> ort::Result<Node> {
        let [weights, bias] = [1, 2].map(|place| constant(context, place));
        let constants = [false, true, bias.is_some()];
        let weights = weights.ok_or_else(|| refused("its weights are not constant"))?;
        let (shape, weights) = weights.try_extract_tensor::<f32>()?;
        let [rows, columns] = *lengths(shape) else { return Err(refused("expected weights of two axes")) };
        let arrangement = arrangement(context.get("by_output"));
        let channels = channels([rows, columns], arrangement);
        let has_gelu = context.get::<i64>("gelu").unwrap_or(0) != 0;
        let layer = prepared(weights, channels, arrangement, floats(&bias)?, has_gelu).map_err(refused)?;
        let Self(memory) = self;
        memory.count(Linear::bytes_of(channels[0], channels[1]));
        Ok(Node { layer, constants, memory: memory.clone() })
    }

    fn infer_shape(&self, context: &mut ShapeInferenceContext) -> ort::Result<()> {
        let inputs = context.inputs();
        let [ValueType::Tensor { shape: values, dimension_symbols, .. }, ValueType::Tensor { shape: weights, .. }, ..] =
            inputs.as_slice()
        else {
            return Ok(());
        };
        let [rows, columns] = *lengths(weights) else { return Ok(()) };
        let [outputs, _] = channels([rows, columns], arrangement(context.attr("by_output").ok()));
        let Some(last) = values.len().checked_sub(1) else { return Ok(()) };
        let (mut shape, mut names) = (values.to_vec(), dimension_symbols.to_vec());
        names.resize(shape.len(), String::new());
        (shape[last], names[last]) = (outputs as i64, String::new());
        operator::state(context, shape, names)
    }
}

/// The layer with these weights.
fn prepared(
    weights: &[f32],
    channels: [usize; 2],
    arrangement: Arrangement,
    bias: Option<&[f32]>,
    has_gelu: bool,
) -> Result<Arc<Linear>, kernels::Error> {
    static SHARED: LazyLock<Shared<Linear>> = LazyLock::new(Shared::default);
    let by_output = arrangement == Arrangement::ByOutput;
    let numbers = [channels[0], channels[1], by_output.into(), bias.is_some().into(), has_gelu.into()];
    SHARED.layer(&numbers, &[weights, bias.unwrap_or_default()], || {
        Linear::new(weights, channels, arrangement, bias, has_gelu)
    })
}

impl Kernel for Node {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        let count = context.num_inputs()?;
        operator::check_constants(Described::NAME, context, &self.constants[..self.constants.len().min(count)])?;
        let values = context.input(0)?.ok_or_else(|| refused("it has no values"))?;
        let (shape, values) = values.try_extract_tensor::<f32>()?;
        let [outputs, inputs] = self.layer.channels();
        let mut shape = shape.to_vec();
        match shape.last_mut() {
            Some(last) if usize::try_from(*last) == Ok(inputs) => *last = outputs as i64,
            _ => return Err(refused(format!("expected rows of {inputs} values, found {shape:?}"))),
        }
        let mut results = context.output(0, shape)?.ok_or_else(|| refused("it has no place for results"))?;
        let (_, results) = results.try_extract_tensor_mut::<f32>()?;
        self.memory.count_thread(self.layer.scratch_bytes(values.len() / inputs));
        let ran = self.layer.run(values, results, &self.memory.scratch, operator::each(context));
        ran.map_err(|error| operator::failed(Described::NAME, error))
    }
}
