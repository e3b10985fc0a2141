//! Tensors in this machine's memory.

use half::{bf16, f16};
use ndarray::{ArrayD, IxDyn};
use safetensors::tensor::Dtype;
use tileforge_contract::DataType;

use crate::error::{Error, Result};

/// Tensors by name.
pub type Named = Vec<(String, Tensor)>;

/// One input or output of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the graph.
    pub name: String,
    /// The type of its elements; `None` if it is not a tensor of numbers.
    pub data_type: Option<DataType>,
    /// Its shape; `None` for each length that the graph leaves open.
    pub shape: Vec<Option<usize>>,
}

impl TensorInfo {
    /// Whether a tensor of this shape fits.
    pub(crate) fn allows(&self, shape: &[usize]) -> bool {
        let fits = |(length, expected): (&usize, &Option<usize>)| expected.is_none_or(|expected| expected == *length);
        shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(fits)
    }
}

/// A dense tensor in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// 32-bit floats.
    F32(ArrayD<f32>),
    /// IEEE 16-bit floats.
    F16(ArrayD<f16>),
    /// bfloat16.
    Bf16(ArrayD<bf16>),
    /// Signed 64-bit integers.
    I64(ArrayD<i64>),
    /// Signed 32-bit integers.
    I32(ArrayD<i32>),
    /// Signed 8-bit integers.
    I8(ArrayD<i8>),
    /// Unsigned 8-bit integers.
    U8(ArrayD<u8>),
    /// Booleans.
    Bool(ArrayD<bool>),
}

/// Evaluates the same expression with the array of each variant.
macro_rules! of_each {
    ($tensor:expr, $array:ident => $result:expr) => {
        match $tensor {
            Tensor::F32($array) => $result,
            Tensor::F16($array) => $result,
            Tensor::Bf16($array) => $result,
            Tensor::I64($array) => $result,
            Tensor::I32($array) => $result,
            Tensor::I8($array) => $result,
            Tensor::U8($array) => $result,
            Tensor::Bool($array) => $result,
        }
    };
}
pub(crate) use of_each;

impl Tensor {
    /// The type of its elements.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::F32(_) => DataType::F32,
            Self::F16(_) => DataType::F16,
            Self::Bf16(_) => DataType::Bf16,
            Self::I64(_) => DataType::I64,
            Self::I32(_) => DataType::I32,
            Self::I8(_) => DataType::I8,
            Self::U8(_) => DataType::U8,
            Self::Bool(_) => DataType::Bool,
        }
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        of_each!(self, array => array.shape())
    }

    /// The elements, if they are 32-bit floats.
    ///
    /// # Errors
    /// [`Error::ElementType`]: the elements are of another type.
    pub fn as_f32(&self) -> Result<&ArrayD<f32>> {
        match self {
            Self::F32(array) => Ok(array),
            other => Err(Error::ElementType { expected: DataType::F32, found: other.data_type() }),
        }
    }

    /// As [`Tensor::as_f32`], but consumes the tensor.
    ///
    /// # Errors
    /// As [`Tensor::as_f32`].
    pub fn into_f32(self) -> Result<ArrayD<f32>> {
        match self {
            Self::F32(array) => Ok(array),
            other => Err(Error::ElementType { expected: DataType::F32, found: other.data_type() }),
        }
    }

    /// The elements as little-endian bytes, in row-major order.
    pub fn to_bytes(&self) -> Vec<u8> {
        fn bytes<T: Copy, const N: usize>(array: &ArrayD<T>, write: impl Fn(T) -> [u8; N]) -> Vec<u8> {
            let mut bytes = vec![0; array.len() * N];
            let places = bytes.as_chunks_mut::<N>().0.iter_mut();
            match array.as_slice() {
                // As fast as copying.
                Some(values) => places.zip(values).for_each(|(place, value)| *place = write(*value)),
                None => places.zip(array).for_each(|(place, value)| *place = write(*value)),
            }
            bytes
        }
        match self {
            Self::F32(array) => bytes(array, f32::to_le_bytes),
            Self::F16(array) => bytes(array, f16::to_le_bytes),
            Self::Bf16(array) => bytes(array, bf16::to_le_bytes),
            Self::I64(array) => bytes(array, i64::to_le_bytes),
            Self::I32(array) => bytes(array, i32::to_le_bytes),
            Self::I8(array) => bytes(array, i8::to_le_bytes),
            Self::U8(array) => bytes(array, u8::to_le_bytes),
            Self::Bool(array) => bytes(array, |value| [u8::from(value)]),
        }
    }

    /// A tensor from its elements as little-endian bytes, in row-major order. `None` if the number of bytes does not
    /// fit the shape, if a boolean is neither 0 nor 1, and for element types that our graphs do not use.
    pub fn from_bytes(data_type: DataType, shape: &[usize], bytes: &[u8]) -> Option<Self> {
        fn array<T, const N: usize>(shape: &[usize], bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Option<ArrayD<T>> {
            let (groups, rest) = bytes.as_chunks::<N>();
            let values = groups.iter().map(|group| read(*group)).collect();
            rest.is_empty().then(|| ArrayD::from_shape_vec(IxDyn(shape), values).ok())?
        }
        Some(match data_type {
            DataType::F32 => Self::F32(array(shape, bytes, f32::from_le_bytes)?),
            DataType::F16 => Self::F16(array(shape, bytes, f16::from_le_bytes)?),
            DataType::Bf16 => Self::Bf16(array(shape, bytes, bf16::from_le_bytes)?),
            DataType::I64 => Self::I64(array(shape, bytes, i64::from_le_bytes)?),
            DataType::I32 => Self::I32(array(shape, bytes, i32::from_le_bytes)?),
            DataType::I8 => Self::I8(array(shape, bytes, i8::from_le_bytes)?),
            DataType::U8 => Self::U8(array(shape, bytes, |[byte]| byte)?),
            DataType::Bool if bytes.iter().all(|byte| *byte <= 1) => {
                Self::Bool(array(shape, bytes, |[byte]: [u8; 1]| byte == 1)?)
            }
            _ => return None,
        })
    }
}

