//! The graphs of an engine, before they are converted to its precision.

use tileforge_contract::Sizes;
use tileforge_graph::Model;

/// The graphs of an engine.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// The graphs of one size, the smallest first.
    pub(crate) fixed: Vec<Model>,
    /// The graphs whose sizes are free, which stand for all others; empty if each graph has one size.
    pub(crate) free: Vec<FreeGraph>,
}

/// A graph some of whose sizes are free.
#[derive(Debug)]
pub(crate) struct FreeGraph {
    pub(crate) model: Model,
    /// Its largest sizes.
    pub(crate) largest: Sizes,
    pub(crate) free: Free,
}

/// The sizes that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// Height and width, with at most as many pixels as the largest square tile.
    Size,
    /// The batch, up to the largest.
    Batch,
}
