//! The state of a file, known without reading its content.

/// A state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    /// The device, or the volume.
    pub(crate) device: u64,
    /// The inode, or the index of the file in its volume.
    pub(crate) inode: u64,
    pub(crate) length: u64,
    /// Seconds and nanoseconds since 1970.
    pub(crate) written: (i64, i64),
    /// The time when the system last recorded any change, including a change of names.
    pub(crate) changed: (i64, i64),
}
