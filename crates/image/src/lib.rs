//! Pictures and frames by rows, their colour, and the tiles that they are cut into.
//!
//! | module | holds |
//! |---|---|
//! | [`ImageReader`], [`ImageWriter`] | PNG and TIFF by rows; JPEG and WebP whole |
//! | [`frames`] | streams of frames: YUV4MPEG2 and raw |
//! | [`RowSource`], [`RowSink`] | what both have in common |
//! | [`Picture`] | a whole picture of 8 bits, to shrink and to compare |
//! | [`tile`] | where the tiles of a picture lie, and how their outputs become one picture again |

mod error;
mod format;
pub mod frames;
mod header;
mod picture;
mod reader;
mod rows;
mod sample;
mod size;
pub mod tile;
mod writer;

pub use error::{Error, Result, TilingError};
pub use format::Format;
pub use header::Header;
pub use picture::{Difference, Picture};
pub use reader::{ImageReader, Limits};
pub use rows::{RowSink, RowSource};
pub use sample::{Alpha, Colour, Depth};
pub use size::Size;
pub use writer::{ImageWriter, JPEG_QUALITY};
