//! Reading and writing pictures by rows, for any source and target.

use std::path::Path;

use super::Header;
use crate::Size;
use crate::error::Result;

/// A picture that is read from its first row to its last: a file, or a frame of a stream.
pub trait RowSource: Send {
    /// The picture's name in errors.
    fn name(&self) -> &Path;

    /// The picture's header.
    fn header(&self) -> &Header;

    /// Reads the next row: [`Header::row_bytes`] bytes, interleaved, each sample as [`Depth`](super::Depth) says.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) if the source is truncated or damaged.
    fn read_row(&mut self, row: &mut [u8]) -> Result<()>;
}

/// A picture that is written from its first row to its last: a file, or a frame of a stream.
pub trait RowSink: Send {
    /// The header that rows must match.
    fn header(&self) -> &Header;

    /// The size of the written picture: the size of the rows, unless the sink changes it.
    fn written(&self) -> Size {
        self.header().size
    }

    /// Writes one or more whole rows, interleaved, each sample as [`Depth`](super::Depth) says.
    ///
    /// # Errors
    /// The disk is full, or there are more rows than the picture has.
    fn write_rows(&mut self, rows: &[u8]) -> Result<()>;

    /// Completes the picture.
    ///
    /// # Errors
    /// Rows are missing, or the disk is full.
    fn finish(self: Box<Self>) -> Result<()>;
}
