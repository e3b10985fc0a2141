//! Who can change a file.
//!
//! Libraries are executed and profiles are obeyed, so those that a program finds by itself must be as safe as the
//! program: nobody else on the machine may be able to put another one there.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everybody may write.
pub(crate) const WRITABLE_BY_ALL: u32 = 0o002;
/// In such a folder, entries can be renamed or removed by their owners only.
const STICKY: u32 = 0o1000;

/// A file or folder that somebody else can change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It belongs to another user.
    #[error("{}: it belongs to the user with the number {owner}, not to you, root, or the owner of this \
        program", path.display())]
    Owner {
        /// The file, or a folder above it.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// Everybody may change it.
    #[error("{}: everybody may write here (mode {mode:o})", path.display())]
    Writable {
        /// The file, or a folder above it.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Checks that a file, the folders above it, and those that links lead to, belong to this process's user, to root, or
/// to the owner of this program, and that not everybody may write there.
///
/// Members of a group that the owner lets write are trusted, as their owner trusts them.
///
/// # Errors
/// The outer error: the file cannot be inspected. The inner one: who else could change it.
pub fn check(path: &Path) -> io::Result<Result<(), Untrusted>> {
    let mut trusted = vec![0, rustix::process::geteuid().as_raw()];
    let executable = std::env::current_exe().ok();
    // In a user namespace, root may have no number. The root folder belongs to it.
    let known = executable.iter().map(PathBuf::as_path).chain([Path::new("/")]);
    trusted.extend(known.filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.uid()));
    let (named, real) = (std::path::absolute(path)?, path.canonicalize()?);
    for place in named.ancestors().chain(real.ancestors()) {
        if let Err(untrusted) = check_one(place, &fs::symlink_metadata(place)?, &trusted) {
            return Ok(Err(untrusted));
        }
    }
    Ok(Ok(()))
}

/// Whether a file or folder belongs to this process's user, and not everybody may write it.
pub fn is_own(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.mode() & WRITABLE_BY_ALL == 0
}

/// Whether two files are one.
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn check_one(path: &Path, metadata: &Metadata, trusted: &[u32]) -> Result<(), Untrusted> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if !trusted.contains(&owner) {
        return Err(Untrusted::Owner { path: path.to_owned(), owner });
    }
    // Everybody may write a symbolic link, but its folder decides who can replace it.
    let exempt = metadata.is_symlink() || (metadata.is_dir() && mode & STICKY != 0);
    if mode & WRITABLE_BY_ALL != 0 && !exempt {
        return Err(Untrusted::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_everybody_may_write_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, file) = (folder.path().join("inner"), folder.path().join("inner/file"));
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "x").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(check(&file).unwrap(), Ok(()));
        set(&file, 0o666);
        assert!(matches!(check(&file).unwrap(), Err(Untrusted::Writable { path, .. }) if path == file));
        set(&file, 0o644);
        set(&inner, 0o777);
        assert!(matches!(check(&file).unwrap(), Err(Untrusted::Writable { path, .. }) if path == inner));
        set(&inner, 0o1777);
        assert_eq!(check(&file).unwrap(), Ok(()));
        // A link is as safe as what it leads to.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(check(&link).unwrap(), Ok(()));
        set(&file, 0o666);
        assert!(check(&link).unwrap().is_err());
    }

    #[test]
    fn another_owner_is_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let [mine, other] = [metadata.uid(), metadata.uid().wrapping_add(1)];
        assert_eq!(check_one(file.path(), &metadata, &[mine]), Ok(()));
        assert!(matches!(check_one(file.path(), &metadata, &[other]), Err(Untrusted::Owner { .. })));
    }
}
