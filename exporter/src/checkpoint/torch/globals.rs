//! The names that a pickle of tensors may use: the names that `torch.load(weights_only=True)` allows.
//!
//! Source: `_get_allowed_globals` in PyTorch 2.15, `torch/_weights_only_unpickler.py`. A name stands for a value of
//! [`Global`], never for code.

use tileforge_graph::DataType;

/// What an allowed name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    /// A dictionary: `collections.OrderedDict` or `collections.Counter`.
    Dictionary,
    /// The constructor of a value that no tensor needs, such as a set or a device.
    Value(&'static str),
    /// `torch.Size`: a tuple.
    Size,
    /// An element type; `None` for one that no graph can hold.
    ElementType(Option<DataType>),
    /// The class of a storage.
    Storage(StorageClass),
    /// `torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`.
    RebuildTensor,
    /// `torch._utils._rebuild_tensor_v3`: the storage is bytes, and the element type is an argument.
    RebuildTypedTensor,
    /// `torch._utils._rebuild_parameter`, with or without state, and the class itself: the first argument is a tensor.
    RebuildParameter,
    /// `torch._tensor._rebuild_from_type_v2`: calls another of these for a subclass of tensors.
    RebuildFromType,
    /// The constructor of a tensor that is not an array of numbers, such as a sparse one.
    OtherTensor(&'static str),
    /// A class of tensors, or a setting of them, as an argument.
    Class,
}

/// The class of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StorageClass {
    /// The element type; `None` for one that no graph can hold.
    pub(super) data_type: Option<DataType>,
    /// Bytes of each element.
    pub(super) element: u64,
}

/// The global `MODULE.NAME`; `None` for one that is not allowed.
pub(super) fn allowed(module: &str, name: &str) -> Option<Global> {
    use Global::{
        Class, Dictionary, OtherTensor, RebuildFromType, RebuildParameter, RebuildTensor, RebuildTypedTensor,
    };
    Some(match (module, name) {
        ("collections", "OrderedDict" | "Counter") => Dictionary,
        ("_codecs", "encode") => Global::Value("bytes"),
        // Python 2 had another name for the module.
        ("builtins" | "__builtin__", "bytearray" | "set" | "complex") => Global::Value("a value of Python"),
        ("torch", "device") => Global::Value("a device"),
        ("torch.serialization", "_get_layout") => Global::Value("a layout"),
        ("torch", "Size") => Global::Size,
        ("torch", "Tensor") => Class,
        ("torch.nn.parameter", "Parameter") => RebuildParameter,
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v3") => RebuildTypedTensor,
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => RebuildParameter,
        ("torch._tensor", "_rebuild_from_type_v2") => RebuildFromType,
        ("torch._utils", "_rebuild_qtensor") => OtherTensor("a quantised tensor"),
        ("torch._utils", "_rebuild_sparse_tensor") => OtherTensor("a sparse tensor"),
        ("torch._utils", "_rebuild_meta_tensor_no_storage") => OtherTensor("a tensor without data"),
        ("torch._utils", "_rebuild_wrapper_subclass") => OtherTensor("a tensor of a subclass"),
        ("torch._utils", "_rebuild_device_tensor_from_numpy" | "_rebuild_device_tensor_from_cpu_tensor") => {
            OtherTensor("a tensor of another device")
        }
        (
            "torch",
            "per_tensor_affine"
            | "per_tensor_symmetric"
            | "per_channel_affine"
            | "per_channel_symmetric"
            | "per_channel_affine_float_qparams",
        ) => Class,
        ("torch", name) => element_type(name).map(Global::ElementType).or_else(|| storage(name))?,
        ("torch.cuda", name) => storage(name)?,
        ("torch.storage", "UntypedStorage") => storage("ByteStorage")?,
        _ => return None,
    })
}

/// An element type by PyTorch's name of it; `Some(None)` for one that no graph can hold.
fn element_type(name: &str) -> Option<Option<DataType>> {
    Some(match name {
        "float32" | "float" => Some(DataType::F32),
        "float16" | "half" => Some(DataType::F16),
        "bfloat16" => Some(DataType::Bf16),
        "float64" | "double" => Some(DataType::F64),
        "float8_e4m3fn" => Some(DataType::F8E4M3),
        "float8_e5m2" => Some(DataType::F8E5M2),
        "int64" | "long" => Some(DataType::I64),
        "int32" | "int" => Some(DataType::I32),
        "int16" | "short" => Some(DataType::I16),
        "int8" => Some(DataType::I8),
        "uint64" => Some(DataType::U64),
        "uint32" => Some(DataType::U32),
        "uint16" => Some(DataType::U16),
        "uint8" => Some(DataType::U8),
        "bool" => Some(DataType::Bool),
        "complex32" | "complex64" | "complex128" | "quint8" | "qint8" | "qint32" | "quint4x2" | "quint2x4"
        | "bits8" | "bits16" | "bits1x8" | "bits2x4" | "bits4x2" | "float8_e4m3fnuz" | "float8_e5m2fnuz"
        | "float8_e8m0fnu" | "float4_e2m1fn_x2" => None,
        _ => return None,
    })
}

fn storage(name: &str) -> Option<Global> {
    let (data_type, element) = match name.strip_suffix("Storage")? {
        "Float" => (Some(DataType::F32), 4),
        "Half" => (Some(DataType::F16), 2),
        "BFloat16" => (Some(DataType::Bf16), 2),
        "Double" => (Some(DataType::F64), 8),
        "Long" => (Some(DataType::I64), 8),
        "Int" => (Some(DataType::I32), 4),
        "Short" => (Some(DataType::I16), 2),
        "Char" => (Some(DataType::I8), 1),
        "Byte" => (Some(DataType::U8), 1),
        "Bool" => (Some(DataType::Bool), 1),
        "ComplexFloat" => (None, 8),
        "ComplexDouble" => (None, 16),
        "QInt8" | "QUInt8" | "QUInt4x2" | "QUInt2x4" => (None, 1),
        "QInt32" => (None, 4),
        _ => return None,
    };
    Some(Global::Storage(StorageClass { data_type, element }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_are_allowed() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("builtins", "eval"),
            ("__builtin__", "getattr"),
            ("torch", "load"),
            ("torch.storage", "_load_from_bytes"),
            ("torch._utils", "_rebuild_xla_tensor"),
            ("torch.nn.modules.conv", "Conv2d"),
            ("collections", "OrderedDict.fromkeys"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("torch", "Storage"),
            ("", ""),
        ] {
            assert_eq!(allowed(module, name), None, "{module}.{name}");
        }
        assert_eq!(allowed("collections", "OrderedDict"), Some(Global::Dictionary));
        let half = StorageClass { data_type: Some(DataType::F16), element: 2 };
        assert_eq!(allowed("torch.cuda", "HalfStorage"), Some(Global::Storage(half)));
        assert_eq!(allowed("torch", "complex64"), Some(Global::ElementType(None)));
    }
}
