//! The tiles that an engine has graphs for.

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

/// The tiles that pictures may be cut into: the one that is wanted, or all that memory may hold.
pub(super) fn tiles(shapes: &[(Graph, TileShape)], wanted: Option<Size>, ladder: &Ladder) -> Result<Vec<Size>> {
    let (mut all, mut held): (Vec<Size>, Vec<Size>) = (Vec::new(), Vec::new());
    for (graph, TileShape { tile, .. }) in shapes {
        let tile = *tile;
        if !all.contains(&tile) {
            all.push(tile);
        }
        if !held.contains(&tile) && ladder.may_hold(graph) {
            held.push(tile);
        }
    }
    match wanted {
        Some(wanted) if all.contains(&wanted) => Ok(vec![wanted]),
        Some(wanted) => Err(Error::NoSuchTile { wanted, known: all }),
        // Where none seems to be held, the attempt will tell.
        None if held.is_empty() => Ok(all),
        None => Ok(held),
    }
}
