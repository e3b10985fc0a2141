//! Shape inference: from the types of a node's inputs to the types of its outputs.
//!
//! Each rule follows the operator's entry in <https://onnx.ai/onnx/operators/>. Every operator that we emit has a rule,
//! and a test compares all of them with the shapes that ONNX Runtime computes.
//!
//! Nodes and their attributes come from files: no content may cause a rule to panic.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

mod arithmetic;
mod call;
mod contents;
mod layout;
mod matrix;
mod neural;
mod quantisation;
mod reduction;

pub use call::{Extent, Operand, Problem};
pub use contents::contents;

use self::call::{Call, Inferred};
use crate::Node;

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
