//! Nodes of 3×3 convolutions.

use std::fmt::Display;
use std::sync::{Arc, LazyLock};

use ort::operator::{ComputeContext, Kernel, KernelContext, OperatorInput, OperatorOutput, ShapeInferenceContext};
use ort::value::{DynTensorValueType, TensorElementType, ValueRef, ValueType};
use tileforge_graph::Convolution3x3;
use tileforge_kernels::{self as kernels, Activation, Convolution, Image, Pads};

use super::memory::{Memory, Shared};
use super::operator;

/// The operator.
pub(super) struct Operator(pub(super) Arc<Memory>);

/// One node.
pub(crate) struct Node {
    convolution: Arc<Convolution>,
    /// The inputs beside the values that it was made of.
    constants: [bool; Convolution3x3::FIXED_INPUTS],
    pads: Pads,
    memory: Arc<Memory>,
}

fn refused(problem: impl Display) -> ort::Error {
    operator::refused(Convolution3x3::NAME, problem)
}

impl ort::operator::Operator for Operator {
    type Kernel<'attr> = Node;

    fn name(&self) -> &str {
        Convolution3x3::NAME
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        let float = TensorElementType::Float32;
        let required = [OperatorInput::required(float), OperatorInput::required(float)];
        let optional = (0..3).map(move |_| OperatorInput::optional(float));
        required.into_iter().chain(optional).chain([OperatorInput::variadic(0).homogenous(float)])
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn create_kernel<'attr>(&self, context: &KernelContext<'attr>) -> ort::Result<Node> {
        let [weights, bias, slopes, rises] = [1, 2, 3, 4].map(|place| constant(context, place));
        let constants = [false, true, bias.is_some(), slopes.is_some(), rises.is_some()];
        let weights = weights.ok_or_else(|| refused("its weights are not constant"))?;
        let (shape, weights) = weights.try_extract_tensor::<f32>()?;
        let [outputs, inputs, 3, 3] = **shape else { return Err(refused("expected weights of K×C×3×3")) };
        let channels = [outputs, inputs].map(|length| usize::try_from(length).unwrap_or(0));
        // Lengths of no weights are whatever a file says.
        if weights.is_empty() {
            return Err(refused(kernels::Error::Lengths));
        }
        let slope = context.get::<f32>("slope").unwrap_or(1.0);
        let activation = activation(channels[0], slope, floats(&slopes)?, floats(&rises)?);
        let activation = activation.ok_or_else(|| refused(kernels::Error::Lengths))?;
        let pads = context.get::<Vec<i64>>("pads").ok_or_else(|| refused("it has no pads"))?;
        let pads: Vec<usize> = pads.iter().filter_map(|pad| usize::try_from(*pad).ok()).collect();
        let [top, left, bottom, right] = *pads else { return Err(refused("expected 4 pads")) };
        if pads.iter().any(|pad| *pad > Convolution3x3::MOST_PADS) {
            return Err(refused(format!("expected pads of at most {}", Convolution3x3::MOST_PADS)));
        }
        let convolution = prepared(weights, channels, floats(&bias)?, activation).map_err(refused)?;
        let Self(memory) = self;
        memory.count(Convolution::bytes_of(channels[0], channels[1]));
        memory.count_thread(convolution.scratch_bytes());
        Ok(Node { convolution, constants, pads: Pads { top, left, bottom, right }, memory: memory.clone() })
    }

    fn infer_shape(&self, context: &mut ShapeInferenceContext) -> ort::Result<()> {
        let inputs = context.inputs();
        let [ValueType::Tensor { shape: values, dimension_symbols, .. }, ValueType::Tensor { shape: weights, .. }, ..] =
            inputs.as_slice()
        else {
            return Ok(());
        };
        let ([samples, _, height, width], [outputs, ..]) = (&values[..], &weights[..]) else { return Ok(()) };
        let pads = context.attr::<Vec<i64>>("pads")?;
        let [top, left, bottom, right] = *pads else { return Ok(()) };
        if pads.iter().any(|pad| !usize::try_from(*pad).is_ok_and(|pad| pad <= Convolution3x3::MOST_PADS)) {
            return Ok(());
        }
        // Lengths that are not known are negative, and may have a name.
        let along = |length: i64, pads: i64| if length < 0 { length } else { length.saturating_add(pads - 2) };
        let shape = [*samples, *outputs, along(*height, top + bottom), along(*width, left + right)];
        let named =
            |axis: usize, stays: bool| dimension_symbols.get(axis).filter(|_| stays).cloned().unwrap_or_default();
        let names = vec![named(0, true), String::new(), named(2, top + bottom == 2), named(3, left + right == 2)];
        operator::state(context, shape.to_vec(), names)
    }
}

