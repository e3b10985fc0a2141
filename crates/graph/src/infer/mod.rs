//! Shape inference: from the types of a node's inputs to the types of its outputs.
//!
//! Each rule follows the operator's entry in <https://onnx.ai/onnx/operators/>. Every operator that we emit has a rule,
//! and a test compares all of them with the shapes that ONNX Runtime computes.
//!
//! Nodes and their attributes come from files: nothing that they hold may make a rule panic.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

mod arithmetic;
mod layout;
mod matrix;
mod neural;
mod quantisation;

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
    /// There is no rule for this operator.
    UnknownOperator,
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
/// There is no rule for the operator, or the inputs do not fit it.
pub fn infer(node: &Node, operands: &[Option<Operand<'_>>]) -> Inferred {
    let call = Call { node, operands };
    if !node.domain.is_empty() {
        return Err(Problem::UnknownOperator);
    }
    match node.operator.as_str() {
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" => arithmetic::broadcasting(&call),
        "PRelu" => arithmetic::prelu(&call),
        "Relu" | "LeakyRelu" | "Sigmoid" | "Tanh" | "Gelu" | "Mish" | "Sin" | "Cos" | "Identity" => {
            arithmetic::elementwise(&call)
        }
        "Cast" => arithmetic::cast(&call),
        "Equal" => arithmetic::comparison(&call),
        "ArgMax" => arithmetic::arg_max(&call),
        "CumSum" => arithmetic::cumulative_sum(&call),
        "ReduceL2" => arithmetic::reduction(&call),
        "MatMul" => matrix::matmul(&call),
        "Gemm" => matrix::gemm(&call),
        "Attention" => matrix::attention(&call),
        "Softmax" => matrix::softmax(&call),
        "Conv" => neural::convolution(&call),
        "ConvTranspose" => neural::transposed_convolution(&call),
        "MaxPool" => neural::pooling(&call),
        "BatchNormalization" => neural::batch_normalization(&call),
        "GlobalAveragePool" => neural::global_average_pool(&call),
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
        _ => Err(Problem::UnknownOperator),
    }
}

/// The values that a node computes, if they are integers that follow from shapes alone: Shape, and Concat of such
/// values.
pub fn contents(node: &Node, operands: &[Option<Operand<'_>>]) -> Option<Vec<Extent>> {
    let call = Call { node, operands };
    match node.operator.as_str() {
        "Shape" => {
            let dims = call.ty(0).ok()?.dims.get(layout::shape_range(&call).ok()?)?;
            let extent = |dim: &Dim| {
                dim.fixed()
                    .map_or_else(|| Some(Extent::Size(dim.clone())), |n| Some(Extent::Number(n.try_into().ok()?)))
            };
            dims.iter().map(extent).collect()
        }
        "Concat" => {
            let parts = (0..operands.len()).map(|index| call.extents(index).ok()).collect::<Option<Vec<_>>>()?;
            Some(parts.concat())
        }
        _ => None,
    }
}

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
        let constant = operand.constant.ok_or_else(|| format!("input {index} must be a constant"))?;
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
