//! Who can change a file.
//!
//! Libraries are executed and profiles are obeyed, so those that a program finds by itself must be as safe as the
//! program: nobody else on the machine may be able to put another one there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::system::standing::{self, Fault, Standing, Trusted};

pub use crate::system::standing::{Account, Permissions};

/// A file or folder that somebody else can change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It belongs to another user.
    #[error("{}: it belongs to {owner}, not to you, root, or the owner of this \
        program", path.display())]
    Owner {
        /// The file, or a folder above it.
        path: PathBuf,
        /// Its owner.
        owner: Account,
    },
    /// Everybody may change it.
    #[error("{}: everybody may write here ({permissions})", path.display())]
    Writable {
        /// The file, or a folder above it.
        path: PathBuf,
        /// Its permissions.
        permissions: Permissions,
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
    let executable = std::env::current_exe().ok();
    let trusted = Trusted::new(executable.as_deref());
    let (named, real) = (std::path::absolute(path)?, path.canonicalize()?);
    for (levels, place) in named.ancestors().enumerate().chain(real.ancestors().enumerate()) {
        let path = || place.to_owned();
        match trusted.check(place, levels)? {
            Ok(()) => {}
            Err(Fault::Owner(owner)) => return Ok(Err(Untrusted::Owner { path: path(), owner })),
            Err(Fault::Writable(permissions)) => return Ok(Err(Untrusted::Writable { path: path(), permissions })),
        }
    }
    Ok(Ok(()))
}

/// Whether an equal file may take the place of another one: it is a file of this process's user, not everybody may
/// write it, and others may do with both the same. Links are not followed.
///
/// # Errors
/// One of them cannot be inspected.
pub fn may_replace(file: &Path, other: &Path) -> io::Result<bool> {
    Ok(Standing::of_path(file)?.may_replace(&Standing::of_path(other)?))
}

/// Who may do what with the file of a key.
#[derive(Clone, Debug)]
pub struct KeyAccess(Standing);

impl KeyAccess {
    /// What the system says of an opened file.
    ///
    /// # Errors
    /// The system's reason.
    pub fn of(file: &File) -> io::Result<Self> {
        Standing::of(file).map(Self)
    }

    /// If everybody may write the file: its permissions, and what changes them.
    pub fn is_public(&self) -> Option<(Permissions, &'static str)> {
        self.0.everybody_writes().then(|| (self.0.of_key(), standing::TO_PROTECT_PUBLIC))
    }

    /// If any user but its owner may read or write the file: its permissions, and what changes them.
    pub fn is_shared(&self) -> Option<(Permissions, &'static str)> {
        self.0.others_enter().then(|| (self.0.of_key(), standing::TO_PROTECT_PRIVATE))
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use super::*;
    #[cfg(unix)]
    use std::fs;
    #[cfg(unix)]
    use std::os::unix::fs::PermissionsExt;

    #[cfg(unix)]
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
}
