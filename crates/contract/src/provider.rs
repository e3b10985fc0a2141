//! What executes the nodes of a graph.

named! {
    /// What executes the nodes of a graph.
    Provider {
        /// NVIDIA TensorRT for RTX, through its plugin for ONNX Runtime: runs plans that were built beforehand.
        TensorRtRtx = "tensorrt-rtx",
        /// NVIDIA TensorRT, through ONNX Runtime.
        TensorRt = "tensorrt",
        /// ONNX Runtime's CUDA kernels.
        Cuda = "cuda",
        /// OpenVINO, on the processor.
        OpenVino = "openvino",
        /// ONNX Runtime's CPU kernels.
        Cpu = "cpu",
    }
}

impl Provider {
    /// All providers, the preferred one first.
    pub const LADDER: &[Self] = Self::ALL;

    /// ONNX Runtime's name of it.
    pub fn onnxruntime_name(self) -> &'static str {
        match self {
            Self::TensorRtRtx => "NvTensorRTRTXExecutionProvider",
            Self::TensorRt => "TensorrtExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::OpenVino => "OpenVINOExecutionProvider",
            Self::Cpu => "CPUExecutionProvider",
        }
    }

    /// Whether it computes on the processor, and not on a GPU. An engine that was built for [`Provider::Cpu`] runs on any
    /// of these.
    pub fn is_on_processor(self) -> bool {
        matches!(self, Self::OpenVino | Self::Cpu)
    }

    /// The provider that ONNX Runtime calls by this name.
    pub fn from_onnxruntime_name(name: &str) -> Option<Self> {
        Self::LADDER.iter().copied().find(|provider| provider.onnxruntime_name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_known_by_the_names_of_onnxruntime() {
        let names = Provider::LADDER.iter().map(|provider| provider.onnxruntime_name());
        let expected = [
            "NvTensorRTRTXExecutionProvider",
            "TensorrtExecutionProvider",
            "CUDAExecutionProvider",
            "OpenVINOExecutionProvider",
            "CPUExecutionProvider",
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        for &provider in Provider::LADDER {
            assert_eq!(Provider::from_onnxruntime_name(provider.onnxruntime_name()), Some(provider));
        }
        assert_eq!(Provider::from_onnxruntime_name("cpu"), None);
    }
}
