//! Luma and chroma to red, green and blue, and back.
//!
//! Source: ITU-R BT.601-7, 2.5 and BT.709-6, 3 (matrices, ranges of quantised values); H.273, 8.3 (full range, other matrices).

use std::str::FromStr;

use super::planar::{PlanarFormat, Siting, Subsampling};
use crate::{Colour, Size};

/// The weights of red, green and blue in luma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// ITU-R BT.601, for standard definition.
    Bt601,
    /// ITU-R BT.709, for high definition.
    Bt709,
    /// ITU-R BT.2020 with non-constant luminance, for ultra-high definition.
    Bt2020,
    /// SMPTE 240M, for early high definition.
    Smpte240m,
    /// The FCC's matrix of 1953.
    Fcc,
}

/// The largest number of lines in standard definition.
const STANDARD_DEFINITION_LINES: u32 = 576;

impl Matrix {
    /// The most likely matrix for frames of this size, since YUV4MPEG2 does not state it: BT.601 up to 576 lines.
    pub fn likely(size: Size) -> Self {
        if size.height <= STANDARD_DEFINITION_LINES { Self::Bt601 } else { Self::Bt709 }
    }

    /// Weights of red and blue.
    fn weights(self) -> [f32; 2] {
        match self {
            Self::Bt601 => [0.299, 0.114],
            Self::Bt709 => [0.2126, 0.0722],
            Self::Bt2020 => [0.2627, 0.0593],
            Self::Smpte240m => [0.212, 0.087],
            Self::Fcc => [0.3, 0.11],
        }
    }
}

impl FromStr for Matrix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bt601" => Ok(Self::Bt601),
            "bt709" => Ok(Self::Bt709),
            "bt2020" => Ok(Self::Bt2020),
            _ => Err("expected bt601, bt709 or bt2020".into()),
        }
    }
}

/// The quantisation of one kind of sample: the code of zero, and the code distance of 1.
#[derive(Clone, Copy)]
struct Codes {
    zero: f32,
    one: f32,
    maximum: f32,
}

impl Codes {
    fn luma(form: PlanarFormat) -> Self {
        let (step, maximum) = Self::steps(form);
        let (zero, one) = if form.full_range { (0.0, maximum) } else { (16.0 * step, 219.0 * step) };
        Self { zero, one, maximum }
    }

    /// Chroma goes from −0.5 to 0.5.
    fn chroma(form: PlanarFormat) -> Self {
        let (step, maximum) = Self::steps(form);
        Self { zero: 128.0 * step, one: if form.full_range { maximum } else { 224.0 * step }, maximum }
    }

    fn steps(form: PlanarFormat) -> (f32, f32) {
        ((1_u32 << (form.bits - 8)) as f32, ((1_u32 << form.bits) - 1) as f32)
    }

    fn value(self, code: f32) -> f32 {
        (code - self.zero) / self.one
    }

    fn code(self, value: f32) -> u16 {
        // The cast saturates at 0.
        (value * self.one + self.zero + 0.5).min(self.maximum) as u16
    }
}

/// The two chroma samples around a luma sample, and the weight of the second.
fn neighbours(at: usize, axis: Subsampling, length: usize) -> (usize, usize, f32) {
    let (first, weight) = match (axis.factor, axis.siting, at % 2) {
        (1, ..) => (at as isize, 0.0),
        (_, Siting::OnFirst, 0) => (at as isize / 2, 0.0),
        (_, Siting::OnFirst, _) => (at as isize / 2, 0.5),
        (_, Siting::Between, 0) => (at as isize / 2 - 1, 0.75),
        (_, Siting::Between, _) => (at as isize / 2, 0.25),
    };
    let inside = |index: isize| (index.max(0) as usize).min(length - 1);
    (inside(first), inside(first + 1), weight)
}

/// The chroma samples that a luma sample contributes to, with its weight in each. The counterpart of [`neighbours`].
fn contributions(at: usize, axis: Subsampling, length: usize) -> [(usize, f32); 2] {
    let index = at / axis.factor;
    match (axis.factor, axis.siting, at % 2) {
        (2, Siting::Between, _) => [(index, 0.5), (index, 0.0)],
        (2, Siting::OnFirst, 1) => {
            [(index, 0.25), ((index + 1).min(length - 1), if index + 1 < length { 0.25 } else { 0.0 })]
        }
        (2, Siting::OnFirst, _) => [(index, 0.5), (index, 0.0)],
        _ => [(index, 1.0), (index, 0.0)],
    }
}

