//! Resizes pictures and maps, bit for bit as the libraries of the reference implementations.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{F32, F32x3, U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use tileforge_image::Size;

use super::Pixels;
use crate::error::Result;

/// The parameter of OpenCV's cubic kernel.
const CUBIC: f32 = -0.75;

impl Pixels {
    /// The picture in another size by OpenCV's `INTER_CUBIC`: four by four pixels for each pixel, whatever the factor.
    pub(crate) fn cubic_as_opencv(&self, to: Size) -> Self {
        let (columns, rows) = (taps(self.size.width, to.width), taps(self.size.height, to.height));
        let (width, channels) = (self.size.width as usize, self.channels);
        let row_of = |y: usize| -> Vec<f64> {
            let row = &self.samples[y * width * channels..][..width * channels];
            let value = |tap: &Tap, channel: usize| -> f64 {
                tap.iter().map(|(x, weight)| f64::from(row[x * channels + channel]) * f64::from(*weight)).sum()
            };
            columns.iter().flat_map(|tap| (0..channels).map(move |channel| value(tap, channel))).collect()
        };
        // Rows are kept, because the next three rows need them again.
        let mut kept: std::collections::BTreeMap<usize, Vec<f64>> = std::collections::BTreeMap::new();
        let mut samples = Vec::with_capacity(to.width as usize * to.height as usize * channels);
        for tap in &rows {
            let first = tap.iter().map(|(y, _)| *y).min().unwrap_or(0);
            kept.retain(|y, _| *y >= first);
            for (y, _) in tap {
                kept.entry(*y).or_insert_with(|| row_of(*y));
            }
            let lines: Vec<(&Vec<f64>, f64)> =
                tap.iter().filter_map(|(y, weight)| Some((kept.get(y)?, f64::from(*weight)))).collect();
            let value = |at: usize| lines.iter().map(|(line, weight)| line[at] * weight).sum::<f64>() as f32;
            samples.extend((0..to.width as usize * channels).map(value));
        }
        Self { size: to, channels, samples }
    }

    /// The picture in another size by Pillow's `LANCZOS`, in 8 bits.
    ///
    /// # Errors
    /// As [`Pixels::resized`].
    pub(crate) fn lanczos_as_pillow(&self, to: Size) -> Result<Self> {
        if to == self.size {
            return Ok(self.clone());
        }
        // Casts saturate, so they clamp.
        let levels = self.samples.iter().map(|value| (value * 255.0 + 0.5) as u8);
        let levels: Vec<u8> = if self.channels == 1 {
            let pixels: Vec<U8> = levels.map(U8::new).collect();
            rows_then_columns(&pixels, self.size, to)?.iter().map(|pixel| pixel.0).collect()
        } else {
            let levels: Vec<u8> = levels.collect();
            let pixels: Vec<U8x3> = levels.as_chunks::<3>().0.iter().map(|pixel| U8x3::new(*pixel)).collect();
            rows_then_columns(&pixels, self.size, to)?.iter().flat_map(|pixel| pixel.0).collect()
        };
        let samples = levels.into_iter().map(|level| f32::from(level) / 255.0).collect();
        Ok(Self { size: to, channels: self.channels, samples })
    }

    /// The picture in another size: bicubic (Catmull-Rom). For smaller sizes, the kernel is widened against aliasing.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) if one of the sizes is zero or too large.
    pub fn resized(&self, to: Size) -> Result<Self> {
        if to == self.size {
            return Ok(self.clone());
        }
        let samples = if self.channels == 1 {
            let pixels: Vec<F32> = self.samples.iter().map(|value| F32::new(*value)).collect();
            convolved(&pixels, self.size, to, FilterType::CatmullRom)?.iter().map(|pixel| pixel.0).collect()
        } else {
            let pixels: Vec<F32x3> = self.samples.as_chunks::<3>().0.iter().map(|pixel| F32x3::new(*pixel)).collect();
            convolved(&pixels, self.size, to, FilterType::CatmullRom)?.iter().flat_map(|pixel| pixel.0).collect()
        };
        Ok(Self { size: to, channels: self.channels, samples })
    }
}

