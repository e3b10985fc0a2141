//! Where the tiles of an image lie, and how their outputs become one picture again.

mod blend;
mod plan;
mod window;

pub use blend::{Blender, RowBand, SampleEncoding};
pub use plan::{Axis, Overlap, Tile, TilePlan};
pub use window::Blend;
