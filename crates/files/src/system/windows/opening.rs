//! Opening files and folders.
//!
//! Names such as `NUL` and `COM1` are devices in every folder, and `\\.\pipe\NAME` is a pipe. They are refused by
//! their names, because opening a device may already have an effect. In addition, the kind of each opened handle is
//! checked.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf, Prefix};

use windows_sys::Wdk::Storage::FileSystem::{FILE_DIRECTORY_FILE, FILE_OPEN};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_APPEND_DATA, FILE_ATTRIBUTE_OFFLINE, FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS, FILE_ATTRIBUTE_RECALL_ON_OPEN,
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_GENERIC_READ, FILE_READ_ATTRIBUTES,
    FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, READ_CONTROL, SYNCHRONIZE,
};

use super::calls;
use crate::refused::{Refused, not_regular};

/// As on Unix, other processes can write, rename or remove an opened file.
pub(super) const SHARED: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// Opens a path of any kind to read it, and never waits for another program.
pub(crate) fn read(path: &Path) -> io::Result<File> {
    // Without BACKUP_SEMANTICS, opening a folder only fails with "access denied".
    present(open(path, OpenOptions::new().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS))?)
}

/// As [`read`], by a path relative to an opened folder. While the file is open, no process can write, rename or remove
/// it.
pub(crate) fn read_in(folder: &File, path: &Path) -> io::Result<File> {
    let how = calls::Opening { access: FILE_GENERIC_READ, share: FILE_SHARE_READ, disposition: FILE_OPEN, options: 0 };
    present(no_device(calls::open_in(folder, path, how)?)?)
}

/// Opens a folder.
pub(crate) fn folder(path: &Path) -> io::Result<File> {
    folder_only(read(path)?)
}

/// Opens a folder by its path relative to an opened folder.
pub(crate) fn folder_in(folder: &File, path: &Path) -> io::Result<File> {
    let how = calls::Opening {
        access: FILE_GENERIC_READ,
        share: SHARED,
        disposition: FILE_OPEN,
        options: FILE_DIRECTORY_FILE,
    };
    calls::open_in(folder, path, how)
}

fn folder_only(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() { Ok(file) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Opens a file to read and append to it, or makes it. A link is not followed.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).access_mode(FILE_GENERIC_READ | FILE_APPEND_DATA | SYNCHRONIZE);
    no_link(open(path, options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT))?)
}

/// Opens a file or a folder to lock it. A link is not followed.
pub(crate) fn unfollowed(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT))
}

/// Opens a path to inspect it. `follow`: links are followed.
pub(super) fn inspect(path: &Path, follow: bool) -> io::Result<File> {
    with_rights(path, FILE_READ_ATTRIBUTES, follow)
}

/// Opens a path to inspect its owner and rights. A link is not followed.
pub(super) fn inspect_security(path: &Path) -> io::Result<File> {
    with_rights(path, FILE_READ_ATTRIBUTES | READ_CONTROL, false)
}

fn with_rights(path: &Path, rights: u32, follow: bool) -> io::Result<File> {
    let reparse = if follow { 0 } else { FILE_FLAG_OPEN_REPARSE_POINT };
    let mut options = OpenOptions::new();
    options.access_mode(rights).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | reparse);
    open(path, &options)
}

/// A path that leads to an opened folder.
pub(crate) fn path_of_folder(folder: &File) -> io::Result<PathBuf> {
    calls::path_of(folder)
}

/// The name of a kind that is not a file, a folder or a link, with its article.
pub(crate) fn special(_kind: FileType) -> &'static str {
    "something else"
}

/// Whether a path leads to a named pipe.
pub(crate) fn is_named_pipe(path: &Path) -> bool {
    device(path).is_ok_and(|found| found == Some("a named pipe"))
}

fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match device(path)? {
        Some(found) => Err(not_regular(found, false)),
        None => no_device(options.clone().share_mode(SHARED).open(path)?),
    }
}

/// The kind of a path that names a device or pipe, with its article; `None` for other paths.
fn device(path: &Path) -> io::Result<Option<&'static str>> {
    // Windows turns `folder\NUL` into `\\.\NUL`.
    let absolute = std::path::absolute(path)?;
    let Some(Component::Prefix(prefix)) = absolute.components().next() else { return Ok(None) };
    Ok(match prefix.kind() {
        Prefix::DeviceNS(name) if name.eq_ignore_ascii_case("pipe") => Some("a named pipe"),
        Prefix::DeviceNS(_) => Some("a device"),
        _ => None,
    })
}

