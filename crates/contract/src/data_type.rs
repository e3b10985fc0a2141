//! Element types of tensors.

named! {
    /// The element type of a tensor, as far as image models need it.
    DataType {
        /// IEEE 754 binary32.
        F32 = "f32",
        /// IEEE 754 binary16.
        F16 = "f16",
        /// The upper half of a binary32.
        Bf16 = "bf16",
        /// IEEE 754 binary64.
        F64 = "f64",
        /// 8-bit float, 4 exponent bits, no infinities.
        F8E4M3 = "f8e4m3",
        /// 8-bit float, 5 exponent bits.
        F8E5M2 = "f8e5m2",
        /// Signed 64-bit.
        I64 = "i64",
        /// Signed 32-bit.
        I32 = "i32",
        /// Signed 16-bit.
        I16 = "i16",
        /// Signed 8-bit.
        I8 = "i8",
        /// Unsigned 64-bit.
        U64 = "u64",
        /// Unsigned 32-bit.
        U32 = "u32",
        /// Unsigned 16-bit.
        U16 = "u16",
        /// Unsigned 8-bit.
        U8 = "u8",
        /// One byte, 0 or 1.
        Bool = "bool",
    }
}

impl DataType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16 | Self::F64 | Self::F8E4M3 | Self::F8E5M2)
    }

    /// ONNX's number of this type: `TensorProto.DataType` of `onnx.proto`.
    pub fn to_onnx(self) -> i32 {
        match self {
            Self::F32 => 1,
            Self::U8 => 2,
            Self::I8 => 3,
            Self::U16 => 4,
            Self::I16 => 5,
            Self::I32 => 6,
            Self::I64 => 7,
            Self::Bool => 9,
            Self::F16 => 10,
            Self::F64 => 11,
            Self::U32 => 12,
            Self::U64 => 13,
            Self::Bf16 => 16,
            Self::F8E4M3 => 17,
            Self::F8E5M2 => 19,
        }
    }

    /// The type that ONNX gives this number, if we know it.
    pub fn from_onnx(number: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|data_type| data_type.to_onnx() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_number_and_its_name() {
        for &data_type in DataType::ALL {
            assert_eq!(DataType::from_onnx(data_type.to_onnx()), Some(data_type));
            assert_eq!(data_type.name().parse(), Ok(data_type));
        }
        // A string tensor, which no image model has.
        assert_eq!(DataType::from_onnx(8), None);
    }

    #[test]
    fn sizes_follow_the_names() {
        for &data_type in DataType::ALL {
            let name = data_type.name();
            let bits: String =
                name.chars().skip_while(char::is_ascii_alphabetic).take_while(char::is_ascii_digit).collect();
            assert_eq!(data_type.size(), bits.parse().map_or(1, |bits: usize| bits / 8), "{name}");
            assert_eq!(data_type.is_float(), name.starts_with('f') || name == "bf16", "{name}");
        }
    }
}
