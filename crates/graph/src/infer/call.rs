//! A node with its operands, as the rules read them.

use crate::{Dim, Node, TensorType, Weight};

/// A node's input: its type, and its values where they are constant.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    /// The type.
    pub ty: &'a TensorType,
    /// The values, where the input is an initializer.
    pub constant: Option<&'a Weight>,
    /// The values, where the input is computed from shapes alone: the result of [`contents`](super::contents) for the
    /// node that makes it.
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
    pub(super) fn dim(&self) -> Option<Dim> {
        match self {
            Extent::Number(number) => usize::try_from(*number).ok().map(Dim::Fixed),
            Extent::Size(dim) => Some(dim.clone()),
        }
    }
}

/// Why types cannot be inferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// There is no rule for this operator, or for this form of it: ONNX allows more than we emit.
    NoRule,
    /// The inputs or the attributes do not fit the operator.
    Mismatch(String),
}

impl From<String> for Problem {
    fn from(reason: String) -> Self {
        Problem::Mismatch(reason)
    }
}

/// The result of a rule.
pub(super) type Inferred<T = Vec<TensorType>> = Result<T, Problem>;

/// The maximum length of an integer list that a rule reads: sizes, axes, paddings.
const LIST_MAXIMUM: usize = 1 << 12;

/// A node with its operands, as rules read them.
pub(super) struct Call<'a> {
    pub(super) node: &'a Node,
    pub(super) operands: &'a [Option<Operand<'a>>],
}

impl<'a> Call<'a> {
    pub(super) fn optional(&self, index: usize) -> Option<Operand<'a>> {
        self.operands.get(index).copied().flatten()
    }

    pub(super) fn operand(&self, index: usize) -> Inferred<Operand<'a>> {
        self.optional(index).ok_or_else(|| Problem::Mismatch(format!("input {index} is missing")))
    }

    pub(super) fn ty(&self, index: usize) -> Inferred<&'a TensorType> {
        Ok(self.operand(index)?.ty)
    }

    /// The first input as an image `[batch, channels, height, width]`.
    pub(super) fn image(&self) -> Inferred<(&'a TensorType, [&'a Dim; 4])> {
        let ty = self.ty(0)?;
        match ty.dims.as_slice() {
            [batch, channels, height, width] => Ok((ty, [batch, channels, height, width])),
            _ => Err(format!("expected [batch, channels, height, width], found {ty}").into()),
        }
    }

    /// Constant integers, if the optional input `index` is given.
    pub(super) fn integers(&self, index: usize) -> Inferred<Option<Vec<i64>>> {
        let Some(operand) = self.optional(index) else { return Ok(None) };
        if let Some(contents) = operand.contents {
            let number = |extent: &Extent| match extent {
                Extent::Number(number) => Some(*number),
                Extent::Size(_) => None,
            };
            return contents.iter().map(number).collect::<Option<_>>().map(Some).ok_or(Problem::NoRule);
        }
        let constant =
            operand.constant.filter(|constant| constant.elements() <= LIST_MAXIMUM).ok_or(Problem::NoRule)?;
        constant.to_i64s().map(Some).map_err(|e| Problem::Mismatch(e.to_string()))
    }

    pub(super) fn required_integers(&self, index: usize) -> Inferred<Vec<i64>> {
        self.integers(index)?.ok_or_else(|| Problem::Mismatch(format!("input {index} is missing")))
    }

    /// Integers that are constant, or that are computed from shapes alone.
    pub(super) fn extents(&self, index: usize) -> Inferred<Vec<Extent>> {
        match self.operand(index)? {
            Operand { contents: Some(contents), .. } => Ok(contents.to_vec()),
            _ => Ok(self.required_integers(index)?.into_iter().map(Extent::Number).collect()),
        }
    }

    pub(super) fn positive(&self, name: &str) -> Inferred<usize> {
        let value = self.node.int(name).and_then(|value| usize::try_from(value).ok()).filter(|value| *value > 0);
        value.ok_or_else(|| Problem::Mismatch(format!("attribute `{name}` must be a positive integer")))
    }
}

/// An axis that may count from the end, as an index.
pub(super) fn axis_index(axis: i64, rank: usize) -> Inferred<usize> {
    let index = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let index = index.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < rank);
    index.ok_or_else(|| Problem::Mismatch(format!("axis {axis} is outside the {rank} dimensions")))
}

/// The size on an axis.
pub(super) fn dim_at(ty: &TensorType, axis: usize) -> Inferred<&Dim> {
    ty.dims.get(axis).ok_or_else(|| Problem::Mismatch(format!("axis {axis} is outside the dimensions of {ty}")))
}

/// The dimensions of `ty` with another size on one axis.
pub(super) fn with_dim(ty: &TensorType, axis: usize, dim: &Dim) -> Vec<Dim> {
    ty.dims.iter().enumerate().map(|(i, own)| if i == axis { dim.clone() } else { own.clone() }).collect()
}

/// A size, or the error that it overflowed or became negative.
pub(super) fn size(dim: Option<Dim>) -> Inferred<Dim> {
    dim.ok_or_else(|| Problem::Mismatch("a size overflows, is negative, or is not a multiple of its divisor".into()))
}
