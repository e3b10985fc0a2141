//! Frames of containers, which other crates read and write: whole frames, each with its time.

use crate::Result;

/// A stored frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Its samples.
    pub bytes: Vec<u8>,
    /// When it is shown, in the container's units.
    pub time: i64,
}

/// Where the frames of a container come from.
pub trait FrameSource: Send {
    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// The container is damaged, or cannot be read.
    fn next(&mut self) -> Result<Option<StoredFrame>>;
}

/// Where the frames of a container go.
pub trait FrameTarget: Send {
    /// Takes the next frame.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&mut self, time: i64, bytes: &[u8]) -> Result<()>;

    /// Completes the container, after the last frame.
    ///
    /// # Errors
    /// It cannot be written.
    fn finish(self: Box<Self>) -> Result<()>;
}
