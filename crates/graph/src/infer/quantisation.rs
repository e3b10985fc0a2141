//! Quantised values with scales.

use super::call::{Call, Inferred, Problem, axis_index, dim_at};
use crate::{DataType, TensorType};

/// Inputs `x`, `scale` (one, or one for each index of `axis`), optional `zero point`, whose type is the result's type.
pub(super) fn quantize_linear(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    if !x.data_type.is_float() {
        return Err(format!("expected floating-point numbers, found {x}").into());
    }
    check_scale(call, x)?;
    let named = call.node.int("output_dtype").filter(|number| *number != 0);
    let named = named.map(|number| i32::try_from(number).ok().and_then(DataType::from_onnx));
    let data_type = match (call.optional(2), named) {
        (Some(zero_point), _) => zero_point.ty.data_type,
        (None, Some(data_type)) => {
            data_type.ok_or_else(|| Problem::Mismatch("attribute `output_dtype` names no type that we know".into()))?
        }
        (None, None) => DataType::U8,
    };
    Ok(vec![TensorType { data_type, dims: x.dims.clone() }])
}

/// Inputs `x`, `scale` (one, or one for each index of `axis`), whose type is the result's type, and an optional `zero
/// point`.
pub(super) fn dequantize_linear(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    check_scale(call, x)?;
    match call.optional(2) {
        Some(zero_point) if zero_point.ty.data_type != x.data_type => {
            Err(format!("expected a zero point of {}, found {}", x.data_type, zero_point.ty).into())
        }
        _ => Ok(vec![TensorType { data_type: call.ty(1)?.data_type, dims: x.dims.clone() }]),
    }
}

fn check_scale(call: &Call<'_>, x: &TensorType) -> Inferred<()> {
    let scale = call.ty(1)?;
    let fits = match scale.dims.as_slice() {
        [] => true,
        [count] if count.fixed() == Some(1) => true,
        [count] => dim_at(x, axis_index(call.node.int("axis").unwrap_or(1), x.dims.len())?)? == count,
        _ => false,
    };
    let zero_point_fits = call.optional(2).is_none_or(|zero_point| zero_point.ty.dims == scale.dims);
    if fits && zero_point_fits {
        Ok(())
    } else {
        Err(format!("the scale {scale} or its zero point does not fit {x}").into())
    }
}
