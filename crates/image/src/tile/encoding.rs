//! Floats become samples of pictures.

use crate::Depth;

/// The conversion of floats to samples.
#[derive(Clone, Copy, Debug)]
pub struct SampleEncoding {
    /// The values of black and of white.
    pub range: [f32; 2],
    /// Bits of a sample.
    pub depth: Depth,
}

impl SampleEncoding {
    /// Writes rows of values, one for each channel, as interleaved samples: clamped, and rounded half up for integer
    /// samples. `bytes` is working memory.
    pub(super) fn encode(self, rows: &[&[f32]], into: &mut [u8], bytes: &mut Vec<u8>) {
        let [low, high] = self.range;
        let gain = self.depth.maximum() / (high - low);
        // Casts saturate, so they clamp.
        let level = |value: f32| (value - low) * gain + 0.5;
        let channels = rows.len();
        match self.depth {
            Depth::Eight => {
                // Values that follow each other are converted several at a time, interleaved ones are not.
                bytes.clear();
                rows.iter().for_each(|row| bytes.extend(row.iter().map(|value| level(*value) as u8)));
                interleave(bytes, channels, into);
            }
            Depth::Sixteen => {
                for (channel, row) in rows.iter().enumerate() {
                    for (pixel, value) in into.chunks_exact_mut(2 * channels).zip(*row) {
                        pixel[2 * channel..][..2].copy_from_slice(&(level(*value) as u16).to_be_bytes());
                    }
                }
            }
            Depth::Float => {
                let (samples, _) = into.as_chunks_mut::<4>();
                for (channel, row) in rows.iter().enumerate() {
                    for (pixel, value) in samples.chunks_exact_mut(channels).zip(*row) {
                        pixel[channel] = ((value - low) * gain).clamp(0.0, 1.0).to_ne_bytes();
                    }
                }
            }
        }
    }
}

/// Writes the rows of `channels` channels, which follow each other in `planes`, pixel by pixel.
fn interleave(planes: &[u8], channels: usize, into: &mut [u8]) {
    let length = planes.len() / channels;
    if let [red, green, blue] = planes.chunks_exact(length.max(1)).collect::<Vec<_>>()[..] {
        let (pixels, _) = into.as_chunks_mut::<3>();
        for (pixel, ((red, green), blue)) in pixels.iter_mut().zip(red.iter().zip(green).zip(blue)) {
            *pixel = [*red, *green, *blue];
        }
        return;
    }
    for (channel, plane) in planes.chunks_exact(length.max(1)).enumerate() {
        for (pixel, sample) in into.chunks_exact_mut(channels).zip(plane) {
            pixel[channel] = *sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: SampleEncoding = SampleEncoding { range: [0.0, 1.0], depth: Depth::Eight };
    const SIXTEEN: SampleEncoding = SampleEncoding { range: [0.0, 1.0], depth: Depth::Sixteen };

    #[test]
    fn values_round_half_up_and_clamp() {
        let mut into = [0; 5];
        let values = [-1.0, 0.4 / 255.0, 0.5 / 255.0, 1.0, 2.0];
        EIGHT.encode(&[&values], &mut into, &mut Vec::new());
        assert_eq!(into, [0, 0, 1, 255, 255]);
        let mut into = [0; 4];
        SIXTEEN.encode(&[&[0.5, 1.0]], &mut into, &mut Vec::new());
        assert_eq!(into, [0x80, 0x00, 0xff, 0xff]);
        // Black is -1 for some networks.
        let mut into = [0; 3];
        SampleEncoding { range: [-1.0, 1.0], ..EIGHT }.encode(&[&[-1.0, 0.0, 1.0]], &mut into, &mut Vec::new());
        assert_eq!(into, [0, 128, 255]);
        let mut into = [0; 12];
        let float = SampleEncoding { range: [-1.0, 1.0], depth: Depth::Float };
        float.encode(&[&[-1.5, 0.0, 0.5]], &mut into, &mut Vec::new());
        assert_eq!(
            into.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect::<Vec<_>>(),
            [0.0, 0.5, 0.75]
        );
    }

    #[test]
    fn the_samples_of_a_pixel_follow_each_other() {
        for channels in [1, 2, 3, 4] {
            let planes: Vec<u8> = (0..5 * channels as u8).collect();
            let mut into = vec![0; planes.len()];
            interleave(&planes, channels, &mut into);
            for (place, sample) in into.iter().enumerate() {
                assert_eq!(usize::from(*sample), place % channels * 5 + place / channels, "{channels}");
            }
        }
        interleave(&[], 3, &mut []);
    }
}
