//! Frames of containers: whole frames, each with its time. Other crates read and write the containers.

use crate::Result;

/// A stored frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Its samples.
    pub bytes: Vec<u8>,
    /// Its presentation time, in the container's units.
    pub time: i64,
}

/// A source of a container's frames.
pub trait FrameSource: Send {
    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// The container is damaged, or cannot be read.
    fn next(&mut self) -> Result<Option<StoredFrame>>;
}

/// A target of a container's frames.
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
