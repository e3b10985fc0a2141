//! INT8 and FP8: a QuantizeLinear converts a tensor to 8-bit values, and a DequantizeLinear converts them back to
//! floats. The runtime fuses a layer with the pairs around it into an 8-bit kernel.
//!
//! A quantised value represents (quantised value − zero point) · scale
//! (<https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html>).

mod layers;
mod limits;
#[cfg(test)]
mod tests;
mod weights;

pub use layers::quantise_layers;
pub use weights::quantise_weights;

use crate::DataType;
use limits::{F8_MAXIMUM, I8_MAXIMUM};
use weights::stored_scale;

/// The kind of 8-bit numbers, and the places of QuantizeLinear and DequantizeLinear at which the target fuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// For ONNX Runtime's CPU kernels. Activations are unsigned with a zero point, which AVX-512 VNNI multiplies by
    /// signed weights. A layer is fused with the pairs on both of its sides (QLinearConv), and so are Add and Concat
    /// between layers.
    Unsigned,
    /// For TensorRT. All values are signed with the zero point 0. The pairs are placed before layers, and before the
    /// other summand of an Add that reads a layer; TensorRT moves them from there ("Explicit Quantization" in its
    /// developer's guide).
    Signed,
    /// As `Signed`, in E4M3.
    Float8,
}

/// Where the scale of each output channel of a convolution is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelScales {
    /// In the DequantizeLinear of its weight.
    InWeights,
    /// In a Mul behind it: the DequantizeLinear of its weight has one scale for all channels. The quantised weights
    /// are the same, but for rounding. TensorRT for RTX 1.7 gives such a convolution FP16 results instead of FP32
    /// ones, and fuses the Mul into the kernel that quantises the next layer's input.
    BehindLayers,
}

/// How quantised values represent an activation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantisation {
    /// The difference between two neighbouring values.
    pub scale: f32,
    /// The quantised value that represents 0.
    pub zero_point: u8,
    /// The type of the quantised values.
    pub data_type: DataType,
}

/// The largest quantised value of unsigned 8 bits.
const U8_MAXIMUM: f64 = 255.0;

impl Scheme {
    /// The quantisation of values from `low` to `high`, with 0 between them. Signed schemes cover the same range below
    /// 0 as above.
    pub fn quantisation(self, [low, high]: [f64; 2]) -> Quantisation {
        let scale = |width: f64, steps: f64| stored_scale((width / steps) as f32, self.scale_type());
        let magnitude = high.max(-low);
        match self {
            Scheme::Unsigned => {
                let scale = scale(high - low, U8_MAXIMUM);
                let zero_point = (-low / f64::from(scale)).round_ties_even().clamp(0.0, U8_MAXIMUM) as u8;
                Quantisation { scale, zero_point, data_type: DataType::U8 }
            }
            Scheme::Signed => {
                Quantisation { scale: scale(magnitude, I8_MAXIMUM), zero_point: 0, data_type: DataType::I8 }
            }
            Scheme::Float8 => {
                Quantisation { scale: scale(magnitude, F8_MAXIMUM), zero_point: 0, data_type: DataType::F8E4M3 }
            }
        }
    }

    /// Whether ranges are symmetric around 0.
    pub fn is_symmetric(self) -> bool {
        self != Scheme::Unsigned
    }

    /// The type of the scales in the finished graph. A graph for GPUs computes everything outside of 8 bits in FP16,
    /// and the output of DequantizeLinear has its scale's type.
    fn scale_type(self) -> DataType {
        match self {
            Scheme::Unsigned => DataType::F32,
            Scheme::Signed | Scheme::Float8 => DataType::F16,
        }
    }

    /// The type of quantised weights, and their largest value.
    fn weights(self) -> (DataType, f32) {
        match self {
            Scheme::Unsigned | Scheme::Signed => (DataType::I8, I8_MAXIMUM as f32),
            Scheme::Float8 => (DataType::F8E4M3, F8_MAXIMUM as f32),
        }
    }
}
