//! Pages of mapped files.

use std::ops::Range;

use memmap2::Mmap;

/// Does nothing: Windows itself releases pages when memory is short.
pub(crate) fn release(_map: &Mmap, _range: Range<usize>) {}
