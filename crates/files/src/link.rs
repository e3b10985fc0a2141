//! Hard links, exchanges and real paths of files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::system::placing;
use crate::system::state::Identity;

/// Makes a hard link to a file, or a copy where that is impossible, such as on another file system.
///
/// # Errors
/// The path `second` exists, or the file cannot be copied.
pub fn link_or_copy(file: &Path, second: &Path) -> io::Result<()> {
    match fs::hard_link(file, second) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::copy(file, second).map(drop),
        linked => linked,
    }
}

/// Exchanges two folders in one step. Returns whether it did, because not every system and file system supports this.
///
/// # Errors
/// The system's reason.
pub fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    placing::exchange(one, other)
}

/// The reason why a file or folder cannot be replaced. If the system's reason is unclear, a hint for the user is
/// added.
pub fn not_replaced(error: io::Error) -> io::Error {
    placing::not_replaced(error)
}

/// The path of a file with all links resolved. On Windows, without the prefix `\\?\` where it is not needed: the
/// library loader does not accept it everywhere, and `..` has no meaning behind it.
///
/// # Errors
/// There is no such file, or the system's reason.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    dunce::canonicalize(path)
}

/// Whether two paths are names of one file. Links are not followed.
///
/// # Errors
/// One of them cannot be inspected.
pub fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(Identity::of_unfollowed(one)? == Identity::of_unfollowed(other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_a_second_name_that_was_free() {
        let folder = tempfile::tempdir().unwrap();
        let [file, second, taken] = ["file", "second", "taken"].map(|name| folder.path().join(name));
        fs::write(&file, "content").unwrap();
        fs::write(&taken, "other").unwrap();
        link_or_copy(&file, &second).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "content");
        assert_eq!(link_or_copy(&file, &taken).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&taken).unwrap(), "other");
        assert_eq!(
            link_or_copy(&folder.path().join("none"), &file.with_extension("x")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
