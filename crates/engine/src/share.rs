//! Equal files of several engines, stored once. Parts of a pipeline are engines, too.

use crate::digest::{FileDigest, sha256_file};
use crate::listing::Listing;
use crate::{Error, MANIFEST_FILE, Result, exchange};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_files::{is_same_file, owner, unfinished};

/// How many folders deep to search for engines: `engines/PROFILE/MODEL`.
const DEPTH: usize = 2;

/// Replaces files of the engine in `directory` with hard links to equal files of engines below `folder`. Returns the
/// number of bytes saved.
///
/// Engines of one model share their weights this way. The other file is digested before it replaces the engine's file,
/// so that damage does not spread. On another file system, or on one without hard links, the engine keeps its own
/// file. Sharing is safe because our programs never change files of engines in place. Other users' programs might, so
/// a file of another user, or one that everybody may write, is not shared.
///
/// # Errors
/// The engine cannot be read, or a file cannot be replaced.
pub fn share_files(directory: &Path, folder: &Path) -> Result<u64> {
    let own = Listing::read(directory)?;
    let mut known: HashMap<String, Vec<PathBuf>> = HashMap::new();
    find(folder, DEPTH, &mut |engine| {
        // A directory that cannot be read as an engine shares nothing.
        for (name, digest) in Listing::read(engine).map(|listing| listing.files).unwrap_or_default() {
            known.entry(digest.sha256).or_default().push(engine.join(name));
        }
    });
    let mut saved = 0;
    for (name, digest) in &own.files {
        for other in known.get(&digest.sha256).map_or(&[][..], Vec::as_slice) {
            if link(other, &directory.join(name), digest, exchange::parent_of(directory))? {
                saved += digest.bytes;
                break;
            }
        }
    }
    Ok(saved)
}

/// Calls `found` for every engine directory in `folder`, except unfinished ones.
fn find(folder: &Path, depth: usize, found: &mut impl FnMut(&Path)) {
    let Ok(entries) = folder.read_dir() else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if unfinished::is_unfinished(&path) {
            continue;
        }
        if path.join(MANIFEST_FILE).is_file() {
            found(&path);
        } else if depth > 1 && path.is_dir() {
            find(&path, depth - 1, found);
        }
    }
}

/// Makes `own` a link to `other` if both have the same content and are not the same file already. Returns whether it
/// did. `scratch` is a folder outside of the engine for temporary files, because the engine's directory must never
/// hold other files.
///
/// The owner of a file can always change it, if necessary after a change of its mode, so only this user's own files
/// are linked.
fn link(other: &Path, own: &Path, digest: &FileDigest, scratch: &Path) -> Result<bool> {
    let may_be_shared = |other: &Path| owner::may_replace(other, own).unwrap_or(false);
    if is_same_file(other, own).unwrap_or(true) || !may_be_shared(other) {
        return Ok(false);
    }
    // The link is made under a temporary name and renamed, so there is always a whole file of this name. The link
    // itself is checked and digested, because `other` may be another file by then.
    let Ok(beside) = unfinished::folder_in(scratch) else { return Ok(false) };
    let linked = beside.path().join("file");
    if fs::hard_link(other, &linked).is_err()
        || !may_be_shared(&linked)
        || sha256_file(&linked).ok().as_ref() != Some(digest)
    {
        return Ok(false);
    }
    fs::rename(linked, own).map_err(|e| Error::file(own, "replace", e))?;
    Ok(true)
}
