//! Compiled graphs: by TensorRT for one GPU, as EPContext models with their plans; by other libraries for a processor.
//!
//! ONNX Runtime's own cache finds engines by name and not by weights, so two engines with the same graph names would
//! share entries (<https://github.com/microsoft/onnxruntime/issues/32254>). Here, an entry is found by the digest of
//! everything that it depends on. It holds the digests of its files, and appears whole or not at all. A lock beside it
//! makes sure that two processes compile it only once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tileforge_files::{TEXT_MAXIMUM_BYTES, unfinished};

use crate::Engine;
use crate::digest::{FileDigest, hexadecimal, sha256, sha256_file};
use crate::error::{Error, Result};

pub use crate::manifest::COMPILED_FOLDER as FOLDER;

/// The name of an entry's EPContext model.
pub const CONTEXT: &str = "context.onnx";
/// The name of the file that holds an entry's facts and digests.
pub const RECORD: &str = "compiled.json";

/// The first bytes of TensorRT's plans: "ftrt".
const PLAN_TAG: [u8; 4] = *b"ftrt";

/// Everything that a compiled graph depends on.
pub trait Facts: Clone + PartialEq + Serialize + DeserializeOwned {
    /// The name of an entry's main file, which a library opens.
    const MAIN: &'static str;

    /// All facts, in a fixed order.
    fn texts(&self) -> Vec<&str>;

    /// Checks the files with these names that were compiled into a folder.
    ///
    /// # Errors
    /// A file is missing or wrong.
    fn check(folder: &Path, names: &[&str]) -> Result<()>;

    /// The name of the entry: a digest of all facts.
    fn key(&self) -> String {
        // Each fact is added with its length, so that different facts never give the same bytes.
        let mut digest = Sha256::new();
        for text in self.texts() {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        hexadecimal(&digest.finalize()[..16])
    }
}

/// Everything that a graph compiled by TensorRT depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorRtFacts {
    /// SHA-256 of the graph's file, which holds shapes and precision.
    pub graph_sha256: String,
    /// SHA-256 of each weight file.
    pub weights_sha256: Vec<String>,
    /// The GPU's name.
    pub gpu: String,
    /// The GPU's compute capability, such as "8.9".
    pub compute_capability: String,
    /// TensorRT's version, such as "10.14.1".
    pub tensorrt: String,
    /// The highest CUDA version that the driver supports.
    pub driver_cuda: String,
    /// Version of ONNX Runtime.
    pub onnxruntime: String,
    /// The provider's options.
    pub options: BTreeMap<String, String>,
}

impl Facts for TensorRtFacts {
    const MAIN: &'static str = CONTEXT;

    fn texts(&self) -> Vec<&str> {
        let mut texts = vec![self.graph_sha256.as_str()];
        texts.extend(self.weights_sha256.iter().map(String::as_str));
        texts.extend([&*self.gpu, &self.compute_capability, &self.tensorrt, &self.driver_cuda, &self.onnxruntime]);
        texts.extend(self.options.iter().flat_map(|(name, value)| [name.as_str(), value]));
        texts
    }

    /// Checks that there are a context and at least one plan. ONNX Runtime does not check either before it runs them.
    fn check(folder: &Path, names: &[&str]) -> Result<()> {
        let is_plan = |name: &&&str| {
            let mut start = [0; 4];
            let read = tileforge_files::open(&folder.join(name))
                .and_then(|mut file| io::Read::read_exact(&mut file, &mut start));
            read.is_ok() && start == PLAN_TAG
        };
        let (context, plans) = (names.contains(&CONTEXT), names.iter().filter(is_plan).count());
        if context && plans > 0 { Ok(()) } else { Err(Error::NothingCompiled { context, plans }) }
    }
}

/// The content of [`RECORD`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<F> {
    facts: F,
    files: BTreeMap<String, FileDigest>,
}

impl<F: Facts> Record<F> {
    /// Reads a record; `None` if it is not a valid record for these facts.
    fn parse(bytes: &[u8], facts: &F) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        let sound = record.facts == *facts
            && record.files.contains_key(F::MAIN)
            && record.files.keys().all(|name| tileforge_files::is_plain(name));
        sound.then_some(record)
    }
}

/// The names of an engine's own files for these facts, if it has an entry for them: its EPContext model and its plans.
/// Only files that the manifest lists count, so that the signature covers them.
pub fn shipped(engine: &Engine, facts: &TensorRtFacts) -> Option<Vec<String>> {
    let name = |file: &str| format!("{FOLDER}/{}/{file}", facts.key());
    let record = Record::parse(engine.file(&name(RECORD)).ok()?, facts)?;
    let names: Vec<String> = record.files.keys().map(|file| name(file)).collect();
    names.iter().all(|name| engine.file(name).is_ok()).then_some(names)
}

