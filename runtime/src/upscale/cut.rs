//! Decoded rows to tiles.

use super::routing::Run;
use crate::error::Result;
use crate::pixels::Decoding;
use crate::tiling::mirrored;
use tileforge_image::RowSource;
use tileforge_image::Size;
use tileforge_image::tile::{Tile, TilePlan};

/// The most memory for the rows of one row of tiles.
const WINDOW_BYTES_MAXIMUM: usize = 1 << 30;

/// Reads a picture row by row and cuts it into tiles, keeping the rows of one tile's height.
pub(super) struct Cutter {
    reader: Box<dyn RowSource>,
    decoding: Decoding,
    size: Size,
    tile: Size,
    row_bytes: usize,
    /// A ring of rows: row `y` is at `y % tile height`.
    window: Vec<u8>,
    rows_read: u32,
}

impl Cutter {
    pub(super) fn new(reader: Box<dyn RowSource>, range: [f32; 2], plan: &TilePlan) -> Result<Self> {
        let header = reader.header();
        let rows = plan.tile().height.min(header.size.height) as usize;
        let row_bytes = header.row_bytes();
        let window = row_bytes.and_then(|bytes| bytes.checked_mul(rows)).filter(|&bytes| bytes <= WINDOW_BYTES_MAXIMUM);
        let (Some(row_bytes), Some(window)) = (row_bytes, window) else {
            return Err(tileforge_image::Error::image(
                reader.name(),
                format!(
                    "{} rows of {} do not fit into {WINDOW_BYTES_MAXIMUM} bytes; split the image",
                    rows, header.size
                ),
            )
            .into());
        };
        Ok(Self {
            decoding: Decoding::new(range, header.depth),
            size: header.size,
            tile: plan.tile(),
            row_bytes,
            window: vec![0; window],
            rows_read: 0,
            reader,
        })
    }

    /// Reads the rows of a tile. Tiles come row by row, from the top.
    pub(super) fn advance(&mut self, tile: Tile) -> Result<()> {
        let end = tile.y.saturating_add(self.tile.height).min(self.size.height);
        while self.rows_read < end {
            let slot = self.slot(self.rows_read);
            self.reader.read_row(&mut self.window[slot..][..self.row_bytes])?;
            self.rows_read += 1;
        }
        Ok(())
    }

    /// Fills `into`, `[model channels, height, width]`, with the input of one run of the current tile.
    pub(super) fn fill(&self, tile: Tile, run: &Run, into: &mut [f32]) {
        let area = self.area();
        for (position, &channel) in run.channels.iter().enumerate() {
            if position > 0 && run.is_replicated() {
                into.copy_within(..area, position * area);
            } else {
                self.plane(tile, channel, &mut into[position * area..][..area]);
            }
        }
    }

    /// One channel of the current tile, `[height, width]`.
    pub(super) fn channel(&self, tile: Tile, channel: usize) -> Vec<f32> {
        let mut values = vec![0.0; self.area()];
        self.plane(tile, channel, &mut values);
        values
    }

    fn area(&self) -> usize {
        self.tile.width as usize * self.tile.height as usize
    }

    fn slot(&self, row: u32) -> usize {
        row as usize * self.row_bytes % self.window.len()
    }

    /// One channel of a tile, mirrored beyond the picture's end.
    fn plane(&self, tile: Tile, channel: usize, into: &mut [f32]) {
        let tile_width = self.tile.width as usize;
        let columns = self.tile.width.min(self.size.width.saturating_sub(tile.x)) as usize;
        let channels = self.reader.header().colour.channels();
        let pixel_bytes = self.row_bytes / self.size.width as usize;
        for (row, values) in into.chunks_exact_mut(tile_width).enumerate() {
            let row = mirrored(tile.y as usize + row, self.size.height as usize);
            let source = &self.window[self.slot(row as u32)..][..self.row_bytes];
            let source = &source[tile.x as usize * pixel_bytes..][..columns * pixel_bytes];
            self.decoding.decode(source, channels, channel, &mut values[..columns]);
            for column in columns..tile_width {
                values[column] = values[mirrored(column, columns)];
            }
        }
    }
}
