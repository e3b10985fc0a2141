//! SHA-256 of files, each computed once.
//!
//! One thread digests 1 to 2 GB a second, and SHA-256 of one file cannot use several threads. So a digest is
//! remembered in this process, and also for later processes if the program gives a folder for this.
//!
//! A remembered digest is valid for the same inode of the same device with the same length and the same two change
//! times: the content's, which programs can set, and the inode's, which the system sets. It is not remembered for
//! later processes if other users could change the file unnoticed ([`owner::check`]), or if the file was written a
//! moment ago, because its next change could have the same time.

use crate::system::{FileState, making, reading};
use crate::{open, owner, unfinished};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

/// Bytes that are read at a time.
const CHUNK: usize = 4 << 20;
/// Pieces that are read ahead of digesting.
const AHEAD: usize = 2;
/// Digests of smaller files are not kept for later processes, because computing them takes little time.
const KEPT_FROM: u64 = 16 << 20;
/// A file that was changed less than this ago could be changed again with the same time.
const SETTLED: Duration = Duration::from_secs(2);
/// Most remembered digests in the folder; the oldest are removed.
const MOST_KEPT: usize = 1000;
/// The limit for a record in bytes.
const RECORD_MAXIMUM_BYTES: u64 = 4096;

/// Length and SHA-256 of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSha256 {
    /// Length in bytes.
    pub bytes: u64,
    /// 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// The progress of digesting, summed over all files so far.
#[derive(Debug, Clone, Copy)]
pub struct Digesting<'a> {
    /// One of the files.
    pub path: &'a Path,
    /// Bytes that have been digested.
    pub bytes: u64,
    /// Bytes of all files that were begun.
    pub total: u64,
}

type Report = Arc<dyn Fn(Digesting<'_>) + Send + Sync>;

/// SHA-256 of files, each computed once. Clones share the known digests.
#[derive(Clone, Default)]
pub struct Digests(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// By the states of files. A new name of a file changes its state, too: see [`Digests::has_new_name`].
    known: Mutex<HashMap<FileState, Arc<Mutex<Option<FileSha256>>>>>,
    folder: Option<PathBuf>,
    report: Option<Report>,
    done: AtomicU64,
    total: AtomicU64,
}

/// The text of a record without the digest.
fn text(state: &FileState) -> String {
    let FileState { device, inode, length, written, changed } = state;
    let [written, changed] = [written, changed].map(|(seconds, nanoseconds)| format!("{seconds}.{nanoseconds:09}"));
    format!("device {device} inode {inode} bytes {length} written {written} changed {changed}")
}

impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digests").field("folder", &self.0.folder).finish_non_exhaustive()
    }
}

