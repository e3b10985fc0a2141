//! Weights as integers or 8-bit floats, with one scale for each channel.

use super::{Weight, WeightSource};
use crate::{DataType, Error, Result};
use std::sync::Arc;

impl Weight {
    /// The largest magnitude of each channel (index of `axis`), from which symmetric scales are computed. A channel
    /// with a NaN gives NaN.
    ///
    /// Everything is read once, a piece at a time.
    ///
    /// # Errors
    /// This is not a floating-point tensor, there is no such axis, or a file cannot be read.
    pub fn channel_maxima(&self, axis: usize) -> Result<Vec<f32>> {
        let channels = self.channels(axis)?;
        let mut maxima = vec![0.0_f32; self.dims[axis]];
        for_each_f32(self, &mut |position, value| {
            let maximum = &mut maxima[channels.index_of(position)];
            // NaN propagates; `f32::max` alone would drop it.
            *maximum = if value.is_nan() || maximum.is_nan() { f32::NAN } else { maximum.max(value.abs()) };
        })?;
        Ok(maxima)
    }

    /// `round(value / scale)` with the scale of each channel (index of `axis`), as i8 (−127 … 127), i32 or f8e4m3
    /// (±448), rounded to nearest even and saturated: the first input of ONNX's DequantizeLinear without a zero point.
    ///
    /// # Errors
    /// This is not f32, `to` is another type, or there is not one positive scale for each channel.
    pub fn quantised(&self, axis: usize, scales: &[f32], to: DataType) -> Result<Self> {
        if self.data_type != DataType::F32 || !matches!(to, DataType::I8 | DataType::I32 | DataType::F8E4M3) {
            return Err(Error::weight(
                "quantise",
                format!("expected f32 to i8, i32 or f8e4m3, found {self:?} to {to}"),
            ));
        }
        self.channels(axis)?;
        if scales.len() != self.dims[axis] || scales.iter().any(|scale| !(scale.is_finite() && *scale > 0.0)) {
            return Err(Error::weight(
                "quantise",
                format!("expected {} positive scales for {self:?}", self.dims[axis]),
            ));
        }
        let scales = scales.iter().map(|scale| scale.to_bits()).collect();
        Ok(Weight {
            data_type: to,
            dims: self.dims.clone(),
            source: WeightSource::Quantised { of: Arc::new(self.clone()), axis, scales },
        })
    }

    fn channels(&self, axis: usize) -> Result<Channels> {
        let count = self.dims.get(axis).copied();
        let count = count.ok_or_else(|| Error::weight("channels", format!("{self:?} has no axis {axis}")))?;
        Ok(Channels { count, inner: self.dims[axis + 1..].iter().product() })
    }
}

/// Which channel an element belongs to.
struct Channels {
    count: usize,
    /// Consecutive elements of one channel.
    inner: usize,
}

impl Channels {
    fn index_of(&self, position: usize) -> usize {
        position / self.inner % self.count
    }
}

