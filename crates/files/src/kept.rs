//! The files of an incomplete download, kept beside its place until it is whole.
//!
//! The place may be in a folder that others may write, such as `/tmp`, where they can guess the kept folder's name. So
//! a new folder is closed to other users, and an existing folder must belong to this user and not be writable by
//! everybody; otherwise it is refused. Its files are reached only through the opened folder, and never through a link.
//! A program that ends at once leaves the folder only if it is not empty.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cleanup::{Abandoned, Registered};
use crate::open::{name_of, read_opened};
use crate::refused::not_own;
use crate::system::NotOpened;
use crate::system::locking::{self, Held};
use crate::system::own_folder::{self, OwnFolder};
use crate::system::standing::Standing;
use crate::system::state::Identity;
use crate::unfinished;

#[cfg(doc)]
use crate::Refused;

/// Attempts to open the folder, each of which fails if an ending process removes the folder just then.
const ATTEMPTS: usize = 100;

/// The ending of the name of a file that is not whole yet.
const NEW: &str = ".new";

/// A folder `NAME.part` beside the place `NAME`. It is locked while it is in use.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    folder: OwnFolder,
    _held: Held,
    _registered: Registered,
}

/// Why there is no folder to keep files in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotKept {
    /// Another process uses it.
    #[error("{}: another process uses it", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// It cannot be made or used.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The folder.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The reason; [`Refused::NotOwn`] for a folder that another user can change.
        source: io::Error,
    },
}

