//! Matrix products, softmax and attention.

use super::arithmetic::broadcast_dims;
use super::call::{Call, Inferred, Problem, axis_index};
use crate::{Dim, TensorType};

/// `a` `[…, rows, inner]` times `b` `[…, inner, columns]`; the dimensions before the last two are broadcast as in
/// NumPy.
pub(super) fn matmul(call: &Call<'_>) -> Inferred {
    let (a, b) = (call.ty(0)?, call.ty(1)?);
    let mismatch = || Problem::Mismatch(format!("{a} times {b} is no matrix product"));
    let ([a_batch @ .., rows, a_inner], [b_batch @ .., b_inner, columns]) = (a.dims.as_slice(), b.dims.as_slice())
    else {
        // A vector, which ONNX allows, or a scalar, which it does not.
        return Err(Problem::NoRule);
    };
    let is_known = a.dims.iter().chain(&b.dims).all(|dim| dim.fixed().is_some());
    let mismatch = || if is_known { mismatch() } else { Problem::NoRule };
    if a.data_type != b.data_type || a_inner != b_inner {
        return Err(mismatch());
    }
    let mut dims = broadcast_dims(a_batch, b_batch).ok_or_else(mismatch)?;
    dims.extend([rows.clone(), columns.clone()]);
    Ok(vec![TensorType { data_type: a.data_type, dims }])
}

/// `a` `[rows, inner]` times `b` `[inner, columns]`, either of which may be transposed first, plus an optional `c` that
/// is broadcast to the product.
pub(super) fn gemm(call: &Call<'_>) -> Inferred {
    let (a, b) = (call.ty(0)?, call.ty(1)?);
    let sides = |ty: &TensorType, transposed: &str| -> Inferred<[Dim; 2]> {
        match ty.dims.as_slice() {
            [first, second] if call.node.int(transposed).unwrap_or(0) == 0 => Ok([first.clone(), second.clone()]),
            [first, second] => Ok([second.clone(), first.clone()]),
            _ => Err(format!("expected a matrix, found {ty}").into()),
        }
    };
    let ([rows, a_inner], [b_inner, columns]) = (sides(a, "transA")?, sides(b, "transB")?);
    let product = TensorType { data_type: a.data_type, dims: vec![rows, columns] };
    if a.data_type != b.data_type || a_inner != b_inner {
        return Err(format!("{a} times {b} is no matrix product").into());
    }
    match call.optional(2) {
        Some(c)
            if c.ty.data_type != a.data_type
                || broadcast_dims(&product.dims, &c.ty.dims).as_ref() != Some(&product.dims) =>
        {
            Err(format!("{} cannot be broadcast to the product {product}", c.ty).into())
        }
        _ => Ok(vec![product]),
    }
}

/// The result has the input's type.
pub(super) fn softmax(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    axis_index(call.node.int("axis").unwrap_or(-1), x.dims.len())?;
    Ok(vec![x.clone()])
}

/// Queries, keys and values `[batch, tokens, heads · width]`. Only the first output is inferred, and only without past
/// keys and values.
pub(super) fn attention(call: &Call<'_>) -> Inferred {
    let (q, k, v) = (call.ty(0)?, call.ty(1)?, call.ty(2)?);
    let mismatch = || Problem::Mismatch(format!("the queries {q}, keys {k} and values {v} do not fit each other"));
    if q.dims.len() == 4 {
        return Err(Problem::NoRule);
    }
    let (heads, shared) = (call.positive("q_num_heads")?, call.positive("kv_num_heads")?);
    let [[q_batch, queries, q_width], [k_batch, keys, k_width], [v_batch, v_keys, v_width]] =
        [q, k, v].map(|ty| ty.dims.as_slice())
    else {
        return Err(Problem::NoRule);
    };
    let each = |width: &Dim, heads: usize| {
        width.divided_exactly(heads).filter(|width| width.fixed().is_some()).ok_or_else(mismatch)
    };
    let fits = [k_batch, v_batch] == [q_batch; 2] && keys == v_keys && [k.data_type, v.data_type] == [q.data_type; 2];
    if !fits || heads.checked_rem(shared) != Some(0) || each(q_width, heads)? != each(k_width, shared)? {
        return Err(mismatch());
    }
    let made = each(v_width, shared)?.times(heads).ok_or_else(mismatch)?;
    Ok(vec![TensorType { data_type: q.data_type, dims: vec![q_batch.clone(), queries.clone(), made] }])
}
