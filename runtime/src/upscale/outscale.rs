//! Resizes pictures after the network: a sink that resamples row by row.
//!
//! Bicubic (Catmull-Rom, Keys 1981 with a = −0.5). For smaller sizes, the kernel is widened against aliasing. Only the
//! rows that the kernel covers are held, for any height of the picture.

use std::collections::VecDeque;
use std::path::Path;

use tileforge_image::{Depth, Header, RowSink, Size};

use crate::error::Result;

/// A sink for rows of one size that resamples them to the size of another sink.
pub struct Outscale {
    header: Header,
    sink: Box<dyn RowSink>,
    to: Size,
    columns: Vec<Tap>,
    rows: Vec<Tap>,
    /// Rows in the new width, from number `first` on.
    held: VecDeque<Vec<f32>>,
    first: usize,
    /// Number of rows received, and of rows written.
    come: usize,
    written: usize,
    line: Vec<f64>,
    bytes: Vec<u8>,
}

/// The source pixels of a pixel along one axis: the number of the first, and the weights.
struct Tap {
    first: usize,
    weights: Vec<f64>,
}

impl std::fmt::Debug for Outscale {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Outscale").field("from", &self.header.size).field("to", &self.to).finish()
    }
}

/// The size of a picture at another scale than the network's: rounded, and at least one pixel.
///
/// # Errors
/// A side is longer than any format allows.
pub fn outscaled(size: Size, factor: f64) -> Result<Size> {
    let side = |length: u32| {
        let side = (f64::from(length) * factor).round().max(1.0);
        (side <= f64::from(i32::MAX)).then_some(side as u32)
    };
    match (side(size.width), side(size.height)) {
        (Some(width), Some(height)) => Ok(Size { width, height }),
        _ => {
            let scale = factor.ceil().min(f64::from(u32::MAX)) as u32;
            Err(tileforge_image::Error::Tiling(tileforge_image::TilingError::PictureTooLarge { size, scale }).into())
        }
    }
}

impl Outscale {
    /// A sink for pictures of size `from`, in the channels and depth of `sink`.
    pub fn new(from: Size, sink: Box<dyn RowSink>) -> Self {
        let to = sink.header().size;
        let header = Header { size: from, ..sink.header().clone() };
        let channels = header.colour.channels();
        Self {
            columns: taps(from.width, to.width),
            rows: taps(from.height, to.height),
            held: VecDeque::new(),
            first: 0,
            come: 0,
            written: 0,
            line: vec![0.0; to.width as usize * channels],
            bytes: Vec::new(),
            header,
            sink,
            to,
        }
    }

    /// Takes one row.
    fn take(&mut self, row: &[u8]) -> tileforge_image::Result<()> {
        if self.come >= self.header.size.height as usize {
            let problem = "more rows were written than the picture has";
            return Err(tileforge_image::Error::image(Path::new("picture"), problem));
        }
        let channels = self.header.colour.channels();
        let values: Vec<f32> = match self.header.depth {
            Depth::Eight => row.iter().map(|&byte| f32::from(byte)).collect(),
            Depth::Sixteen => row.as_chunks().0.iter().map(|&bytes| f32::from(u16::from_be_bytes(bytes))).collect(),
            Depth::Float => row.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect(),
        };
        let mut narrow = Vec::with_capacity(self.to.width as usize * channels);
        for Tap { first, weights } in &self.columns {
            for channel in 0..channels {
                let from = values[first * channels + channel..].iter().step_by(channels);
                let sum: f64 = from.zip(weights).map(|(value, weight)| f64::from(*value) * weight).sum();
                narrow.push(sum as f32);
            }
        }
        self.held.push_back(narrow);
        self.come += 1;
        self.write_ready()
    }

    /// Writes the rows whose source rows have all come.
    fn write_ready(&mut self) -> tileforge_image::Result<()> {
        while let Some(Tap { first, weights }) = self.rows.get(self.written) {
            if self.come < first + weights.len() {
                return Ok(());
            }
            while self.first < *first {
                self.held.pop_front();
                self.first += 1;
            }
            self.line.fill(0.0);
            for (row, weight) in self.held.iter().zip(weights) {
                self.line.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value) * weight);
            }
            let white = self.header.depth.maximum();
            self.bytes.clear();
            let values = self.line.iter().map(|value| (*value as f32).clamp(0.0, white));
            match self.header.depth {
                Depth::Eight => self.bytes.extend(values.map(|value| (value + 0.5) as u8)),
                Depth::Sixteen => self.bytes.extend(values.flat_map(|value| ((value + 0.5) as u16).to_be_bytes())),
                Depth::Float => self.bytes.extend(values.flat_map(f32::to_ne_bytes)),
            }
            self.written += 1;
            self.sink.write_rows(&self.bytes)?;
        }
        Ok(())
    }
}