impl Kept {
    /// Makes the folder beside `place`, or takes the folder that an earlier process of this user left. If another
    /// process uses the folder, `waiting` is called, and returns whether to wait for that process.
    ///
    /// # Errors
    /// Another process uses the folder; it is a link, a file, or another user can change it; the system's reason.
    pub fn beside(place: &Path, waiting: impl Fn() -> bool) -> Result<Self, NotKept> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let path = place.with_file_name(name);
        let failed = |action: &'static str| {
            let path = path.clone();
            move |source: io::Error| NotKept::File { path, action, source }
        };
        // Unfinished results of a killed process may contain hard links to the kept files.
        unfinished::remove_abandoned(parent_of(&path));
        for _ in 0..ATTEMPTS {
            let made = Registered::make(Abandoned::RemovedIfEmpty, || own_folder::make(&path), |()| path.clone());
            let ((), registered) = made.map_err(failed("create"))?;
            let folder = match OwnFolder::open(&path) {
                Ok(folder) => folder,
                Err(NotOpened::Missing) => continue,
                Err(NotOpened::NoFolder) => return Err(failed("use")(other_than_folder(&path))),
                Err(NotOpened::Other(error)) => return Err(failed("open")(error)),
            };
            check_own(folder.as_file(), &path).map_err(failed("use"))?;
            let held = match locking::try_lock(folder.as_file()) {
                Ok(held) => held,
                Err(TryLockError::WouldBlock) if waiting() => {
                    locking::wait(folder.as_file()).map_err(failed("wait for"))?
                }
                Err(TryLockError::WouldBlock) => return Err(NotKept::Busy { path }),
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            };
            let kept = Self { path: path.clone(), folder, _held: held, _registered: registered };
            // The process that had the lock may have removed the folder.
            if kept.is_there() {
                return Ok(kept);
            }
        }
        Err(NotKept::Busy { path })
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in the folder to read and write, or makes it. An existing file that does not belong to this user
    /// or has a second name is removed first, and so is anything that is not a file.
    ///
    /// # Errors
    /// The system's reason.
    pub fn open(&self, name: &str) -> io::Result<File> {
        if let Some(file) = self.folder.open_file(name)? {
            return Ok(file);
        }
        self.remove_file(name)?;
        self.folder.create(name)
    }

    /// The length of a file in bytes; 0 if it is missing.
    pub fn length(&self, name: &str) -> u64 {
        self.folder.read(name).and_then(|file| file.metadata()).map_or(0, |found| found.len())
    }

    /// The content of a small file; `None` if it is missing.
    ///
    /// # Errors
    /// It has more than `most` bytes; the system's reason.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        match self.folder.read(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => read_opened(opened?, most).map(Some),
        }
    }

    /// Replaces a small file. The older file stays until the new one is whole.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}{NEW}");
        self.remove_file(&new)?;
        self.folder.create(&new)?.write_all(bytes)?;
        self.folder.replace(name, &new)
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// The system's reason.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    /// Moves a file out of the folder to the path `to`. An older file there is replaced.
    ///
    /// # Errors
    /// The system's reason.
    pub fn rename(&self, name: &str, to: &Path) -> io::Result<()> {
        let _finishing = unfinished::finishing();
        self.folder.rename(name, to)
    }

    /// Makes a hard link to a file, or a copy where that is impossible.
    ///
    /// # Errors
    /// The second name is taken, or the file cannot be copied.
    pub fn link_or_copy(&self, name: &str, second: &Path) -> io::Result<()> {
        match self.folder.link(name, second) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                io::copy(&mut self.folder.read(name)?, &mut File::create_new(second)?).map(drop)
            }
            linked => linked,
        }
    }

    /// Free bytes of the folder's file system for this user.
    ///
    /// # Errors
    /// The system's reason.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.folder.free_bytes()
    }

    /// Whether the folder is empty.
    ///
    /// # Errors
    /// The system's reason.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.folder.names()?.is_empty())
    }

    /// Removes the files for which `is_known` is true, and then the folder if it is empty. Other files stay.
    ///
    /// # Errors
    /// The system's reason.
    pub fn remove(self, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        for name in self.folder.names()?.iter().filter(|name| is_known(name.strip_suffix(NEW).unwrap_or(name))) {
            self.remove_file(name)?;
        }
        if !self.is_there() {
            return Ok(());
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the path still leads to the folder.
    fn is_there(&self) -> bool {
        let found = (Identity::of_unfollowed(&self.path), Identity::of(self.folder.as_file()));
        matches!(found, (Ok(one), Ok(other)) if one == other)
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The error for a path that is not a folder.
fn other_than_folder(path: &Path) -> io::Error {
    let found = fs::symlink_metadata(path).map_or("something else", |found| name_of(found.file_type()));
    not_own(found.to_owned())
}

/// Checks that no other user can change what is in a folder.
fn check_own(folder: &File, path: &Path) -> io::Result<()> {
    let found = Standing::of(folder)?;
    if found.is_mine() && !found.everybody_writes() {
        return Ok(());
    }
    // Some file systems give all files the same owner and mode. So compare with a new folder at the same place.
    let new = Standing::of_path(unfinished::folder_in(parent_of(path))?.path())?;
    if found.account() != new.account() {
        return Err(not_own(format!("one of {}", found.account())));
    }
    if found.everybody_writes() && !new.everybody_writes() {
        return Err(not_own(format!("one that everybody may write ({})", found.permissions())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    #[cfg(unix)]
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[cfg(unix)]
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    fn beside(place: &Path) -> Result<Kept, NotKept> {
        Kept::beside(place, || false)
    }

    fn refusal(place: &Path) -> String {
        match beside(place).unwrap_err() {
            NotKept::File { source, .. } => source.to_string(),
            busy => busy.to_string(),
        }
    }

    #[cfg(unix)]
    fn is_private(path: &Path) -> bool {
        path.symlink_metadata().unwrap().mode() & 0o7777 == 0o700
    }

    #[cfg(windows)]
    fn is_private(path: &Path) -> bool {
        Standing::of_path(path).is_ok_and(|found| found.is_mine() && !found.others_enter())
    }

    #[test]
    fn what_is_kept_is_for_its_user_alone_and_is_found_again() {
        let work = tempfile::tempdir().unwrap();
        let (place, part) = (work.path().join("engine"), work.path().join("engine.part"));
        let kept = beside(&place).unwrap();
        assert!(kept.path() == part && is_private(&part));
        kept.open("a").unwrap().write_all(b"some").unwrap();
        assert!(refusal(&place).contains("another process uses it"));
        drop(kept);
        let kept = beside(&place).unwrap();
        let mut text = String::new();
        kept.open("a").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), kept.length("a"), kept.length("b")), ("some", 4, 0));
        kept.write("b", b"first").unwrap();
        kept.write("b", b"second").unwrap();
        assert_eq!(kept.read("b", 6).unwrap().unwrap(), b"second");
        assert!(kept.read("b", 5).is_err() && kept.read("c", 5).unwrap().is_none() && !kept.is_empty().unwrap());
        // If the new file cannot be written, the older file stays.
        fs::create_dir(part.join("b.new")).unwrap();
        assert!(kept.write("b", b"third").is_err());
        assert_eq!(kept.read("b", 6).unwrap().unwrap(), b"second");
        fs::remove_dir(part.join("b.new")).unwrap();
        kept.link_or_copy("a", &work.path().join("linked")).unwrap();
        assert!(kept.link_or_copy("a", &work.path().join("linked")).is_err());
        kept.rename("b", &work.path().join("renamed")).unwrap();
        fs::write(part.join("mine"), "x").unwrap();
        // A killed process has left it.
        fs::write(part.join("a.new"), "x").unwrap();
        assert!(kept.free_bytes().unwrap() > 0);
        kept.remove(|name| name == "a").unwrap();
        assert_eq!(fs::read_dir(&part).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["mine"]);
        beside(&place).unwrap().remove(|_| true).unwrap();
        assert!(!part.exists());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_not_a_folder_of_this_user_is_not_used() {
        let work = tempfile::tempdir().unwrap();
        let (place, part, target) =
            (work.path().join("engine"), work.path().join("engine.part"), work.path().join("target"));
        fs::create_dir(&target).unwrap();
        fs::write(target.join("a"), "precious").unwrap();
        symlink(&target, &part).unwrap();
        assert_eq!(refusal(&place), "expected a folder of your own, found a link; remove it, or name another place");
        fs::remove_file(&part).unwrap();
        symlink(work.path().join("nothing"), &part).unwrap();
        assert!(refusal(&place).contains("found a link"));
        fs::remove_file(&part).unwrap();
        rustix::fs::mknodat(CWD, &part, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(refusal(&place).contains("found a named pipe"));
        fs::remove_file(&part).unwrap();
        fs::write(&part, "x").unwrap();
        assert!(refusal(&place).contains("found a file"));
        fs::remove_file(&part).unwrap();
        fs::create_dir(&part).unwrap();
        for all in [0o777, 0o1777, 0o702] {
            fs::set_permissions(&part, fs::Permissions::from_mode(all)).unwrap();
            assert!(refusal(&place).contains("everybody may write"), "{all:o}");
        }
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "precious");
    }

    /// Needs a user who may give files away.
    #[cfg(unix)]
    #[test]
    fn a_folder_of_another_user_is_not_used() {
        let work = tempfile::tempdir().unwrap();
        let (place, part) = (work.path().join("engine"), work.path().join("engine.part"));
        fs::create_dir(&part).unwrap();
        std::os::unix::fs::chown(&part, Some(12_345), None)
            .unwrap_or_else(|error| panic!("{error}; run the tests as root, or with `unshare --map-auto -r`"));
        assert!(refusal(&place).contains("one of the user with the number 12345"), "{}", refusal(&place));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_with_another_name_or_kind_is_made_anew() {
        let work = tempfile::tempdir().unwrap();
        let place = work.path().join("engine");
        let kept = beside(&place).unwrap();
        let inside = |name: &str| work.path().join("engine.part").join(name);
        let victim = work.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, inside("soft")).unwrap();
        fs::hard_link(&victim, inside("hard")).unwrap();
        rustix::fs::mknodat(CWD, inside("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(inside("socket")).unwrap();
        for name in ["soft", "hard", "pipe", "socket"] {
            assert_eq!(kept.length(name) > 0, name == "hard", "{name}");
            kept.open(name).unwrap().write_all(b"new").unwrap();
            assert_eq!((fs::read_to_string(inside(name)).unwrap(), kept.length(name)), ("new".into(), 3), "{name}");
        }
        symlink(&victim, inside("text")).unwrap();
        assert!(kept.read("text", 100).is_err());
        kept.write("text", b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        // Only a folder can be in the way of a file.
        fs::create_dir(inside("folder")).unwrap();
        assert!(kept.open("folder").is_err());
    }

    #[test]
    fn a_process_waits_for_another_one() {
        let work = tempfile::tempdir().unwrap();
        let place = work.path().join("engine");
        let (first, waits) = (beside(&place).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                Kept::beside(&place, || {
                    waits.store(true, Ordering::Relaxed);
                    true
                })
            });
            while !waits.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // The first removes the folder that the second waits for, and the second makes a new one.
            first.remove(|_| true).unwrap();
            let second = second.join().unwrap().unwrap();
            assert!(second.is_there() && second.is_empty().unwrap());
        });
    }
}
