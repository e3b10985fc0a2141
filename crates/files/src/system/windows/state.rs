//! The identity of a file, and its state, which changes with the file.

use std::fs::File;
use std::io;
use std::path::Path;

use super::calls;
use super::opening::inspect;
use crate::system::FileState;

/// Units of 100 ns in a second.
const UNITS: i64 = 10_000_000;
/// Seconds from 1601 to 1970.
const EPOCH: i64 = 11_644_473_600;

/// The volume of a file and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity(u32, u64);

impl Identity {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        calls::information(file).map(|found| Self(found.volume, found.index))
    }

    /// The identity of a path's target. Links are followed.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Self::of(&inspect(path, true)?)
    }

    /// The identity of a path. A link is not followed.
    pub(crate) fn of_unfollowed(path: &Path) -> io::Result<Self> {
        Self::of(&inspect(path, false)?)
    }
}

impl FileState {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let found = calls::information(file)?;
        Ok(Self {
            device: found.volume.into(),
            inode: found.index,
            length: found.length,
            written: since_1970(found.written),
            changed: since_1970(found.changed),
        })
    }

    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Self::of(&inspect(path, true)?)
    }
}

/// Seconds and nanoseconds.
fn since_1970(time: i64) -> (i64, i64) {
    (time.div_euclid(UNITS) - EPOCH, time.rem_euclid(UNITS) * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970() {
        assert_eq!(since_1970(EPOCH * UNITS), (0, 0));
        assert_eq!(since_1970(EPOCH * UNITS + 15), (0, 1500));
        assert_eq!(since_1970(EPOCH * UNITS - 1), (-1, 999_999_900));
    }
}
