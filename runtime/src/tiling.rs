//! Cuts pictures that are held whole in memory into tiles, and blends tiles into one picture.

use tileforge_contract::Upscale;
use tileforge_image::Size;
use tileforge_image::tile::{Axis, Blend, Overlap, Tile, TilePlan};

/// The side of the reference tile, which others are compared with.
const REFERENCE: u32 = 256;

/// The tile that the tiles of a network are compared with: 256×256, or the next size that the network takes.
pub fn reference_tile(interface: &Upscale) -> Size {
    let multiple = u32::try_from(interface.size_multiple.max(1)).unwrap_or(1);
    let side = REFERENCE.checked_next_multiple_of(multiple).unwrap_or(REFERENCE);
    Size { width: side, height: side }
}

/// Whether tiles of this size join exactly: they overlap by the whole receptive field.
pub fn joins_exactly(interface: &Upscale, tile: Size) -> bool {
    let radius = interface.receptive_field.radius();
    radius.is_some_and(|radius| Overlap::automatic(Some(radius), tile).margin >= radius)
}

/// Position `at` of an endless strip that mirrors `length` values without repeating those at the edges:
/// `a b c | b a | b c`.
pub fn mirrored(at: usize, length: usize) -> usize {
    if length == 1 {
        return 0;
    }
    let at = at % (2 * (length - 1));
    if at < length { at } else { 2 * (length - 1) - at }
}

/// The tiles of a picture, with the weights of each column and row of tiles, computed once.
#[derive(Debug)]
pub struct Tiling {
    plan: TilePlan,
    columns: Vec<Vec<f32>>,
    rows: Vec<Vec<f32>>,
}

impl Tiling {
    /// The tiles of a plan; `blend` is the transition between neighbours.
    pub fn new(plan: TilePlan, blend: Blend) -> Self {
        let windows = |axis: &Axis| (0..axis.count()).map(|index| axis.window(index, plan.scale(), blend)).collect();
        Self { columns: windows(plan.columns()), rows: windows(plan.rows()), plan }
    }

    /// The plan of the tiles.
    pub fn plan(&self) -> &TilePlan {
        &self.plan
    }

    fn scale(&self) -> usize {
        self.plan.scale() as usize
    }

    /// Width and height of the output.
    fn output(&self) -> [usize; 2] {
        [self.plan.columns().length() as usize * self.scale(), self.plan.rows().length() as usize * self.scale()]
    }

    /// Zeros for the output's planes.
    pub fn canvas(&self, planes: usize) -> Vec<f32> {
        let [width, height] = self.output();
        vec![0.0; planes * width * height]
    }

    /// Adds the network's output of a tile, `[planes, height, width]` of a whole tile, with the tile's weights.
    pub fn add(&self, tile: Tile, values: &[f32], canvas: &mut [f32]) {
        let [width, height] = self.output();
        let (columns, rows) = (&self.columns[tile.column as usize], &self.rows[tile.row as usize]);
        let (x, y) = (tile.x as usize * self.scale(), tile.y as usize * self.scale());
        let tile_width = self.plan.tile().width as usize * self.scale();
        let area = tile_width * self.plan.tile().height as usize * self.scale();
        for (plane, values) in canvas.chunks_exact_mut(width * height).zip(values.chunks_exact(area)) {
            for (row, (values, weight)) in values.chunks_exact(tile_width).zip(rows).enumerate() {
                let line = &mut plane[(y + row) * width + x..][..columns.len()];
                for ((sum, value), column) in line.iter_mut().zip(values).zip(columns) {
                    *sum += value * weight * column;
                }
            }
        }
    }
}

/// Copies the part at (`x`, `y`) of planes `[planes, height, width]` to `into`. The edge repeats beyond the picture.
pub fn cut(planes: &[f32], size: Size, x: usize, y: usize, part: Size, into: &mut [f32]) {
    let (width, height) = (size.width as usize, size.height as usize);
    let (part_width, part_height) = (part.width as usize, part.height as usize);
    for (plane, into) in planes.chunks_exact(width * height).zip(into.chunks_exact_mut(part_width * part_height)) {
        for (row, line) in into.chunks_exact_mut(part_width).enumerate() {
            let source = &plane[(y + row).min(height - 1) * width..][..width];
            let inside = width.saturating_sub(x).min(part_width);
            line[..inside].copy_from_slice(&source[x.min(width - 1)..][..inside]);
            line[inside..].fill(source[width - 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirroring_goes_on_for_ever() {
        let strip = |length| (0..8).map(|at| mirrored(at, length)).collect::<Vec<_>>();
        assert_eq!(strip(3), [0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!(strip(2), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(strip(1), [0; 8]);
    }
    use tileforge_image::tile::Overlap;

    fn tiling(picture: Size, tile: Size, overlap: u32) -> Tiling {
        let overlap = Overlap { pixels: overlap, margin: 0 };
        Tiling::new(TilePlan::new(picture, tile, overlap, 2, None).unwrap(), Blend::Cosine)
    }

    #[test]
    fn tiles_of_one_picture_blend_to_that_picture() {
        let (picture, tile) = (Size { width: 7, height: 5 }, Size { width: 4, height: 3 });
        let tiling = tiling(picture, tile, 1);
        let large = Size { width: 14, height: 10 };
        let expected: Vec<f32> = (0..2 * 140).map(|at| (at * 7 % 31) as f32).collect();
        let mut canvas = tiling.canvas(2);
        assert!(tiling.plan().count() > 3);
        for tile in tiling.plan().tiles() {
            let mut values = vec![0.0; 2 * 8 * 6];
            let (x, y) = (tile.x as usize * 2, tile.y as usize * 2);
            cut(&expected, large, x, y, Size { width: 8, height: 6 }, &mut values);
            tiling.add(tile, &values, &mut canvas);
        }
        let worst = canvas.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{worst}");
    }

    #[test]
    fn a_tile_that_is_larger_than_the_picture_is_cut_off() {
        let tiling = tiling(Size { width: 1, height: 1 }, Size { width: 2, height: 2 }, 0);
        let mut canvas = tiling.canvas(1);
        let values: Vec<f32> = (0..16).map(|value| value as f32).collect();
        tiling.add(Tile { column: 0, row: 0, x: 0, y: 0 }, &values, &mut canvas);
        assert_eq!(canvas, [0.0, 1.0, 4.0, 5.0]);
    }

    #[test]
    fn edges_are_repeated() {
        let mut into = [0.0; 6];
        cut(&[1.0, 2.0, 3.0, 4.0], Size { width: 2, height: 2 }, 1, 1, Size { width: 3, height: 2 }, &mut into);
        assert_eq!(into, [4.0; 6]);
    }
}
