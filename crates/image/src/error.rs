//! What can be wrong with a picture, and with how it is cut.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Format, Size};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a picture. The text of an error never repeats its cause: walk [`std::error::Error::source`].
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
    /// The format that was asked for has no transparency, and the picture has.
    #[error("{}: {} cannot hold transparency, which this picture has", path.display(), format.name())]
    NoTransparency {
        /// The file that was asked for.
        path: PathBuf,
        /// Its format.
        format: Format,
    },
    /// A stream does not begin as a stream of frames does.
    #[error("{}: expected a stream that begins with {expected}, as ffmpeg writes it for yuv4mpegpipe", path.display())]
    NotFrames {
        /// The stream's name.
        path: PathBuf,
        /// What it should begin with.
        expected: &'static str,
    },
    /// The picture cannot be cut that way.
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
    /// A picture cannot be given another size.
    #[error("cannot resize {from} to {to}: {reason}")]
    Resize {
        /// The size that it has.
        from: Size,
        /// The size that was asked for.
        to: Size,
        /// The resizer's reason.
        reason: String,
    },
    /// A border leaves nothing of a picture.
    #[error("a border of {border} pixels leaves nothing of {size}")]
    Border {
        /// Its width in pixels.
        border: u32,
        /// The picture's size.
        size: Size,
    },
    /// A tile has values that are no numbers.
    #[error("the tile at ({x}, {y}) has NaN or infinite values: the precision overflows on this picture")]
    NotFinite {
        /// The tile's first column.
        x: u32,
        /// The tile's first row.
        y: u32,
    },
    /// A stream was ended while a frame of it is still being written: a defect of the caller.
    #[error("the stream was ended before its last frame")]
    FrameUnfinished,
}

/// Why a picture cannot be cut into tiles, or tiles cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TilingError {
    /// The overlap reaches the tile's size.
    #[error("tiles: expected an overlap below the tile's shorter side ({side} pixels), found {overlap}")]
    Overlap {
        /// Pixels that were asked for.
        overlap: u32,
        /// The tile's shorter side.
        side: u32,
    },
    /// Two margins do not fit into the overlap.
    #[error("tiles: expected a margin of at most half the overlap ({overlap} pixels), found {margin}")]
    Margin {
        /// Pixels that were asked for.
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
    /// A tile's output is larger than any format holds.
    #[error("tiles: expected tiles of at most {most} output pixels a side, found {side}")]
    TileTooLarge {
        /// The output's side.
        side: u64,
        /// The limit.
        most: u64,
    },
    /// The output is larger than any format holds.
    #[error("tiles: a picture of {size} at scale {scale} is too large; crop it")]
    PictureTooLarge {
        /// The picture's size.
        size: Size,
        /// Output pixels for each input pixel.
        scale: u32,
    },
    /// The rows that have to be kept take too much memory.
    #[error("tiles: an output {width} pixels wide needs more than {most} bytes of working memory; split the picture")]
    Memory {
        /// The output's width.
        width: usize,
        /// The limit in bytes.
        most: u64,
    },
    /// There is no tile to choose from.
    #[error("tiles: expected at least one tile shape, found none")]
    NoShape,
    /// A tile came out of turn or has another size: a defect of the caller.
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
