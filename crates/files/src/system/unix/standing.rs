//! The owners of files, and the users who may change them: owners and modes.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bit that lets everybody write.
const WRITABLE_BY_ALL: u32 = 0o002;
/// In a folder with this bit, only their owners can rename or remove entries.
const STICKY: u32 = 0o1000;

/// The command that protects a public key that everybody may write.
pub(crate) const TO_PROTECT_PUBLIC: &str = "chmod 644";
/// The remedy for a private key that others may read.
pub(crate) const TO_PROTECT_PRIVATE: &str = "change its mode to 600";

/// The user that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(u32);

impl fmt::Display for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the user with the number {}", self.0)
    }
}

/// What users may do with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions(u32);

impl fmt::Display for Permissions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "mode {:o}", self.0)
    }
}

/// The owner of a file, and the rights of others to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    owner: u32,
    mode: u32,
    is_file: bool,
}

impl Standing {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::of_metadata(&file.metadata()?))
    }

    /// The standing of a path. A link is not followed.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Ok(Self::of_metadata(&fs::symlink_metadata(path)?))
    }

    fn of_metadata(found: &Metadata) -> Self {
        Self { owner: found.uid(), mode: found.mode() & 0o7777, is_file: found.is_file() }
    }

    pub(crate) fn account(&self) -> Account {
        Account(self.owner)
    }

    pub(crate) fn permissions(&self) -> Permissions {
        Permissions(self.mode)
    }

    /// The permissions of a key file, as messages show them.
    pub(crate) fn of_key(&self) -> Permissions {
        Permissions(self.mode & 0o777)
    }

    /// Whether it belongs to this process's user.
    pub(crate) fn is_mine(&self) -> bool {
        self.owner == rustix::process::geteuid().as_raw()
    }

    pub(crate) fn everybody_writes(&self) -> bool {
        self.mode & WRITABLE_BY_ALL != 0
    }

    /// Whether any user but its owner may read or write it.
    pub(crate) fn others_enter(&self) -> bool {
        self.mode & 0o077 != 0
    }

    /// Whether a file with this standing may replace a file with the standing `other`: it is a file of this user with
    /// the same mode, and not everybody may write it.
    pub(crate) fn may_replace(&self, other: &Self) -> bool {
        self.is_file && self.mode == other.mode && self.is_mine() && !self.everybody_writes()
    }
}

/// Users who may change what this program relies on: this process's user, root, and the owner of this program.
pub(crate) struct Trusted(Vec<u32>);

/// Why a file or folder is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Owner(Account),
    Writable(Permissions),
}

impl Trusted {
    pub(crate) fn new(executable: Option<&Path>) -> Self {
        let mut trusted = vec![0, rustix::process::geteuid().as_raw()];
        // In a user namespace, root may have another number than 0. The root folder belongs to root.
        let known = executable.into_iter().chain([Path::new("/")]);
        trusted.extend(known.filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.uid()));
        Self(trusted)
    }

    /// Whether only trusted users can change a path.
    pub(crate) fn check(&self, path: &Path, _levels: usize) -> io::Result<Result<(), Fault>> {
        Ok(self.check_one(&fs::symlink_metadata(path)?))
    }

    fn check_one(&self, metadata: &Metadata) -> Result<(), Fault> {
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if !self.0.contains(&owner) {
            return Err(Fault::Owner(Account(owner)));
        }
        // Everybody may write a symbolic link, but its folder decides who can replace it.
        let exempt = metadata.is_symlink() || (metadata.is_dir() && mode & STICKY != 0);
        if mode & WRITABLE_BY_ALL != 0 && !exempt {
            return Err(Fault::Writable(Permissions(mode)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_owner_is_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let [mine, other] = [metadata.uid(), metadata.uid().wrapping_add(1)];
        assert_eq!(Trusted(vec![mine]).check_one(&metadata), Ok(()));
        assert!(matches!(Trusted(vec![other]).check_one(&metadata), Err(Fault::Owner(_))));
    }
}
