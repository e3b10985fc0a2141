//! Streams of frames, and where their results go.

use tileforge_image::{RowSink, RowSource};

use crate::error::Result;

/// A frame, and the place of its result.
pub type FrameAndPlace = (Box<dyn RowSource>, Box<dyn RowSink>);

/// A stream of frames, and where its results go.
pub trait FrameStream: Send {
    /// The next frame and the sink of its result; `None` after the last one. The sink has the size of the task's
    /// results.
    ///
    /// # Errors
    /// The stream is damaged, or cannot be read.
    fn next(&mut self) -> Result<Option<FrameAndPlace>>;

    /// About how many frames it has, if that is known.
    fn frames(&self) -> Option<u64> {
        None
    }

    /// Completes the output after all results have been written.
    ///
    /// # Errors
    /// They cannot be written.
    fn finish(self: Box<Self>) -> Result<()>;
}
