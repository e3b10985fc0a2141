//! One tensor of a file.

use std::fmt::Display;

use tileforge_contract::DataType;
use tileforge_session::Tensor;

/// The stored elements of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The type of the elements.
    pub data_type: DataType,
    /// The lengths of the axes, the outermost first.
    pub shape: Vec<usize>,
    /// The elements in row-major order, little-endian.
    pub bytes: Vec<u8>,
}

impl Stored {
    /// The tensor; `None` for a type of elements that no engine takes, and for booleans that are neither 0 nor 1.
    pub fn tensor(&self) -> Option<Tensor> {
        Tensor::from_bytes(self.data_type, &self.shape, &self.bytes)
    }

    /// The elements as 32-bit floats; `None` if they are not floats.
    pub(crate) fn floats(&self) -> Option<Vec<f32>> {
        Some(match self.tensor()? {
            Tensor::F32(array) => array.into_iter().collect(),
            Tensor::F16(array) => array.iter().map(|value| value.to_f32()).collect(),
            Tensor::Bf16(array) => array.iter().map(|value| value.to_f32()).collect(),
            _ => return None,
        })
    }
}

impl From<&Tensor> for Stored {
    fn from(tensor: &Tensor) -> Self {
        Self { data_type: tensor.data_type(), shape: tensor.shape().to_vec(), bytes: tensor.to_bytes() }
    }
}

impl Display for Stored {
    /// "f32 [1, 3, 64, 64]".
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {:?}", self.data_type, self.shape)
    }
}

/// The description of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The type of the elements.
    pub data_type: DataType,
    /// The lengths of the axes, the outermost first.
    pub shape: Vec<usize>,
}

impl Description {
    /// Bytes of the elements; saturates at `u64::MAX`.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().fold(self.data_type.size() as u64, |bytes, length| bytes.saturating_mul(*length as u64))
    }
}

impl Display for Description {
    /// "f32 [1, 3, 64, 64]".
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {:?}", self.data_type, self.shape)
    }
}