/// Reads a frame of planes as rows of floats: red, green and blue, or grey.
pub(super) struct Planes {
    form: PlanarFormat,
    size: Size,
    weights: [f32; 2],
    /// Chroma of one row, interpolated to the positions of luma.
    chroma: [Vec<f32>; 2],
}

impl Planes {
    pub(super) fn new(form: PlanarFormat, size: Size, matrix: Matrix) -> Self {
        Self { form, size, weights: matrix.weights(), chroma: [Vec::new(), Vec::new()] }
    }

    /// Row `y` of a frame as floats in native byte order, interleaved, clamped to 0 … 1.
    pub(super) fn read_row(&mut self, frame: &[u8], y: usize, row: &mut [u8]) {
        let width = self.size.width as usize;
        let luma_codes = Codes::luma(self.form);
        let (values, _) = row.as_chunks_mut::<4>();
        let Some(([across, down], [chroma_width, chroma_height])) =
            self.form.chroma.zip(self.form.chroma_size(self.size))
        else {
            for (x, value) in values.iter_mut().enumerate() {
                *value = luma_codes.value(self.code(frame, y * width + x)).clamp(0.0, 1.0).to_ne_bytes();
            }
            return;
        };
        let codes = Codes::chroma(self.form);
        let (upper, lower, weight) = neighbours(y, down, chroma_height);
        let luma_samples = width * self.size.height as usize;
        let chroma = [0, 1].map(|plane| {
            let start = luma_samples + plane * chroma_width * chroma_height;
            let at = |line: usize, x: usize| codes.value(self.code(frame, start + line * chroma_width + x));
            (0..chroma_width).map(|x| at(upper, x) * (1.0 - weight) + at(lower, x) * weight).collect::<Vec<f32>>()
        });
        for (into, plane) in self.chroma.iter_mut().zip(&chroma) {
            into.clear();
            into.extend((0..width).map(|x| {
                let (left, right, weight) = neighbours(x, across, chroma_width);
                plane[left] * (1.0 - weight) + plane[right] * weight
            }));
        }
        let [kr, kb] = self.weights;
        for (x, pixel) in values.chunks_exact_mut(3).enumerate() {
            let (luma, pb, pr) =
                (luma_codes.value(self.code(frame, y * width + x)), self.chroma[0][x], self.chroma[1][x]);
            let (red, blue) = (luma + 2.0 * (1.0 - kr) * pr, luma + 2.0 * (1.0 - kb) * pb);
            let green = (luma - kr * red - kb * blue) / (1.0 - kr - kb);
            for (into, value) in pixel.iter_mut().zip([red, green, blue]) {
                *into = value.clamp(0.0, 1.0).to_ne_bytes();
            }
        }
    }

    fn code(&self, frame: &[u8], index: usize) -> f32 {
        if self.form.bits > 8 {
            f32::from(u16::from_le_bytes([frame[2 * index], frame[2 * index + 1]]))
        } else {
            f32::from(frame[index])
        }
    }
}

/// Converts rows of floats to a planar frame.
pub(super) struct PlaneWriter {
    form: PlanarFormat,
    size: Size,
    weights: [f32; 2],
    /// The frame's bytes. Chroma is written at the end.
    frame: Vec<u8>,
    /// Chroma sums over luma samples, one plane after the other.
    chroma: Vec<f32>,
    /// The sum of the weights for each row of chroma.
    row_weights: Vec<f32>,
    /// The sum of the weights for each column of chroma, the same in all rows.
    column_weights: Vec<f32>,
}

impl PlaneWriter {
    /// `bytes` is the result of [`PlanarFormat::frame_bytes`].
    pub(super) fn new(form: PlanarFormat, size: Size, matrix: Matrix, bytes: usize) -> Self {
        let [width, height] = form.chroma_size(size).unwrap_or([0, 0]);
        let mut column_weights = vec![0.0; width];
        if let Some([across, _]) = form.chroma {
            let all = (0..size.width as usize).flat_map(|x| contributions(x, across, width));
            all.for_each(|(column, weight)| column_weights[column] += weight);
        }
        Self {
            form,
            size,
            weights: matrix.weights(),
            frame: vec![0; bytes],
            chroma: vec![0.0; 2 * width * height],
            row_weights: vec![0.0; height],
            column_weights,
        }
    }

