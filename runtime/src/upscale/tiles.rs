//! The tiles that pictures may be cut into.

use std::collections::BTreeSet;

use tileforge_contract::Upscale;
use tileforge_image::Size;
use tileforge_image::tile::AnySize;

use super::shape::TileShape;
use super::variant::Variant;
use crate::error::{Error, Result};
use crate::host::{Limit, Network};

/// Tiles that memory does not hold are not divided into tiles of fewer pixels.
const PIXELS_MINIMUM: u64 = 64 * 64;

/// The tiles that pictures may be cut into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tiles {
    /// Tiles of one of these sizes.
    Fixed(Vec<Size>),
    /// Tiles of any size within these limits.
    AnySize(AnySize),
}

/// The tiles that memory holds: fewer after a failure, and all again after enough successes.
#[derive(Debug)]
pub(super) struct HeldTiles {
    all: Tiles,
    now: Tiles,
    /// 2: all; 1: fewer.
    limit: Limit,
}

impl HeldTiles {
    pub(super) fn new(all: Tiles) -> Self {
        Self { now: all.clone(), all, limit: Limit::new(2) }
    }

    pub(super) fn now(&self) -> &Tiles {
        &self.now
    }

    /// As [`Tiles::leave`].
    pub(super) fn leave(&mut self, tile: Size) -> bool {
        let has_left = self.now.leave(tile);
        if has_left {
            self.limit.shrink(1);
        }
        has_left
    }

    /// Records a finished picture. True if tiles that were left out are now tried again.
    pub(super) fn succeed(&mut self) -> bool {
        let recovers = self.limit.succeed().is_some();
        if recovers {
            self.now = self.all.clone();
        }
        recovers
    }
}

impl Tiles {
    /// Leaves out tiles of this size; if any size is possible, all with more than half of its pixels. False if no
    /// smaller tiles are left.
    pub(super) fn leave(&mut self, tile: Size) -> bool {
        match self {
            Self::Fixed(tiles) => {
                let smaller = tiles.iter().any(|other| other.pixels() < tile.pixels());
                if smaller {
                    tiles.retain(|other| *other != tile);
                }
                smaller
            }
            Self::AnySize(sides) => {
                let smaller = AnySize { pixels: sides.pixels.min(tile.pixels()) / 2, ..*sides };
                let possible = smaller.pixels >= PIXELS_MINIMUM && smaller.square().pixels() <= smaller.pixels;
                if possible {
                    *sides = smaller;
                }
                possible
            }
        }
    }
}

/// The tiles that pictures may be cut into: the wanted one, or all that memory may hold. With a wanted batch, only
/// tiles that have a graph for this batch: a smaller batch would be measured under a wrong name. If any size is
/// possible, the wanted size is the largest.
pub(super) fn tiles(
    network: &Network,
    variants: &[Variant],
    interface: &Upscale,
    wanted: Option<Size>,
    batch: Option<usize>,
) -> Result<Tiles> {
    let (any, fixed): (Vec<_>, Vec<_>) = variants.iter().partition(|variant| variant.shape.any_size);
    if let Some(largest) = any.iter().map(|variant| variant.shape.tile).max_by_key(|tile| tile.pixels()) {
        let shapes: Vec<TileShape> = any.iter().map(|variant| variant.shape).collect();
        fitting(&shapes, None, batch)?;
        if let Some(wanted) = wanted.filter(|wanted| wanted.pixels() > largest.pixels()) {
            return Err(Error::TileTooLarge { wanted, largest });
        }
        let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (minimum, multiple) = (side(interface.size_minimum), side(interface.size_multiple));
        let sides = AnySize { pixels: wanted.unwrap_or(largest).pixels(), height: u32::MAX, minimum, multiple };
        let held = |tile: Size| any.iter().any(|variant| variant.may_hold(network, interface, tile));
        let mut tiles = Tiles::AnySize(sides);
        let mut square = sides.square();
        // A requested size is always tried, and so are the smallest tiles.
        while wanted.is_none() && !held(square) && tiles.leave(square) {
            let Tiles::AnySize(smaller) = &tiles else { break };
            square = smaller.square();
        }
        return Ok(tiles);
    }
    let each: Vec<TileShape> = fixed.iter().map(|variant| variant.shape).collect();
    let fitting = fitting(&each, wanted, batch)?;
    let held = |tile: &Size| {
        fixed.iter().any(|variant| variant.shape.tile == *tile && variant.may_hold(network, interface, *tile))
    };
    let held: Vec<Size> = fitting.iter().copied().filter(held).collect();
    // A requested size is always tried. If memory seems to hold none, all are tried: the estimate may be wrong.
    Ok(Tiles::Fixed(if wanted.is_some() || held.is_empty() { fitting } else { held }))
}