/// An input, if it is constant. Whether others are left out is seen when the node runs.
fn constant<'c>(context: &KernelContext<'c>, place: usize) -> Option<ValueRef<'c, DynTensorValueType>> {
    context.constant_input(place).ok()
}

/// The values of a constant input.
fn floats<'v>(input: &'v Option<ValueRef<'_, DynTensorValueType>>) -> ort::Result<Option<&'v [f32]>> {
    let Some(input) = input else { return Ok(None) };
    Ok(Some(input.try_extract_tensor::<f32>()?.1))
}

/// What results are multiplied by; `None` if numbers of values differ.
fn activation(outputs: usize, slope: f32, slopes: Option<&[f32]>, rises: Option<&[f32]>) -> Option<Activation> {
    let of_each = |values: &[f32]| match values {
        [one] => Some(vec![*one; outputs]),
        _ => Some(values.to_vec()).filter(|values| values.len() == outputs),
    };
    let negative = slopes.map_or_else(|| Some(vec![slope; outputs]), of_each)?;
    let positive = match rises {
        Some(rises) => negative.iter().zip(of_each(rises)?).map(|(slope, rise)| slope + rise).collect(),
        None => vec![1.0; outputs],
    };
    Some(Activation { negative, positive })
}

/// The convolution with these weights.
fn prepared(
    weights: &[f32],
    channels: [usize; 2],
    bias: Option<&[f32]>,
    activation: Activation,
) -> Result<Arc<Convolution>, kernels::Error> {
    static SHARED: LazyLock<Shared> = LazyLock::new(Shared::default);
    let values = [weights, bias.unwrap_or_default(), &activation.negative, &activation.positive];
    SHARED.convolution(&channels, &values, || Convolution::new(weights, channels, bias, Some(activation.clone())))
}

impl Kernel for Node {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        let count = context.num_inputs()?;
        for place in (2..Convolution3x3::FIXED_INPUTS.min(count)).filter(|place| !self.constants[*place]) {
            if context.input(place)?.is_some() {
                return Err(refused(format!("expected a constant as input {place}")));
            }
        }
        let [outputs, inputs] = self.convolution.channels();
        let values = std::iter::once(0).chain(Convolution3x3::FIXED_INPUTS..count).map(|place| context.input(place));
        let values = values.filter_map(ort::Result::transpose).collect::<ort::Result<Vec<_>>>()?;
        let mut parts = Vec::new();
        let mut size = None;
        let mut channels = 0_usize;
        for values in &values {
            let (shape, values) = values.try_extract_tensor::<f32>()?;
            let lengths: Vec<usize> = shape.iter().filter_map(|length| usize::try_from(*length).ok()).collect();
            let [samples, of_part, height, width] = *lengths else {
                return Err(refused("expected values of N×C×H×W"));
            };
            if *size.get_or_insert([samples, height, width]) != [samples, height, width] {
                return Err(refused(format!("expected values of one size, found {size:?} and {shape:?}")));
            }
            channels = channels.checked_add(of_part).ok_or_else(|| refused("its values have too many channels"))?;
            parts.push(values);
        }
        let Some([samples, height, width]) = size else { return Err(refused("it has no values")) };
        if channels != inputs {
            return Err(refused(format!("expected values of {inputs} channels, found {channels}")));
        }
        let image = Image { parts: &parts, samples, height, width };
        let size = self.convolution.size_of(&image, self.pads);
        let [rows, columns] = size.ok_or_else(|| refused(format!("{width}x{height} gives no results")))?;
        let shape = [samples, outputs, rows, columns].map(|length| length as i64);
        let mut results = context.output(0, shape)?.ok_or_else(|| refused("it has no place for results"))?;
        let (_, results) = results.try_extract_tensor_mut::<f32>()?;
        let ran = self.convolution.run(&image, self.pads, results, &self.memory.scratch, operator::each(context));
        ran.map_err(|error| operator::failed(Convolution3x3::NAME, error))
    }
}
