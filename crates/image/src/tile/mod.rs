//! Plans of tiles, and blending their outputs into one picture.

mod blend;
mod encoding;
mod plan;
mod window;

pub use blend::{Blender, RowBand};
pub use encoding::SampleEncoding;
pub use plan::{AnySize, Axis, Overlap, Tile, TilePlan};
pub use window::Blend;
