//! Tensors that ONNX Runtime owns, reads and writes in place.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use ort::memory::Allocator;
use ort::value::{DynTensor, PrimitiveTensorElementType, TensorElementType};
use tileforge_contract::DataType;

use crate::error::{Error, ONNX_RUNTIME, Result, says_out_of_memory};
use crate::{capture, copying};

/// A dense tensor that ONNX Runtime owns: in this machine's memory (pinned if a GPU copies it), or on the GPU.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) tensor: DynTensor,
    data_type: DataType,
    shape: Vec<usize>,
}

/// The Rust type of an element type.
pub trait Element: PrimitiveTensorElementType + Copy {
    /// The type's name in contracts.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $data_type:ident,)+) => {
        $(impl Element for $rust { const DATA_TYPE: DataType = DataType::$data_type; })+
    };
}

elements! {
    f32 => F32, f16 => F16, bf16 => Bf16, f64 => F64, i64 => I64, i32 => I32, i16 => I16, i8 => I8,
    u64 => U64, u32 => U32, u16 => U16, u8 => U8, bool => Bool,
}

impl Buffer {
    /// The type of its elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// [`Error::ElementType`]: the elements are of another type, or on a GPU.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let wrong = |_| Error::ElementType { expected: T::DATA_TYPE, found: self.data_type };
        self.tensor.try_extract_tensor::<T>().map(|(_, values)| values).map_err(wrong)
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// As [`Buffer::as_slice`].
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        let found = self.data_type;
        let wrong = |_| Error::ElementType { expected: T::DATA_TYPE, found };
        self.tensor.try_extract_tensor_mut::<T>().map(|(_, values)| values).map_err(wrong)
    }
}

impl Buffer {
    /// Copies the elements of a buffer of the same type and shape.
    pub(crate) fn copy_from(&mut self, other: &Self) -> std::result::Result<(), String> {
        let bytes = self.shape.iter().product::<usize>() * self.data_type.size();
        copying::copy(&other.tensor, &mut self.tensor, bytes)
    }
}

/// Makes buffers for one session.
#[derive(Debug)]
pub struct Buffers {
    allocator: Allocator,
    /// The session's graph.
    path: PathBuf,
}

impl Buffers {
    /// Makes buffers in the allocator's memory, for a session of the graph `path`.
    pub(crate) fn new(allocator: Allocator, path: &Path) -> Self {
        Self { allocator, path: path.to_owned() }
    }

    /// A buffer of zeros, for any number of runs.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory for it; [`Error::Session`] if it cannot be made for another reason.
    pub fn zeros(&self, data_type: DataType, shape: &[usize]) -> Result<Buffer> {
        self.try_zeros(data_type, shape).map_err(|message| {
            if says_out_of_memory(&message) {
                return Error::OutOfMemory { shape: shape.to_vec(), reason: message };
            }
            let path = self.path.clone();
            Error::Session { library: ONNX_RUNTIME, path, action: "make a tensor for", message }
        })
    }

    fn try_zeros(&self, data_type: DataType, shape: &[usize]) -> std::result::Result<Buffer, String> {
        let text = |error: ort::Error| error.to_string();
        let mut buffer = uninitialised(&self.allocator, data_type, shape).map_err(text)?;
        if buffer.tensor.memory_info().is_cpu_accessible() {
            clear(&mut buffer.tensor).map_err(text)?;
        } else {
            // The processor cannot write to GPU memory, so zeros are copied to it.
            let mut zeros = uninitialised(&Allocator::default(), data_type, shape).map_err(text)?;
            clear(&mut zeros.tensor).map_err(text)?;
            buffer.copy_from(&zeros)?;
        }
        Ok(buffer)
    }
}

fn uninitialised(allocator: &Allocator, data_type: DataType, shape: &[usize]) -> ort::Result<Buffer> {
    let _running = (!allocator.memory_info().is_cpu_accessible()).then(capture::shared);
    let tensor = DynTensor::new(allocator, element_type(data_type), shape.to_vec())?;
    Ok(Buffer { tensor, data_type, shape: shape.to_vec() })
}

/// Writes zeros to a tensor in this machine's memory.
fn clear(tensor: &mut DynTensor) -> ort::Result<()> {
    macro_rules! clear_as {
        ($rust:ty, $zero:expr) => {
            tensor.try_extract_tensor_mut::<$rust>().map(|(_, values)| values.fill($zero))
        };
    }
    match tensor.data_type() {
        TensorElementType::Float32 => clear_as!(f32, 0.0),
        TensorElementType::Float16 => clear_as!(f16, f16::ZERO),
        TensorElementType::Bfloat16 => clear_as!(bf16, bf16::ZERO),
        TensorElementType::Float64 => clear_as!(f64, 0.0),
        TensorElementType::Int64 => clear_as!(i64, 0),
        TensorElementType::Int32 => clear_as!(i32, 0),
        TensorElementType::Int16 => clear_as!(i16, 0),
        TensorElementType::Int8 => clear_as!(i8, 0),
        TensorElementType::Uint64 => clear_as!(u64, 0),
        TensorElementType::Uint32 => clear_as!(u32, 0),
        TensorElementType::Uint16 => clear_as!(u16, 0),
        TensorElementType::Uint8 => clear_as!(u8, 0),
        TensorElementType::Bool => clear_as!(bool, false),
        other => Err(ort::Error::new(format!("no tensors of {other}"))),
    }
}

/// ONNX Runtime's name for an element type.
pub(crate) fn element_type(data_type: DataType) -> TensorElementType {
    match data_type {
        DataType::F32 => TensorElementType::Float32,
        DataType::F16 => TensorElementType::Float16,
        DataType::Bf16 => TensorElementType::Bfloat16,
        DataType::F64 => TensorElementType::Float64,
        DataType::F8E4M3 => TensorElementType::Float8E4M3FN,
        DataType::F8E5M2 => TensorElementType::Float8E5M2,
        DataType::I64 => TensorElementType::Int64,
        DataType::I32 => TensorElementType::Int32,
        DataType::I16 => TensorElementType::Int16,
        DataType::I8 => TensorElementType::Int8,
        DataType::U64 => TensorElementType::Uint64,
        DataType::U32 => TensorElementType::Uint32,
        DataType::U16 => TensorElementType::Uint16,
        DataType::U8 => TensorElementType::Uint8,
        DataType::Bool => TensorElementType::Bool,
    }
}

/// The element type with this name in ONNX Runtime.
pub(crate) fn data_type(element: TensorElementType) -> Option<DataType> {
    DataType::ALL.iter().copied().find(|data_type| element_type(*data_type) == element)
}
