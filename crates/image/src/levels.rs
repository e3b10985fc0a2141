//! A picture's rows as 8-bit levels of red, green and blue.

use std::path::Path;

use super::{Colour, Depth, Header, ImageReader, Limits, RowSource};
use crate::Size;
use crate::error::Result;

/// A picture that is read by rows of red, green and blue, 8 bits each. Grey becomes all three, deeper samples are
/// rounded, and alpha is left out.
pub struct LevelRows {
    reader: ImageReader,
    /// The row in the file's format.
    row: Vec<u8>,
    levels: Vec<u8>,
}

impl LevelRows {
    /// Opens a picture.
    ///
    /// # Errors
    /// As [`ImageReader::open`].
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        let reader = ImageReader::open(path, limits)?;
        let row = vec![0; reader.header().row_bytes().unwrap_or(0)];
        Ok(Self { reader, row, levels: Vec::new() })
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.reader.header().size
    }

    /// The next row, `[width, 3]`. The number of rows is the picture's height.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn next_row(&mut self) -> Result<&[u8]> {
        let Header { colour, depth, .. } = *self.reader.header();
        self.reader.read_row(&mut self.row)?;
        self.levels.clear();
        for pixel in self.row.chunks_exact(colour.channels() * depth.bytes()) {
            self.levels.extend(levels(pixel, colour, depth));
        }
        Ok(&self.levels)
    }
}

fn levels(pixel: &[u8], colour: Colour, depth: Depth) -> [u8; 3] {
    [0, 1, 2].map(|channel| level(pixel, if colour.colour_channels() == 1 { 0 } else { channel }, depth))
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
