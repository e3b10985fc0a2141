//! Operators that only move elements.

use super::{Call, Extent, Inferred, Problem, axis_index, size};
use crate::{DataType, Dim, TensorType};
use std::ops::Range;

/// `[batch, channels · b², height, width]` → `[batch, channels, height · b, width · b]`.
pub(super) fn depth_to_space(call: &Call<'_>) -> Inferred {
    let (ty, [batch, channels, height, width]) = call.image()?;
    let block = call.positive("blocksize")?;
    let area =
        block.checked_mul(block).ok_or_else(|| Problem::Mismatch("attribute `blocksize` is too large".into()))?;
    let dims = vec![
        batch.clone(),
        size(channels.divided_exactly(area))?,
        size(height.times(block))?,
        size(width.times(block))?,
    ];
    Ok(vec![TensorType { data_type: ty.data_type, dims }])
}

/// `[batch, channels, height, width]` → `[batch, channels · b², height / b, width / b]`.
pub(super) fn space_to_depth(call: &Call<'_>) -> Inferred {
    let (ty, [batch, channels, height, width]) = call.image()?;
    let block = call.positive("blocksize")?;
    let dims = vec![
        batch.clone(),
        size(channels.times(block).and_then(|c| c.times(block)))?,
        size(height.divided_exactly(block))?,
        size(width.divided_exactly(block))?,
    ];
    Ok(vec![TensorType { data_type: ty.data_type, dims }])
}

pub(super) fn concat(call: &Call<'_>) -> Inferred {
    let first = call.ty(0)?;
    let axis = axis_index(
        call.int("axis").ok_or_else(|| Problem::Mismatch("attribute `axis` is missing".into()))?,
        first.dims.len(),
    )?;
    // At most one size may be dynamic; the fixed sizes are added to it.
    let (mut total, mut dynamic) = (0_usize, None);
    for index in 0..call.operands.len() {
        let part = call.ty(index)?;
        let same = |i: usize| i == axis || part.dims[i] == first.dims[i];
        if part.data_type != first.data_type || part.dims.len() != first.dims.len() || !(0..first.dims.len()).all(same)
        {
            return Err(format!("{part} does not fit {first} on axis {axis}").into());
        }
        match (&part.dims[axis], &dynamic) {
            (Dim::Fixed(size), _) => {
                total = total.checked_add(*size).ok_or_else(|| Problem::Mismatch("a size overflows".into()))?
            }
            (symbol, None) => dynamic = Some(symbol),
            (_, Some(_)) => return Err(Problem::Mismatch(format!("at most one size on axis {axis} may be dynamic"))),
        }
    }
    let joined = match dynamic {
        Some(symbol) => size(isize::try_from(total).ok().and_then(|total| symbol.plus(total)))?,
        None => Dim::Fixed(total),
    };
    let mut dims = first.dims.clone();
    dims[axis] = joined;
    Ok(vec![TensorType { data_type: first.data_type, dims }])
}

