//! The served engines, by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tileforge::{Host, OpenOptions, Placement};

use crate::failure::{Failure, FailureKind, Result, chain, shown};
use crate::fingerprint::Stamp;
use crate::metrics::Metrics;
use crate::model::{Model, Purpose};
use crate::settings::NamedModel;

/// The file that makes a folder an engine.
const MANIFEST: &str = "manifest.json";

/// The longest name of a model.
const NAME_MAXIMUM: usize = 128;

/// The served engines, by name.
pub(crate) struct Repository {
    host: Host,
    options: OpenOptions,
    folder: Option<PathBuf>,
    /// Where the engines of the folder run.
    placement: Placement,
    named: RwLock<Vec<NamedModel>>,
    entries: RwLock<BTreeMap<String, Entry>>,
    /// Serialises changes, so that an engine is not opened twice.
    changing: Mutex<()>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Repository").field("folder", &self.folder).finish_non_exhaustive()
    }
}

struct Entry {
    /// The source that it was opened from.
    model: NamedModel,
    /// The fingerprint of the files that it was opened from, or that could not be opened.
    fingerprint: Option<Fingerprint>,
    state: State,
}

enum State {
    Ready(Arc<Model>),
    /// A client has unloaded it, and only a client loads it again.
    Unloaded,
    Failed {
        reason: String,
    },
}

/// The index's entry for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) ready: bool,
    /// Why it is not ready.
    pub(crate) reason: String,
}

/// The fingerprint of an engine: its folder and its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint([Stamp; 2]);

impl Fingerprint {
    /// `None` if a folder has no engine, or there is no archive.
    fn of(source: &Path) -> Option<Self> {
        let own = Stamp::of(source)?;
        if source.is_file() {
            return Some(Self([own, own]));
        }
        let manifest = Stamp::of(&source.join(MANIFEST))?;
        // Only the folder's identity: files that are added beside the manifest later, such as compiled graphs, change
        // the folder's time.
        Some(Self([own.identity(), manifest]))
    }
}

