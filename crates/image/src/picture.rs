//! Whole 8-bit pictures, to resize and compare.

use std::path::Path;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use super::{Comparison, Difference, Format, Header, ImageWriter, LevelRows, Limits, RowSink};
use crate::Size;
use crate::error::{Error, Result};

/// A picture in memory: red, green and blue, 8 bits each, without alpha.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    /// `[height, width, 3]`.
    samples: Vec<u8>,
}

impl Picture {
    /// Reads a picture. Grey becomes red, green and blue, deeper samples are rounded to 8 bits, and alpha is left out.
    ///
    /// # Errors
    /// As [`ImageReader`](crate::ImageReader).
    pub fn read(path: &Path, limits: &Limits) -> Result<Self> {
        let mut rows = LevelRows::open(path, limits)?;
        let size = rows.size();
        let bytes = size.pixels().checked_mul(3).filter(|&bytes| bytes <= limits.decoded_bytes);
        let capacity = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let capacity = capacity.ok_or_else(|| Error::image(path, format!("{size} is too large to be held whole")))?;
        let mut samples = Vec::with_capacity(capacity);
        for _ in 0..size.height {
            samples.extend_from_slice(rows.next_row()?);
        }
        Ok(Self { size, samples })
    }

    /// Writes the picture as a PNG.
    ///
    /// # Errors
    /// As [`ImageWriter`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut writer = ImageWriter::create(path, Format::Png, Header::of_levels(self.size))?;
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

    /// The picture at another size: bicubic (Catmull-Rom). For a smaller size, the kernel is widened to avoid
    /// aliasing.
    ///
    /// # Errors
    /// [`Error::Resize`] if one of the sizes is zero or too large.
    pub fn resized(&self, size: Size) -> Result<Self> {
        let refused =
            |error: &dyn std::fmt::Display| Error::Resize { from: self.size, to: size, reason: error.to_string() };
        // Typed, because the untyped functions compile the kernels of every pixel type, which takes a minute.
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
        let mut comparison = Comparison::new(self.size, border)?;
        let row_bytes = self.size.width as usize * 3;
        for (one, two) in self.samples.chunks_exact(row_bytes).zip(other.samples.chunks_exact(row_bytes)) {
            comparison.row(one, two);
        }
        Ok(comparison.finish())
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
