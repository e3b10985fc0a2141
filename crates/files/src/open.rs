//! Opening files whose names come from a user or from another file.
//!
//! A named pipe, a device or a socket instead of a file would make a program wait for ever, or read without end. So
//! all code that reads a file opens it here, and gets a regular file or an error. A file that is read into memory has
//! a limit, because a sparse file takes no space on the disk, however long it is.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::refused::{Refused, not_regular};
use crate::system::{opening, standing::Standing};

/// The limit for text files in bytes: no configuration, index, recipe or table of figures is larger.
pub const TEXT_MAXIMUM_BYTES: u64 = 64 << 20;

/// Opens a regular file to read it. Never waits for another program.
///
/// # Errors
/// The system's reason, or [`Refused::NotRegular`].
pub fn open(path: &Path) -> io::Result<File> {
    regular(opening::read(path)?)
}

/// Opens a regular file by its path relative to an opened folder, which stays the same folder even if it is renamed.
///
/// # Errors
/// As [`open`].
pub fn open_in(folder: &File, path: &Path) -> io::Result<File> {
    regular(opening::read_in(folder, path)?)
}

/// Opens a folder, for [`open_in`].
///
/// # Errors
/// The system's reason; [`io::ErrorKind::NotADirectory`] if the path is not a folder.
pub fn open_folder(path: &Path) -> io::Result<File> {
    opening::folder(path)
}

/// Opens a folder by its path from an opened folder.
///
/// # Errors
/// As [`open_folder`].
pub fn open_folder_in(folder: &File, path: &Path) -> io::Result<File> {
    opening::folder_in(folder, path)
}

/// A path that leads to an opened folder, to list it. On Unix, it leads there even if the folder has been renamed.
///
/// # Errors
/// The system's reason.
pub fn path_of_folder(folder: &File) -> io::Result<PathBuf> {
    opening::path_of_folder(folder)
}

/// Whether a path leads to a named pipe, which can be read only once.
pub fn is_named_pipe(path: &Path) -> bool {
    opening::is_named_pipe(path)
}

/// Opens a regular file to read and append to it; makes it if it is missing. A link is not followed, so that nothing
/// is written elsewhere.
///
/// # Errors
/// As [`open`].
pub fn open_to_append(path: &Path) -> io::Result<File> {
    regular(opening::append(path)?)
}

/// The kind of a path that belongs to this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Folder,
}

/// Opens a regular file or a folder of this user to lock it. A link is not followed.
pub(crate) fn open_own(path: &Path) -> io::Result<(File, EntryKind)> {
    let file = opening::unfollowed(path)?;
    let found = file.metadata()?;
    let kind = match found.file_type() {
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_dir() => EntryKind::Folder,
        kind => return Err(not_regular(name_of(kind), false)),
    };
    if !Standing::of(&file)?.is_mine() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok((file, kind))
}

fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(file) } else { Err(not_regular(name_of(kind), kind.is_dir())) }
}

/// The whole content of a regular file.
///
/// # Errors
/// As [`open`]; [`Refused::TooLong`] for more than `most` bytes; or there is not enough memory.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_opened(open(path)?, most)
}

/// The whole content of a file that has just been opened.
///
/// # Errors
/// [`Refused::TooLong`] for more than `most` bytes; not enough memory; or the system's reason.
pub fn read_opened(file: File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let refused = |found| io::Error::new(io::ErrorKind::FileTooLarge, Refused::TooLong { most, found });
    if length > most {
        return Err(refused(length));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).map_err(|_| refused(length))?)?;
    // Some system files report a length of 0, and a file may grow while it is read.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(refused(bytes.len() as u64)) } else { Ok(bytes) }
}