impl Repository {
    pub(crate) fn new(
        host: &Host,
        folder: Option<PathBuf>,
        placement: Placement,
        named: Vec<NamedModel>,
        options: OpenOptions,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            host: host.clone(),
            options,
            folder,
            placement,
            named: RwLock::new(named),
            entries: RwLock::default(),
            changing: Mutex::default(),
            metrics,
        }
    }

    /// The model with this name.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Model>> {
        match self.entries.read().get(name).map(|entry| &entry.state) {
            Some(State::Ready(model)) => Ok(model.clone()),
            Some(State::Unloaded) => Err(Failure::new(FailureKind::NotReady, format!("{name} is unloaded"))),
            Some(State::Failed { .. }) => {
                Err(Failure::new(FailureKind::NotReady, format!("{name} could not be loaded; the index says why")))
            }
            None => Err(unknown(name)),
        }
    }

    /// The model with this name; without a name, the only model with such a purpose.
    pub(crate) fn choose(
        &self,
        name: Option<&str>,
        fits: impl Fn(Purpose) -> bool,
        expected: &str,
    ) -> Result<Arc<Model>> {
        if let Some(name) = name {
            let model = self.get(name)?;
            let wrong = || Failure::invalid(format!("expected an engine for {expected}; {name} is for something else"));
            return if fits(model.purpose) { Ok(model) } else { Err(wrong()) };
        }
        let fitting: Vec<String> =
            self.ready().into_iter().filter(|(_, purpose)| fits(*purpose)).map(|(name, _)| name).collect();
        match fitting.as_slice() {
            [only] => self.get(only),
            [] => Err(Failure::new(FailureKind::NotFound, format!("there is no engine for {expected}"))),
            several => Err(Failure::invalid(format!("expected `engine`, one of {}", several.join(", ")))),
        }
    }

    /// The models that take requests, with their purposes.
    pub(crate) fn ready(&self) -> Vec<(String, Purpose)> {
        let of = |(name, entry): (&String, &Entry)| match &entry.state {
            State::Ready(model) => Some((name.clone(), model.purpose)),
            _ => None,
        };
        self.entries.read().iter().filter_map(of).collect()
    }

    /// Whether a model takes requests.
    pub(crate) fn is_ready(&self, name: &str) -> Result<bool> {
        let entries = self.entries.read();
        let entry = entries.get(name).ok_or_else(|| unknown(name))?;
        Ok(matches!(entry.state, State::Ready(_)))
    }

    /// All models, by name.
    pub(crate) fn index(&self) -> Vec<Listed> {
        let listed = |(name, entry): (&String, &Entry)| {
            let reason = match &entry.state {
                State::Ready(_) => "",
                State::Unloaded => "unloaded",
                State::Failed { reason } => reason,
            };
            let ready = matches!(entry.state, State::Ready(_));
            Listed { name: name.clone(), ready, reason: reason.to_owned() }
        };
        self.entries.read().iter().map(listed).collect()
    }

    /// Loads a model, even if it is loaded already. If its engine cannot be opened, the served one stays. Opens files,
    /// so do not call it on a connection's thread.
    pub(crate) fn load(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let model = self.models().remove(name).ok_or_else(|| unknown(name))?;
        self.open(&model).map_err(|reason| Failure::invalid(format!("{name} cannot be loaded: {reason}")))
    }

    /// Unloads a model. Its accepted requests are finished.
    pub(crate) fn unload(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let mut entries = self.entries.write();
        let entry = entries.get_mut(name).ok_or_else(|| unknown(name))?;
        entry.state = State::Unloaded;
        tracing::info!(model = name, "unloaded");
        Ok(())
    }

    /// Replaces the named engines, from the next scan on.
    pub(crate) fn rename(&self, named: Vec<NamedModel>) {
        *self.named.write() = named;
    }

    /// Scans the sources: opens new and exchanged engines, and closes removed ones. With `again`, retries engines that
    /// could not be opened. Opens files, so do not call it on a connection's thread.
    pub(crate) fn scan(&self, again: bool) {
        let _changing = self.changing.lock();
        let models = self.models();
        for (name, model) in &models {
            let fingerprint = Fingerprint::of(Path::new(&model.source));
            let as_it_was = match self.entries.read().get(name) {
                None => false,
                Some(Entry { state: State::Unloaded, .. }) => true,
                Some(Entry { state: State::Failed { .. }, .. }) if again => false,
                Some(entry) => entry.model == *model && entry.fingerprint == fingerprint,
            };
            if !as_it_was {
                // The entry has the reason.
                let _ = self.open(model);
            }
        }
        let gone = |name: &String| !models.contains_key(name);
        let names: Vec<String> = self.entries.read().keys().filter(|name| gone(name)).cloned().collect();
        for name in names {
            tracing::info!(model = name, "removed");
            self.entries.write().remove(&name);
        }
    }

    /// Says so if there is no engine, and where the folder's folders hold some. Reads folders.
    pub(crate) fn warn_if_empty(&self) {
        let Some(folder) = self.folder.as_ref().filter(|_| self.models().is_empty()) else { return };
        let holds = |inner: &PathBuf| paths_in(inner).any(|path| is_engine(&path));
        let advice = paths_in(folder).find(holds);
        let advice = advice.map(|inner| format!("; those in {} need `--engines {0}`", inner.display()));
        let (folder, advice) = (folder.display(), advice.unwrap_or_default());
        tracing::warn!("{folder}: no engine in this folder, and none is named: every request is refused{advice}");
    }

    fn open(&self, named: &NamedModel) -> std::result::Result<(), String> {
        let name = named.name.as_str();
        // Taken before the engine is opened, so the next scan notices changes in between.
        let fingerprint = Fingerprint::of(Path::new(&named.source));
        let result = Model::open(&self.host, named, &self.options);
        let mut entries = self.entries.write();
        let (state, told) = match result {
            Ok(model) => {
                tracing::info!(model = name, task = tracing::field::display(model.purpose), "loaded");
                self.metrics.loaded(name);
                (State::Ready(Arc::new(model)), Ok(()))
            }
            Err(error) => {
                let reason = chain(&error);
                tracing::error!(model = name, reason, "cannot be loaded");
                let state = match entries.remove(name).map(|entry| entry.state) {
                    // The served engine stays: its files are open.
                    Some(State::Ready(model)) => State::Ready(model),
                    _ => State::Failed { reason: reason.clone() },
                };
                (state, Err(reason))
            }
        };
        entries.insert(name.to_owned(), Entry { model: named.clone(), fingerprint, state });
        told
    }

    /// All configured engines and those in the folder, by name.
    fn models(&self) -> BTreeMap<String, NamedModel> {
        let mut models = BTreeMap::new();
        for path in self.folder.iter().flat_map(|folder| paths_in(folder)) {
            let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name));
            let (Some(name), Some(text)) = (name, path.to_str()) else { continue };
            if is_engine(&path) {
                let (name, source) = (name.to_owned(), text.to_owned());
                models.insert(name.clone(), NamedModel { name, source, placement: self.placement.clone() });
            }
        }
        models.extend(self.named.read().iter().map(|model| (model.name.clone(), model.clone())));
        models
    }
}

/// What is in a folder; nothing, if it cannot be read.
fn paths_in(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_engine(folder: &Path) -> bool {
    folder.join(MANIFEST).is_file()
}

/// Whether a model may have this name: one component of a path, in letters, digits, `.`, `_` and `-`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_MAXIMUM).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn unknown(name: &str) -> Failure {
    let shown = shown(name, NAME_MAXIMUM);
    Failure::new(FailureKind::NotFound, format!("there is no model {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path() {
        assert!(["compact-x4", "a", "v1.2_x"].into_iter().all(is_name));
        let long = "x".repeat(129);
        assert!(!["", ".", "..", "../x", "a/b", "a b", ".x", "ä", "a\0", long.as_str()].into_iter().any(is_name));
    }
}
