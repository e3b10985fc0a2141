//! Files and folders under temporary names, which are renamed when they are finished.
//!
//! Their names are `.tileforge-XXXXXXXXXXXX.partial`. The process that writes one holds a lock on it, so the next
//! program recognises and removes what a killed process has left. Files with other names and files of other users are
//! never removed.
//!
//! This process keeps a list of its unfinished files and folders. A program that a signal stops calls [`abandon_all`],
//! which removes them.

use std::collections::BTreeSet;
use std::fs::{self, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::{NamedTempFile, TempDir};

use crate::cleanup::{Abandoned, Registered};
use crate::open::{EntryKind, open_folder, open_own};
use crate::system::state::Identity;
use crate::system::{locking, making, placing};

pub use crate::cleanup::{abandon_all, create_folders, finishing};

const PREFIX: &str = ".tileforge-";
const SUFFIX: &str = ".partial";
/// Number of random letters and digits in a name.
const RANDOM: usize = 12;

/// A folder that is removed unless it is renamed. It is locked while it is in use.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    /// `None` if the file system cannot lock folders. Such folders are never removed by another program.
    _lock: Option<(fs::File, locking::Held)>,
    /// Dropped after the folder: the entry in the list goes only when the folder is gone.
    _registered: Registered,
}

impl Folder {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A file that is removed unless it is renamed. It is locked while it is in use.
#[derive(Debug)]
pub struct File {
    file: NamedTempFile,
    /// `None` if the file system has no locks.
    _lock: Option<locking::Held>,
    /// Dropped after the file: the entry in the list goes only when the file is gone.
    _registered: Registered,
}

impl File {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The opened file.
    pub fn as_file(&self) -> &fs::File {
        self.file.as_file()
    }

    /// Gives the file its name. An older file of this name is replaced.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn rename(self, path: &Path) -> io::Result<()> {
        let _finishing = finishing();
        self.file.persist(path).map(drop).map_err(|error| placing::not_replaced(error.error))
    }

    /// Gives the file its name, which must be free.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn rename_to_free(self, path: &Path) -> io::Result<()> {
        let _finishing = finishing();
        self.file.persist_noclobber(path).map(drop).map_err(|error| error.error)
    }
}

/// Errors do not name the temporary file, because it is gone when a user reads them.
impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.as_file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.as_file().flush()
    }
}

