//! Which users can change a file.
//!
//! Libraries are executed, and profiles control builds. So a library or profile that a program finds by itself must be
//! as safe as the program: no other user of the machine may be able to replace it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::system::standing::{self, Fault, Standing, Trusted};

pub use crate::system::standing::{Account, Permissions};

/// Why another user can change a file or folder.
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
    #[error("{}: every user can write to it ({permissions})", path.display())]
    Writable {
        /// The file, or a folder above it.
        path: PathBuf,
        /// Its permissions.
        permissions: Permissions,
    },
}

/// Checks that a file, the targets of its links, and all folders above them belong to this process's user, to root, or
/// to the owner of this program, and that not everybody may write there.
///
/// Members of a group with write access are trusted, because the owner trusts them.
///
/// # Errors
/// The outer error: the file cannot be inspected. The inner error: another user could change it.
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

/// Whether a file may take the place of another file with the same content: it belongs to this process's user, not
/// everybody may write it, and other users have the same rights to both files. Links are not followed.
///
/// # Errors
/// One of them cannot be inspected.
pub fn may_replace(file: &Path, other: &Path) -> io::Result<bool> {
    Ok(Standing::of_path(file)?.may_replace(&Standing::of_path(other)?))
}

/// The rights of users to the file of a key.
#[derive(Clone, Debug)]
pub struct KeyAccess(Standing);

impl KeyAccess {
    /// The rights to an opened file.
    ///
    /// # Errors
    /// The system's reason.
    pub fn of(file: &File) -> io::Result<Self> {
        Standing::of(file).map(Self)
    }

    /// The permissions of the file, and the command that mends them, if everybody may write the file.
    pub fn is_public(&self) -> Option<(Permissions, &'static str)> {
        self.0.everybody_writes().then(|| (self.0.of_key(), standing::TO_PROTECT_PUBLIC))
    }

    /// The permissions of the file, and the remedy, if any user except its owner may read or write the file.
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
        // A link is as safe as its target.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(check(&link).unwrap(), Ok(()));
        set(&file, 0o666);
        assert!(check(&link).unwrap().is_err());
    }
}