/// Pixels in another size by Lanczos' kernel, rounded and clamped after the rows and again after the columns, as in
/// Pillow. In one call, the crate would begin with the columns.
fn rows_then_columns<P: PixelTrait>(pixels: &[P], from: Size, to: Size) -> Result<Vec<P>> {
    let between = Size { width: to.width, height: from.height };
    convolved(&convolved(pixels, from, between, FilterType::Lanczos3)?, between, to, FilterType::Lanczos3)
}

/// Pixels in another size.
fn convolved<P: PixelTrait>(pixels: &[P], from: Size, to: Size, filter: FilterType) -> Result<Vec<P>> {
    let refused =
        |error: &dyn std::fmt::Display| tileforge_image::Error::Resize { from, to, reason: error.to_string() };
    let source = TypedImageRef::new(from.width, from.height, pixels).map_err(|error| refused(&error))?;
    let mut target = TypedImage::new(to.width, to.height);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
    Resizer::new().resize_typed(&source, &mut target, &options).map_err(|error| refused(&error))?;
    Ok(target.pixels().to_vec())
}

/// The source pixels of a pixel along one axis, with their weights.
type Tap = [(usize, f32); 4];

/// The taps of each pixel, with the edge repeated.
fn taps(from: u32, to: u32) -> Vec<Tap> {
    let scale = 1.0 / (f64::from(to) / f64::from(from));
    let last = i64::from(from) - 1;
    let of = |at: u32| {
        let place = ((f64::from(at) + 0.5) * scale - 0.5) as f32;
        let first = place.floor();
        let x = place - first;
        let far = |x: f32| ((CUBIC * x - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC;
        let near = |x: f32| ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0;
        let (before, own, after) = (far(x + 1.0), near(x), near(1.0 - x));
        let weights = [before, own, after, 1.0 - before - own - after];
        std::array::from_fn(|tap| {
            let index = (first as i64 + tap as i64 - 1).clamp(0, last);
            (index as usize, weights[tap])
        })
    };
    (0..to).map(of).collect()
}

/// A map in another size, where each value is copied from one pixel.
fn nearest(values: &[f32], from: Size, to: Size, index: impl Fn(u32, u32, u32) -> usize) -> Vec<f32> {
    let columns: Vec<usize> = (0..to.width).map(|x| index(x, from.width, to.width)).collect();
    let rows = (0..to.height).map(|y| index(y, from.height, to.height));
    rows.flat_map(|y| columns.iter().map(move |x| values[y * from.width as usize + x])).collect()
}

/// A map, `[height, width]`, in another size by OpenCV's `INTER_NEAREST`.
pub(crate) fn nearest_as_opencv(values: &[f32], from: Size, to: Size) -> Vec<f32> {
    nearest(values, from, to, |at, from, to| {
        let scale = 1.0 / (f64::from(to) / f64::from(from));
        ((f64::from(at) * scale).floor() as usize).min(from as usize - 1)
    })
}

/// A map, `[height, width]`, in another size by PyTorch's `interpolate(mode="nearest")`.
pub(crate) fn nearest_as_pytorch(values: &[f32], from: Size, to: Size) -> Vec<f32> {
    nearest(values, from, to, |at, from, to| {
        let scale = from as f32 / to as f32;
        ((at as f32 * scale).floor() as usize).min(from as usize - 1)
    })
}

/// A map, `[height, width]`, in another size by PyTorch's `interpolate(mode="bilinear", align_corners=True)`.
pub(crate) fn bilinear_with_corners(values: &[f32], from: Size, to: Size) -> Vec<f32> {
    let place = |at: u32, from: u32, to: u32| {
        let scale = if to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { 0.0 };
        let place = at as f32 * scale;
        let first = (place as usize).min(from as usize - 1);
        (first, (first + 1).min(from as usize - 1), place - first as f32)
    };
    let width = from.width as usize;
    let columns: Vec<_> = (0..to.width).map(|x| place(x, from.width, to.width)).collect();
    let mut resized = Vec::with_capacity(to.width as usize * to.height as usize);
    for y in 0..to.height {
        let (top, bottom, down) = place(y, from.height, to.height);
        let (top, bottom) = (&values[top * width..][..width], &values[bottom * width..][..width]);
        resized.extend(columns.iter().map(|(left, right, across)| {
            let between = |row: &[f32]| row[*left] * (1.0 - across) + row[*right] * across;
            between(top) * (1.0 - down) + between(bottom) * down
        }));
    }
    resized
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    fn row(samples: &[f32]) -> Pixels {
        Pixels { size: Size { width: samples.len() as u32, height: 1 }, channels: 1, samples: samples.to_vec() }
    }

    /// Made with OpenCV: cv2.resize of the same values.
    #[test]
    fn cubic_is_that_of_opencv() {
        let larger = row(&[0.0, 1.0, 0.25, 0.5]).cubic_as_opencv(Size { width: 7, height: 1 });
        close(&larger.samples, &CUBIC_4_TO_7);
        let smaller = row(&[0.0, 1.0, 0.25, 0.5, 0.75, 0.0, 1.0]).cubic_as_opencv(Size { width: 3, height: 1 });
        close(&smaller.samples, &CUBIC_7_TO_3);
    }

    const CUBIC_4_TO_7: [f32; 7] = [-0.09921616, 0.38686678, 0.977428, 0.6953125, 0.22966005, 0.3686907, 0.5248041];
    const CUBIC_7_TO_3: [f32; 3] = [0.7685184, 0.5, 0.23148167];

    /// Made with Pillow 13: Image.resize of the same levels with LANCZOS. The last bit of a level may differ.
    #[test]
    fn lanczos_is_that_of_pillow() {
        let level = |channel: u32| {
            move |at: u32| {
                let (x, y) = (at % 7, at / 7);
                (x * 37 + y * 91 + x * y * 13 + channel * 70) % 256
            }
        };
        let picture = |channels: u32| {
            let levels = (0..35).flat_map(|at| (0..channels).map(move |channel| level(channel)(at)));
            let samples = levels.map(|level| level as f32 / 255.0).collect();
            Pixels { size: Size { width: 7, height: 5 }, channels: channels as usize, samples }
        };
        let check = |channels: u32, to: Size, expected: &[u8]| {
            let found = picture(channels).lanczos_as_pillow(to).unwrap();
            let expected = expected.iter().map(|level| f32::from(*level));
            assert_eq!((found.size, found.samples.len()), (to, expected.len()));
            for (found, expected) in found.samples.iter().zip(expected) {
                assert!((found * 255.0 - expected).abs() < 1.01, "{} instead of {expected}", found * 255.0);
            }
        };
        check(1, Size { width: 4, height: 3 }, &LANCZOS_SMALLER);
        check(1, Size { width: 9, height: 8 }, &LANCZOS_LARGER);
        check(3, Size { width: 3, height: 2 }, &LANCZOS_COLOURS);
    }

    const LANCZOS_SMALLER: [u8; 12] = [57, 132, 126, 158, 155, 156, 149, 136, 98, 129, 142, 130];
    #[rustfmt::skip]
    const LANCZOS_LARGER: [u8; 72] = [
        0, 15, 45, 62, 94, 151, 186, 212, 230,
        23, 43, 95, 151, 174, 105, 92, 162, 204,
        99, 132, 167, 212, 240, 72, 37, 112, 126,
        180, 245, 176, 75, 142, 140, 198, 149, 30,
        130, 195, 150, 74, 143, 144, 226, 200, 82,
        18, 64, 127, 197, 244, 94, 84, 188, 214,
        51, 119, 124, 106, 181, 163, 77, 100, 189,
        113, 205, 129, 0, 102, 230, 119, 39, 125,
    ];
    const LANCZOS_COLOURS: [u8; 18] =
        [108, 129, 135, 140, 135, 160, 145, 158, 114, 128, 132, 150, 145, 130, 121, 135, 123, 108];

    #[test]
    fn nearest_takes_the_pixel_that_the_reference_takes() {
        let values: Vec<f32> = (0..7).map(|value| value as f32).collect();
        let (from, to) = (Size { width: 7, height: 1 }, Size { width: 5, height: 1 });
        assert_eq!(nearest_as_opencv(&values, from, to), [0.0, 1.0, 2.0, 4.0, 5.0]);
        assert_eq!(nearest_as_pytorch(&values, from, to), [0.0, 1.0, 2.0, 4.0, 5.0]);
        assert_eq!(nearest_as_opencv(&values[..5], to, from), [0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn corners_stay_where_they_are() {
        let (from, to) = (Size { width: 2, height: 2 }, Size { width: 3, height: 3 });
        let found = bilinear_with_corners(&[0.0, 1.0, 2.0, 3.0], from, to);
        close(&found, &[0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 2.0, 2.5, 3.0]);
    }
}