    /// Takes row `y`: interleaved floats in native byte order, of these channels. Grey has no chroma.
    pub(super) fn write_row(&mut self, y: usize, row: &[u8], colour: Colour) {
        let width = self.size.width as usize;
        let codes = Codes::luma(self.form);
        let (values, _) = row.as_chunks::<4>();
        let Some(([across, down], [chroma_width, chroma_height])) =
            self.form.chroma.zip(self.form.chroma_size(self.size))
        else {
            for (x, &value) in values.iter().enumerate() {
                self.put(y * width + x, codes.code(f32::from_ne_bytes(value)));
            }
            return;
        };
        let rows = contributions(y, down, chroma_height);
        rows.into_iter().for_each(|(line, weight)| self.row_weights[line] += weight);
        let [kr, kb] = self.weights;
        let channels = colour.channels();
        for (x, pixel) in values.chunks_exact(channels).enumerate() {
            let [red, green, blue] = [0, 1, 2].map(|channel: usize| f32::from_ne_bytes(pixel[channel % channels]));
            let luma = kr * red + (1.0 - kr - kb) * green + kb * blue;
            self.put(y * width + x, codes.code(luma));
            let chroma = [(blue - luma) / (2.0 * (1.0 - kb)), (red - luma) / (2.0 * (1.0 - kr))];
            for (line, row_weight) in rows.into_iter().filter(|&(_, weight)| weight > 0.0) {
                for (column, weight) in
                    contributions(x, across, chroma_width).into_iter().filter(|&(_, weight)| weight > 0.0)
                {
                    let at = line * chroma_width + column;
                    self.chroma[at] += chroma[0] * row_weight * weight;
                    self.chroma[chroma_width * chroma_height + at] += chroma[1] * row_weight * weight;
                }
            }
        }
    }

    /// The bytes of the frame after all rows were taken. The next frame can begin.
    pub(super) fn finish(&mut self) -> &[u8] {
        let codes = Codes::chroma(self.form);
        let luma_samples = self.size.width as usize * self.size.height as usize;
        let width = self.column_weights.len();
        for index in 0..self.chroma.len() {
            let weight = self.row_weights[index / width % self.row_weights.len()] * self.column_weights[index % width];
            self.put(luma_samples + index, codes.code(self.chroma[index] / weight));
        }
        self.chroma.fill(0.0);
        self.row_weights.fill(0.0);
        &self.frame
    }

    /// The bytes of the frame that was finished last, until the next one begins.
    pub(super) fn last(&self) -> &[u8] {
        &self.frame
    }

