//! Which tiles join well enough to be chosen.
//!
//! Where tiles cannot overlap by all that a pixel depends on, they differ from the network on the whole picture. Speed
//! decides among those plans only that are at least as near to it as tiles of 256×256 with an overlap of 32.

use tileforge_contract::Upscale;
use tileforge_engine::manifest::Tiling;
use tileforge_image::Size;
use tileforge_image::tile::{Axis, Overlap, TilePlan};

/// The side of the tile that others are compared with.
const SIDE: u32 = 256;

/// Which tiles join well enough to be chosen.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    radius: Option<u32>,
    measured: Option<Tiling>,
    /// The tile that others are compared with: 256×256, or where the engine lacks it, its largest. `None`: tiles that
    /// overlap by all that a pixel depends on need no comparison.
    reference: Option<Size>,
}

impl Floor {
    /// For an engine with these tiles.
    pub(super) fn new(interface: &Upscale, measured: Option<&Tiling>, tiles: impl Iterator<Item = Size>) -> Self {
        let radius = interface.receptive_field.radius();
        let multiple = u32::try_from(interface.size_multiple.max(1)).unwrap_or(1);
        let side = SIDE.checked_next_multiple_of(multiple).unwrap_or(SIDE);
        let square = Size { width: side, height: side };
        let is_exact = radius.is_some_and(|radius| Overlap::automatic(Some(radius), square).margin >= radius);
        let largest = tiles.max_by_key(|tile| (*tile == square, tile.width.min(tile.height), tile.pixels()));
        Self { radius, measured: measured.cloned(), reference: largest.filter(|_| !is_exact) }
    }

    /// How tiles of a size overlap unless the user sets it: as measured, or else by the receptive field alone.
    pub(super) fn overlap(&self, tile: Size) -> Overlap {
        let measured = self.measured.as_ref().and_then(|tiling| tiling.of(tile.width, tile.height));
        measured.map_or_else(
            || Overlap::automatic(self.radius, tile),
            |measured| Overlap { pixels: measured.overlap, margin: measured.margin },
        )
    }

    /// What was measured of a plan's tiles with their overlap; `None` if nothing was, or nothing is cut.
    pub(super) fn psnr_db(&self, plan: &TilePlan) -> Option<f64> {
        let Size { width, height } = plan.tile();
        let measured = self.measured.as_ref()?.of(width, height)?;
        let overlap = Overlap { pixels: measured.overlap, margin: measured.margin };
        (plan.count() > 1 && plan.overlap() == overlap).then_some(measured.psnr_db)
    }

    /// Whether a plan may be chosen for its speed: it gives the whole picture, or it is that of the reference, or its
    /// tiles join at least as well and are not filled up.
    pub(super) fn holds(&self, plan: &TilePlan) -> bool {
        let Some(reference) = self.reference else { return true };
        let tile = plan.tile();
        if plan.is_exact() || tile == reference {
            return true;
        }
        // What stands in the place of the picture's edge changes the pixels there, and nothing blends that.
        let is_filled = |axis: &Axis| axis.is_filled();
        !is_filled(plan.columns()) && !is_filled(plan.rows()) && self.joins_well(tile, reference)
    }

    /// Whether the engine's tiles of a size join at least as well as the reference's.
    fn joins_well(&self, tile: Size, reference: Size) -> bool {
        let measured = self.measured.as_ref().and_then(|tiling| tiling.reaches(tile.width, tile.height));
        // A tile that is larger, and overlaps by no less, has more of the picture around each pixel.
        measured.unwrap_or(tile.width >= reference.width && tile.height >= reference.height)
    }

    /// Whether one of these tiles may be chosen for every picture.
    pub(super) fn is_reached_by(&self, tiles: &[Size]) -> bool {
        self.reference
            .is_none_or(|reference| tiles.iter().any(|tile| *tile == reference || self.joins_well(*tile, reference)))
    }
}
