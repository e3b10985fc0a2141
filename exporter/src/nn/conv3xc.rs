//! Single convolutions that were trained as several.

use super::{Scope, channels};
use tileforge_graph::{ConvOptions, DataType, Value, Weight};

/// Convolutions are this many times wider inside while they are trained.
const GAIN: usize = 2;
/// Taps of a 3×3 kernel.
const TAPS: usize = 9;

/// A 3×3 convolution that was trained as a chain of three (1×1, 3×3, 1×1; `conv.0` to `conv.2`) with a 1×1 convolution
/// in parallel (`sk`), as in SPAN (<https://arxiv.org/abs/2311.12770>): `x` `[batch, inputs, height, width]` → `[batch,
/// filters, height, width]`.
pub fn conv3xc(w: &Scope<'_>, x: &Value, filters: usize) -> Value {
    match fused(w, channels(x), filters) {
        Ok((weight, bias)) => {
            let (weight, bias) = (w.computed("eval_conv.weight", weight), w.computed("eval_conv.bias", bias));
            x.conv(&weight, Some(&bias), &ConvOptions::same(3))
        }
        Err(error) => {
            w.trace().fail(error);
            x.clone()
        }
    }
}

/// Whether a tensor is the fused weight of the last evaluation. The other weights may have changed since, so the
/// reference computes the fused ones again at every inference.
pub fn is_fused_copy(name: &str) -> bool {
    name.ends_with(".eval_conv.weight") || name.ends_with(".eval_conv.bias")
}

/// The weight `[filters, channels, 3, 3]` and the bias `[filters]` of the one convolution that a Conv3XC amounts to.
///
/// The image is padded with zeros before the first convolution, so its bias also counts in the border, and everything
/// in between is linear. So the single convolution gives the same result at every pixel. It is computed in f64 and
/// rounded once.
fn fused(w: &Scope<'_>, channels: usize, filters: usize) -> tileforge_graph::Result<(Weight, Weight)> {
    let (wide_in, wide_out) = (GAIN * channels, GAIN * filters);
    let stored = |name: &str, dims: &[usize]| w.stored(name, dims)?.cast(DataType::F64);
    let matrix =
        |name: &str, rows: usize, columns: usize| stored(name, &[rows, columns, 1, 1])?.reshaped(vec![rows, columns]);
    let column = |name: &str, rows: usize| stored(name, &[rows])?.reshaped(vec![rows, 1]);
    let (first, first_bias) = (matrix("conv.0.weight", wide_in, channels)?, column("conv.0.bias", wide_in)?);
    let (second, second_bias) =
        (stored("conv.1.weight", &[wide_out, wide_in, 3, 3])?, column("conv.1.bias", wide_out)?);
    let (third, third_bias) = (matrix("conv.2.weight", filters, wide_out)?, column("conv.2.bias", filters)?);
    let (beside, beside_bias) = (stored("sk.weight", &[filters, channels, 1, 1])?, column("sk.bias", filters)?);

    // [wide_out · taps, wide_in] · [wide_in, channels], and then [filters, wide_out] · [wide_out, channels · taps].
    let second = second.transposed(&[0, 2, 3, 1])?.reshaped(vec![wide_out * TAPS, wide_in])?;
    let two = second.product(&first)?.reshaped(vec![wide_out, TAPS, channels])?.transposed(&[0, 2, 1])?;
    let three = third.product(&two.reshaped(vec![wide_out, channels * TAPS])?)?;
    // A 1×1 kernel is the middle of a 3×3 one.
    let around = Weight::zeros(DataType::F64, vec![filters, channels, TAPS / 2])?;
    let beside = Weight::concatenated(&[around.clone(), beside.reshaped(vec![filters, channels, 1])?, around], 2)?;
    let weight = three.reshaped(vec![filters, channels, TAPS])?.plus(&beside)?;

    // Every tap adds the first bias.
    let taps = Weight::from_bytes(DataType::F64, vec![TAPS, 1], 1_f64.to_le_bytes().repeat(TAPS))?;
    let bias = second.product(&first_bias)?.reshaped(vec![wide_out, TAPS])?.product(&taps)?.plus(&second_bias)?;
    let bias = third.product(&bias)?.plus(&third_bias)?.plus(&beside_bias)?;
    let single = |weight: Weight, dims: &[usize]| weight.reshaped(dims.to_vec())?.cast(DataType::F32);
    Ok((single(weight, &[filters, channels, 3, 3])?, single(bias, &[filters])?))
}
