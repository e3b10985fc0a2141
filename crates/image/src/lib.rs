//! Pictures and frames by rows, their colours, and the tiles that they are cut into.
//!
//! | module | holds |
//! |---|---|
//! | [`ImageReader`], [`ImageWriter`] | PNG and TIFF by rows; JPEG and WebP whole; BMP and GIF are read only |
//! | [`Metadata`], [`Exif`], [`Density`] | the metadata of files |
//! | [`png_text`] | a text that a PNG holds beside its pixels |
//! | [`frames`] | streams of frames: YUV4MPEG2 and raw |
//! | [`RowSource`], [`RowSink`] | reading and writing by rows, for files and frames |
//! | [`Picture`] | a whole 8-bit picture, to resize |
//! | [`Comparison`] | PSNR and structural similarity of two pictures, by rows ([`LevelRows`]) |
//! | [`tile`] | plans of tiles, and blending their outputs into one picture |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod comparison;
mod density;
mod error;
mod exif;
mod format;
mod format_names;
pub mod frames;
mod header;
mod levels;
mod metadata;
mod picture;
mod reader;
mod rows;
mod sample;
mod scaled;
mod size;
pub mod tile;
mod writer;

pub use comparison::{Comparison, Difference};
pub use density::{Density, DensityUnit, Ratio};
pub use error::{Error, Result, TilingError};
pub use exif::Exif;
pub use format::Format;
pub use header::Header;
pub use levels::LevelRows;
pub use metadata::{CodePoints, Metadata};
pub use picture::Picture;
pub use reader::{ImageReader, Limits, Warn, png_text};
pub use rows::{RowSink, RowSource};
pub use sample::{Alpha, Colour, Depth};
pub use size::Size;
pub use writer::{ImageWriter, JPEG_QUALITY, PngCompression};