impl Digests {
    /// Digests that are also remembered in `folder`, if given, for later processes. The folder is made when it is
    /// needed.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Digests(Arc::new(Shared { folder, ..Shared::default() }))
    }

    /// New digests with the same folder, which report their progress after every few megabytes. They know no digest
    /// yet.
    #[must_use]
    pub fn with_report(self, report: impl Fn(Digesting<'_>) + Send + Sync + 'static) -> Self {
        let folder = self.0.folder.clone();
        Digests(Arc::new(Shared { folder, report: Some(Arc::new(report)), ..Shared::default() }))
    }

    /// The digest of a file.
    ///
    /// # Errors
    /// The file cannot be read, or another process changes it meanwhile.
    pub fn of(&self, path: &Path) -> io::Result<FileSha256> {
        self.of_opened(&open(path)?, path)
    }

    /// The digest of an opened file, whose path is `path`.
    ///
    /// # Errors
    /// As [`Digests::of`].
    pub fn of_opened(&self, file: &File, path: &Path) -> io::Result<FileSha256> {
        let identity = FileState::of(file)?;
        let slot = {
            let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(identity).or_default().clone()
        };
        // A second thread that wants the same digest waits for the first one.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = slot.as_ref() {
            return Ok(known.clone());
        }
        let found = match self.remembered(path, &identity) {
            Some(sha256) => {
                tracing::debug!("{}: its SHA-256 is known from before", path.display());
                sha256
            }
            None => {
                tracing::debug!("{}: computing its SHA-256", path.display());
                let sha256 = self.compute(file, path, identity.length)?;
                if FileState::of(file)? != identity {
                    return Err(io::Error::other("the file was changed while it was read"));
                }
                self.remember(path, &identity, &sha256);
                sha256
            }
        };
        Ok(slot.insert(FileSha256 { bytes: identity.length, sha256: found }).clone())
    }

    /// Keeps the known digest of a file to which this program has just added a name, or from which it has removed one.
    /// That changes the inode's time, but not the content.
    pub fn has_new_name(&self, path: &Path) {
        let Ok(now) = FileState::of_path(path) else { return };
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.iter().filter(|(then, _)| FileState { changed: now.changed, ..**then } == now);
        // The newest state, if there are several.
        let Some(slot) = same.max_by_key(|(then, _)| then.changed).map(|(_, slot)| slot.clone()) else { return };
        known.insert(now, slot.clone());
        drop(known);
        if let Some(known) = slot.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            self.remember(path, &now, &known.sha256);
        }
    }

    /// Digests several files, one on each processor at the same time. [`Digests::of`] then knows their digests.
    ///
    /// # Errors
    /// As [`Digests::of`], for the first file that fails, with its path.
    pub fn prepare(&self, paths: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
        let next = AtomicU64::new(0);
        let failed = OnceLock::new();
        let work = || {
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                if let Err(error) = self.of(path) {
                    let _ = failed.set((path.clone(), error));
                    return;
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(paths.len());
        thread::scope(|scope| {
            for _ in 1..threads {
                // If no thread can be started, the present thread digests all files.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn compute(&self, file: &File, path: &Path, length: u64) -> io::Result<String> {
        let shared = &self.0;
        shared.total.fetch_add(length, Ordering::Relaxed);
        let mut digest = Sha256::new();
        let read = read_ahead(file, length, &mut |piece| {
            digest.update(piece);
            let bytes = shared.done.fetch_add(piece.len() as u64, Ordering::Relaxed) + piece.len() as u64;
            if let Some(report) = &shared.report {
                report(Digesting { path, bytes, total: shared.total.load(Ordering::Relaxed) });
            }
        });
        read?;
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The digest that an earlier process has recorded for this state of the file.
    fn remembered(&self, path: &Path, identity: &FileState) -> Option<String> {
        let record = self.record(identity)?;
        let read = crate::read_text(&record, RECORD_MAXIMUM_BYTES).ok()?;
        let (known, sha256) = read.trim_end().rsplit_once(" sha256 ")?;
        let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let counts = known == text(identity) && is_digest && is_ours(&record) && is_ours(path);
        counts.then(|| sha256.to_owned())
    }

    /// Records a digest. A failure is ignored: the digest is then computed again.
    fn remember(&self, path: &Path, identity: &FileState, sha256: &str) {
        let Some(record) = self.record(identity) else { return };
        let Some(folder) = record.parent() else { return };
        let made = making::private_folders(folder);
        if made.is_err() || !is_settled(identity) || !is_ours(path) || !is_ours(folder) {
            return;
        }
        make_room(folder);
        let _ = unfinished::write(&record, format!("{} sha256 {sha256}\n", text(identity)).as_bytes());
    }

    /// The path of a file's record: one for each inode. `None` without a folder, or for a small file.
    fn record(&self, identity: &FileState) -> Option<PathBuf> {
        let folder = self.0.folder.as_ref().filter(|_| identity.length >= KEPT_FROM)?;
        Some(folder.join(format!("{:x}-{:x}", identity.device, identity.inode)))
    }
}

/// The SHA-256 that a file's name in Hugging Face's cache states: `models--*/snapshots/…` links to `blobs/SHA256`.
///
/// The hub states this digest; it has not been compared with the bytes. So it may be recorded where the bytes are
/// compared with it later, but it never replaces this comparison.
pub fn stated_by_hub_cache(path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let (name, blobs) = (real.file_name()?.to_str()?, real.parent()?);
    let of_hub = |folder: &str| {
        ["models--", "datasets--", "spaces--"].iter().any(|kind| folder.starts_with(kind)) && folder.len() > 8
    };
    let is_digest = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_blob = blobs.file_name()? == "blobs" && of_hub(blobs.parent()?.file_name()?.to_str()?);
    // Small files have a digest of another kind as names, and files that a user put there can have any name.
    (is_digest && is_blob).then(|| name.to_owned())
}

/// Gives the first `length` bytes of a file to `sink`, while another thread reads the next ones.
fn read_ahead(file: &File, length: u64, sink: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    if length <= CHUNK as u64 {
        let mut bytes = vec![0; length as usize];
        reading::read_exact_at(file, &mut bytes, 0)?;
        sink(&bytes);
        return Ok(());
    }
    let (filled, pieces) = mpsc::sync_channel::<io::Result<Vec<u8>>>(AHEAD);
    let (used, buffers) = mpsc::channel::<Vec<u8>>();
    let read = move || {
        let mut offset = 0;
        while offset < length {
            let mut buffer = buffers.try_recv().unwrap_or_default();
            buffer.resize(CHUNK.min(usize::try_from(length - offset).unwrap_or(CHUNK)), 0);
            let result = reading::read_exact_at(file, &mut buffer, offset);
            offset += buffer.len() as u64;
            let has_failed = result.is_err();
            if filled.send(result.map(|()| buffer)).is_err() || has_failed {
                return;
            }
        }
    };
    thread::scope(|scope| {
        thread::Builder::new().name("read".into()).spawn_scoped(scope, read)?;
        for piece in pieces {
            let piece = piece?;
            sink(&piece);
            let _ = used.send(piece);
        }
        Ok(())
    })
}

/// Whether no other user can change a file or folder.
fn is_ours(path: &Path) -> bool {
    matches!(owner::check(path), Ok(Ok(())))
}

fn is_settled(identity: &FileState) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // A file with a time in the future does not count as settled.
    u64::try_from(identity.written.0).is_ok_and(|written| written + SETTLED.as_secs() <= now.as_secs())
}

/// Removes the oldest records if there are too many.
fn make_room(folder: &Path) {
    let records = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut records: Vec<(SystemTime, PathBuf)> = records
        .filter(|path| !unfinished::is_unfinished(path))
        .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    if records.len() >= MOST_KEPT {
        records.sort();
        records.iter().take(records.len() + 1 - MOST_KEPT).for_each(|(_, path)| drop(fs::remove_file(path)));
    }
}

#[cfg(test)]
#[path = "digests/tests.rs"]
mod tests;
