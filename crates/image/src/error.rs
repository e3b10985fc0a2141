//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Format, Size};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The text of an error never repeats its cause: walk [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something on a file or folder.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb: "read", "create".
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A picture's file cannot be read or written.
    #[error("{}: {problem}", path.display())]
    Image {
        /// The picture's file.
        path: PathBuf,
        /// What was expected, what was found, and what to do.
        problem: String,
    },
    /// A picture's data is incomplete or wrong.
    #[error("{}: a truncated or damaged {} file: {problem}", path.display(), format.name())]
    Damaged {
        /// The picture's file.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// What is missing or wrong.
        problem: String,
    },
    /// A picture has more pixels than the caller allows.
    #[error("{}: expected at most {most} megapixels, found {size}", path.display())]
    TooManyPixels {
        /// The picture's file.
        path: PathBuf,
        /// Its size.
        size: Size,
        /// The limit, in millions of pixels.
        most: u32,
    },
    /// The picture has transparency, and the requested format has none.
    #[error("{}: {} cannot hold transparency, which this picture has", path.display(), format.name())]
    NoTransparency {
        /// The file to be written.
        path: PathBuf,
        /// Its format.
        format: Format,
    },
    /// A stream does not begin like a stream of frames.
    #[error("{}: expected a stream that begins with {expected}, as ffmpeg writes it for yuv4mpegpipe", path.display())]
    NotFrames {
        /// The stream's name.
        path: PathBuf,
        /// The expected beginning.
        expected: &'static str,
    },
    /// The picture cannot be cut in this way.
    #[error(transparent)]
    Tiling(#[from] TilingError),
    /// Two pictures have different sizes.
    #[error("expected two pictures of one size, found {one} and {other}")]
    SizesDiffer {
        /// One size.
        one: Size,
        /// The other.
        other: Size,
    },
    /// A picture cannot be resized.
    #[error("cannot resize {from} to {to}: {reason}")]
    Resize {
        /// Its size.
        from: Size,
        /// The requested size.
        to: Size,
        /// The resizer's reason.
        reason: String,
    },
    /// A border leaves no pixels of a picture.
    #[error("a border of {border} pixels leaves nothing of {size}")]
    Border {
        /// Its width in pixels.
        border: u32,
        /// The picture's size.
        size: Size,
    },
    /// A tile has values that are not finite.
    #[error("the tile at ({x}, {y}) has NaN or infinite values: the precision overflows on this picture")]
    NotFinite {
        /// The tile's first column.
        x: u32,
        /// The tile's first row.
        y: u32,
    },
    /// A stream was ended while one of its frames was still being written: a defect of the caller.
    #[error("the stream was ended before its last frame")]
    FrameUnfinished,
}

/// Why a picture cannot be cut into tiles, or tiles cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TilingError {
    /// The overlap is as large as the tile.
    #[error("tiles: expected an overlap below the tile's shorter side ({side} pixels), found {overlap}")]
    Overlap {
        /// The requested pixels.
        overlap: u32,
        /// The tile's shorter side.
        side: u32,
    },
    /// Two margins together are larger than the overlap.
    #[error("tiles: expected a margin of at most half the overlap ({overlap} pixels), found {margin}")]
    Margin {
        /// The requested pixels.
        margin: u32,
        /// The overlap.
        overlap: u32,
    },
    /// A size or the scale is zero.
    #[error(
        "tiles: expected sizes and a scale above zero, found a picture of {picture}, tiles of {tile}, scale {scale}"
    )]
    Zero {
        /// The picture's size.
        picture: Size,
        /// The tile's size.
        tile: Size,
        /// Output pixels for each input pixel.
        scale: u32,
    },
    /// A tile's output is larger than any format allows.
    #[error("tiles: expected tiles of at most {most} output pixels a side, found {side}")]
    TileTooLarge {
        /// The output's side.
        side: u64,
        /// The limit.
        most: u64,
    },
    /// The output is larger than any format allows.
    #[error("tiles: a picture of {size} at scale {scale} is too large; crop it")]
    PictureTooLarge {
        /// The picture's size.
        size: Size,
        /// Output pixels for each input pixel.
        scale: u32,
    },
    /// The rows that must be kept take too much memory.
    #[error("tiles: an output {width} pixels wide needs more than {most} bytes of working memory; split the picture")]
    Memory {
        /// The output's width.
        width: usize,
        /// The limit in bytes.
        most: u64,
    },
    /// The network accepts no tiles with so few pixels.
    #[error("tiles: expected at least as many pixels as {least}, found {pixels}")]
    TooFewPixels {
        /// The maximum number of pixels.
        pixels: u64,
        /// The smallest tile.
        least: Size,
    },
    /// There is no tile to choose from.
    #[error("tiles: expected at least one tile shape, found none")]
    NoShape,
    /// A tile is out of order or has another size: a defect of the caller.
    #[error("tiles: expected the next tile of the plan, found another one")]
    OutOfTurn,
}

impl Error {
    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    /// An error about a picture's file.
    pub fn image(path: &Path, problem: impl Into<String>) -> Self {
        Self::Image { path: path.to_owned(), problem: problem.into() }
    }
}
