//! Names of shared libraries.

use std::io;
use std::path::Path;

pub(crate) const ONNXRUNTIME: &str = "libonnxruntime";
/// The beginning of the name of OpenVINO's library. A release number may follow.
pub(crate) const OPENVINO: &str = "libopenvino_c.so";
/// OpenVINO's library that opens compiled graphs.
pub(crate) const OPENVINO_GRAPHS: &str = "libopenvino_ir_frontend.so";
/// The provider of TensorRT for RTX: a plugin, which runs on any ONNX Runtime.
pub(crate) const TENSORRT_RTX_PLUGIN: &str = "libonnxruntime_providers_nv_tensorrt_rtx.so";
pub(crate) const CUDA_DRIVER: &str = "libcuda.so.1";
pub(crate) const NVML: &str = "libnvidia-ml.so.1";
pub(crate) const CUDA_RUNTIME: &str = "libcudart.so.13";
pub(crate) const CUBLAS_LT: &str = "libcublasLt.so.13";
pub(crate) const CUBLAS: &str = "libcublas.so.13";
pub(crate) const CURAND: &str = "libcurand.so.10";
pub(crate) const CUDNN: &str = "libcudnn.so.9";
pub(crate) const TENSORRT: &str = "libnvinfer.so.10";
pub(crate) const TENSORRT_PARSER: &str = "libnvonnxparser.so.10";
pub(crate) const TENSORRT_RTX: &str = "libtensorrt_rtx.so.1";
pub(crate) const TENSORRT_RTX_PARSER: &str = "libtensorrt_onnxparser_rtx.so.1";

/// The library of one of ONNX Runtime's own providers.
pub(crate) fn provider(name: &str) -> String {
    format!("libonnxruntime_providers_{name}.so")
}

/// Always empty: the loader itself names each missing library.
pub(crate) fn missing_cpp_runtime() -> Vec<&'static str> {
    Vec::new()
}

/// Does nothing: each library states where its dependencies are.
pub(crate) fn search_in(_folder: &Path) -> io::Result<()> {
    Ok(())
}
