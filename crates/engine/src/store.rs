//! Graphs that TensorRT has compiled for one GPU: EPContext models with their plans.
//!
//! ONNX Runtime's own cache finds engines by name and not by weights, so two engines with the same graph names would
//! share entries (<https://github.com/microsoft/onnxruntime/issues/32254>). Here, an entry is found by the digest of
//! everything that it depends on. It holds the digests of its files, and appears whole or not at all. A lock beside it
//! makes sure that two processes compile it only once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tileforge_files::{TEXT_MAXIMUM_BYTES, unfinished};

use crate::Engine;
use crate::digest::{FileDigest, hexadecimal, sha256_file};
use crate::error::{Error, Result};

pub use crate::manifest::COMPILED_FOLDER as FOLDER;

/// The name of an entry's EPContext model.
pub const CONTEXT: &str = "context.onnx";
/// The name of the file that holds an entry's facts and digests.
pub const RECORD: &str = "compiled.json";

/// The first bytes of TensorRT's plans: "ftrt".
const PLAN_TAG: [u8; 4] = *b"ftrt";

/// Everything that a compiled graph depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
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

impl Facts {
    /// The name of the entry: a digest of all facts.
    pub fn key(&self) -> String {
        // Each field is added with its length, so that different facts never give the same bytes.
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        add(&self.graph_sha256);
        self.weights_sha256.iter().for_each(|weights| add(weights));
        [&self.gpu, &self.compute_capability, &self.tensorrt, &self.driver_cuda, &self.onnxruntime]
            .into_iter()
            .for_each(|text| add(text));
        self.options.iter().flat_map(|(name, value)| [name, value]).for_each(|text| add(text));
        hexadecimal(&digest.finalize()[..16])
    }
}

/// The content of [`RECORD`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    facts: Facts,
    files: BTreeMap<String, FileDigest>,
}

impl Record {
    /// Reads a record, if it is the one for these facts.
    fn parse(bytes: &[u8], facts: &Facts) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        let sound = record.facts == *facts
            && record.files.contains_key(CONTEXT)
            && record.files.keys().all(|name| tileforge_files::is_plain(name));
        sound.then_some(record)
    }
}

/// The names of an engine's own files for these facts, if it has an entry for them: its EPContext model and its plans.
/// Only files that the manifest lists count, so that a signature covers them.
pub fn shipped(engine: &Engine, facts: &Facts) -> Option<Vec<String>> {
    let name = |file: &str| format!("{FOLDER}/{}/{file}", facts.key());
    let record = Record::parse(engine.file(&name(RECORD)).ok()?, facts)?;
    let names: Vec<String> = record.files.keys().map(|file| name(file)).collect();
    names.iter().all(|name| engine.file(name).is_ok()).then_some(names)
}

/// What the entries that an engine has of its own depend on. Records of another form are left out: nothing can use
/// them.
pub fn shipped_facts(engine: &Engine) -> Vec<Facts> {
    let of_record = |(name, bytes): (&str, &[u8])| {
        let is_record = name.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?.1 == RECORD;
        let record = is_record.then(|| serde_json::from_slice::<Record>(bytes).ok())??;
        Some(record.facts)
    };
    engine.files().filter_map(of_record).collect()
}

