//! Where bytes are in a file of `torch.save`.

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte, counted from the beginning of the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Number of bytes in the file, if they are compressed by DEFLATE.
    pub compressed: Option<u64>,
    /// CRC-32 of the content, where the file states it.
    pub crc32: Option<u32>,
}