/// The whole content of a regular file of UTF-8.
///
/// # Errors
/// As [`read`]; or the content is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// The name of a file's kind, with its article.
pub(crate) fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_file() {
        "a file"
    } else if kind.is_symlink() {
        "a link"
    } else {
        opening::special(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use rustix::fs::{CWD, FileType, Mode};
    #[cfg(unix)]
    use std::os::unix::fs::symlink;
    #[cfg(unix)]
    use std::os::unix::net::UnixListener;

    fn refusal(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    #[cfg(windows)]
    #[test]
    fn only_regular_files_are_opened_and_a_folder_stays_itself() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for device in ["NUL", "CON", "COM1", r"\\.\PhysicalDrive0"] {
            assert_eq!(refusal(Path::new(device)), "expected a regular file, found a device", "{device}");
        }
        assert_eq!(refusal(Path::new(r"\\.\pipe\any")), "expected a regular file, found a named pipe");
        assert!(is_named_pipe(Path::new(r"\\.\pipe\any")) && !is_named_pipe(&at("file")));
        assert_eq!(refusal(folder.path()), "expected a regular file, found a folder");
        std::fs::write(at("file"), "text").unwrap();
        assert_eq!(read_text(&at("file"), 4).unwrap(), "text");
        assert_eq!(open_folder(&at("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        let opened = open_folder(folder.path()).unwrap();
        assert_eq!(path_of_folder(&opened).unwrap(), folder.path().canonicalize().unwrap());
        assert!(open_in(&opened, Path::new(r"..\file")).is_err());
        assert_eq!(open_in(&opened, Path::new("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::create_dir_all(at("inner")).unwrap();
        std::fs::write(at("inner/file"), "inner").unwrap();
        let inner = open_folder_in(&opened, Path::new("inner")).unwrap();
        std::fs::rename(at("inner"), at("renamed")).unwrap();
        assert_eq!(read_opened(open_in(&inner, Path::new("file")).unwrap(), 5).unwrap(), b"inner");
        assert!(open_folder_in(&opened, Path::new("file")).is_err());
    }

    #[cfg(windows)]
    #[test]
    fn a_file_that_was_opened_from_its_folder_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let opened = open_in(&open_folder(folder.path()).unwrap(), Path::new("file")).unwrap();
        assert!(std::fs::write(&file, "other").is_err());
        assert!(std::fs::rename(&file, folder.path().join("renamed")).is_err());
        assert!(std::fs::remove_file(&file).is_err());
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        drop(opened);
        std::fs::remove_file(&file).unwrap();
    }

    #[cfg(windows)]
    #[test]
    fn what_is_appended_goes_to_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        for text in ["one ", "two"] {
            io::Write::write_all(&mut open_to_append(&path).unwrap(), text.as_bytes()).unwrap();
        }
        assert_eq!(read_text(&path, 10).unwrap(), "one two");
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(refusal(&at("pipe")), "expected a regular file, found a named pipe");
        assert_eq!(refusal(Path::new("/dev/zero")), "expected a regular file, found a device");
        assert_eq!(refusal(folder.path()), "expected a regular file, found a folder");
        let _listener = UnixListener::bind(at("socket")).unwrap();
        assert!(open(&at("socket")).is_err());
        symlink("/dev/zero", at("zero")).unwrap();
        assert_eq!(refusal(&at("zero")), "expected a regular file, found a device");
        symlink(at("circle"), at("circle")).unwrap();
        assert!(refusal(&at("circle")).contains("symbolic links"), "{}", refusal(&at("circle")));
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert_eq!(read_text(&at("link"), 4).unwrap(), "text");
        let opened = open_folder(folder.path()).unwrap();
        assert_eq!(read_opened(open_in(&opened, Path::new("link")).unwrap(), 4).unwrap(), b"text");
        assert!(open_in(&opened, Path::new("pipe")).is_err());
        assert_eq!(open_folder(&at("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        std::fs::create_dir_all(at("inner")).unwrap();
        std::fs::write(at("inner/file"), "inner").unwrap();
        let inner = open_folder_in(&opened, Path::new("inner")).unwrap();
        std::fs::rename(at("inner"), at("renamed")).unwrap();
        assert_eq!(read_opened(open_in(&inner, Path::new("file")).unwrap(), 5).unwrap(), b"inner");
        assert_eq!(open_folder_in(&opened, Path::new("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_appended_goes_to_a_regular_file_at_this_very_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for text in ["one ", "two"] {
            io::Write::write_all(&mut open_to_append(&at("new")).unwrap(), text.as_bytes()).unwrap();
        }
        assert_eq!(read_text(&at("new"), 10).unwrap(), "one two");
        symlink(at("target"), at("link")).unwrap();
        assert!(open_to_append(&at("link")).is_err() && !at("target").exists());
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(open_to_append(&at("pipe")).unwrap_err().to_string().contains("a named pipe"));
    }

    #[test]
    fn no_more_is_read_than_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let sparse = folder.path().join("sparse");
        File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
        let error = read(&sparse, TEXT_MAXIMUM_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "expected at most 67108864 bytes, found 1099511627776");
        // Even where the caller sets no limit, there is an error instead of an abort.
        assert!(read(&sparse, u64::MAX).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_of_the_system_says_that_it_has_no_bytes() {
        assert!(!read(Path::new("/proc/self/stat"), 1 << 20).unwrap().is_empty());
        assert!(read(Path::new("/proc/self/stat"), 1).is_err());
    }
}
