//! Reads the library's release before anything else of it is used.
//!
//! This module uses `unsafe`: loading a shared library runs its initialisers, and a function's type comes from its
//! header, which nothing can check.
#![allow(unsafe_code)]

use crate::{Error, LibraryVersion, Result};
use libloading::{Library, Symbol};
use std::path::Path;

/// The release of the library at `path`.
pub(crate) fn version(path: &Path) -> Result<LibraryVersion> {
    let unusable =
        |error: libloading::Error| Error::LibraryUnusable { path: path.to_owned(), reason: error.to_string() };
    // SAFETY: the library's initialisers set up its own tables; it is the vendor's library, installed by the user.
    let library = unsafe { Library::new(path) }.map_err(unusable)?;
    let number = |name: &[u8]| -> Result<u32> {
        // SAFETY: NvInferRuntime.h declares each of these as `extern "C" int32_t name() noexcept`.
        let function: Symbol<'_, unsafe extern "C" fn() -> i32> = unsafe { library.get(name) }.map_err(unusable)?;
        // SAFETY: it takes nothing and returns a constant.
        let number = unsafe { function() };
        u32::try_from(number).map_err(|_| Error::LibraryUnusable {
            path: path.to_owned(),
            reason: format!("{} returned {number}", String::from_utf8_lossy(name)),
        })
    };
    Ok(LibraryVersion {
        major: number(b"getInferLibMajorVersion")?,
        minor: number(b"getInferLibMinorVersion")?,
        patch: number(b"getInferLibPatchVersion")?,
        build: number(b"getInferLibBuildVersion")?,
    })
}
