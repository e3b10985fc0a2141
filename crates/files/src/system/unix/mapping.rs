//! Pages of mapped files.
//!
//! Unsafe code: marking pages as not needed could lose data that was written to them. The mappings of this crate are
//! read-only and shared with their files.
#![allow(unsafe_code)]

use std::ops::Range;

use memmap2::{Mmap, UncheckedAdvice};

/// Releases pages from this process's memory. They stay in the system's file cache.
pub(crate) fn release(map: &Mmap, range: Range<usize>) {
    // SAFETY: the mapping is shared with the file and read-only, so later reads load these bytes from the file again.
    // If the system ignores the advice, the pages only take memory.
    let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
}
