//! The values of one sample.

use tileforge_contract::DataType;
use tileforge_session::Buffer;

use crate::error::{Error, Result};

/// The values of one tensor of one sample, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    /// Zeros, as many as the tensor takes.
    Zeros,
}

impl Values {
    /// The values as `I64` if `is_whole`, else as `F32`.
    pub(crate) fn of(values: Vec<f32>, is_whole: bool) -> Self {
        if is_whole { Self::I64(values.into_iter().map(|value| value as i64).collect()) } else { Self::F32(values) }
    }

    /// Whether there are `length` values.
    pub(super) fn has_length(&self, length: usize) -> bool {
        match self {
            Self::F32(values) => values.len() == length,
            Self::I64(values) => values.len() == length,
            Self::I32(values) => values.len() == length,
            Self::Zeros => true,
        }
    }

    /// The values of a tensor of 32-bit floats.
    pub(crate) fn into_f32(self) -> Result<Vec<f32>> {
        if let Self::F32(values) = self { Ok(values) } else { Err(Error::internal("values")) }
    }

    /// The values' bytes, for comparison.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::I64(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::I32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::Zeros => Vec::new(),
        }
    }

    /// Copies the values to a buffer, from element `at` on. `length` is the number of elements that `Zeros` fills.
    pub(super) fn write(&self, to: &mut Buffer, at: usize, length: usize) -> Result<()> {
        fn place<T>(to: &mut [T], at: usize, length: usize) -> Result<&mut [T]> {
            to.get_mut(at..at + length).ok_or_else(|| Error::internal("values"))
        }
        fn copy<T: Copy>(from: &[T], to: &mut [T], at: usize) -> Result<()> {
            place(to, at, from.len()).map(|place| place.copy_from_slice(from))
        }
        match self {
            Self::F32(values) => copy(values, to.as_mut_slice()?, at),
            Self::I64(values) => copy(values, to.as_mut_slice()?, at),
            Self::I32(values) => copy(values, to.as_mut_slice()?, at),
            Self::Zeros => match to.data_type() {
                DataType::I64 => place::<i64>(to.as_mut_slice()?, at, length).map(|place| place.fill(0)),
                DataType::I32 => place::<i32>(to.as_mut_slice()?, at, length).map(|place| place.fill(0)),
                _ => place::<f32>(to.as_mut_slice()?, at, length).map(|place| place.fill(0.0)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_values_fit_as_the_tensor_takes() {
        let all = [Values::F32(vec![0.0; 3]), Values::I64(vec![0; 3]), Values::I32(vec![0; 3])];
        assert!(all.iter().all(|values| values.has_length(3) && !values.has_length(2) && !values.has_length(4)));
        assert!(Values::Zeros.has_length(3));
    }
}
