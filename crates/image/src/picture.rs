//! Whole 8-bit pictures, to resize and compare.

use std::path::Path;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use serde::Serialize;

use super::{Colour, Depth, Format, Header, ImageReader, ImageWriter, Limits, RowSink, RowSource};
use crate::Size;
use crate::error::{Error, Result};

/// A picture in memory: red, green and blue, 8 bits each, without alpha.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    /// `[height, width, 3]`.
    samples: Vec<u8>,
}

/// How far two pictures differ, over all channels, in levels of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Peak signal-to-noise ratio in dB, where the peak is 255; `None` for identical pictures.
    pub psnr_db: Option<f64>,
    /// Largest absolute difference.
    pub maximum: u8,
    /// Mean absolute difference.
    pub mean: f64,
}

impl Picture {
    /// Reads a picture. Grey becomes red, green and blue, deeper samples are rounded to 8 bits, and alpha is left out.
    ///
    /// # Errors
    /// As [`ImageReader`].
    pub fn read(path: &Path, limits: &Limits) -> Result<Self> {
        let mut reader = ImageReader::open(path, limits)?;
        let Header { size, colour, depth, .. } = *reader.header();
        let bytes = size.pixels().checked_mul(3).filter(|&bytes| bytes <= limits.decoded_bytes);
        let capacity = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let capacity = capacity.ok_or_else(|| Error::image(path, format!("{size} is too large to be held whole")))?;
        let mut samples = Vec::with_capacity(capacity);
        let mut row = vec![0; reader.header().row_bytes().unwrap_or(0)];
        for _ in 0..size.height {
            reader.read_row(&mut row)?;
            for pixel in row.chunks_exact(colour.channels() * depth.bytes()) {
                for channel in 0..3 {
                    samples.push(level(pixel, if colour.colour_channels() == 1 { 0 } else { channel }, depth));
                }
            }
        }
        Ok(Self { size, samples })
    }

    /// Writes the picture as a PNG.
    ///
    /// # Errors
    /// As [`ImageWriter`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let header = Header::new(self.size, Colour::Rgb, Depth::Eight);
        let mut writer = ImageWriter::create(path, Format::Png, header)?;
        writer.write_rows(&self.samples)?;
        Box::new(writer).finish()
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The samples, `[height, width, 3]`.
    pub fn samples(&self) -> &[u8] {
        &self.samples
    }

    /// The part of `size` with its top left corner at (`x`, `y`), cut off at the picture's edge.
    pub fn cropped(&self, x: u32, y: u32, size: Size) -> Self {
        let (x, y) = (x.min(self.size.width), y.min(self.size.height));
        let size = Size { width: size.width.min(self.size.width - x), height: size.height.min(self.size.height - y) };
        let row_bytes = self.size.width as usize * 3;
        let rows = self.samples.chunks_exact(row_bytes).skip(y as usize).take(size.height as usize);
        let samples = rows.flat_map(|row| &row[x as usize * 3..][..size.width as usize * 3]).copied().collect();
        Self { size, samples }
    }

    /// The picture at another size: bicubic (Catmull-Rom). To shrink, the kernel is widened, so that nothing aliases.
    ///
    /// # Errors
    /// [`Error::Resize`] if one of the sizes is zero or too large.
    pub fn resized(&self, size: Size) -> Result<Self> {
        let refused =
            |error: &dyn std::fmt::Display| Error::Resize { from: self.size, to: size, reason: error.to_string() };
        // Typed, because the other functions compile the kernels of every type of pixel, which takes a minute.
        let source = TypedImageRef::<U8x3>::from_buffer(self.size.width, self.size.height, &self.samples);
        let source = source.map_err(|error| refused(&error))?;
        let mut samples = vec![0; size.width as usize * size.height as usize * 3];
        let target = TypedImage::<U8x3>::from_buffer(size.width, size.height, &mut samples);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
        let mut target = target.map_err(|error| refused(&error))?;
        Resizer::new().resize_typed(&source, &mut target, &options).map_err(|error| refused(&error))?;
        drop(target);
        Ok(Self { size, samples })
    }

    /// Compares two pictures of one size, leaving out `border` pixels at each edge.
    ///
    /// # Errors
    /// [`Error::SizesDiffer`] and [`Error::Border`], for pictures of different sizes or a border that leaves nothing.
    pub fn difference(&self, other: &Self, border: u32) -> Result<Difference> {
        if self.size != other.size {
            return Err(Error::SizesDiffer { one: self.size, other: other.size });
        }
        let inner = |length: u32| length.checked_sub(border.saturating_mul(2)).filter(|&length| length > 0);
        let (Some(width), Some(height)) = (inner(self.size.width), inner(self.size.height)) else {
            return Err(Error::Border { border, size: self.size });
        };
        let size = Size { width, height };
        let (one, two) = (self.cropped(border, border, size), other.cropped(border, border, size));
        let (mut maximum, mut sum, mut squares) = (0, 0_u64, 0_u64);
        for (&one, &two) in one.samples.iter().zip(&two.samples) {
            let difference = one.abs_diff(two);
            maximum = maximum.max(difference);
            sum += u64::from(difference);
            squares += u64::from(difference).pow(2);
        }
        let count = one.samples.len() as f64;
        let mean_square = squares as f64 / count;
        Ok(Difference {
            psnr_db: (squares > 0).then(|| 10.0 * (255.0_f64.powi(2) / mean_square).log10()),
            maximum,
            mean: sum as f64 / count,
        })
    }
}

fn level(pixel: &[u8], channel: usize, depth: Depth) -> u8 {
    match depth {
        Depth::Eight => pixel[channel],
        Depth::Sixteen => {
            let value = u32::from(u16::from_be_bytes([pixel[2 * channel], pixel[2 * channel + 1]]));
            // 65,535 = 255 · 257, so this rounds to the nearest level.
            ((value + 128) / 257) as u8
        }
        Depth::Float => {
            let (samples, _) = pixel.as_chunks::<4>();
            // The cast saturates, so it clamps.
            (f32::from_ne_bytes(samples[channel]) * 255.0 + 0.5) as u8
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(level: u8) -> Picture {
        Picture { size: Size { width: 4, height: 4 }, samples: vec![level; 48] }
    }

    #[test]
    fn a_difference_of_one_level_is_48_db() {
        let difference = flat(10).difference(&flat(11), 0).unwrap();
        assert!((difference.psnr_db.unwrap() - 48.1308).abs() < 1e-4);
        assert_eq!((difference.maximum, difference.mean), (1, 1.0));
        assert_eq!(flat(1).difference(&flat(1), 1).unwrap().psnr_db, None);
        assert!(flat(1).difference(&flat(1), 2).is_err());
    }

    #[test]
    fn resizing_keeps_a_flat_picture_flat() {
        let small = flat(77).resized(Size { width: 2, height: 2 }).unwrap();
        assert!(small.samples.iter().all(|&sample| sample == 77));
    }
}
