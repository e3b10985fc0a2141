//! The tiles that an engine has graphs for.

use std::collections::BTreeSet;

use tileforge_contract::Upscale;
use tileforge_engine::Graph;
use tileforge_image::Size;
use tileforge_session::Ladder;

use crate::error::{Error, Result};

/// The tile of a graph, and how many of them it takes in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// The tile's size in input pixels.
    pub tile: Size,
    /// Tiles in one run.
    pub batch: usize,
}

impl TileShape {
    /// That of one of an engine's graphs.
    ///
    /// # Errors
    /// [`Error::Engine`]: the graph does not keep the contract.
    pub fn of(graph: &Graph, interface: &Upscale) -> Result<Self> {
        let sizes = graph.sizes(&interface.contract())?;
        let side = |size: usize| u32::try_from(size * interface.size_multiple).unwrap_or(u32::MAX);
        Ok(Self { tile: Size { width: side(sizes.width), height: side(sizes.height) }, batch: sizes.batch })
    }
}

/// The tiles that pictures may be cut into: the one that is wanted, or all that memory may hold; of these, the ones
/// that have a graph for as many images as are wanted in one run. A smaller number would be measured under a wrong
/// name.
pub(super) fn tiles(
    shapes: &[(Graph, TileShape)],
    wanted: Option<Size>,
    batch: Option<usize>,
    ladder: &Ladder,
) -> Result<Vec<Size>> {
    let each: Vec<TileShape> = shapes.iter().map(|(_, shape)| *shape).collect();
    let fitting = fitting(&each, wanted, batch)?;
    let held = |tile: &Size| shapes.iter().any(|(graph, shape)| shape.tile == *tile && ladder.may_hold(graph));
    let held: Vec<Size> = fitting.iter().copied().filter(held).collect();
    // One that was asked for is tried, and so are all where none seems to be held: the attempt will tell.
    Ok(if wanted.is_some() || held.is_empty() { fitting } else { held })
}

/// The tiles of graphs, each once, that are as wanted.
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
        let shapes = [(64, 1), (64, 4), (256, 1)].map(|(side, batch)| TileShape { tile: size(side), batch });
        let fitting = |tile: Option<u32>, batch| fitting(&shapes, tile.map(size), batch);
        assert_eq!(fitting(None, None).unwrap(), [size(64), size(256)]);
        assert_eq!(fitting(None, Some(4)).unwrap(), [size(64)], "a tile without this batch is not chosen");
        assert_eq!(fitting(Some(256), Some(1)).unwrap(), [size(256)]);
        assert!(matches!(fitting(Some(128), None), Err(Error::NoSuchTile { known, .. }) if known.len() == 2));
        assert!(matches!(fitting(Some(256), Some(4)), Err(Error::NoSuchBatch { known, .. }) if known == [1]));
        assert!(matches!(fitting(None, Some(2)), Err(Error::NoSuchBatch { known, .. }) if known == [1, 4]));
    }
}