/// Makes a new folder in `parent`, and removes from `parent` what killed programs have left.
///
/// # Errors
/// The folder cannot be made.
pub fn folder_in(parent: &Path) -> io::Result<Folder> {
    remove_abandoned(parent);
    loop {
        let (folder, registered) =
            Registered::make(Abandoned::Removed, || builder().tempdir_in(parent), |made| made.path().into())
                .map_err(without_path)?;
        // Until the folder is locked, another program may take it for an abandoned one and remove it.
        match open_folder(folder.path()) {
            Ok(lock) => match locking::try_lock(&lock) {
                Ok(held) if is_still_there(folder.path(), &lock) => {
                    return Ok(Folder { folder, _lock: Some((lock, held)), _registered: registered });
                }
                Ok(_) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(_)) => return Ok(Folder { folder, _lock: None, _registered: registered }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes a new file in `parent` with the Unix permissions `mode`, reduced by the system's mask; on Windows, the file
/// has the rights of its folder. The first call of a process for a `parent` also removes from it what killed programs
/// have left.
///
/// # Errors
/// The file cannot be made.
pub fn file_in(parent: &Path, mode: u32) -> io::Result<File> {
    make_file(parent, || making::file(&mut builder(), parent, mode))
}

/// Makes a new file in `parent` that no other user may open. Otherwise as [`file_in`].
///
/// # Errors
/// The file cannot be made.
pub fn private_file_in(parent: &Path) -> io::Result<File> {
    make_file(parent, || making::private_file(&mut builder(), parent))
}

fn make_file(parent: &Path, make: impl Fn() -> io::Result<NamedTempFile>) -> io::Result<File> {
    // A folder may get many thousand files, so list it only once.
    static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if CLEANED.lock().unwrap_or_else(PoisonError::into_inner).insert(parent.to_owned()) {
        remove_abandoned(parent);
    }
    loop {
        let (file, registered) =
            Registered::make(Abandoned::Removed, &make, |made| made.path().into()).map_err(without_path)?;
        match locking::try_lock(file.as_file()) {
            Ok(_) if !is_still_there(file.path(), file.as_file()) => {}
            Ok(held) => return Ok(File { file, _lock: Some(held), _registered: registered }),
            Err(TryLockError::WouldBlock) => {}
            // Without locks on this file system, other programs cannot lock the file either, and so do not remove it.
            Err(TryLockError::Error(_)) => return Ok(File { file, _lock: None, _registered: registered }),
        }
    }
}

/// Writes a file as a whole: a reader finds the old content or the new one. A link at this path is replaced, not
/// followed.
///
/// # Errors
/// The file cannot be written. An older file then stays unchanged.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = file_in(parent, 0o666)?;
    file.write_all(content)?;
    file.rename(path)
}

/// The path of a file below the folder `from` after that folder is renamed to `to`. Any other path stays unchanged.
///
/// An unfinished folder is gone when a user reads a message about a file in it, so messages name the file's final
/// place.
pub fn relocated(path: &Path, from: &Path, to: &Path) -> PathBuf {
    path.strip_prefix(from).map_or_else(|_| path.to_owned(), |rest| to.join(rest))
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX).rand_bytes(RANDOM);
    builder
}

/// Whether a path has the name of an unfinished file or folder.
pub fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let random = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    random.is_some_and(|random| random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// The error without the temporary name that `tempfile` adds to it. Only the kind of the system's error can be
/// recovered.
fn without_path(error: io::Error) -> io::Error {
    match error.kind() {
        _ if error.raw_os_error().is_some() => error,
        kind @ io::ErrorKind::NotFound => io::Error::new(kind, "there is no such folder; make it first"),
        kind => kind.into(),
    }
}

fn is_still_there(path: &Path, opened: &fs::File) -> bool {
    matches!((Identity::of_unfollowed(path), Identity::of(opened)), (Ok(one), Ok(other)) if one == other)
}

/// Removes what killed programs of this user have left. Other users' files stay, and do no harm.
pub fn remove_abandoned(parent: &Path) {
    for path in parent.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
        if !is_unfinished(&path) {
            continue;
        }
        // Links are not followed, and opening never waits: in a shared folder, such a name may be anything.
        if let Ok((lock, kind)) = open_own(&path)
            && let Ok(_held) = locking::try_lock(&lock)
            && is_still_there(&path, &lock)
        {
            let _ = if kind == EntryKind::Folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[cfg(windows)]
    #[test]
    fn what_dead_programs_left_goes_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let (folder, file) = (folder_in(parent.path()).unwrap(), file_in(parent.path(), 0o666).unwrap());
        let in_use = [folder.path().to_owned(), file.path().to_owned()];
        fs::create_dir_all(path(".tileforge-AbCdEf123456.partial/folder")).unwrap();
        fs::write(path(".tileforge-Bbbbbb123456.partial"), "x").unwrap();
        fs::create_dir(path(".tileforge-mine.partial")).unwrap();
        drop(folder_in(parent.path()).unwrap());
        assert!(in_use.iter().all(|path| path.exists()));
        drop((folder, file));
        assert_eq!(names(parent.path()), [".tileforge-mine.partial"]);
    }

    #[cfg(windows)]
    #[test]
    fn a_private_file_is_for_its_user_alone() {
        use crate::system::standing::Standing;
        let parent = tempfile::tempdir().unwrap();
        let mut file = private_file_in(parent.path()).unwrap();
        file.write_all(b"secret").unwrap();
        file.rename_to_free(&parent.path().join("key")).unwrap();
        let found = Standing::of_path(&parent.path().join("key")).unwrap();
        assert!(found.is_mine() && !found.others_enter(), "{}", found.permissions());
    }

    #[cfg(unix)]
    #[test]
    fn what_dead_programs_left_goes_and_everything_else_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let (folder, file) = (folder_in(parent.path()).unwrap(), file_in(parent.path(), 0o666).unwrap());
        let in_use = [folder.path().to_owned(), file.path().to_owned()];
        let foreign = [".building-notes", ".tileforge-mine.partial", ".tileforge-AbCdEf12345-.partial"];
        foreign.iter().for_each(|name| fs::create_dir(path(name)).unwrap());
        fs::create_dir_all(path(".tileforge-AbCdEf123456.partial/folder")).unwrap();
        fs::write(path(".tileforge-Bbbbbb123456.partial"), "x").unwrap();
        std::os::unix::fs::symlink(path("nothing"), path(".tileforge-Cccccc123456.partial")).unwrap();
        drop(folder_in(parent.path()).unwrap());
        assert!(in_use.iter().all(|path| path.exists()));
        drop((folder, file));
        let mut left: Vec<_> = foreign.map(str::to_owned).into();
        left.push(".tileforge-Cccccc123456.partial".into());
        left.sort();
        assert_eq!(names(parent.path()), left);
    }

    #[test]
    fn the_first_file_in_a_folder_removes_what_a_killed_program_left() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join(".tileforge-Bbbbbb123456.partial"), "x").unwrap();
        drop(file_in(parent.path(), 0o666).unwrap());
        assert_eq!(names(parent.path()), [""; 0]);
    }

    #[test]
    fn errors_do_not_name_what_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let missing = parent.path().join("missing");
        for error in [folder_in(&missing).unwrap_err(), file_in(&missing, 0o666).unwrap_err()] {
            assert_eq!((error.kind(), error.to_string().contains(PREFIX)), (io::ErrorKind::NotFound, false), "{error}");
        }
        let mut file = file_in(parent.path(), 0o666).unwrap();
        file.write_all(b"x").unwrap();
        fs::write(parent.path().join("there"), "y").unwrap();
        assert_eq!(file.rename_to_free(&parent.path().join("there")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(parent.path()), ["there"]);
    }

    /// Needs a user who may change the owner of files.
    #[cfg(unix)]
    #[test]
    fn what_another_user_left_stays_and_nothing_is_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let [folder, file, link] = ["a", "b", "c"].map(|first| path(&format!(".tileforge-{first}aaaaa123456.partial")));
        let precious = path("precious");
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::create_dir_all(&precious).unwrap();
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        let pipe = path(".tileforge-Pppppp123456.partial");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for theirs in [&folder, &file] {
            std::os::unix::fs::chown(theirs, Some(12_345), None)
                .unwrap_or_else(|error| panic!("{error}; run the tests as root, or with `unshare --map-auto -r`"));
        }
        let before = names(parent.path());
        remove_abandoned(parent.path());
        assert_eq!(names(parent.path()), before);
    }

    #[cfg(unix)]
    #[test]
    fn a_written_file_replaces_a_link_and_does_not_follow_it() {
        let parent = tempfile::tempdir().unwrap();
        let (precious, link) = (parent.path().join("precious"), parent.path().join("link"));
        fs::write(&precious, "old").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        write(&link, b"new").unwrap();
        assert_eq!([&precious, &link].map(|path| fs::read_to_string(path).unwrap()), ["old", "new"]);
    }

    #[test]
    fn many_make_and_remove_at_the_same_time() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let folder = folder_in(parent.path()).unwrap();
                        fs::write(folder.path().join("file"), "x").unwrap();
                        assert!(folder.path().join("file").exists());
                    }
                });
            }
        });
        assert_eq!(names(parent.path()), [""; 0]);
    }
}
