//! Second names of files.

use std::fs;
use std::io;
use std::path::Path;

/// Gives a file a second name, or copies it where that is impossible, such as on another file system.
///
/// # Errors
/// The second name is taken, or the file cannot be copied.
pub fn link_or_copy(file: &Path, second: &Path) -> io::Result<()> {
    match fs::hard_link(file, second) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::copy(file, second).map(drop),
        linked => linked,
    }
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
