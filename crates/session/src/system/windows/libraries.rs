//! Names of shared libraries, and where the loader looks for those that they link to.

use std::io;
use std::path::Path;

use super::calls;

pub(crate) const ONNXRUNTIME: &str = "onnxruntime.dll";
/// The beginning of the name of OpenVINO's library.
pub(crate) const OPENVINO: &str = "openvino_c.dll";
/// OpenVINO's library that opens compiled graphs.
pub(crate) const OPENVINO_GRAPHS: &str = "openvino_ir_frontend.dll";
/// The provider of TensorRT for RTX: a plugin, which runs on any ONNX Runtime.
pub(crate) const TENSORRT_RTX_PLUGIN: &str = "onnxruntime_providers_nv_tensorrt_rtx.dll";
pub(crate) const CUDA_DRIVER: &str = "nvcuda.dll";
pub(crate) const NVML: &str = "nvml.dll";
pub(crate) const CUDA_RUNTIME: &str = "cudart64_13.dll";
pub(crate) const CUBLAS_LT: &str = "cublasLt64_13.dll";
pub(crate) const CUBLAS: &str = "cublas64_13.dll";
pub(crate) const CURAND: &str = "curand64_10.dll";
pub(crate) const CUDNN: &str = "cudnn64_9.dll";
pub(crate) const TENSORRT: &str = "nvinfer_10.dll";
pub(crate) const TENSORRT_PARSER: &str = "nvonnxparser_10.dll";
pub(crate) const TENSORRT_RTX: &str = "tensorrt_rtx_1_7.dll";
pub(crate) const TENSORRT_RTX_PARSER: &str = "tensorrt_onnxparser_rtx_1_7.dll";

/// The library of one of ONNX Runtime's own providers.
pub(crate) fn provider(name: &str) -> String {
    format!("onnxruntime_providers_{name}.dll")
}

/// The libraries of Microsoft's Visual C++ runtime that ONNX Runtime and OpenVINO link to.
const CPP_RUNTIME: [&str; 4] = ["msvcp140.dll", "msvcp140_1.dll", "vcruntime140.dll", "vcruntime140_1.dll"];

/// The libraries of Microsoft's Visual C++ runtime that the loader does not find. Windows does not come with that
/// runtime, and the loader's error does not name the missing library.
pub(crate) fn missing_cpp_runtime() -> Vec<&'static str> {
    CPP_RUNTIME.into_iter().filter(|name| !calls::is_library_found(name)).collect()
}

/// From now on, libraries are searched for beside the program, among the system's libraries and in this folder; never
/// in the current folder or in the folders of `PATH`.
pub(crate) fn search_in(folder: &Path) -> io::Result<()> {
    calls::search_libraries_in(folder)
}