    fn put(&mut self, index: usize, code: u16) {
        if self.form.bits > 8 {
            self.frame[2 * index..][..2].copy_from_slice(&code.to_le_bytes());
        } else {
            self.frame[index] = code as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::y4m::StreamHeader;
    use super::*;

    fn form(space: &str) -> PlanarFormat {
        StreamHeader::parse(&format!("YUV4MPEG2 W1 H1 C{space}")).unwrap().form
    }

    fn rgb(form: PlanarFormat, matrix: Matrix, frame: &[u8]) -> Vec<f32> {
        let mut row = [0; 12];
        Planes::new(form, Size { width: 1, height: 1 }, matrix).read_row(frame, 0, &mut row);
        row.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect()
    }

    /// Colour bars of 100 %, with the quantised values of every test pattern.
    #[test]
    fn colour_bars_have_their_codes() {
        let bars = [
            (Matrix::Bt601, [235, 128, 128], [1.0, 1.0, 1.0]),
            (Matrix::Bt601, [81, 90, 240], [1.0, 0.0, 0.0]),
            (Matrix::Bt601, [145, 54, 34], [0.0, 1.0, 0.0]),
            (Matrix::Bt601, [41, 240, 110], [0.0, 0.0, 1.0]),
            (Matrix::Bt709, [63, 102, 240], [1.0, 0.0, 0.0]),
            (Matrix::Bt709, [173, 42, 26], [0.0, 1.0, 0.0]),
            (Matrix::Bt709, [32, 240, 118], [0.0, 0.0, 1.0]),
            (Matrix::Bt709, [16, 128, 128], [0.0, 0.0, 0.0]),
        ];
        for (matrix, codes, colour) in bars {
            let found = rgb(form("444"), matrix, &codes);
            assert!(
                found.iter().zip(colour).all(|(found, expected): (_, f32)| (found - expected).abs() < 0.01),
                "{codes:?}: {found:?}"
            );
            let mut writer = PlaneWriter::new(form("444"), Size { width: 1, height: 1 }, matrix, 3);
            writer.write_row(0, &colour.map(f32::to_ne_bytes).concat(), Colour::Rgb);
            assert_eq!(writer.finish(), codes);
        }
        let full = PlanarFormat { full_range: true, ..form("444") };
        assert_eq!(rgb(full, Matrix::Bt709, &[255, 128, 128]), [1.0; 3]);
        let deep = form("444p10");
        assert_eq!(rgb(deep, Matrix::Bt709, &[940_u16, 512, 512].map(u16::to_le_bytes).concat()), [1.0; 3]);
    }

    #[test]
    fn chroma_lies_where_the_siting_says() {
        // Chroma of a slope, sampled at each siting's positions and interpolated again, equals the slope except at the
        // borders.
        for (siting, offset) in [(Siting::OnFirst, 0.0), (Siting::Between, 0.5)] {
            let axis = Subsampling { factor: 2, siting };
            let chroma: Vec<f32> = (0..8).map(|index| 2.0 * index as f32 + offset).collect();
            for at in 1..15 {
                let (left, right, weight) = neighbours(at, axis, 8);
                assert_eq!(
                    chroma[left] * (1.0 - weight) + chroma[right] * weight,
                    (at as f32).min(14.0 + offset),
                    "{siting:?} at {at}"
                );
            }
            let mut sums = [(0.0, 0.0); 8];
            for at in 0..16 {
                for (index, weight) in contributions(at, axis, 8) {
                    sums[index].0 += at as f32 * weight;
                    sums[index].1 += weight;
                }
            }
            for (index, (sum, weight)) in sums.into_iter().enumerate().skip(1) {
                assert_eq!(sum / weight, chroma[index], "{siting:?} of {index}");
            }
        }
    }

    proptest! {
        // Colours inside RGB. With these chroma values, darker colours would have negative blue.
        #[test]
        fn flat_frames_of_any_form_come_back(
            width in 1_u32..9, height in 1_u32..9, full_range: bool, bt709: bool, luma in 70_u16..200,
            cb in 110_u16..140, cr in 110_u16..140,
            space in proptest::sample::select(
                &["420jpeg", "420mpeg2", "420paldv", "422", "444", "mono", "420p10", "422p12", "444p16", "mono9"][..]
            ),
        ) {
            let (form, size) = (PlanarFormat { full_range, ..form(space) }, Size { width, height });
            let matrix = if bt709 { Matrix::Bt709 } else { Matrix::Bt601 };
            let bytes = form.frame_bytes(size).unwrap() as usize;
            let chroma = form.chroma_size(size).map_or(0, |[width, height]| width * height);
            let codes = [vec![luma; (width * height) as usize], vec![cb; chroma], vec![cr; chroma]].concat();
            let frame: Vec<u8> = codes.iter().flat_map(|code| {
                let code = code << (form.bits - 8);
                if form.bits > 8 { code.to_le_bytes().to_vec() } else { vec![code as u8] }
            }).collect();
            prop_assert_eq!(frame.len(), bytes);
            let channels = if form.chroma.is_some() { 3 } else { 1 };
            let mut reader = Planes::new(form, size, matrix);
            let mut writer = PlaneWriter::new(form, size, matrix, bytes);
            let mut row = vec![0; width as usize * channels * 4];
            for _ in 0..2 {
                for y in 0..height as usize {
                    reader.read_row(&frame, y, &mut row);
                    writer.write_row(y, &row, form.colour());
                }
                prop_assert_eq!(writer.finish(), &frame);
            }
        }
    }
}