/// A folder of compiled graphs.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// A store in this folder, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The file that a process locks while it makes the entry for these facts.
    pub fn lock_file(&self, facts: &Facts) -> PathBuf {
        self.0.join(format!("{}.lock", facts.key()))
    }

    /// Whether there is an entry for these facts. Only its record is read, not its files.
    pub fn has(&self, facts: &Facts) -> bool {
        self.record(facts).is_some()
    }

    /// The EPContext model for these facts, if all files of the entry are whole.
    pub fn get(&self, facts: &Facts) -> Option<PathBuf> {
        let (record, folder) = (self.record(facts)?, self.0.join(facts.key()));
        let whole = record.files.iter().all(|(name, expected)| is_whole(&folder.join(name), expected));
        whole.then(|| folder.join(CONTEXT))
    }

    fn record(&self, facts: &Facts) -> Option<Record> {
        let record = self.0.join(facts.key()).join(RECORD);
        Record::parse(&tileforge_files::read(&record, TEXT_MAXIMUM_BYTES).ok()?, facts)
    }

    /// The EPContext model for these facts. If there is none, `make` makes it in the folder that it is given. If
    /// several processes want the same entry, one makes it and the others wait.
    ///
    /// # Errors
    /// `make` fails or leaves no EPContext model with a plan, or a file cannot be written.
    pub fn get_or_make<E: From<Error>>(
        &self,
        facts: &Facts,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let failed = |action: &'static str| move |source: io::Error| Error::file(&self.0, action, source);
        fs::create_dir_all(&self.0).map_err(failed("create the folder"))?;
        let key = facts.key();
        let lock = File::create(self.lock_file(facts)).map_err(failed("create a lock in"))?;
        if lock.try_lock().is_err() {
            tracing::info!("another process compiles the same graph; waiting for it");
            lock.lock().map_err(failed("wait for a lock in"))?;
        }
        if let Some(made) = self.get(facts) {
            return Ok(made);
        }
        let staging = unfinished::folder_in(&self.0).map_err(failed("create a folder in"))?;
        make(staging.path())?;
        let files = plan_and_context(staging.path()).map_err(|error| error.relocated(staging.path(), &self.0))?;
        let record = Record { facts: facts.clone(), files };
        let text = serde_json::to_vec_pretty(&record)
            .map_err(|error| failed("describe what was compiled in")(error.into()))?;
        fs::write(staging.path().join(RECORD), text).map_err(failed("write to"))?;
        let folder = self.0.join(&key);
        if folder.exists() {
            // A whole entry would have been returned above, so this one is damaged.
            fs::remove_dir_all(&folder).map_err(failed("remove a damaged entry from"))?;
        }
        let _finishing = unfinished::finishing();
        fs::rename(staging.path(), &folder).map_err(failed("rename what was compiled in"))?;
        Ok(folder.join(CONTEXT))
    }
}

fn is_whole(path: &Path, expected: &FileDigest) -> bool {
    sha256_file(path).is_ok_and(|found| found == *expected)
}

/// The files that TensorRT left: a context and at least one plan. ONNX Runtime does not check either before it runs
/// them.
fn plan_and_context(folder: &Path) -> Result<BTreeMap<String, FileDigest>> {
    let failed = |source: io::Error| Error::file(folder, "list", source);
    let mut files = BTreeMap::new();
    let mut plans = 0;
    for entry in folder.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let mut start = [0; 4];
        let read = tileforge_files::open(&path).and_then(|mut file| io::Read::read_exact(&mut file, &mut start));
        plans += usize::from(read.is_ok() && start == PLAN_TAG);
        files.insert(entry.file_name().to_string_lossy().into_owned(), sha256_file(&path)?);
    }
    match (files.contains_key(CONTEXT), plans) {
        (true, 1..) => Ok(files),
        (context, plans) => Err(Error::NothingCompiled { context, plans }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    fn facts() -> Facts {
        let text = |text: &str| text.to_owned();
        Facts {
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
        let changes: [fn(&mut Facts); 9] = [
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
        let read = |facts: Facts, names: &[&str]| {
            let digest = FileDigest { bytes: 1, sha256: "0".repeat(64) };
            let files = names.iter().map(|&name| (name.to_owned(), digest.clone())).collect();
            let bytes = serde_json::to_vec(&Record { facts, files }).unwrap();
            Record::parse(&bytes, &self::facts()).is_some()
        };
        assert!(read(facts(), &[CONTEXT, "plan"]));
        assert!(!read(Facts { gpu: "another".into(), ..facts() }, &[CONTEXT, "plan"]));
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
                            thread::sleep(std::time::Duration::from_millis(50));
                            make(folder)
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert_eq!(made.into_inner(), 1);
        assert!(paths.iter().all(|path| *path == store.get(&facts()).unwrap()));
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
}
