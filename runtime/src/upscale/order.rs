//! What the decoding stage tells the blending stage, in the order in which pictures are blended.

use std::sync::Arc;

use tileforge_image::tile::{Blender, TilePlan};
use tileforge_image::{RowSink, Size};

use super::batch::Ticket;
use super::join::Joiner;
use super::model::Model;
use super::routing::Routing;
use crate::error::Error;

/// What comes next.
pub(super) enum Order {
    /// A picture.
    Begin(Box<Begun>),
    /// A batch.
    Batch,
    /// The end of a picture that cannot be cut.
    Failed(Arc<Ticket>, Error),
}

/// A picture of which tiles are on their way.
pub(super) struct Begun {
    pub(super) ticket: Arc<Ticket>,
    pub(super) model: Arc<Model>,
    pub(super) plan: TilePlan,
    pub(super) routing: Routing,
    pub(super) blender: Blender,
    pub(super) joiner: Joiner,
    /// Until the first rows are finished.
    pub(super) sink: Option<Box<dyn RowSink>>,
    /// Of a tile's output.
    pub(super) output: Size,
}
