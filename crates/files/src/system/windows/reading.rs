//! Parts of opened files.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt;

pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

pub(crate) fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.seek_read(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Appends bytes of one file to another inside the kernel. Always an error, because Windows cannot do this.
pub(crate) fn append_part(
    _file: &File,
    _offset: u64,
    _length: u64,
    _target: &File,
    _appended: &mut dyn FnMut(u64),
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