fn no_device(file: File) -> io::Result<File> {
    match calls::special(&file) {
        None => Ok(file),
        Some(found) => Err(not_regular(found, false)),
    }
}

/// Checks that the content of a file is on this machine. Otherwise, the first read would wait for a download, or for
/// an absent network, without any message.
fn present(file: File) -> io::Result<File> {
    let found = file.metadata()?;
    if found.is_dir() || !is_placeholder(found.file_attributes()) { Ok(file) } else { Err(elsewhere()) }
}

fn elsewhere() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, Refused::Elsewhere)
}

/// Whether the content of a file with these attributes is elsewhere: in OneDrive, another cloud, or a tape archive.
fn is_placeholder(attributes: u32) -> bool {
    attributes & (FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS | FILE_ATTRIBUTE_RECALL_ON_OPEN | FILE_ATTRIBUTE_OFFLINE) != 0
}

pub(super) fn no_link(file: File) -> io::Result<File> {
    if file.metadata()?.is_symlink() { Err(not_regular("a link", false)) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use windows_sys::Win32::Foundation::ERROR_MORE_DATA;
    use windows_sys::Win32::Storage::FileSystem::{
        FILE_ATTRIBUTE_ARCHIVE, FILE_ATTRIBUTE_HIDDEN, FILE_ATTRIBUTE_PINNED,
    };

    use super::*;
    use crate::system::windows::{making, own_folder, placing};

    /// Only the driver of a cloud can make such a file, so the test covers only the attributes.
    #[test]
    fn a_placeholder_is_known_by_its_attributes() {
        let placeholders =
            [FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS, FILE_ATTRIBUTE_RECALL_ON_OPEN, FILE_ATTRIBUTE_OFFLINE];
        for attribute in placeholders {
            assert!(is_placeholder(attribute | FILE_ATTRIBUTE_ARCHIVE), "{attribute:x}");
        }
        for present in [0, FILE_ATTRIBUTE_ARCHIVE, FILE_ATTRIBUTE_HIDDEN | FILE_ATTRIBUTE_PINNED] {
            assert!(!is_placeholder(present), "{present:x}");
        }
        let said = elsewhere().to_string();
        assert!(said.contains("not on this machine"), "{said}");
    }

    /// Names with spaces, umlauts and emoji, in a folder whose path is longer than `MAX_PATH`.
    #[test]
    fn any_name_is_opened_made_and_renamed_below_a_long_path() {
        let work = tempfile::tempdir().unwrap();
        let mut folder = work.path().to_owned();
        while folder.as_os_str().len() < 400 {
            folder.push("Ein Ordner mit Größe 🖼️");
        }
        fs::create_dir_all(&folder).unwrap();
        for name in ["a b.txt", "Übergröße.png", "🦀🖼️.onnx", "ﬁne e\u{301}.txt", "a.b.c"] {
            let path = folder.join(name);
            let mut builder = tempfile::Builder::new();
            let made = making::private_file(&mut builder, &folder).unwrap();
            fs::write(made.path(), name).unwrap();
            made.persist(&path).unwrap();
            assert_eq!(crate::read(&path, 100).unwrap(), name.as_bytes());
            let opened = self::folder(&folder).unwrap();
            assert!(read_in(&opened, Path::new(name)).unwrap().metadata().unwrap().is_file());
            let second = folder.join(format!("second {name}"));
            match placing::link(&read(&path).unwrap(), &second) {
                // Wine does not return the path of an opened file if the path is longer than `MAX_PATH`.
                Err(error) if error.raw_os_error() == Some(ERROR_MORE_DATA.cast_signed()) => {}
                linked => {
                    linked.unwrap();
                    assert!(crate::is_same_file(&path, &second).unwrap());
                }
            }
        }
        let own = folder.join("eigener Ordner");
        making::private_folders(&own).unwrap();
        assert!(own_folder::OwnFolder::open(&own).is_ok());
        // The same folder by its network name, if the system has such names.
        let absolute = std::path::absolute(&folder).unwrap();
        let text = absolute.to_str().unwrap();
        if let Some(rest) = text.strip_prefix("C:") {
            let unc = format!(r"\\localhost\C${rest}");
            if fs::metadata(&unc).is_ok() {
                assert!(crate::read(&Path::new(&unc).join("a b.txt"), 100).is_ok());
            }
        }
    }
}
