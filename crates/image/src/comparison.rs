//! The difference of two pictures, computed row by row.

use std::collections::VecDeque;

use serde::Serialize;

use crate::Size;
use crate::error::{Error, Result};

/// The side of the window of the structural similarity.
const WINDOW: usize = 11;
/// The standard deviation of the window's Gaussian weights.
const DEVIATION: f64 = 1.5;
/// K1 and K2, times the range of the levels, squared.
const STABILISERS: [f64; 2] = [(0.01 * 255.0) * (0.01 * 255.0), (0.03 * 255.0) * (0.03 * 255.0)];
/// Samples of a pixel.
const CHANNELS: usize = 3;
/// The number of windows of a row that are computed together.
const STRIP: usize = 1024;
/// The means of a window: of each picture, of each picture's squares, and of their products.
const MEANS: usize = 5;

/// How far two pictures differ, in levels of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Peak signal-to-noise ratio in dB over all channels, where the peak is 255; `None` for identical pictures.
    pub psnr_db: Option<f64>,
    /// Structural similarity (Wang and others 2004, <https://doi.org/10.1109/TIP.2003.819861>), 1 for identical
    /// pictures: the mean over red, green and blue and over all windows that lie in the picture. `None` for pictures of
    /// less than 11 pixels on a side.
    pub ssim: Option<f64>,
    /// Largest absolute difference.
    pub maximum: u8,
    /// Mean absolute difference.
    pub mean: f64,
}

/// A comparison of two pictures of equal size, row by row. It keeps 11 rows of each.
#[derive(Debug)]
pub struct Comparison {
    size: Size,
    border: u32,
    /// The next row.
    at: u32,
    samples: u64,
    maximum: u8,
    sum: u64,
    squares: u64,
    similarity: Option<Similarity>,
}

impl Comparison {
    /// A comparison of pictures of this size that leaves out `border` pixels at each edge.
    ///
    /// # Errors
    /// [`Error::Border`] for a border that leaves no pixels.
    pub fn new(size: Size, border: u32) -> Result<Self> {
        let inner = |length: u32| length.checked_sub(border.saturating_mul(2)).filter(|&length| length > 0);
        let (Some(width), Some(height)) = (inner(size.width), inner(size.height)) else {
            return Err(Error::Border { border, size });
        };
        let has_window = width.min(height) as usize >= WINDOW;
        let similarity = has_window.then(|| Similarity::new(width as usize));
        Ok(Self { size, border, at: 0, samples: 0, maximum: 0, sum: 0, squares: 0, similarity })
    }

    /// Takes the next row of both pictures, `[width, 3]`.
    pub fn row(&mut self, one: &[u8], other: &[u8]) {
        let at = self.at;
        self.at = at.saturating_add(1);
        if at < self.border || at >= self.size.height - self.border {
            return;
        }
        let inner = self.border as usize * CHANNELS..(self.size.width - self.border) as usize * CHANNELS;
        let (one, other) = (&one[inner.clone()], &other[inner]);
        for (one, other) in one.iter().zip(other) {
            let difference = one.abs_diff(*other);
            self.maximum = self.maximum.max(difference);
            self.sum += u64::from(difference);
            self.squares += u64::from(difference).pow(2);
        }
        self.samples += one.len() as u64;
        if let Some(similarity) = &mut self.similarity {
            similarity.row(one, other);
        }
    }

    /// The difference over all rows taken so far.
    pub fn finish(self) -> Difference {
        let count = self.samples.max(1) as f64;
        let mean_square = self.squares as f64 / count;
        Difference {
            psnr_db: (self.squares > 0).then(|| 10.0 * (255.0_f64.powi(2) / mean_square).log10()),
            ssim: self.similarity.and_then(Similarity::mean),
            maximum: self.maximum,
            mean: self.sum as f64 / count,
        }
    }
}