/// Inputs `x`, `indices`: the axis is replaced by the indices' shape.
pub(super) fn gather(call: &Call<'_>) -> Inferred {
    let (x, indices) = (call.ty(0)?, call.ty(1)?);
    let axis = axis_index(call.int("axis").unwrap_or(0), x.dims.len())?;
    let dims = x.dims[..axis].iter().chain(&indices.dims).chain(&x.dims[axis + 1..]).cloned().collect();
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Inputs `x`, `indices` `[batch…, any…, n]`: each row of indices is a position in the first `n` dimensions of `x`
/// after the batch.
pub(super) fn gather_nd(call: &Call<'_>) -> Inferred {
    let (x, indices) = (call.ty(0)?, call.ty(1)?);
    let mismatch = || Problem::Mismatch(format!("the indices {indices} do not fit {x}"));
    let batch = usize::try_from(call.int("batch_dims").unwrap_or(0)).map_err(|_| mismatch())?;
    let (last, places) = indices.dims.split_last().ok_or_else(mismatch)?;
    let from =
        last.fixed().and_then(|n| n.checked_add(batch)).filter(|from| *from <= x.dims.len()).ok_or_else(mismatch)?;
    if batch > places.len() || places[..batch] != x.dims[..batch] {
        return Err(mismatch());
    }
    let dims = places.iter().chain(&x.dims[from..]).cloned().collect();
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Inputs `x`, `pads` `[begin…, end…]`, (value), optional `axes`.
pub(super) fn pad(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let (pads, rank) = (call.required_integers(1)?, x.dims.len());
    let axes = call.integers(3)?.unwrap_or_else(|| (0..rank as i64).collect());
    if pads.len() != 2 * axes.len() {
        return Err(format!("expected {} pads, found {}", 2 * axes.len(), pads.len()).into());
    }
    let mut dims = x.dims.clone();
    for (i, axis) in axes.iter().enumerate() {
        let axis = axis_index(*axis, rank)?;
        let total = pads[i].checked_add(pads[i + axes.len()]).and_then(|total| isize::try_from(total).ok());
        dims[axis] = size(total.and_then(|total| dims[axis].plus(total)))?;
    }
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// The sizes of the dimensions from `start` to `end`, which count from the end if they are negative and are cut to the
/// rank.
pub(super) fn shape(call: &Call<'_>) -> Inferred {
    Ok(vec![TensorType::new(DataType::I64, [shape_range(call)?.len()])])
}

/// The dimensions that Shape reads.
pub(super) fn shape_range(call: &Call<'_>) -> Inferred<Range<usize>> {
    let rank = call.ty(0)?.dims.len() as i64;
    let position = |name: &str, default: i64| {
        let given = call.int(name).unwrap_or(default);
        (if given < 0 { given.saturating_add(rank) } else { given }).clamp(0, rank) as usize
    };
    let start = position("start", 0);
    Ok(start..position("end", rank).max(start))
}

/// Inputs `x`, `shape`: a 0 keeps a dimension, and one −1 stands for the remaining elements.
pub(super) fn reshape(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let target = call.extents(1)?;
    let mismatch = || Problem::Mismatch(format!("{x} cannot become {target:?}"));
    let mut dims = Vec::with_capacity(target.len());
    let mut rest = None;
    for (i, wanted) in target.iter().enumerate() {
        dims.push(match wanted {
            Extent::Number(0) if call.int("allowzero").unwrap_or(0) == 0 => {
                x.dims.get(i).cloned().ok_or_else(mismatch)?
            }
            Extent::Number(-1) if rest.is_none() => {
                rest = Some(i);
                Dim::Fixed(1)
            }
            Extent::Number(wanted) => Dim::Fixed(usize::try_from(*wanted).map_err(|_| mismatch())?),
            Extent::Size(dim) => dim.clone(),
        });
    }
    // Symbols that occur on both sides cancel; the rest must be one product.
    let mut before = x.dims.clone();
    let mut after = dims.clone();
    for dim in x.dims.iter().filter(|dim| dim.fixed().is_none()) {
        if let (Some(a), Some(b)) = (before.iter().position(|d| d == dim), after.iter().position(|d| d == dim)) {
            before.remove(a);
            after.remove(b);
        }
    }
    let (before, after) = (Dim::product(&before).ok_or_else(mismatch)?, Dim::product(&after).ok_or_else(mismatch)?);
    match rest {
        Some(rest) => dims[rest] = before.divided_by(&after).ok_or_else(mismatch)?,
        None if before == after => {}
        None => return Err(mismatch()),
    }
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Inputs `x`, `starts`, `ends`, optional `axes`, optional `steps`; negative positions count from the end.
pub(super) fn slice(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let (starts, ends, rank) = (call.required_integers(1)?, call.required_integers(2)?, x.dims.len());
    let axes = call.integers(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.integers(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] || steps.contains(&0) {
        return Err(Problem::Mismatch(
            "`starts`, `ends`, `axes` and `steps` must have one length, and no step may be 0".into(),
        ));
    }
    let mut dims = x.dims.clone();
    for i in 0..starts.len() {
        let axis = axis_index(axes[i], rank)?;
        dims[axis] = sliced(&dims[axis], starts[i], ends[i], steps[i])?;
    }
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

fn sliced(dim: &Dim, start: i64, end: i64, step: i64) -> Inferred<Dim> {
    let Some(length) = dim.fixed() else {
        // For a dynamic size, the result is known where a fixed number of entries is cut from the front or the back, or
        // where the slice lies within the smallest possible size.
        let least = i64::try_from(dim.minimum()).unwrap_or(i64::MAX);
        let (from, to) = (start.max(0), if end == i64::MAX { 0 } else { end });
        let cut = match (start, end, step) {
            (0.., i64::MAX, 1..) | (0.., ..0, 1..) => {
                let windows = to
                    .checked_sub(from)
                    .and_then(|cut| cut.checked_add(step - 1))
                    .and_then(|cut| isize::try_from(cut).ok());
                let windows = windows.and_then(|cut| dim.plus(cut));
                size(windows.and_then(|cut| cut.divided_rounding_down(usize::try_from(step).ok()?)))
            }
            (0.., 0.., 1) if end <= least => size(usize::try_from(end - from.min(end)).ok().map(Dim::Fixed)),
            (..0, i64::MAX, 1) if start.unsigned_abs() <= least.unsigned_abs() => {
                size(usize::try_from(start.unsigned_abs()).ok().map(Dim::Fixed))
            }
            _ => Err(Problem::Mismatch(format!(
                "a slice {start}..{end} by {step} of the unknown size {dim} has no known size"
            ))),
        };
        return cut;
    };
    if length == 0 {
        return Ok(Dim::Fixed(0));
    }
    let length = i128::try_from(length).map_err(|_| Problem::Mismatch("a size overflows".into()))?;
    let from_end = |position: i64| if position < 0 { i128::from(position) + length } else { i128::from(position) };
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let (start, end) = (from_end(start).clamp(0, high), from_end(end).clamp(low, high));
    let step = i128::from(step);
    let count = if step > 0 { (end - start + step - 1) / step } else { (start - end - step - 1) / -step };
    usize::try_from(count.max(0)).map(Dim::Fixed).map_err(|_| Problem::Mismatch("a size overflows".into()))
}

pub(super) fn transpose(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let reversed: Vec<i64> = (0..x.dims.len() as i64).rev().collect();
    let permutation = call.ints("perm").unwrap_or(&reversed);
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..x.dims.len() as i64) {
        return Err(format!("{permutation:?} is not a permutation of the dimensions of {x}").into());
    }
    let dims = permutation.iter().map(|axis| x.dims[*axis as usize].clone()).collect();
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Equal parts along `axis`, one for each output, or parts of the constant sizes `split` (input 1).
pub(super) fn split(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let axis = axis_index(call.int("axis").unwrap_or(0), x.dims.len())?;
    let parts = call.node.outputs.len();
    let part = |length: Dim| {
        let mut dims = x.dims.clone();
        dims[axis] = length;
        TensorType { data_type: x.data_type, dims }
    };
    if let Some(lengths) = call.integers(1)? {
        let total = lengths
            .iter()
            .try_fold(0_i64, |total, length| total.checked_add(*length))
            .and_then(|total| usize::try_from(total).ok());
        let lengths = lengths.iter().map(|length| usize::try_from(*length).ok()).collect::<Option<Vec<_>>>();
        return match lengths {
            Some(lengths) if lengths.len() == parts && x.dims[axis].fixed() == total => {
                Ok(lengths.into_iter().map(|length| part(Dim::Fixed(length))).collect())
            }
            _ => Err(format!("the parts do not make up {x}").into()),
        };
    }
    // ONNX allows a smaller last part; nothing that we emit needs it.
    let length = size(x.dims[axis].divided_exactly(parts))?;
    Ok(vec![part(length); parts])
}
