//! Samples of pictures as floats.

use tileforge_image::Depth;

/// Samples of `depth` as values of `range`; floats outside of 0 … 1 are clamped.
#[derive(Clone, Copy)]
pub(crate) struct Decoding {
    gain: f32,
    low: f32,
    depth: Depth,
}

impl Decoding {
    pub(crate) fn new([low, high]: [f32; 2], depth: Depth) -> Self {
        Self { gain: (high - low) / depth.maximum(), low, depth }
    }

    /// Channel `channel` of a row of interleaved pixels.
    pub(crate) fn decode(self, row: &[u8], channels: usize, channel: usize, into: &mut [f32]) {
        let value = |sample: f32| sample * self.gain + self.low;
        match self.depth {
            Depth::Eight => {
                for (into, pixel) in into.iter_mut().zip(row.chunks_exact(channels)) {
                    *into = value(f32::from(pixel[channel]));
                }
            }
            Depth::Sixteen => {
                for (into, pixel) in into.iter_mut().zip(row.chunks_exact(2 * channels)) {
                    *into = value(f32::from(u16::from_be_bytes([pixel[2 * channel], pixel[2 * channel + 1]])));
                }
            }
            Depth::Float => {
                let (samples, _) = row.as_chunks::<4>();
                for (into, pixel) in into.iter_mut().zip(samples.chunks_exact(channels)) {
                    *into = value(f32::from_ne_bytes(pixel[channel]).clamp(0.0, 1.0));
                }
            }
        }
    }
}
