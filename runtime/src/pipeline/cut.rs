//! Decoded rows to tiles.

use super::{ColourRouting, Decoding, Routing};
use crate::error::{Error, Result};
use crate::image::{Alpha, RowSource};
use crate::session::{Session, Tensor};
use crate::tile::{Size, Tile, TilePlan};

/// More memory than this for the rows that one row of tiles needs is refused.
const WINDOW_BYTES_MAXIMUM: usize = 1 << 30;

/// The tensors of one tile, filled by [`Cutter::cut`] again and again.
pub(super) struct TileInput {
    /// One for each run of the model, `[1, channels, height, width]`; the last one is alpha's, where the model enlarges it.
    pub(super) runs: Vec<Tensor>,
    /// `[height, width]`, in the model's range; empty unless alpha goes around the model.
    pub(super) alpha: Vec<f32>,
}

impl TileInput {
    pub(super) fn new(session: &Session, routing: Routing, model_channels: u32, tile: Size) -> Result<Self> {
        let shape = [1, model_channels as usize, tile.height as usize, tile.width as usize];
        let runs = (0..routing.runs()).map(|_| session.tensor(&shape)).collect::<Result<_>>()?;
        Ok(Self { runs, alpha: Vec::new() })
    }
}

/// Reads a picture row by row and cuts it into tiles, keeping the rows of one tile's height.
pub(super) struct Cutter<R> {
    reader: R,
    routing: Routing,
    decoding: Decoding,
    size: Size,
    tile: Size,
    row_bytes: usize,
    /// A ring of rows: row `y` is at `y % tile height`.
    window: Vec<u8>,
    rows_read: u32,
}

impl<R: RowSource> Cutter<R> {
    pub(super) fn new(reader: R, routing: Routing, range: [f32; 2], plan: &TilePlan) -> Result<Self> {
        let header = reader.header();
        let rows = plan.tile().height.min(header.size.height) as usize;
        let row_bytes = header.row_bytes();
        let window = row_bytes.and_then(|bytes| bytes.checked_mul(rows)).filter(|&bytes| bytes <= WINDOW_BYTES_MAXIMUM);
        let (Some(row_bytes), Some(window)) = (row_bytes, window) else {
            return Err(Error::image(
                reader.name(),
                format!("{} rows of {} do not fit into {WINDOW_BYTES_MAXIMUM} bytes; split the image", rows, header.size),
            ));
        };
        Ok(Self {
            routing,
            decoding: Decoding::new(range, header.depth),
            size: header.size,
            tile: plan.tile(),
            row_bytes,
            window: vec![0; window],
            rows_read: 0,
            reader,
        })
    }

    /// Fills `input` with one tile. Tiles come row by row, from the top.
    pub(super) fn cut(&mut self, tile: Tile, input: &mut TileInput) -> Result<()> {
        self.read_to(tile.y.saturating_add(self.tile.height).min(self.size.height))?;
        let area = (self.tile.width * self.tile.height) as usize;
        let colour = self.reader.header().colour;
        for (run, tensor) in input.runs.iter_mut().enumerate() {
            for (plane, values) in tensor.as_mut_slice().chunks_exact_mut(area).enumerate() {
                let channel = match self.routing.colour {
                    _ if run == self.routing.colour_runs() => colour.colour_channels(),
                    ColourRouting::Direct => plane,
                    ColourRouting::Replicated => 0,
                    ColourRouting::Separate => run,
                };
                self.plane(tile, channel, values);
            }
        }
        if self.routing.alpha == Some(Alpha::Bicubic) {
            let mut alpha = std::mem::take(&mut input.alpha);
            alpha.resize(area, 0.0);
            self.plane(tile, colour.colour_channels(), &mut alpha);
            input.alpha = alpha;
        }
        Ok(())
    }

    fn read_to(&mut self, end: u32) -> Result<()> {
        while self.rows_read < end {
            let slot = self.slot(self.rows_read);
            self.reader.read_row(&mut self.window[slot..][..self.row_bytes])?;
            self.rows_read += 1;
        }
        Ok(())
    }

    fn slot(&self, row: u32) -> usize {
        row as usize * self.row_bytes % self.window.len()
    }

    /// One channel of a tile, mirrored where the picture is smaller than the tile.
    fn plane(&self, tile: Tile, channel: usize, into: &mut [f32]) {
        let (tile_width, columns) = (self.tile.width as usize, self.tile.width.min(self.size.width) as usize);
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

/// Position `at` of an endless strip that mirrors `length` values without repeating those at the
/// edges: `a b c | b a | b c`.
fn mirrored(at: usize, length: usize) -> usize {
    if length == 1 {
        return 0;
    }
    let at = at % (2 * (length - 1));
    if at < length { at } else { 2 * (length - 1) - at }
}

#[cfg(test)]
mod tests {
    use super::mirrored;

    #[test]
    fn mirroring_goes_on_for_ever() {
        let strip = |length| (0..8).map(|at| mirrored(at, length)).collect::<Vec<_>>();
        assert_eq!(strip(3), [0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!(strip(2), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(strip(1), [0; 8]);
    }
}