/// The facts of all entries that an engine ships. Records of another form are left out, because nothing can use them.
pub fn shipped_facts(engine: &Engine) -> Vec<TensorRtFacts> {
    let of_record = |(name, bytes): (&str, &[u8])| {
        let is_record = name.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?.1 == RECORD;
        let record = is_record.then(|| serde_json::from_slice::<Record<TensorRtFacts>>(bytes).ok())??;
        Some(record.facts)
    };
    engine.files().filter_map(of_record).collect()
}

/// The most bytes that the entries of a cache take before the oldest are removed.
pub const CACHE_BYTES: u64 = 16 << 30;

/// How long an entry stays after its last use, even above the limit: another process may be about to open it.
const STAYS: Duration = Duration::from_secs(3600);

/// A folder of compiled graphs.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    /// The most bytes of all entries together. Above it, a new entry removes others, if any can be removed.
    limit: u64,
}

impl Store {
    /// A store in this folder, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), limit: u64::MAX }
    }

    /// The same store as a cache: if its entries take more than this many bytes together, a new entry removes the
    /// least recently used ones.
    #[must_use]
    pub fn with_limit(self, bytes: u64) -> Self {
        Self { limit: bytes, ..self }
    }

    /// The file that a process locks while it makes the entry for these facts.
    pub fn lock_file(&self, facts: &impl Facts) -> PathBuf {
        self.lock_of(&facts.key())
    }

    fn lock_of(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.lock"))
    }

    /// Whether there is an entry for these facts. Reads only its record, not its files.
    pub fn has(&self, facts: &impl Facts) -> bool {
        self.record(facts).is_some()
    }

    /// The path of the main file for these facts, if all files of the entry match their digests.
    pub fn get<F: Facts>(&self, facts: &F) -> Option<PathBuf> {
        let (record, folder) = (self.record(facts)?, self.folder.join(facts.key()));
        let whole = record.files.iter().all(|(name, expected)| is_whole(&folder.join(name), expected));
        whole.then(|| {
            used(&folder);
            folder.join(F::MAIN)
        })
    }

    /// The bytes of the main file for these facts, if they match their digest.
    pub fn read<F: Facts>(&self, facts: &F) -> Option<Vec<u8>> {
        let expected = self.record(facts)?.files.remove(F::MAIN)?;
        let folder = self.folder.join(facts.key());
        let bytes = tileforge_files::read(&folder.join(F::MAIN), expected.bytes).ok()?;
        (sha256(&bytes) == expected.sha256).then(|| {
            used(&folder);
            bytes
        })
    }

    fn record<F: Facts>(&self, facts: &F) -> Option<Record<F>> {
        let record = self.folder.join(facts.key()).join(RECORD);
        Record::parse(&tileforge_files::read(&record, TEXT_MAXIMUM_BYTES).ok()?, facts)
    }

    /// The path of the main file for these facts. If there is no whole entry, `make` makes its files in the given
    /// folder. If several processes want the same entry, one makes it and the others wait.
    ///
    /// # Errors
    /// `make` fails or leaves something out ([`Facts::check`]), or a file cannot be written.
    pub fn get_or_make<F: Facts, E: From<Error>>(
        &self,
        facts: &F,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let failed = |action: &'static str| move |source: io::Error| Error::file(&self.folder, action, source);
        fs::create_dir_all(&self.folder).map_err(failed("create the folder"))?;
        let key = facts.key();
        let lock = File::create(self.lock_file(facts)).map_err(failed("create a lock in"))?;
        if lock.try_lock().is_err() {
            tracing::info!("another process compiles the same graph; waiting for it");
            lock.lock().map_err(failed("wait for a lock in"))?;
        }
        if let Some(made) = self.get(facts) {
            return Ok(made);
        }
        let staging = unfinished::folder_in(&self.folder).map_err(failed("create a folder in"))?;
        make(staging.path())?;
        let files = checked::<F>(staging.path()).map_err(|error| error.relocated(staging.path(), &self.folder))?;
        let record = Record { facts: facts.clone(), files };
        let text = serde_json::to_vec_pretty(&record)
            .map_err(|error| failed("describe what was compiled in")(error.into()))?;
        fs::write(staging.path().join(RECORD), text).map_err(failed("write to"))?;
        let folder = self.folder.join(&key);
        if folder.exists() {
            // A whole entry would have been returned above, so this one is damaged.
            fs::remove_dir_all(&folder).map_err(failed("remove a damaged entry from"))?;
        }
        let finishing = unfinished::finishing();
        fs::rename(staging.path(), &folder).map_err(failed("rename what was compiled in"))?;
        drop(finishing);
        self.make_room(&key);
        Ok(folder.join(F::MAIN))
    }

    /// Removes the least recently used entries until the others fit, except for the entry `kept`.
    fn make_room(&self, kept: &str) {
        if self.limit == u64::MAX {
            return;
        }
        let mut entries: Vec<Entry> = Entry::all(&self.folder);
        entries.sort_by_key(|entry| entry.used);
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries {
            let is_new = SystemTime::now().duration_since(entry.used).is_ok_and(|age| age < STAYS);
            if bytes <= self.limit || is_new {
                return;
            }
            if entry.key == kept {
                continue;
            }
            // The lock is taken: another process makes this entry again, or waits for it.
            let Some(lock) = File::create(self.lock_of(&entry.key)).ok().filter(|lock| lock.try_lock().is_ok()) else {
                continue;
            };
            match fs::remove_dir_all(self.folder.join(&entry.key)) {
                Ok(()) => {
                    tracing::info!(entry = entry.key, bytes = entry.bytes, "removed from the cache: not used for long");
                    bytes -= entry.bytes;
                }
                Err(error) => {
                    tracing::warn!(entry = entry.key, error = error.to_string(), "cannot be removed from the cache");
                }
            }
            drop(lock);
        }
    }
}

