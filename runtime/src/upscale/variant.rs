//! A graph of the model, and the tiles that it takes.

use tileforge_contract::{Sizes, Upscale};
use tileforge_engine::Graph;
use tileforge_image::Size;

use super::shape::TileShape;
use crate::error::Result;
use crate::host::Network;

/// A graph of the model.
pub(super) struct Variant {
    pub(super) graph: Graph,
    /// The tile that it takes, or its largest.
    pub(super) shape: TileShape,
}

impl Variant {
    /// Whether it takes tiles of a size.
    pub(super) fn takes(&self, tile: Size) -> bool {
        self.shape.any_size || self.shape.tile == tile
    }

    /// The graph's record, resized to tiles of a size if the graph takes any size.
    pub(super) fn graph_for(&self, interface: &Upscale, tile: Size) -> Result<Graph> {
        if self.shape.tile == tile {
            return Ok(self.graph.clone());
        }
        let units = |side: u32| side as usize / interface.size_multiple.max(1);
        let sizes = Sizes { height: units(tile.height), width: units(tile.width), ..Sizes::default() };
        Ok(self.graph.resized(&interface.contract(), sizes)?)
    }

    /// Whether memory may hold tiles of a size.
    pub(super) fn may_hold(&self, network: &Network, interface: &Upscale, tile: Size) -> bool {
        self.graph_for(interface, tile).is_ok_and(|graph| network.may_hold(&graph))
    }
}
