//! Operators that only move elements.

use super::arithmetic::broadcast;
use super::call::{Call, Extent, Inferred, Problem, axis_index, dim_at, size, with_dim};
use crate::{Attribute, DataType, Dim, TensorType};
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
        call.node.int("axis").ok_or_else(|| Problem::Mismatch("attribute `axis` is missing".into()))?,
        first.dims.len(),
    )?;
    // At most one size may be dynamic; the fixed sizes are added to it.
    let (mut total, mut dynamic) = (0_usize, None);
    for index in 0..call.operands.len() {
        let part = call.ty(index)?;
        let mut others = part.dims.iter().zip(&first.dims).enumerate().filter(|(i, _)| *i != axis);
        let fits = part.data_type == first.data_type && part.dims.len() == first.dims.len();
        if fits
            && others
                .clone()
                .any(|(_, (own, other))| own != other && (own.fixed().is_none() || other.fixed().is_none()))
        {
            return Err(Problem::NoRule);
        }
        if !fits || others.any(|(_, (own, other))| own != other) {
            return Err(format!("{part} does not fit {first} on axis {axis}").into());
        }
        match (dim_at(part, axis)?, &dynamic) {
            (Dim::Fixed(size), _) => {
                total = total.checked_add(*size).ok_or_else(|| Problem::Mismatch("a size overflows".into()))?
            }
            (symbol, None) => dynamic = Some(symbol),
            (_, Some(_)) => return Err(Problem::NoRule),
        }
    }
    let joined = match dynamic {
        Some(symbol) => size(isize::try_from(total).ok().and_then(|total| symbol.plus(total)))?,
        None => Dim::Fixed(total),
    };
    Ok(vec![TensorType { data_type: first.data_type, dims: with_dim(first, axis, &joined) }])
}

