//! Operators that reduce axes.

use super::call::{Call, Inferred, Problem, axis_index};
use crate::{Dim, TensorType};

/// Inputs `x`, optional `axes`: each becomes 1, or is removed with `keepdims` 0. Without axes, all of them, or none with
/// `noop_with_empty_axes`.
pub(super) fn reduced(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let rank = x.dims.len();
    // Older opsets have an attribute in place of the input.
    let given = match call.node.ints("axes") {
        Some(axes) => Some(axes.to_vec()),
        None => call.integers(1)?,
    };
    let all = || (0..rank as i64).collect();
    let axes = match given.filter(|axes| !axes.is_empty()) {
        Some(axes) => axes,
        None if call.node.int("noop_with_empty_axes").unwrap_or(0) != 0 => return Ok(vec![x.clone()]),
        None => all(),
    };
    let axes = axes.into_iter().map(|axis| axis_index(axis, rank)).collect::<Result<Vec<_>, Problem>>()?;
    let keeps = call.node.int("keepdims").unwrap_or(1) != 0;
    let dims = x.dims.iter().enumerate().filter_map(|(axis, dim)| match axes.contains(&axis) {
        true => keeps.then_some(Dim::Fixed(1)),
        false => Some(dim.clone()),
    });
    Ok(vec![TensorType { data_type: x.data_type, dims: dims.collect() }])
}