fn for_each_f32(weight: &Weight, each: &mut dyn FnMut(usize, f32)) -> Result<()> {
    let mut position = 0;
    // Pieces of f32 tensors are whole elements: every source cuts its pieces at multiples of the element size.
    weight.cast(DataType::F32)?.stream(&mut |piece| {
        for b in piece.chunks_exact(4) {
            each(position, f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            position += 1;
        }
        Ok(())
    })
}

impl Weight {
    pub(super) fn stream_quantised(
        &self,
        axis: usize,
        scales: &[u32],
        to: DataType,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let channels = self.channels(axis)?;
        let (mut out, mut position) = (Vec::new(), 0);
        self.stream(&mut |piece| {
            out.clear();
            for b in piece.chunks_exact(4) {
                let scale = f32::from_bits(scales[channels.index_of(position)]);
                position += 1;
                let value = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                match to {
                    DataType::I8 => out.push(((value / scale).round_ties_even().clamp(-127.0, 127.0) as i8) as u8),
                    DataType::F8E4M3 => out.push(f8e4m3(value / scale)),
                    // `as` saturates, and f64 holds every i32 exactly.
                    _ => out.extend_from_slice(
                        &((f64::from(value) / f64::from(scale)).round_ties_even() as i32).to_le_bytes(),
                    ),
                }
            }
            sink(&out)
        })
    }
}

/// The nearest number of E4M3 (4 exponent bits of bias 7, 3 mantissa bits, no infinities;
/// <https://arxiv.org/abs/2209.05433>), ties to even, saturated at ±448.
fn f8e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7f;
    }
    if magnitude >= 448.0 {
        return sign | 0x7e;
    }
    // The spacing of the numbers around `magnitude`: 2^(exponent − 3), and 2⁻⁹ below the smallest normal number, 2⁻⁶.
    let exponent = (((magnitude.to_bits() >> 23) as i32) - 127).max(-6);
    let steps = (magnitude * 2_f32.powi(3 - exponent)).round_ties_even() as i32;
    // 8 … 16 steps for normal numbers: a carry into the exponent gives the right number without special treatment.
    sign | (((exponent + 6) << 3) + steps) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(dims: &[usize], values: &[f32]) -> Weight {
        Weight::from_bytes(
            DataType::F32,
            dims.to_vec(),
            values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
        )
        .unwrap()
    }

    #[test]
    fn each_channel_has_its_scale() {
        let weight = f32s(&[2, 3], &[1.0, -2.0, 0.5, 10.0, 127.0, -300.0]);
        assert_eq!(weight.channel_maxima(0).unwrap(), [2.0, 300.0]);
        assert_eq!(weight.channel_maxima(1).unwrap(), [10.0, 127.0, 300.0]);
        let quantised = weight.quantised(0, &[2.0 / 127.0, 1.0], DataType::I8).unwrap();
        assert_eq!(
            quantised.to_bytes().unwrap().iter().map(|b| *b as i8).collect::<Vec<_>>(),
            [64, -127, 32, 10, 127, -127]
        );
        let columns = weight.quantised(1, &[0.5, 1.0, 2.0], DataType::I32).unwrap();
        let integers: Vec<i32> =
            columns.to_bytes().unwrap().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(integers, [2, -2, 0, 20, 127, -150]);
        assert!(
            weight.quantised(0, &[1.0], DataType::I8).is_err()
                && weight.quantised(0, &[1.0, 0.0], DataType::I8).is_err()
        );
        assert!(weight.channel_maxima(2).is_err());
    }

    #[test]
    fn nan_propagates_to_the_maximum() {
        let maxima = f32s(&[2, 3], &[1.0, f32::NAN, 0.5, 10.0, f32::INFINITY, -3.0]).channel_maxima(0).unwrap();
        assert!(maxima[0].is_nan() && maxima[1] == f32::INFINITY, "{maxima:?}");
    }

    /// The value of an E4M3 number, by its definition.
    fn value_of(bits: u8) -> f32 {
        let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
        let magnitude = if exponent == 0 {
            mantissa / 8.0 * 2_f32.powi(-6)
        } else {
            (1.0 + mantissa / 8.0) * 2_f32.powi(exponent - 7)
        };
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn numbers_of_e4m3_are_the_nearest() {
        let finite: Vec<u8> = (0..=255).filter(|bits| bits & 0x7f != 0x7f).collect();
        for bits in &finite {
            assert_eq!(f8e4m3(value_of(*bits)), *bits);
        }
        for step in 0..20_000 {
            let value = (step as f32 / 20_000.0 * 2.0 - 1.0).powi(5) * 460.0;
            let nearest = finite.iter().map(|bits| (value_of(*bits) - value).abs()).fold(f32::INFINITY, f32::min);
            assert_eq!((value_of(f8e4m3(value)) - value).abs(), nearest, "{value}");
        }
        // Ties go to the even mantissa.
        assert_eq!((f8e4m3(17.0), f8e4m3(19.0)), (f8e4m3(16.0), f8e4m3(20.0)));
        assert_eq!((f8e4m3(1e9), f8e4m3(f32::NAN)), (0x7e, 0x7f));
    }

    #[test]
    fn widening_and_narrowing_again_is_the_stored_weight() {
        let stored = f32s(&[2], &[0.1, 7.0]).cast(DataType::F16).unwrap();
        let stored = Weight::from_bytes(DataType::F16, vec![2], stored.to_bytes().unwrap().into_owned()).unwrap();
        assert_eq!(stored.cast(DataType::F32).unwrap().cast(DataType::F16).unwrap(), stored);
        assert_ne!(f32s(&[1], &[0.1]).cast(DataType::F16).unwrap().cast(DataType::F32).unwrap(), f32s(&[1], &[0.1]));
    }
}
