//! Digests of large files, with their progress.

use std::sync::{Mutex, PoisonError};

use tileforge_files::{Digesting, Digests};

use crate::cache::cache_folder;
use crate::progress::Progress;
use crate::unit::Unit;

/// Digests that are remembered in the user's cache. `progress` shows their computation.
pub fn digests(progress: Progress) -> Digests {
    let shown = Mutex::new(0);
    let report = move |Digesting { bytes, total, .. }: Digesting<'_>| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != total {
            *shown = total;
            progress.begin("SHA-256 of weights", Some(total), Unit::Bytes);
        }
        progress.set(bytes);
        if bytes == total {
            progress.finish();
        }
    };
    Digests::new(cache_folder().map(|cache| cache.join("digests"))).with_report(report)
}