impl RowSink for Outscale {
    fn header(&self) -> &Header {
        &self.header
    }

    fn written(&self) -> Size {
        self.to
    }

    fn write_rows(&mut self, rows: &[u8]) -> tileforge_image::Result<()> {
        let row_bytes = self.header.row_bytes().unwrap_or(usize::MAX).max(1);
        rows.chunks_exact(row_bytes).try_for_each(|row| self.take(row))
    }

    /// The inner sink reports missing rows.
    fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
        self.sink.finish()
    }
}

/// The tap of each pixel of a side of length `to`.
fn taps(from: u32, to: u32) -> Vec<Tap> {
    let scale = f64::from(from) / f64::from(to);
    let stretch = scale.max(1.0);
    let of = |at: u32| {
        let centre = (f64::from(at) + 0.5) * scale;
        let first = (centre - 2.0 * stretch).floor().max(0.0) as usize;
        let end = ((centre + 2.0 * stretch).ceil() as usize).min(from as usize);
        let weights: Vec<f64> = (first..end).map(|place| kernel((place as f64 + 0.5 - centre) / stretch)).collect();
        let sum: f64 = weights.iter().sum();
        Tap { first, weights: weights.into_iter().map(|weight| weight / sum).collect() }
    };
    (0..to).map(of).collect()
}

/// Keys' cubic kernel with a = −0.5.
fn kernel(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        (1.5 * x - 2.5) * x * x + 1.0
    } else if x < 2.0 {
        ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tileforge_image::Colour;

    use super::*;
    use crate::pixels::Pixels;

    struct Kept(Header, Arc<Mutex<Vec<u8>>>);

    impl RowSink for Kept {
        fn header(&self) -> &Header {
            &self.0
        }

        fn write_rows(&mut self, rows: &[u8]) -> tileforge_image::Result<()> {
            self.1.lock().extend_from_slice(rows);
            Ok(())
        }

        fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
            Ok(())
        }
    }

    fn resized(rows: &[u8], from: Size, to: Size, colour: Colour, depth: Depth, at_once: usize) -> (Vec<u8>, usize) {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let mut sink = Outscale::new(from, Box::new(Kept(Header::new(to, colour, depth), kept.clone())));
        let bytes = sink.header().row_bytes().unwrap() * at_once;
        let mut most = 0;
        for rows in rows.chunks(bytes) {
            sink.write_rows(rows).unwrap();
            most = most.max(sink.held.len());
        }
        Box::new(sink).finish().unwrap();
        let made = kept.lock().clone();
        (made, most)
    }

    /// The resampler of whole pictures is another implementation of the same kernel.
    #[test]
    fn rows_give_what_the_whole_picture_gives() {
        let from = Size { width: 37, height: 29 };
        let samples: Vec<u8> = (0..37 * 29 * 3).map(|at: u32| (at * at % 251) as u8).collect();
        let whole = Pixels {
            size: from,
            channels: 3,
            samples: samples.iter().map(|&sample| f32::from(sample) / 255.0).collect(),
        };
        for (width, height) in [(37, 29), (74, 58), (20, 15), (9, 7), (1, 1), (55, 10), (10, 44)] {
            let to = Size { width, height };
            let expected = whole.resized(to).unwrap().samples;
            for at_once in [1, 5, 29] {
                let (found, most) = resized(&samples, from, to, Colour::Rgb, Depth::Eight, at_once);
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    let expected = expected.clamp(0.0, 1.0) * 255.0;
                    assert!((f32::from(*found) - expected).abs() < 1.01, "{to}: {found} instead of {expected}");
                }
                assert!(most <= 4 * 29_usize.div_ceil(height as usize) + 6 + at_once, "{to}: {most} rows");
            }
        }
    }

    #[test]
    fn every_depth_keeps_flat_colours() {
        let (from, to) = (Size { width: 8, height: 6 }, Size { width: 5, height: 4 });
        let flat = |pixel: &[u8], colour, depth| {
            assert_eq!(resized(&pixel.repeat(48), from, to, colour, depth, 2).0, pixel.repeat(20), "{depth:?}");
        };
        flat(&[255, 0, 9, 128], Colour::Rgba, Depth::Eight);
        flat(&[0xff, 0xff, 0, 1, 0x80, 0], Colour::Rgb, Depth::Sixteen);
        flat(&[1.0_f32.to_ne_bytes(), 0.0_f32.to_ne_bytes()].concat(), Colour::GreyAlpha, Depth::Float);
    }

    #[test]
    fn sizes_are_rounded_and_limited() {
        let size = Size { width: 3, height: 100 };
        assert_eq!(outscaled(size, 1.5).unwrap(), Size { width: 5, height: 150 });
        assert_eq!(outscaled(size, 0.01).unwrap(), Size { width: 1, height: 1 });
        assert!(outscaled(Size { width: 1 << 30, height: 1 }, 4.0).is_err());
    }
}
