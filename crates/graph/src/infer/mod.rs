//! Shape inference: from the types of a node's inputs to the types of its outputs.
//!
//! Each rule follows the operator's entry in <https://onnx.ai/onnx/operators/>. Every operator that we emit has a rule,
//! and a test compares all of them with the shapes that ONNX Runtime computes.
//!
//! Nodes and their attributes come from files: no content may cause a rule to panic.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

mod arithmetic;
mod contents;
mod layout;
mod matrix;
mod neural;
mod quantisation;
mod reduction;

pub use contents::contents;

use crate::{Dim, Node, TensorType, Weight};

/// A node's input: its type, and its values where they are constant.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    /// The type.
    pub ty: &'a TensorType,
    /// The values, where the input is an initializer.
    pub constant: Option<&'a Weight>,
    /// The values, where the input is computed from shapes alone: the result of [`contents`] for the node that makes
    /// it.
    pub contents: Option<&'a [Extent]>,
}

/// One value of an integer tensor that is computed from shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// A number: a known size, or a placeholder such as the −1 of Reshape.
    Number(i64),
    /// A size that is not known yet.
    Size(Dim),
}

impl Extent {
    /// The size; `None` for a negative number.
    fn dim(&self) -> Option<Dim> {
        match self {
            Extent::Number(number) => usize::try_from(*number).ok().map(Dim::Fixed),
            Extent::Size(dim) => Some(dim.clone()),
        }
    }
}

/// Why types cannot be inferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// There is no rule for this operator, or for this form of it: ONNX allows more than we emit.
    NoRule,
    /// The inputs or the attributes do not fit the operator.
    Mismatch(String),
}

impl From<String> for Problem {
    fn from(reason: String) -> Self {
        Problem::Mismatch(reason)
    }
}

type Inferred<T = Vec<TensorType>> = Result<T, Problem>;

/// The types of a node's outputs.
///
/// # Errors
/// There is no rule for the operator or for this form of it, or the inputs do not fit it.
pub fn infer(node: &Node, operands: &[Option<Operand<'_>>]) -> Inferred {
    let call = Call { node, operands };
    if !node.domain.is_empty() {
        return Err(Problem::NoRule);
    }
    match node.operator.as_str() {
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Mod" => arithmetic::broadcasting(&call),
        "Pow" => arithmetic::power(&call),
        "Where" => arithmetic::choice(&call),
        "PRelu" => arithmetic::prelu(&call),
        operator if arithmetic::ELEMENTWISE.contains(&operator) => arithmetic::elementwise(&call),
        "Cast" => arithmetic::cast(&call),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "And" | "Or" => arithmetic::comparison(&call),
        "ArgMax" => arithmetic::arg_max(&call),
        "CumSum" => arithmetic::cumulative_sum(&call),
        "MatMul" => matrix::matmul(&call),
        "Gemm" => matrix::gemm(&call),
        "Attention" => matrix::attention(&call),
        "Softmax" | "LogSoftmax" => matrix::softmax(&call),
        "Conv" => neural::convolution(&call),
        "ConvTranspose" => neural::transposed_convolution(&call),
        "AveragePool" | "MaxPool" => neural::pooling(&call),
        "BatchNormalization" => neural::batch_normalization(&call),
        "GlobalAveragePool" | "GlobalMaxPool" => neural::global_average_pool(&call),
        "InstanceNormalization" => neural::instance_normalization(&call),
        "LayerNormalization" => neural::layer_normalization(&call),
        "GridSample" => neural::grid_sample(&call),
        "Resize" => neural::resize(&call),
        "QuantizeLinear" => quantisation::quantize_linear(&call),
        "DequantizeLinear" => quantisation::dequantize_linear(&call),
        "Shape" => layout::shape(&call),
        "DepthToSpace" => layout::depth_to_space(&call),
        "SpaceToDepth" => layout::space_to_depth(&call),
        "Concat" => layout::concat(&call),
        "Gather" => layout::gather(&call),
        "GatherElements" => layout::gather_elements(&call),
        "GatherND" => layout::gather_nd(&call),
        "ScatterElements" => layout::scatter_elements(&call),
        "Pad" => layout::pad(&call),
        "Reshape" => layout::reshape(&call),
        "Slice" => layout::slice(&call),
        "Split" => layout::split(&call),
        "Transpose" => layout::transpose(&call),
        "Unsqueeze" => layout::unsqueeze(&call),
        "Squeeze" => layout::squeeze(&call),
        "Expand" => layout::expand(&call),
        "Tile" => layout::tile(&call),
        "ScatterND" => layout::scatter_nd(&call),
        "ConstantOfShape" => layout::constant_of_shape(&call),
        "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1" | "ReduceL2"
        | "ReduceSumSquare" | "ReduceLogSum" | "ReduceLogSumExp" => reduction::reduced(&call),
        _ => Err(Problem::NoRule),
    }
}

/// Whether there is a rule for a node's operator, whatever its inputs are.
pub fn has_rule(node: &Node) -> bool {
    // Without inputs, a rule reports a mismatch.
    infer(node, &[]) != Err(Problem::NoRule)
}

/// The maximum length of an integer list that a rule reads: sizes, axes, paddings.
const LIST_MAXIMUM: usize = 1 << 12;

/// A node with its operands, as rules read them.
struct Call<'a> {
    node: &'a Node,
    operands: &'a [Option<Operand<'a>>],
}

