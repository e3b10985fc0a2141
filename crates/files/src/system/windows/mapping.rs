//! Pages of mapped files.

use std::ops::Range;

use memmap2::Mmap;

/// Takes pages out of this process's memory. Windows does so itself where memory is short.
pub(crate) fn leave(_map: &Mmap, _range: Range<usize>) {}