/// The name of an element type in safetensors files.
pub fn safetensors_type(data_type: DataType) -> Dtype {
    match data_type {
        DataType::F32 => Dtype::F32,
        DataType::F16 => Dtype::F16,
        DataType::Bf16 => Dtype::BF16,
        DataType::F64 => Dtype::F64,
        DataType::F8E4M3 => Dtype::F8_E4M3,
        DataType::F8E5M2 => Dtype::F8_E5M2,
        DataType::I64 => Dtype::I64,
        DataType::I32 => Dtype::I32,
        DataType::I16 => Dtype::I16,
        DataType::I8 => Dtype::I8,
        DataType::U64 => Dtype::U64,
        DataType::U32 => Dtype::U32,
        DataType::U16 => Dtype::U16,
        DataType::U8 => Dtype::U8,
        DataType::Bool => Dtype::BOOL,
    }
}

impl From<ArrayD<f32>> for Tensor {
    fn from(array: ArrayD<f32>) -> Self {
        // The caller's layout may differ; elements are stored in row-major order.
        Self::F32(if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() })
    }
}

impl From<ArrayD<i64>> for Tensor {
    fn from(array: ArrayD<i64>) -> Self {
        Self::I64(if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_its_bytes() {
        let bytes: Vec<u8> = (0..24).map(|byte| byte % 2).collect();
        for data_type in [
            DataType::F32,
            DataType::F16,
            DataType::Bf16,
            DataType::I64,
            DataType::I32,
            DataType::I8,
            DataType::U8,
            DataType::Bool,
        ] {
            let shape = [3, 8 / data_type.size()];
            let tensor = Tensor::from_bytes(data_type, &shape, &bytes).unwrap();
            assert_eq!((tensor.data_type(), tensor.shape(), tensor.to_bytes()), (data_type, &shape[..], bytes.clone()));
            assert_eq!(Tensor::from_bytes(data_type, &[100], &bytes), None);
        }
        assert_eq!(Tensor::from_bytes(DataType::F32, &[0], &[0; 3]), None);
        assert_eq!(Tensor::from_bytes(DataType::Bool, &[1], &[2]), None);
        assert_eq!(Tensor::from_bytes(DataType::U64, &[1], &[0; 8]), None);
    }

    #[test]
    fn tokens_stay_whole_numbers() {
        let tokens = Tensor::from(ArrayD::from_shape_vec(IxDyn(&[1, 2]), vec![i64::MAX, -1]).unwrap());
        assert_eq!(Tensor::from_bytes(DataType::I64, &[1, 2], &tokens.to_bytes()).unwrap(), tokens);
        assert!(matches!(tokens.as_f32(), Err(Error::ElementType { expected: DataType::F32, found: DataType::I64 })));
    }

    #[test]
    fn a_transposed_array_becomes_row_major() {
        let array = ArrayD::from_shape_vec(IxDyn(&[2, 3]), (0..6).map(|value| value as f32).collect()).unwrap();
        let Tensor::F32(transposed) = Tensor::from(array.reversed_axes()) else { panic!("not f32") };
        assert_eq!(transposed.as_slice().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }
}