/// Inputs `x`, `indices`: the axis is replaced by the indices' shape.
pub(super) fn gather(call: &Call<'_>) -> Inferred {
    let (x, indices) = (call.ty(0)?, call.ty(1)?);
    let axis = axis_index(call.node.int("axis").unwrap_or(0), x.dims.len())?;
    let (before, after) = (x.dims.iter().take(axis), x.dims.iter().skip(axis).skip(1));
    let dims = before.chain(&indices.dims).chain(after).cloned().collect();
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Inputs `x`, `indices` of the same rank: the result has the indices' shape.
pub(super) fn gather_elements(call: &Call<'_>) -> Inferred {
    let (x, indices) = (call.ty(0)?, call.ty(1)?);
    axis_index(call.node.int("axis").unwrap_or(0), x.dims.len())?;
    if x.dims.len() != indices.dims.len() {
        return Err(format!("expected indices of {} dimensions, found {indices}", x.dims.len()).into());
    }
    Ok(vec![TensorType { data_type: x.data_type, dims: indices.dims.clone() }])
}

/// Inputs `x`, `indices`, `updates`, the last two of one shape and all of one rank: the result has the shape of `x`.
pub(super) fn scatter_elements(call: &Call<'_>) -> Inferred {
    let (x, indices, updates) = (call.ty(0)?, call.ty(1)?, call.ty(2)?);
    axis_index(call.node.int("axis").unwrap_or(0), x.dims.len())?;
    let fits = updates.data_type == x.data_type && updates.dims == indices.dims && x.dims.len() == indices.dims.len();
    if !fits {
        return Err(format!("the updates {updates} at {indices} do not fit {x}").into());
    }
    Ok(vec![x.clone()])
}

/// Inputs `x`, `indices` `[batch…, any…, n]`: each row of indices is a position in the first `n` dimensions of `x`
/// after the batch.
pub(super) fn gather_nd(call: &Call<'_>) -> Inferred {
    let (x, indices) = (call.ty(0)?, call.ty(1)?);
    let mismatch = || Problem::Mismatch(format!("the indices {indices} do not fit {x}"));
    let batch = usize::try_from(call.node.int("batch_dims").unwrap_or(0)).map_err(|_| mismatch())?;
    let (last, places) = indices.dims.split_last().ok_or_else(mismatch)?;
    let kept = last.fixed().and_then(|n| n.checked_add(batch)).and_then(|from| x.dims.get(from..));
    let kept = kept.ok_or_else(mismatch)?;
    if places.get(..batch).ok_or_else(mismatch)? != x.dims.get(..batch).ok_or_else(mismatch)? {
        return Err(mismatch());
    }
    let dims = places.iter().chain(kept).cloned().collect();
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Inputs `x`, `pads` `[begin…, end…]`, (value), optional `axes`.
pub(super) fn pad(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let (pads, rank) = (call.required_integers(1)?, x.dims.len());
    let axes = call.integers(3)?.unwrap_or_else(|| (0..rank as i64).collect());
    let both = pads.split_at_checked(axes.len()).filter(|(begins, ends)| begins.len() == ends.len());
    let (begins, ends) = both.ok_or_else(|| format!("expected pads for {} axes, found {}", axes.len(), pads.len()))?;
    let mut padded = x.clone();
    for ((axis, begin), end) in axes.iter().zip(begins).zip(ends) {
        let axis = axis_index(*axis, rank)?;
        let total = begin.checked_add(*end).and_then(|total| isize::try_from(total).ok());
        let length = dim_at(&padded, axis)?;
        padded.dims = with_dim(&padded, axis, &size(total.and_then(|total| length.plus(total)))?);
    }
    Ok(vec![padded])
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
        let given = call.node.int(name).unwrap_or(default);
        (if given < 0 { given.saturating_add(rank) } else { given }).clamp(0, rank) as usize
    };
    let start = position("start", 0);
    Ok(start..position("end", rank).max(start))
}

/// Inputs `x`, `shape`: a 0 keeps a dimension, and one −1 stands for the remaining elements.
pub(super) fn reshape(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let target = call.extents(1)?;
    let is_known = x.dims.iter().all(|dim| dim.fixed().is_some());
    let mismatch = || match is_known && target.iter().all(|extent| matches!(extent, Extent::Number(_))) {
        true => Problem::Mismatch(format!("{x} cannot become {target:?}")),
        // Unknown sizes may fit.
        false => Problem::NoRule,
    };
    let mut dims = Vec::with_capacity(target.len());
    let mut rest = None;
    for (i, wanted) in target.iter().enumerate() {
        dims.push(match wanted {
            Extent::Number(0) if call.node.int("allowzero").unwrap_or(0) == 0 => {
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
        Some(rest) => *dims.get_mut(rest).ok_or_else(mismatch)? = before.divided_by(&after).ok_or_else(mismatch)?,
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
    let mut cut = x.clone();
    for (((axis, start), end), step) in axes.iter().zip(&starts).zip(&ends).zip(&steps) {
        let axis = axis_index(*axis, rank)?;
        cut.dims = with_dim(&cut, axis, &sliced(dim_at(&cut, axis)?, *start, *end, *step)?);
    }
    Ok(vec![cut])
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
                    .and_then(|cut| cut.checked_add(step.saturating_sub(1)))
                    .and_then(|cut| isize::try_from(cut).ok());
                let windows = windows.and_then(|cut| dim.plus(cut));
                size(windows.and_then(|cut| cut.divided_rounding_down(usize::try_from(step).ok()?)))
            }
            (0.., 0.., 1) if end <= least => {
                size(usize::try_from(end.saturating_sub(from.min(end))).ok().map(Dim::Fixed))
            }
            (..0, i64::MAX, 1) if start.unsigned_abs() <= least.unsigned_abs() => {
                size(usize::try_from(start.unsigned_abs()).ok().map(Dim::Fixed))
            }
            _ => Err(Problem::NoRule),
        };
        return cut;
    };
    if length == 0 {
        return Ok(Dim::Fixed(0));
    }
    let length = i128::try_from(length).map_err(|_| Problem::Mismatch("a size overflows".into()))?;
    // Nothing saturates: these numbers have 64 bits.
    let from_end = |position: i64| i128::from(position).saturating_add(if position < 0 { length } else { 0 });
    let (low, high) = if step > 0 { (0, length) } else { (-1, length.saturating_sub(1)) };
    let (start, end) = (from_end(start).clamp(0, high), from_end(end).clamp(low, high));
    let distance = if step > 0 { end.saturating_sub(start) } else { start.saturating_sub(end) };
    let count = distance.max(0).unsigned_abs().div_ceil(i128::from(step).unsigned_abs());
    usize::try_from(count).map(Dim::Fixed).map_err(|_| Problem::Mismatch("a size overflows".into()))
}

pub(super) fn transpose(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let reversed: Vec<i64> = (0..x.dims.len() as i64).rev().collect();
    let permutation = call.node.ints("perm").unwrap_or(&reversed);
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    let dims = permutation.iter().map(|axis| x.dims.get(usize::try_from(*axis).ok()?).cloned()).collect();
    let dims: Option<Vec<Dim>> = dims;
    let dims = dims.filter(|_| sorted.iter().copied().eq(0..x.dims.len() as i64));
    let mismatch = || format!("{permutation:?} is not a permutation of the dimensions of {x}");
    Ok(vec![TensorType { data_type: x.data_type, dims: dims.ok_or_else(mismatch)? }])
}

/// Equal parts along `axis`, one for each output, or parts of the constant sizes `split` (input 1).
pub(super) fn split(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let axis = axis_index(call.node.int("axis").unwrap_or(0), x.dims.len())?;
    let parts = call.node.outputs.len();
    let whole = dim_at(x, axis)?;
    let part = |length: Dim| TensorType { data_type: x.data_type, dims: with_dim(x, axis, &length) };
    if let Some(lengths) = call.integers(1)? {
        let total = lengths
            .iter()
            .try_fold(0_i64, |total, length| total.checked_add(*length))
            .and_then(|total| usize::try_from(total).ok());
        let lengths = lengths.iter().map(|length| usize::try_from(*length).ok()).collect::<Option<Vec<_>>>();
        return match lengths {
            Some(lengths) if lengths.len() == parts && whole.fixed() == total => {
                Ok(lengths.into_iter().map(|length| part(Dim::Fixed(length))).collect())
            }
            _ => Err(format!("the parts do not make up {x}").into()),
        };
    }
    if let Some(whole) = whole.fixed().filter(|whole| !whole.is_multiple_of(parts.max(1))) {
        // The last part is smaller.
        let each = whole.div_ceil(parts);
        let starts = (0..parts).map(|at| each.saturating_mul(at).min(whole));
        let lengths = starts.map(|start| each.min(whole.saturating_sub(start)));
        return Ok(lengths.map(|length| part(Dim::Fixed(length))).collect());
    }
    let length = size(whole.divided_exactly(parts))?;
    Ok(vec![part(length); parts])
}

/// Inputs `x`, `axes` of the result, each of which gets the size 1.
pub(super) fn unsqueeze(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let axes = call.required_integers(1)?;
    let rank = x.dims.len().checked_add(axes.len()).ok_or_else(|| Problem::Mismatch("too many axes".into()))?;
    let axes = axes.into_iter().map(|axis| axis_index(axis, rank)).collect::<Inferred<Vec<_>>>()?;
    let mut rest = x.dims.iter();
    let dims = (0..rank).map(|axis| if axes.contains(&axis) { Some(Dim::Fixed(1)) } else { rest.next().cloned() });
    let dims = dims.collect::<Option<Vec<_>>>().ok_or_else(|| Problem::Mismatch("two of its axes are equal".into()))?;
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// Inputs `x`, optional `axes` of size 1, which are removed.
pub(super) fn squeeze(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let ones = || x.dims.iter().enumerate().filter(|(_, dim)| dim.fixed() == Some(1)).map(|(axis, _)| axis).collect();
    let axes: Vec<usize> = match call.integers(1)? {
        Some(axes) => axes.into_iter().map(|axis| axis_index(axis, x.dims.len())).collect::<Inferred<_>>()?,
        None if x.dims.iter().all(|dim| dim.fixed().is_some()) => ones(),
        None => return Err(Problem::NoRule),
    };
    let wrong = axes.iter().find(|axis| dim_at(x, **axis).is_ok_and(|dim| dim.fixed().is_some_and(|size| size != 1)));
    if let Some(axis) = wrong {
        return Err(format!("axis {axis} of {x} has not the size 1").into());
    }
    let dims = x.dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, dim)| dim.clone());
    Ok(vec![TensorType { data_type: x.data_type, dims: dims.collect() }])
}

/// Inputs `x`, `shape`: both are broadcast to each other.
pub(super) fn expand(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let shape = call.extents(1)?.iter().map(Extent::dim).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or_else(|| Problem::Mismatch("expected sizes of at least 0".into()))?;
    let target = TensorType { data_type: x.data_type, dims: shape };
    Ok(vec![TensorType { data_type: x.data_type, dims: broadcast(x, &target)? }])
}

/// Inputs `x`, `repeats` of each axis.
pub(super) fn tile(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let repeats = call.required_integers(1)?;
    if repeats.len() != x.dims.len() {
        return Err(format!("expected a number for each axis of {x}, found {repeats:?}").into());
    }
    let dims =
        x.dims.iter().zip(repeats).map(|(dim, times)| size(usize::try_from(times).ok().and_then(|n| dim.times(n))));
    Ok(vec![TensorType { data_type: x.data_type, dims: dims.collect::<Inferred<_>>()? }])
}

/// Inputs `x`, `indices`, `updates`: the result has the first one's type.
pub(super) fn scatter_nd(call: &Call<'_>) -> Inferred {
    Ok(vec![call.ty(0)?.clone()])
}

/// A tensor with the sizes that the input lists. Every element has the attribute's value.
pub(super) fn constant_of_shape(call: &Call<'_>) -> Inferred {
    let dims = call.extents(0)?.iter().map(Extent::dim).collect::<Option<Vec<_>>>();
    let dims = dims.ok_or_else(|| Problem::Mismatch("expected sizes of at least 0".into()))?;
    let data_type = match call.node.attributes.get("value") {
        Some(Attribute::Tensor(value)) => DataType::from_onnx(value.data_type()).ok_or(Problem::NoRule)?,
        _ => DataType::F32,
    };
    Ok(vec![TensorType { data_type, dims }])
}
