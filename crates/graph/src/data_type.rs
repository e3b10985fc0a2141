//! Element types of tensors.

use crate::proto::tensor_proto::DataType as Proto;
use std::fmt;

/// The element type of a tensor, as far as image models need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE 754 binary64.
    F64,
    /// 8-bit float, 4 exponent bits, no infinities.
    F8E4M3,
    /// 8-bit float, 5 exponent bits.
    F8E5M2,
    /// Signed 64-bit.
    I64,
    /// Signed 32-bit.
    I32,
    /// Signed 16-bit.
    I16,
    /// Signed 8-bit.
    I8,
    /// Unsigned 64-bit.
    U64,
    /// Unsigned 32-bit.
    U32,
    /// Unsigned 16-bit.
    U16,
    /// Unsigned 8-bit.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

/// Every type with its ONNX number, bytes an element, and short name.
const TABLE: [(DataType, Proto, usize, &str); 15] = [
    (DataType::F32, Proto::Float, 4, "f32"),
    (DataType::F16, Proto::Float16, 2, "f16"),
    (DataType::Bf16, Proto::Bfloat16, 2, "bf16"),
    (DataType::F64, Proto::Double, 8, "f64"),
    (DataType::F8E4M3, Proto::Float8e4m3fn, 1, "f8e4m3"),
    (DataType::F8E5M2, Proto::Float8e5m2, 1, "f8e5m2"),
    (DataType::I64, Proto::Int64, 8, "i64"),
    (DataType::I32, Proto::Int32, 4, "i32"),
    (DataType::I16, Proto::Int16, 2, "i16"),
    (DataType::I8, Proto::Int8, 1, "i8"),
    (DataType::U64, Proto::Uint64, 8, "u64"),
    (DataType::U32, Proto::Uint32, 4, "u32"),
    (DataType::U16, Proto::Uint16, 2, "u16"),
    (DataType::U8, Proto::Uint8, 1, "u8"),
    (DataType::Bool, Proto::Bool, 1, "bool"),
];

impl DataType {
    fn row(self) -> &'static (DataType, Proto, usize, &'static str) {
        // `TABLE` is in the order of the declaration; the test below holds it to that.
        &TABLE[self as usize]
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        self.row().2
    }

    /// The short name used in messages and snapshots: `f32`, `bf16`, `i64`, …
    pub fn name(self) -> &'static str {
        self.row().3
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            DataType::F32 | DataType::F16 | DataType::Bf16 | DataType::F64 | DataType::F8E4M3 | DataType::F8E5M2
        )
    }

    /// ONNX's number of this type (`TensorProto.DataType`).
    pub fn to_onnx(self) -> i32 {
        self.row().1 as i32
    }

    /// The type that ONNX gives this number, if we know it.
    pub fn from_onnx(number: i32) -> Option<Self> {
        TABLE.iter().find(|row| row.1 as i32 == number).map(|row| row.0)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_declaration() {
        for (position, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, position);
            assert_eq!(DataType::from_onnx(row.0.to_onnx()), Some(row.0));
        }
    }
}
