//! Which tiles join well enough to be chosen.
//!
//! If tiles cannot overlap by the whole receptive field, their result differs from the network's result for the whole
//! picture. Speed decides only among plans that are at least as near to that result as tiles of 256×256 with an
//! overlap of 32.

use tileforge_contract::Upscale;
use tileforge_engine::manifest::{MeasuredTile, Tiling};
use tileforge_image::Size;
use tileforge_image::tile::{Overlap, TilePlan};

use crate::tiling::{joins_exactly, reference_tile};

/// Which tiles join well enough to be chosen.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    radius: Option<u32>,
    measured: Option<Tiling>,
    /// The reference tile: 256×256, or the engine's largest if it lacks that. `None`: tiles overlap by the whole
    /// receptive field, so that no comparison is needed.
    reference: Option<Size>,
}

impl Floor {
    /// For an engine with these tiles.
    pub(super) fn new(interface: &Upscale, measured: Option<&Tiling>, tiles: impl Iterator<Item = Size>) -> Self {
        let radius = interface.receptive_field.radius();
        let square = reference_tile(interface);
        let is_exact = joins_exactly(interface, square);
        let largest = tiles.max_by_key(|tile| (*tile == square, tile.width.min(tile.height), tile.pixels()));
        Self { radius, measured: measured.cloned(), reference: largest.filter(|_| !is_exact) }
    }

    /// The overlaps that a tile may have, unless the user sets one: the measured ones, or else the one that follows
    /// from the receptive field. The largest comes first.
    pub(super) fn overlaps(&self, tile: Size) -> Vec<Overlap> {
        let measured = self.measured.iter().flat_map(|tiling| tiling.of(tile.width, tile.height)).map(overlap_of);
        let mut overlaps: Vec<Overlap> = measured.collect();
        if overlaps.is_empty() {
            overlaps.push(Overlap::automatic(self.radius, tile));
        }
        overlaps.sort_by_key(|overlap| std::cmp::Reverse(overlap.pixels));
        overlaps
    }

    /// The measured PSNR of a plan's tiles with their overlap, in dB; `None` if it was not measured, or if the picture
    /// is one tile.
    pub(super) fn psnr_db(&self, plan: &TilePlan) -> Option<f64> {
        let Size { width, height } = plan.tile();
        let measured =
            self.measured.as_ref()?.of(width, height).find(|measured| overlap_of(measured) == plan.overlap());
        measured.filter(|_| plan.count() > 1).map(|measured| measured.psnr_db)
    }

    /// The reference tile; `None` if no comparison is needed.
    pub(super) fn reference(&self) -> Option<Size> {
        self.reference
    }

    /// Whether a plan may be chosen for its speed: its result is exact, or it uses the reference tile, or its result
    /// is at least as near to the exact one as the reference plan's.
    pub(super) fn holds(&self, plan: &TilePlan, reference: Option<&TilePlan>) -> bool {
        let (Some(size), Some(reference)) = (self.reference, reference) else { return true };
        let tile = plan.tile();
        if plan.is_exact() || tile == size {
            return true;
        }
        let mut measured = self.measured.iter().flat_map(|tiling| tiling.of(tile.width, tile.height)).peekable();
        if is_filled(plan) {
            // Padding in place of the picture's edge changes the pixels there, and no blending hides this.
            return plan.count() == 1 && is_filled(reference) && measured.any(|measured| measured.fills);
        }
        let Some(tiling) = self.measured.as_ref().filter(|_| measured.peek().is_some()) else {
            // A larger tile with at least the same overlap has more of the picture around each pixel.
            return is_larger(tile, size);
        };
        let shared = plan.overlap().pixels;
        measured.any(|measured| measured.overlap <= shared && tiling.reaches(measured, is_filled(reference)))
    }

    /// Whether one of these tiles may be chosen for every picture.
    pub(super) fn is_reached_by(&self, tiles: &[Size]) -> bool {
        let reaches = |reference: Size, tile: Size| {
            let mut measured = self
                .measured
                .iter()
                .flat_map(|tiling| tiling.of(tile.width, tile.height).map(|measured| tiling.reaches(measured, false)));
            is_larger(tile, reference) || measured.any(|reaches| reaches)
        };
        self.reference.is_none_or(|reference| tiles.iter().any(|tile| reaches(reference, *tile)))
    }
}

fn overlap_of(measured: &MeasuredTile) -> Overlap {
    Overlap { pixels: measured.overlap, margin: measured.margin }
}

fn is_filled(plan: &TilePlan) -> bool {
    plan.columns().is_filled() || plan.rows().is_filled()
}