/// The structural similarity of rows.
#[derive(Debug)]
struct Similarity {
    weights: [f64; WINDOW],
    /// The last rows of both pictures.
    rows: VecDeque<[Vec<u8>; 2]>,
    /// Windows of a row.
    windows: usize,
    sum: f64,
    count: u64,
    /// The means of a strip: over the rows first, and then over the columns of each window.
    vertical: [Vec<f64>; MEANS],
    whole: [Vec<f64>; MEANS],
}

impl Similarity {
    fn new(width: usize) -> Self {
        let weight =
            |place: usize| (-(place as f64 - (WINDOW / 2) as f64).powi(2) / (2.0 * DEVIATION * DEVIATION)).exp();
        let weights: [f64; WINDOW] = std::array::from_fn(weight);
        let total: f64 = weights.iter().sum();
        Self {
            weights: weights.map(|weight| weight / total),
            rows: VecDeque::with_capacity(WINDOW),
            windows: width - (WINDOW - 1),
            sum: 0.0,
            count: 0,
            vertical: Default::default(),
            whole: Default::default(),
        }
    }

    fn row(&mut self, one: &[u8], other: &[u8]) {
        let mut row = if self.rows.len() == WINDOW { self.rows.pop_front() } else { None }.unwrap_or_default();
        for (kept, new) in row.iter_mut().zip([one, other]) {
            kept.clear();
            kept.extend_from_slice(new);
        }
        self.rows.push_back(row);
        if self.rows.len() == WINDOW {
            for first in (0..self.windows).step_by(STRIP) {
                self.strip(first, STRIP.min(self.windows - first));
            }
        }
    }