/// The tiles of graphs with the wanted size and batch, each once.
fn fitting(shapes: &[TileShape], wanted: Option<Size>, batch: Option<usize>) -> Result<Vec<Size>> {
    let tiles_of = |shapes: &mut dyn Iterator<Item = &TileShape>| {
        let mut tiles: Vec<Size> = Vec::new();
        for TileShape { tile, .. } in shapes {
            if !tiles.contains(tile) {
                tiles.push(*tile);
            }
        }
        tiles
    };
    if let Some(wanted) = wanted.filter(|wanted| shapes.iter().all(|shape| shape.tile != *wanted)) {
        return Err(Error::NoSuchTile { wanted, known: tiles_of(&mut shapes.iter()) });
    }
    let of_tile = || shapes.iter().filter(|shape| wanted.is_none_or(|wanted| shape.tile == wanted));
    let found = tiles_of(&mut of_tile().filter(|shape| batch.is_none_or(|batch| shape.batch == batch)));
    match batch {
        Some(batch) if found.is_empty() => {
            let known: BTreeSet<usize> = of_tile().map(|shape| shape.batch).collect();
            Err(Error::NoSuchBatch { wanted: batch, known: known.into_iter().collect() })
        }
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_or_a_batch_that_the_engine_lacks_is_an_error() {
        let size = |side: u32| Size { width: side, height: side };
        let shapes =
            [(64, 1), (64, 4), (256, 1)].map(|(side, batch)| TileShape { tile: size(side), batch, any_size: false });
        let fitting = |tile: Option<u32>, batch| fitting(&shapes, tile.map(size), batch);
        assert_eq!(fitting(None, None).unwrap(), [size(64), size(256)]);
        assert_eq!(fitting(None, Some(4)).unwrap(), [size(64)], "a tile without this batch is not chosen");
        assert_eq!(fitting(Some(256), Some(1)).unwrap(), [size(256)]);
        assert!(matches!(fitting(Some(128), None), Err(Error::NoSuchTile { known, .. }) if known.len() == 2));
        assert!(matches!(fitting(Some(256), Some(4)), Err(Error::NoSuchBatch { known, .. }) if known == [1]));
        assert!(matches!(fitting(None, Some(2)), Err(Error::NoSuchBatch { known, .. }) if known == [1, 4]));
    }

    #[test]
    fn tiles_that_memory_does_not_hold_are_left_out() {
        let size = |side: u32| Size { width: side, height: side };
        let mut fixed = Tiles::Fixed(vec![size(64), size(256)]);
        assert!(fixed.leave(size(256)) && !fixed.leave(size(64)));
        assert_eq!(fixed, Tiles::Fixed(vec![size(64)]));

        let mut held = HeldTiles::new(Tiles::Fixed(vec![size(64), size(128), size(256)]));
        assert!(!held.succeed(), "nothing was left out");
        let pictures = |held: &mut HeldTiles| (1..1_000).find(|_| held.succeed());
        assert!(held.leave(size(256)) && held.leave(size(128)) && !held.leave(size(64)));
        assert_eq!(held.now(), &Tiles::Fixed(vec![size(64)]));
        assert_eq!(pictures(&mut held), Some(100));
        assert_eq!(held.now(), &held.all);
        assert!(held.leave(size(256)));
        assert!(pictures(&mut held).is_some_and(|more| more > 100), "the next attempt comes later");

        let sides = |pixels| AnySize { pixels, height: u32::MAX, minimum: 1, multiple: 1 };
        let mut any = Tiles::AnySize(sides(640 * 640));
        assert!(any.leave(Size { width: 512, height: 400 }));
        assert_eq!(any, Tiles::AnySize(sides(512 * 200)), "fewer pixels than the tile had");
        while any.leave(size(640)) {}
        assert_eq!(any, Tiles::AnySize(sides(6400)));
        let mut least = Tiles::AnySize(AnySize { minimum: 128, ..sides(128 * 128) });
        assert!(!least.leave(size(128)), "the network takes no smaller ones");
    }
}
