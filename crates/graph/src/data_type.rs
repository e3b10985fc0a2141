//! Element types of tensors: the contract's types, with ONNX's numbers.

pub use tileforge_contract::DataType;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::tensor_proto::DataType as Proto;

    #[test]
    fn numbers_are_those_of_the_onnx_file_format() {
        let expected = [
            (DataType::F32, Proto::Float),
            (DataType::F16, Proto::Float16),
            (DataType::Bf16, Proto::Bfloat16),
            (DataType::F64, Proto::Double),
            (DataType::F8E4M3, Proto::Float8e4m3fn),
            (DataType::F8E5M2, Proto::Float8e5m2),
            (DataType::I64, Proto::Int64),
            (DataType::I32, Proto::Int32),
            (DataType::I16, Proto::Int16),
            (DataType::I8, Proto::Int8),
            (DataType::U64, Proto::Uint64),
            (DataType::U32, Proto::Uint32),
            (DataType::U16, Proto::Uint16),
            (DataType::U8, Proto::Uint8),
            (DataType::Bool, Proto::Bool),
        ];
        assert_eq!(expected.len(), DataType::ALL.len());
        for (data_type, proto) in expected {
            assert_eq!(data_type.to_onnx(), proto as i32, "{data_type}");
        }
    }
}