    /// Adds the windows over the last rows, from column `first` on.
    fn strip(&mut self, first: usize, windows: usize) {
        let samples = first * CHANNELS..(first + windows + WINDOW - 1) * CHANNELS;
        for means in &mut self.vertical {
            means.clear();
            means.resize(samples.len(), 0.0);
        }
        let [ones, others, one_squares, other_squares, products] = &mut self.vertical;
        for (weight, [one, other]) in self.weights.iter().zip(&self.rows) {
            let pairs = one[samples.clone()].iter().zip(&other[samples.clone()]);
            let means =
                ones.iter_mut().zip(others.iter_mut()).zip(one_squares.iter_mut().zip(other_squares.iter_mut()));
            for (((one, other), means), product) in pairs.zip(means).zip(products.iter_mut()) {
                let ((one_mean, other_mean), (one_square, other_square)) = means;
                let (one, other) = (f64::from(*one), f64::from(*other));
                *one_mean += weight * one;
                *other_mean += weight * other;
                *one_square += weight * one * one;
                *other_square += weight * other * other;
                *product += weight * one * other;
            }
        }
        let count = windows * CHANNELS;
        for (whole, vertical) in self.whole.iter_mut().zip(&self.vertical) {
            whole.clear();
            whole.resize(count, 0.0);
            for (place, weight) in self.weights.iter().enumerate() {
                for (sum, value) in whole.iter_mut().zip(&vertical[place * CHANNELS..]) {
                    *sum += weight * value;
                }
            }
        }
        let [ones, others, one_squares, other_squares, products] = &self.whole;
        let [c1, c2] = STABILISERS;
        self.sum += (0..count)
            .map(|index| {
                let (one, other) = (ones[index], others[index]);
                let variances = one_squares[index] - one * one + other_squares[index] - other * other;
                let covariance = products[index] - one * other;
                (2.0 * one * other + c1) * (2.0 * covariance + c2)
                    / ((one * one + other * other + c1) * (variances + c2))
            })
            .sum::<f64>();
        self.count += count as u64;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{LevelRows, Limits, Picture};

    fn golden(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden-ssim").join(name)
    }

    fn compare(one: &Path, other: &Path) -> Difference {
        let limits = Limits::default();
        let (mut one, mut other) = (LevelRows::open(one, &limits).unwrap(), LevelRows::open(other, &limits).unwrap());
        let mut comparison = Comparison::new(one.size(), 0).unwrap();
        for _ in 0..one.size().height {
            comparison.row(one.next_row().unwrap(), other.next_row().unwrap());
        }
        comparison.finish()
    }

    #[test]
    fn figures_are_those_of_scikit_image() {
        let pairs: serde_json::Value =
            serde_json::from_slice(&std::fs::read(golden("expected.json")).unwrap()).unwrap();
        let pairs = pairs.as_array().unwrap();
        assert!(pairs.len() >= 7);
        for pair in pairs {
            let path = |key: &str| golden(&format!("{}.png", pair[key].as_str().unwrap()));
            let found = compare(&path("one"), &path("other"));
            for (figure, found) in [("ssim", found.ssim), ("psnr_db", found.psnr_db)] {
                let expected = pair[figure].as_f64().unwrap();
                assert!((found.unwrap() - expected).abs() < 1e-9, "{pair}: {figure} is {found:?}");
            }
            // The pictures as a whole, and the other way round.
            let read = |key| Picture::read(&path(key), &Limits::default()).unwrap();
            assert_eq!(read("one").difference(&read("other"), 0).unwrap(), found);
            let back = compare(&path("other"), &path("one"));
            assert!((back.ssim.unwrap() - found.ssim.unwrap()).abs() < 1e-12);
        }
    }

    #[test]
    fn a_border_is_left_out_of_both_figures() {
        let read = |name| Picture::read(&golden(name), &Limits::default()).unwrap();
        let (photo, noisy) = (read("photo.png"), read("noisy.png"));
        let inner = Size { width: photo.size().width - 10, height: photo.size().height - 10 };
        let expected = photo.cropped(5, 5, inner).difference(&noisy.cropped(5, 5, inner), 0).unwrap();
        assert_eq!(photo.difference(&noisy, 5).unwrap(), expected);
        // 48 rows less two borders are 10: no window fits.
        assert_eq!(photo.difference(&noisy, 19).unwrap().ssim, None);
        assert!(matches!(photo.difference(&noisy, 24), Err(Error::Border { .. })));
        assert!(matches!(photo.difference(&noisy, u32::MAX), Err(Error::Border { .. })));
    }

    /// Rows of several strips give the mean of their windows, whatever the strips.
    #[test]
    fn wide_pictures_are_compared_in_strips() {
        let (width, height) = (2 * STRIP + 17, 12);
        let size = Size { width: width as u32, height };
        let mut comparison = Comparison::new(size, 0).unwrap();
        let (mut by_windows, mut rows) = (0.0, Vec::new());
        for y in 0..height as usize {
            let row = |factor: usize| -> Vec<u8> {
                (0..width * CHANNELS).map(|x| ((x * factor + y * 31) % 251) as u8).collect()
            };
            let (one, other) = (row(7), row(13));
            comparison.row(&one, &other);
            rows.push((one, other));
        }
        // Each column of windows separately.
        for first in 0..width - (WINDOW - 1) {
            let mut narrow = Comparison::new(Size { width: WINDOW as u32, height }, 0).unwrap();
            let part = first * CHANNELS..(first + WINDOW) * CHANNELS;
            rows.iter().for_each(|(one, other)| narrow.row(&one[part.clone()], &other[part.clone()]));
            by_windows += narrow.finish().ssim.unwrap();
        }
        let expected = by_windows / (width - (WINDOW - 1)) as f64;
        assert!((comparison.finish().ssim.unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn identical_pictures_have_a_similarity_of_one() {
        let path = golden("photo.png");
        let Difference { psnr_db, ssim, maximum, mean } = compare(&path, &path);
        assert_eq!((psnr_db, maximum, mean), (None, 0, 0.0));
        assert!((ssim.unwrap() - 1.0).abs() < 1e-12);
    }
}
