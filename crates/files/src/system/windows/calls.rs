//! Calls of Windows that the standard library does not have. No other module of this crate calls Windows directly.
//!
//! Unsafe code: the signatures are those of Microsoft's headers, through `windows-sys`. Handles come from files that
//! are open during the call, and buffers live as long as the call. Memory that Windows allocates is freed by the
//! function that received it.
#![allow(unsafe_code)]

mod file;
mod long;
mod security;

pub(super) use file::*;
pub(super) use security::*;
