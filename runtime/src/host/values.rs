//! The values of one sample.

use tileforge_session::Buffer;

use crate::error::{Error, Result};

/// The values of one tensor of one sample, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
}

impl Values {
    /// Numbers as whole ones or as they are.
    pub(crate) fn of(values: Vec<f32>, is_whole: bool) -> Self {
        if is_whole { Self::I64(values.into_iter().map(|value| value as i64).collect()) } else { Self::F32(values) }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::I32(values) => values.len(),
        }
    }

    /// The numbers of a tensor of 32-bit floats.
    pub(crate) fn into_f32(self) -> Result<Vec<f32>> {
        if let Self::F32(values) = self { Ok(values) } else { Err(Error::internal("values")) }
    }

    /// Their bytes, to compare them by.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::I64(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::I32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        }
    }

    /// Copies them to a part of a buffer.
    pub(super) fn write(&self, to: &mut Buffer, at: usize) -> Result<()> {
        fn copy<T: Copy>(from: &[T], to: &mut [T], at: usize) -> Result<()> {
            let place = to.get_mut(at..at + from.len()).ok_or_else(|| Error::internal("values"))?;
            place.copy_from_slice(from);
            Ok(())
        }
        match self {
            Self::F32(values) => copy(values, to.as_mut_slice()?, at),
            Self::I64(values) => copy(values, to.as_mut_slice()?, at),
            Self::I32(values) => copy(values, to.as_mut_slice()?, at),
        }
    }
}