fn is_larger(tile: Size, reference: Size) -> bool {
    tile.width >= reference.width && tile.height >= reference.height
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_contract::{Padding, ReceptiveField};

    const fn square(side: u32) -> Size {
        Size { width: side, height: side }
    }

    fn floor(figures: Option<[f64; 2]>, sides: &[u32], receptive_field: ReceptiveField) -> Floor {
        let interface = Upscale {
            input: "image".into(),
            output: "upscaled".into(),
            scale: 4,
            channels: 3,
            range: [0.0, 1.0],
            size_multiple: 8,
            size_minimum: 1,
            only_size: None,
            padding: Padding::Reflect,
            receptive_field,
            safe_precisions: Vec::new(),
        };
        let tile =
            |(overlap, psnr_db)| MeasuredTile { width: 64, height: 64, overlap, margin: 0, psnr_db, fills: true };
        let tiling = figures.map(|figures| Tiling {
            floor_db: 49.0,
            filled_db: 25.0,
            tiles: [8, 32].into_iter().zip(figures).map(tile).collect(),
        });
        Floor::new(&interface, tiling.as_ref(), sides.iter().map(|side| square(*side)))
    }

    fn plan(picture: [u32; 2], tile: u32, pixels: u32) -> TilePlan {
        let picture = Size { width: picture[0], height: picture[1] };
        let plan = TilePlan::new(picture, square(tile), Overlap { pixels, margin: 0 }, 4, None).unwrap();
        plan.for_sides(1, 8)
    }

    fn holds(floor: &Floor, picture: [u32; 2], tile: u32, pixels: u32) -> bool {
        let reference = floor.reference().map(|reference| plan(picture, reference.width, reference.width / 8));
        floor.holds(&plan(picture, tile, pixels), reference.as_ref())
    }

    #[test]
    fn small_tiles_hold_where_they_were_measured_to_and_whole_pictures_always() {
        let measured = floor(Some([30.0, 48.0]), &[64, 256, 512], ReceptiveField::Unbounded);
        assert!(holds(&measured, [304, 256], 256, 32) && holds(&measured, [64, 58], 64, 8));
        // 256×256 is not padded, and both overlaps are below its figure.
        assert!(!holds(&measured, [304, 256], 64, 8) && !holds(&measured, [304, 256], 64, 32));
        // 256×256 is padded, which costs more than the joints of small tiles.
        assert!(holds(&measured, [304, 200], 64, 8));
        // Smaller than any tile, and padded along one side only, with joints along the other.
        assert!(holds(&measured, [40, 24], 64, 8) && !holds(&measured, [304, 40], 64, 8));
        // Larger tiles without padding.
        assert!(holds(&measured, [600, 512], 512, 64) && !holds(&measured, [600, 500], 512, 64));
        assert_eq!(measured.overlaps(square(64)).iter().map(|overlap| overlap.pixels).collect::<Vec<_>>(), [32, 8]);
        assert_eq!(measured.psnr_db(&plan([304, 200], 64, 8)), Some(30.0));
        assert_eq!((measured.psnr_db(&plan([64, 64], 64, 8)), measured.psnr_db(&plan([300, 64], 64, 9))), (None, None));
        let better = floor(Some([30.0, 52.0]), &[64, 256], ReceptiveField::Unbounded);
        assert!(!holds(&better, [304, 256], 64, 8) && holds(&better, [304, 256], 64, 32));
    }

    #[test]
    fn without_figures_the_largest_comparable_tile_is_the_safe_one() {
        let old = floor(None, &[64, 256, 512], ReceptiveField::Unbounded);
        assert!(!holds(&old, [304, 200], 64, 8) && holds(&old, [304, 200], 256, 32) && holds(&old, [64, 64], 64, 8));
        assert!(!holds(&old, [40, 24], 64, 8) && holds(&old, [40, 24], 256, 32));
        assert!(old.is_reached_by(&[square(64), square(512)]) && !old.is_reached_by(&[square(64)]));
        let small = floor(None, &[64, 96], ReceptiveField::Unbounded);
        assert!(holds(&small, [300, 200], 96, 24) && !holds(&small, [300, 200], 64, 16));
    }

    #[test]
    fn tiles_that_join_exactly_need_no_floor() {
        let exact = floor(None, &[64, 256], ReceptiveField::Radius(18));
        assert!(exact.reference().is_none() && holds(&exact, [304, 200], 64, 8));
        assert!(floor(None, &[64, 256], ReceptiveField::Radius(96)).reference().is_some());
    }
}
