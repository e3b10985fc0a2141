//! Integer values that follow from shapes alone: exporters compute the sizes for Reshape, Slice or Resize from Shape.

use super::call::{Call, Extent, Operand, axis_index};
use super::layout;
use crate::{DataType, Dim, Node};

/// The values that a node computes, if they are integers that follow from shapes alone.
pub fn contents(node: &Node, operands: &[Option<Operand<'_>>]) -> Option<Vec<Extent>> {
    if !node.domain.is_empty() {
        return None;
    }
    let call = Call { node, operands };
    let extents = |index: usize| call.extents(index).ok();
    match node.operator.as_str() {
        "Shape" => {
            let dims = call.ty(0).ok()?.dims.get(layout::shape_range(&call).ok()?)?;
            dims.iter().map(extent).collect()
        }
        "Concat" => {
            let parts = (0..operands.len()).map(extents).collect::<Option<Vec<_>>>()?;
            Some(parts.concat())
        }
        // A new shape does not change the values of a list.
        "Squeeze" | "Unsqueeze" | "Identity" | "Reshape" => integers(&call, 0).and_then(|_| extents(0)),
        "Cast" if matches!(to_type(node), Some(DataType::I64 | DataType::I32)) => extents(0),
        "Gather" => {
            let (list, places) = (extents(0)?, call.required_integers(1).ok()?);
            let at = |place: &i64| list.get(axis_index(*place, list.len()).ok()?).cloned();
            places.iter().map(at).collect()
        }
        "Slice" => {
            let (list, one) = (extents(0)?, |index: usize| call.required_integers(index).ok()?.first().copied());
            let (start, end) = (one(1)?, one(2)?);
            let step = if operands.len() > 4 { one(4)? } else { 1 };
            let count = i64::try_from(list.len()).ok()?;
            let place = |at: i64| {
                let at = if at < 0 { at.saturating_add(count) } else { at };
                usize::try_from(at.clamp(0, count)).ok()
            };
            (step == 1).then(|| list.get(place(start)?..place(end)?.max(place(start)?)).map(<[Extent]>::to_vec))?
        }
        "Add" | "Sub" | "Mul" | "Div" => arithmetic(node, &extents(0)?, &extents(1)?),
        _ => None,
    }
}

/// Whether an input is of integers.
fn integers(call: &Call<'_>, index: usize) -> Option<()> {
    matches!(call.ty(index).ok()?.data_type, DataType::I64 | DataType::I32).then_some(())
}

fn to_type(node: &Node) -> Option<DataType> {
    DataType::from_onnx(i32::try_from(node.int("to")?).ok()?)
}

fn extent(dim: &Dim) -> Option<Extent> {
    dim.fixed().map_or_else(|| Some(Extent::Size(dim.clone())), |n| Some(Extent::Number(n.try_into().ok()?)))
}

/// Computes element by element. A single value is broadcast.
fn arithmetic(node: &Node, a: &[Extent], b: &[Extent]) -> Option<Vec<Extent>> {
    let count = a.len().max(b.len());
    if [a.len(), b.len()].iter().any(|length| *length != count && *length != 1) {
        return None;
    }
    let at = |list: &[Extent], index: usize| list.get(if list.len() == 1 { 0 } else { index }).cloned();
    (0..count).map(|index| combined(node.operator.as_str(), &at(a, index)?, &at(b, index)?)).collect()
}

fn combined(operator: &str, a: &Extent, b: &Extent) -> Option<Extent> {
    use Extent::{Number, Size};
    Some(match (operator, a, b) {
        ("Add", Number(a), Number(b)) => Number(a.checked_add(*b)?),
        ("Sub", Number(a), Number(b)) => Number(a.checked_sub(*b)?),
        ("Mul", Number(a), Number(b)) => Number(a.checked_mul(*b)?),
        // ONNX's division of integers drops the remainder.
        ("Div", Number(a), Number(b)) => Number(a.checked_div(*b)?),
        ("Add", Size(dim), Number(number)) | ("Add", Number(number), Size(dim)) => {
            Size(dim.plus(isize::try_from(*number).ok()?)?)
        }
        ("Sub", Size(dim), Number(number)) => Size(dim.plus(isize::try_from(number.checked_neg()?).ok()?)?),
        ("Mul", Size(dim), Number(number)) | ("Mul", Number(number), Size(dim)) => {
            extent(&dim.times(usize::try_from(*number).ok()?)?)?
        }
        ("Mul", Size(a), Size(b)) => extent(&Dim::product([a, b])?)?,
        ("Div", Size(dim), Number(number)) => {
            extent(&dim.divided_rounding_down(usize::try_from(*number).ok().filter(|n| *n > 0)?)?)?
        }
        _ => return None,
    })
}
