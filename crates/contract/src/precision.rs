//! Number formats that engines compute in.

named! {
    /// The number format of most weights and activations of an engine.
    Precision {
        /// IEEE 754 binary32.
        Fp32 = "fp32",
        /// IEEE 754 binary16.
        Fp16 = "fp16",
        /// bfloat16.
        Bf16 = "bf16",
        /// 8-bit integers with scales.
        Int8 = "int8",
        /// 8-bit floats (E4M3) with scales.
        Fp8 = "fp8",
        /// IEEE 754 binary32, with weights that are stored as binary16.
        Fp16Weights = "fp16-weights",
        /// IEEE 754 binary32, with weights that are stored as 8-bit integers with scales.
        Int8Weights = "int8-weights",
    }
}

impl Precision {
    /// The lowest compute capability, `(major, minor)`, of GPUs that compute in this precision.
    ///
    /// Source: the table of tensor core formats in the CUDA programming guide. TensorRT 10 and CUDA 13 begin with 7.5.
    pub fn least_capability(self) -> (u32, u32) {
        match self {
            Self::Fp8 => (8, 9),
            Self::Bf16 => (8, 0),
            Self::Fp32 | Self::Fp16 | Self::Int8 | Self::Fp16Weights | Self::Int8Weights => (7, 5),
        }
    }

    /// Whether ONNX Runtime's CPU kernels compute in this precision.
    pub fn runs_on_cpu(self) -> bool {
        !matches!(self, Self::Bf16 | Self::Fp8)
    }

    /// Whether the precision describes only how weights are stored: everything is computed in FP32.
    pub fn is_of_weights_alone(self) -> bool {
        matches!(self, Self::Fp16Weights | Self::Int8Weights)
    }

    /// Whether a graph in this precision depends on the range of its activations. BF16 has the range of FP32.
    pub fn is_calibrated(self) -> bool {
        matches!(self, Self::Fp16 | Self::Int8 | Self::Fp8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_precision_needs_its_tensor_cores() {
        let least = Precision::ALL.iter().map(|precision| (precision.name(), precision.least_capability()));
        let expected = [
            ("fp32", (7, 5)),
            ("fp16", (7, 5)),
            ("bf16", (8, 0)),
            ("int8", (7, 5)),
            ("fp8", (8, 9)),
            ("fp16-weights", (7, 5)),
            ("int8-weights", (7, 5)),
        ];
        assert_eq!(least.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_cpu_has_no_kernels_for_bf16_and_fp8() {
        let elsewhere = Precision::ALL.iter().filter(|precision| !precision.runs_on_cpu());
        assert_eq!(elsewhere.copied().collect::<Vec<_>>(), [Precision::Bf16, Precision::Fp8]);
    }

    #[test]
    fn precisions_with_a_narrow_range_are_calibrated() {
        let calibrated: Vec<_> = Precision::ALL.iter().copied().filter(|precision| precision.is_calibrated()).collect();
        assert_eq!(calibrated, [Precision::Fp16, Precision::Int8, Precision::Fp8]);
    }
}
