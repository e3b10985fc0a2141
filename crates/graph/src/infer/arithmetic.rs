//! Operators that work on each element.

use super::call::{Call, Inferred, Problem, axis_index, with_dim};
use crate::{DataType, Dim, TensorType};

/// Operators whose result has the first input's type.
pub(super) const ELEMENTWISE: [&str; 37] = [
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Gelu",
    "Mish",
    "Sin",
    "Cos",
    "Identity",
    "Abs",
    "Ceil",
    "Celu",
    "Clip",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "HardSwish",
    "Log",
    "Neg",
    "Not",
    "Reciprocal",
    "Round",
    "Selu",
    "Sign",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "ThresholdedRelu",
    "Atan",
    "Sinh",
    "Cosh",
    "Acos",
    "Asin",
    "Swish",
];

/// The result has the first input's type.
pub(super) fn elementwise(call: &Call<'_>) -> Inferred {
    Ok(vec![call.ty(0)?.clone()])
}

/// Two inputs of one type, broadcast to each other as in NumPy.
pub(super) fn broadcasting(call: &Call<'_>) -> Inferred {
    let (a, b) = (call.ty(0)?, call.ty(1)?);
    if a.data_type != b.data_type {
        return Err(format!("expected two inputs of one type, found {a} and {b}").into());
    }
    Ok(vec![TensorType { data_type: a.data_type, dims: broadcast(a, b)? }])
}

/// Two inputs of one type, broadcast to each other. The result is a boolean for each pair.
pub(super) fn comparison(call: &Call<'_>) -> Inferred {
    let types = broadcasting(call)?;
    Ok(types.into_iter().map(|ty| TensorType { data_type: DataType::Bool, ..ty }).collect())
}

/// A power of numbers of any two types. The result has the base's type.
pub(super) fn power(call: &Call<'_>) -> Inferred {
    let (base, exponent) = (call.ty(0)?, call.ty(1)?);
    Ok(vec![TensorType { data_type: base.data_type, dims: broadcast(base, exponent)? }])
}

/// A condition, and two values of one type: all are broadcast to each other.
pub(super) fn choice(call: &Call<'_>) -> Inferred {
    let (condition, a, b) = (call.ty(0)?, call.ty(1)?, call.ty(2)?);
    if condition.data_type != DataType::Bool || a.data_type != b.data_type {
        return Err(format!("expected a condition and two values of one type, found {condition}, {a} and {b}").into());
    }
    let dims = broadcast(a, b)?;
    let dims = broadcast(condition, &TensorType { data_type: a.data_type, dims })?;
    Ok(vec![TensorType { data_type: a.data_type, dims }])
}

/// The index of the largest value along an axis. The axis gets the size 1, or is removed with `keepdims` 0.
pub(super) fn arg_max(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let axis = axis_index(call.node.int("axis").unwrap_or(0), x.dims.len())?;
    let mut dims = with_dim(x, axis, &Dim::Fixed(1));
    if call.node.int("keepdims") == Some(0) {
        dims.remove(axis);
    }
    Ok(vec![TensorType { data_type: DataType::I64, dims }])
}

/// `x` where it is positive, `slope · x` elsewhere. The slope is broadcast to `x`; `x` is not broadcast to the slope.
pub(super) fn prelu(call: &Call<'_>) -> Inferred {
    let (x, slope) = (call.ty(0)?, call.ty(1)?);
    if x.data_type != slope.data_type || broadcast(x, slope)? != x.dims {
        return Err(format!("the slope {slope} cannot be broadcast to {x}").into());
    }
    Ok(vec![x.clone()])
}

pub(super) fn cast(call: &Call<'_>) -> Inferred {
    let number = call.node.int("to").and_then(|to| i32::try_from(to).ok());
    let data_type = number.and_then(DataType::from_onnx);
    let data_type = data_type.ok_or_else(|| Problem::Mismatch("attribute `to` names no type that we know".into()))?;
    Ok(vec![TensorType { data_type, dims: call.ty(0)?.dims.clone() }])
}

/// Inputs `x`, `axis` (a single integer): the result has the shape of `x`.
pub(super) fn cumulative_sum(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    match call.required_integers(1)?.as_slice() {
        [axis] => axis_index(*axis, x.dims.len()).map(|_| vec![x.clone()]),
        axes => Err(format!("expected one axis, found {axes:?}").into()),
    }
}

pub(super) fn broadcast(a: &TensorType, b: &TensorType) -> Inferred<Vec<Dim>> {
    broadcast_dims(&a.dims, &b.dims).ok_or_else(|| {
        match a.dims.iter().chain(&b.dims).all(|dim| dim.fixed().is_some()) {
            true => format!("the shapes {a} and {b} cannot be broadcast to each other").into(),
            // Unknown sizes may be equal.
            false => Problem::NoRule,
        }
    })
}

/// The shape that two shapes are broadcast to, aligned at their ends: a size of 1 becomes the other's size. `None` if
/// they cannot be broadcast.
pub(super) fn broadcast_dims(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[Dim], i: usize| {
        let own = i.checked_add(dims.len()).and_then(|i| i.checked_sub(rank)).and_then(|i| dims.get(i));
        own.cloned().unwrap_or(Dim::Fixed(1))
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (Dim::Fixed(1), other) | (other, Dim::Fixed(1)) => Some(other),
            (one, other) if one == other => Some(one),
            _ => None,
        })
        .collect()
}
