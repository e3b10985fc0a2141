//! The tile that a graph takes.

use tileforge_contract::Upscale;
use tileforge_engine::Graph;
use tileforge_image::Size;

use crate::error::Result;

/// The tile of a graph, and the number of tiles in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// The tile's size in input pixels.
    pub tile: Size,
    /// Tiles in one run.
    pub batch: usize,
    /// It takes tiles of any size, with at most as many pixels as `tile`.
    pub any_size: bool,
}

impl TileShape {
    /// The shape of one of an engine's graphs.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine): the graph breaks the contract.
    pub fn of(graph: &Graph, interface: &Upscale) -> Result<Self> {
        let sizes = graph.sizes(&interface.contract())?;
        let side = |size: usize| u32::try_from(size * interface.size_multiple).unwrap_or(u32::MAX);
        let tile = Size { width: side(sizes.width), height: side(sizes.height) };
        Ok(Self { tile, batch: sizes.batch, any_size: graph.any_size })
    }
}