impl<'a> Call<'a> {
    fn optional(&self, index: usize) -> Option<Operand<'a>> {
        self.operands.get(index).copied().flatten()
    }

    fn operand(&self, index: usize) -> Inferred<Operand<'a>> {
        self.optional(index).ok_or_else(|| Problem::Mismatch(format!("input {index} is missing")))
    }

    fn ty(&self, index: usize) -> Inferred<&'a TensorType> {
        Ok(self.operand(index)?.ty)
    }

    /// The first input as an image `[batch, channels, height, width]`.
    fn image(&self) -> Inferred<(&'a TensorType, [&'a Dim; 4])> {
        let ty = self.ty(0)?;
        match ty.dims.as_slice() {
            [batch, channels, height, width] => Ok((ty, [batch, channels, height, width])),
            _ => Err(format!("expected [batch, channels, height, width], found {ty}").into()),
        }
    }

    /// Constant integers, if the optional input `index` is given.
    fn integers(&self, index: usize) -> Inferred<Option<Vec<i64>>> {
        let Some(operand) = self.optional(index) else { return Ok(None) };
        if let Some(contents) = operand.contents {
            let number = |extent: &Extent| match extent {
                Extent::Number(number) => Some(*number),
                Extent::Size(_) => None,
            };
            return contents.iter().map(number).collect::<Option<_>>().map(Some).ok_or(Problem::NoRule);
        }
        let constant =
            operand.constant.filter(|constant| constant.elements() <= LIST_MAXIMUM).ok_or(Problem::NoRule)?;
        constant.to_i64s().map(Some).map_err(|e| Problem::Mismatch(e.to_string()))
    }

    fn required_integers(&self, index: usize) -> Inferred<Vec<i64>> {
        self.integers(index)?.ok_or_else(|| Problem::Mismatch(format!("input {index} is missing")))
    }

    /// Integers that are constant, or that are computed from shapes alone.
    fn extents(&self, index: usize) -> Inferred<Vec<Extent>> {
        match self.operand(index)? {
            Operand { contents: Some(contents), .. } => Ok(contents.to_vec()),
            _ => Ok(self.required_integers(index)?.into_iter().map(Extent::Number).collect()),
        }
    }

    fn positive(&self, name: &str) -> Inferred<usize> {
        let value = self.node.int(name).and_then(|value| usize::try_from(value).ok()).filter(|value| *value > 0);
        value.ok_or_else(|| Problem::Mismatch(format!("attribute `{name}` must be a positive integer")))
    }
}

/// An axis that may count from the end, as an index.
fn axis_index(axis: i64, rank: usize) -> Inferred<usize> {
    let index = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let index = index.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < rank);
    index.ok_or_else(|| Problem::Mismatch(format!("axis {axis} is outside the {rank} dimensions")))
}

/// The size on an axis.
fn dim_at(ty: &TensorType, axis: usize) -> Inferred<&Dim> {
    ty.dims.get(axis).ok_or_else(|| Problem::Mismatch(format!("axis {axis} is outside the dimensions of {ty}")))
}

/// The dimensions of `ty` with another size on one axis.
fn with_dim(ty: &TensorType, axis: usize, dim: &Dim) -> Vec<Dim> {
    ty.dims.iter().enumerate().map(|(i, own)| if i == axis { dim.clone() } else { own.clone() }).collect()
}

/// A size, or the error that it overflowed or became negative.
fn size(dim: Option<Dim>) -> Inferred<Dim> {
    dim.ok_or_else(|| Problem::Mismatch("a size overflows, is negative, or is not a multiple of its divisor".into()))
}
