//! Pages of mapped files.
//!
//! Unsafe code: telling the system that pages are not needed any more could lose what was written to them. The mappings
//! of this crate are read-only and shared with their files.
#![allow(unsafe_code)]

use std::ops::Range;

use memmap2::{Mmap, UncheckedAdvice};

/// Takes pages out of this process's memory. They stay in the system's cache of files.
pub(crate) fn leave(map: &Mmap, range: Range<usize>) {
    // SAFETY: the mapping is shared with the file and read-only, so later reads of these bytes get them from the
    // file again, as on the first time. Where the system keeps them, they only take memory.
    let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
}
