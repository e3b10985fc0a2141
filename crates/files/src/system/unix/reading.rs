//! Parts of opened files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

/// Bytes that the system copies at a time: enough for full speed, few enough to report progress between two calls.
const SYSTEM_CHUNK: usize = 64 << 20;

pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Appends bytes of one file to another inside the kernel.
pub(crate) fn append_part(
    file: &File,
    offset: u64,
    length: u64,
    target: &File,
    appended: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let (mut from, end) = (offset, offset + length);
    while from < end {
        let step = SYSTEM_CHUNK.min(usize::try_from(end - from).unwrap_or(SYSTEM_CHUNK));
        match rustix::fs::copy_file_range(file, Some(&mut from), target, None, step) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => appended(bytes as u64),
            Err(Errno::INTR) => {}
            // Another file system, a file system without this operation, or an old kernel.
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if from == offset => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
