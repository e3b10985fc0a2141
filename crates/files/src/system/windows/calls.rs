//! Calls of Windows that the standard library does not have. Nothing else in this crate calls Windows itself.
//!
//! Unsafe code: the signatures are those of Microsoft's headers, through `windows-sys`. Handles come from files that
//! are open during the call, and buffers live as long as the call. What Windows allocates is freed where it was taken.
#![allow(unsafe_code)]

mod file;
mod long;
mod security;

pub(super) use file::*;
pub(super) use security::*;