/// One entry of the store.
struct Entry {
    key: String,
    bytes: u64,
    used: SystemTime,
}

impl Entry {
    /// All entries with a record. Folders without a record are left out.
    fn all(folder: &Path) -> Vec<Self> {
        let entry = |entry: fs::DirEntry| {
            let record = tileforge_files::open(&entry.path().join(RECORD)).ok()?;
            let used = record.metadata().and_then(|metadata| metadata.modified()).ok()?;
            let size = |file: fs::DirEntry| file.metadata().map(|metadata| metadata.len()).ok();
            let bytes = entry.path().read_dir().ok()?.flatten().filter_map(size).sum();
            Some(Self { key: entry.file_name().into_string().ok()?, bytes, used })
        };
        folder.read_dir().map(|entries| entries.flatten().filter_map(entry).collect()).unwrap_or_default()
    }
}

/// Records that an entry was used now. A failure is ignored: in a folder without write access, no entry is removed
/// either.
fn used(folder: &Path) {
    let record = File::options().append(true).open(folder.join(RECORD));
    let _ = record.and_then(|record| record.set_modified(SystemTime::now()));
}

fn is_whole(path: &Path, expected: &FileDigest) -> bool {
    sha256_file(path).is_ok_and(|found| found == *expected)
}

/// The files of a folder with their digests, after [`Facts::check`].
fn checked<F: Facts>(folder: &Path) -> Result<BTreeMap<String, FileDigest>> {
    let failed = |source: io::Error| Error::file(folder, "list", source);
    let mut files = BTreeMap::new();
    for entry in folder.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), sha256_file(&entry.path())?);
    }
    F::check(folder, &files.keys().map(String::as_str).collect::<Vec<_>>())?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    fn facts() -> TensorRtFacts {
        let text = |text: &str| text.to_owned();
        TensorRtFacts {
            graph_sha256: text("a"),
            weights_sha256: vec![text("b")],
            gpu: text("GPU"),
            compute_capability: text("8.9"),
            tensorrt: text("10.14.1"),
            driver_cuda: text("13.0"),
            onnxruntime: text("1.31.1"),
            options: BTreeMap::from([(text("trt_sparsity_enable"), text("0"))]),
        }
    }

    fn make(folder: &Path) -> Result<()> {
        fs::write(folder.join(CONTEXT), b"graph").unwrap();
        fs::write(folder.join("plan.engine"), b"ftrt and more").unwrap();
        Ok(())
    }

    #[test]
    fn every_fact_has_its_own_entry() {
        let changes: [fn(&mut TensorRtFacts); 9] = [
            |_| (),
            |facts| facts.graph_sha256.push('x'),
            |facts| facts.weights_sha256.push("x".into()),
            |facts| facts.gpu.push('x'),
            |facts| facts.compute_capability = "8.6".into(),
            |facts| facts.tensorrt.push('0'),
            |facts| facts.driver_cuda = "13.1".into(),
            |facts| facts.onnxruntime.push('0'),
            |facts| facts.options.insert("trt_sparsity_enable".into(), "1".into()).map(drop).unwrap_or_default(),
        ];
        let keys = changes.map(|change| {
            let mut facts = facts();
            change(&mut facts);
            facts.key()
        });
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), keys.len());
    }

    #[test]
    fn a_record_is_of_these_facts_with_a_context_and_plain_names() {
        let read = |facts: TensorRtFacts, names: &[&str]| {
            let digest = FileDigest { bytes: 1, sha256: "0".repeat(64) };
            let files = names.iter().map(|&name| (name.to_owned(), digest.clone())).collect();
            let bytes = serde_json::to_vec(&Record { facts, files }).unwrap();
            Record::parse(&bytes, &self::facts()).is_some()
        };
        assert!(read(facts(), &[CONTEXT, "plan"]));
        assert!(!read(TensorRtFacts { gpu: "another".into(), ..facts() }, &[CONTEXT, "plan"]));
        assert!(!read(facts(), &["plan"]));
        assert!(!read(facts(), &[CONTEXT, "../plan"]));
    }

    #[test]
    fn it_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("made/here"));
        let made = AtomicUsize::new(0);
        assert_eq!(store.get(&facts()), None);
        let paths: Vec<PathBuf> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        store.get_or_make(&facts(), |folder| {
                            made.fetch_add(1, Ordering::SeqCst);
                            thread::sleep(Duration::from_millis(50));
                            make(folder)
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert_eq!(made.into_inner(), 1);
        assert!(paths.iter().all(|path| *path == store.get(&facts()).unwrap()));
        assert_eq!(store.read(&facts()).unwrap(), b"graph");
        for other in [&b"grapf"[..], b"graph and more", b"gr"] {
            fs::write(&paths[0], other).unwrap();
            assert_eq!(store.read(&facts()), None);
        }
    }

    #[test]
    fn damage_is_made_again_and_failure_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let failed = store.get_or_make(&facts(), |_| Err(Error::Internal("test")));
        assert!(matches!(failed, Err(Error::Internal(_))));
        let nothing = store.get_or_make(&facts(), |folder| {
            fs::write(folder.join(CONTEXT), b"graph").map_err(|e| Error::file(folder, "write", e))
        });
        assert!(matches!(nothing, Err(Error::NothingCompiled { context: true, plans: 0 })));
        assert_eq!((store.get(&facts()), store.has(&facts())), (None, false));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [format!("{}.lock", facts().key()).as_str()]);

        let made = store.get_or_make(&facts(), make).unwrap();
        fs::write(made.with_file_name("plan.engine"), b"ftrt and less").unwrap();
        assert_eq!((store.get(&facts()), store.has(&facts())), (None, true));
        store.get_or_make(&facts(), make).unwrap();
        assert_eq!(store.get(&facts()), Some(made));
    }

    #[test]
    fn what_was_not_used_for_long_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let of = |gpu: &str| TensorRtFacts { gpu: gpu.into(), ..facts() };
        let old = |gpu: &str, hours: u64| {
            let record = folder.path().join(of(gpu).key()).join(RECORD);
            let time = SystemTime::now() - Duration::from_secs(hours * 3600);
            File::options().append(true).open(record).unwrap().set_modified(time).unwrap();
        };
        let all = Store::at(folder.path());
        for (gpu, hours) in [("a", 5), ("b", 4), ("c", 3), ("d", 2)] {
            all.get_or_make(&of(gpu), make).unwrap();
            old(gpu, hours);
        }
        let bytes = Entry::all(folder.path()).iter().map(|entry| entry.bytes).max().unwrap();
        let limited = all.with_limit(bytes * 3 + bytes / 2);
        // "a" was used just now, so "b" is the oldest. Another process makes "c" again.
        assert!(limited.get(&of("a")).is_some());
        let lock = File::create(limited.lock_file(&of("c"))).unwrap();
        lock.lock().unwrap();
        limited.get_or_make(&of("e"), make).unwrap();
        let left = |store: &Store| ["a", "b", "c", "d", "e"].map(|gpu| store.has(&of(gpu)));
        assert_eq!(left(&limited), [true, false, true, false, true]);
        // Entries in use stay, even above the limit.
        limited.clone().with_limit(1).get_or_make(&of("f"), make).unwrap();
        assert_eq!(left(&limited), [true, false, true, false, true]);
        drop(lock);
        limited.clone().with_limit(1).get_or_make(&of("g"), make).unwrap();
        assert_eq!(left(&limited), [true, false, false, false, true]);
    }
}
