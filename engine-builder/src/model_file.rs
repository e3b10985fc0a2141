//! Model files: what a model is, which graphs are made of it, and where its weights come from.

use crate::profile::{Batches, Shapes, Tile};
use crate::{Error, Origin, RangeMethod, Result, yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, Provider, Task};

/// A model, as `models/NAME.yaml` describes it.
#[derive(Debug, Clone, Serialize)]
pub struct ModelFile {
    /// The name: the same as the file's.
    pub name: String,
    /// A sentence for the reader about what the model is good for.
    pub description: String,
    /// The licence of the weights: an SPDX expression, or the name that its author gives it.
    pub licence: String,
    /// Who trained it, and where it is published.
    pub provenance: String,
    /// Where its files can be downloaded; `None` for weights that come with the model file.
    pub source: Option<Origin>,
    /// The files that the model needs, by their path below the model's folder.
    pub files: BTreeMap<String, FileFacts>,
    /// The graphs. A model with one graph has a single one without a name.
    pub graphs: BTreeMap<String, GraphFile>,
    /// What a film-restoring model needs beside its networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restoration: Option<RestorationFile>,
    /// The model file.
    #[serde(skip)]
    pub path: PathBuf,
}

/// What a film-restoring model needs beside its networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestorationFile {
    /// The file with the states of the text that its transformer always gets, `[tokens, width]`: one of the model's
    /// files.
    pub text: String,
}

/// What is published about a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFacts {
    /// SHA-256; if none is published, the digest of the first use is recorded beside the file.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Number of bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// Where it can be downloaded, if it has another source than the model's other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Origin>,
}

/// One graph of a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// The task; the checkpoint must have it.
    pub task: Task,
    /// The architecture; the checkpoint must have it.
    pub architecture: String,
    /// The file of the weights, or the index of its shards: one of the model's files.
    pub checkpoint: String,
    /// Hyperparameters that the network must have, by the exporter's names.
    #[serde(default)]
    pub hyperparameters: BTreeMap<String, Value>,
    /// Hyperparameters that the checkpoint does not state.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The precision on each provider, where it differs from the profile's.
    #[serde(default)]
    pub precision: Precisions,
    /// How activations are measured, where it differs from the default.
    #[serde(default)]
    pub calibration: Calibration,
    /// The sizes of the engine's graphs, where they differ from the profile's.
    #[serde(default)]
    pub sizes: Option<ModelSizes>,
}

/// A precision for each provider; TensorRT for RTX uses TensorRT's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Precisions {
    tensorrt: Option<Precision>,
    cuda: Option<Precision>,
    cpu: Option<Precision>,
}

/// How activations are measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calibration {
    /// How many tiles or tensors are measured.
    pub tiles: Option<u32>,
    /// How INT8 chooses the range of an activation.
    pub range: Option<RangeMethod>,
}

/// The sizes of the graphs of a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSizes {
    /// One graph is built for each tile and batch, as in a profile.
    pub tiles: Vec<Tile>,
    /// Samples in one run; one number, or a list of them.
    #[serde(default)]
    pub batch: Batches,
    /// Frames of a chunk, for networks of video.
    #[serde(default = "one_frame")]
    pub frames: usize,
    /// Tokens of a text, for networks that take any number of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
}

impl ModelSizes {
    /// The same sizes without the frames, in the form that a profile uses.
    pub(crate) fn shapes(&self) -> Shapes {
        Shapes::new(self.tiles.clone(), self.batch.clone())
    }

    /// What is wrong with sizes that no engine can have.
    fn check(&self) -> Result<(), String> {
        if self.frames == 0 {
            return Err("`frames`: expected at least 1, found 0".into());
        }
        if self.tokens == Some(0) {
            return Err("`tokens`: expected at least 1, found 0".into());
        }
        self.shapes().check()
    }
}

fn one_frame() -> usize {
    1
}

/// The keys of a model file. A model with one graph has the graph's keys at the top level.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    name: String,
    description: String,
    licence: String,
    provenance: String,
    source: Option<Origin>,
    files: BTreeMap<String, FileFacts>,
    #[serde(default)]
    graphs: BTreeMap<String, GraphFile>,
    restoration: Option<RestorationFile>,
    task: Option<Task>,
    architecture: Option<String>,
    checkpoint: Option<String>,
    hyperparameters: Option<BTreeMap<String, Value>>,
    set: Option<BTreeMap<String, String>>,
    precision: Option<Precisions>,
    calibration: Option<Calibration>,
    sizes: Option<ModelSizes>,
}

impl Keys {
    /// The given keys of a single graph that have no effect beside `graphs`.
    fn beside_graphs(&self) -> Vec<&'static str> {
        let given = [
            ("hyperparameters", self.hyperparameters.is_some()),
            ("set", self.set.is_some()),
            ("precision", self.precision.is_some()),
            ("calibration", self.calibration.is_some()),
            ("sizes", self.sizes.is_some()),
        ];
        given.into_iter().filter_map(|(key, is_given)| is_given.then_some(key)).collect()
    }
}

impl ModelFile {
    /// Reads the model file `name_or_path`: a path that ends in `.yaml`, or a name to look up in `folders`.
    ///
    /// # Errors
    /// There is no such model, or its file cannot be read or is not valid.
    pub fn find(name_or_path: &str, folders: &[PathBuf]) -> Result<Self> {
        Self::read(&Self::path_of(Path::new(name_or_path), folders)?)
    }

    /// The model file of a name in `folders`; a path that ends in `.yaml` stands for itself.
    ///
    /// # Errors
    /// There is no model of this name; the error lists the known models and the searched folders.
    pub fn path_of(name_or_path: &Path, folders: &[PathBuf]) -> Result<PathBuf> {
        if name_or_path.extension().is_some_and(|extension| extension == "yaml") {
            if name_or_path.symlink_metadata().is_ok() {
                return Ok(name_or_path.to_owned());
            }
            return Err(Self::unknown(name_or_path, folders));
        }
        let file =
            name_or_path.to_str().filter(|name| tileforge_files::is_plain(name)).map(|name| format!("{name}.yaml"));
        let find = |file: &String| folders.iter().map(|folder| folder.join(file)).find(|path| path.is_file());
        if let Some(path) = file.as_ref().and_then(find) {
            return Ok(path);
        }
        Err(Self::unknown(name_or_path, folders))
    }

    fn unknown(name_or_path: &Path, folders: &[PathBuf]) -> Error {
        let known = Self::names(folders).join(", ");
        let known = if known.is_empty() {
            let folders = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
            format!("none were found in {folders}; give the path of a .yaml file")
        } else {
            format!("known are {known}, or give the path of a .yaml file")
        };
        Error::NoSuchName { name: name_or_path.display().to_string(), reason: format!("no such model; {known}") }
    }

    /// The names of all models in `folders`, sorted. A missing or unreadable folder has none.
    pub fn names(folders: &[PathBuf]) -> Vec<String> {
        let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
        let files =
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "yaml"));
        let mut names: Vec<String> =
            files.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Reads a model file.
    ///
    /// # Errors
    /// The file cannot be read or is not valid.
    pub fn read(path: &Path) -> Result<Self> {
        let keys: Keys = yaml::read(path)?;
        let invalid = |reason: String| Err(Error::input(path, reason));
        if path.file_stem().is_none_or(|stem| stem != keys.name.as_str()) {
            return invalid(format!("expected the model to have its file's name, found `name: {}`", keys.name));
        }
        let beside = keys.beside_graphs();
        let graphs = match (keys.task, keys.architecture, keys.checkpoint) {
            (None, None, None) if !keys.graphs.is_empty() && !beside.is_empty() => {
                return invalid(format!("expected {} in each of its `graphs`, found beside them", beside.join(", ")));
            }
            (None, None, None) if !keys.graphs.is_empty() => keys.graphs,
            (Some(task), Some(architecture), Some(checkpoint)) if keys.graphs.is_empty() => {
                let graph = GraphFile {
                    task,
                    architecture,
                    checkpoint,
                    hyperparameters: keys.hyperparameters.unwrap_or_default(),
                    set: keys.set.unwrap_or_default(),
                    precision: keys.precision.unwrap_or_default(),
                    calibration: keys.calibration.unwrap_or_default(),
                    sizes: keys.sizes,
                };
                BTreeMap::from([(String::new(), graph)])
            }
            _ => {
                let expected = "expected either `graphs`, or `task`, `architecture` and `checkpoint` of a single graph";
                return invalid(expected.into());
            }
        };
        for (file, FileFacts { sha256, .. }) in &keys.files {
            if !file.split('/').all(tileforge_files::is_plain) {
                return invalid(format!("`files`: expected names of files below the model's folder, found {file:?}"));
            }
            let digits = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if let Some(wrong) = sha256.as_ref().filter(|text| !digits(text)) {
                return invalid(format!("{file}: expected 64 hexadecimal digits of SHA-256, found `{wrong}`"));
            }
        }
        // Parts of the model's engine get these names.
        if let Some(graph) = graphs.keys().find(|graph| !(graph.is_empty() || tileforge_files::is_plain(graph))) {
            return invalid(format!("`graphs`: expected plain names, found {graph:?}"));
        }
        if let Some(graph) = graphs.values().find(|graph| !keys.files.contains_key(&graph.checkpoint)) {
            return invalid(format!("the checkpoint `{}` is not among its `files`", graph.checkpoint));
        }
        if let Some(RestorationFile { text }) = &keys.restoration {
            if graphs.len() < 2 {
                return invalid("`restoration`: expected `graphs` of an autoencoder and a transformer".into());
            }
            if !keys.files.contains_key(text) {
                return invalid(format!("`restoration`: the text `{text}` is not among its `files`"));
            }
        }
        for sizes in graphs.values().filter_map(|graph| graph.sizes.as_ref()) {
            if let Err(reason) = sizes.check() {
                return invalid(format!("`sizes`: {reason}"));
            }
        }
        Ok(ModelFile {
            name: keys.name,
            description: keys.description,
            licence: keys.licence,
            provenance: keys.provenance,
            source: keys.source,
            files: keys.files,
            graphs,
            restoration: keys.restoration,
            path: path.to_owned(),
        })
    }

    /// The graph of this name; without a name, the only graph.
    ///
    /// # Errors
    /// There are several graphs and no name is given, or there is no graph of this name.
    pub fn graph(&self, name: Option<&str>) -> Result<&GraphFile> {
        let found = match (name, self.graphs.len()) {
            (None, 1) => self.graphs.values().next(),
            (None, _) => None,
            (Some(name), _) => self.graphs.get(name),
        };
        found.ok_or_else(|| Error::ModelGraph {
            path: self.path.clone(),
            found: name.map(str::to_owned),
            graphs: self.graphs.keys().cloned().collect(),
        })
    }

    /// Where one of the model's files is published.
    pub fn origin_of(&self, file: &str) -> Option<&Origin> {
        self.files.get(file).and_then(|facts| facts.source.as_ref()).or(self.source.as_ref())
    }

    /// Bytes of the weights; `None` if the size of a file is not known.
    pub fn size(&self) -> Option<u64> {
        let checkpoints: BTreeSet<&str> = self.graphs.values().map(|graph| graph.checkpoint.as_str()).collect();
        checkpoints.into_iter().map(|file| self.files.get(file)?.size).sum()
    }
}

impl GraphFile {
    /// The precision on a provider, if the model file sets one.
    pub fn precision_on(&self, provider: Provider) -> Option<Precision> {
        match provider {
            Provider::TensorRt | Provider::TensorRtRtx => self.precision.tensorrt,
            Provider::Cuda => self.precision.cuda,
            Provider::OpenVino | Provider::Cpu => self.precision.cpu,
        }
    }

    /// Compares the hyperparameters that the exporter found with the model file's. Returns the differences.
    pub(crate) fn differences(&self, found: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        for (name, expected) in &self.hyperparameters {
            compare(name, expected, found.get(name), &mut differences);
        }
        differences
    }
}

/// Compares a hyperparameter with the expected one. For an object, only the expected keys are compared.
fn compare(name: &str, expected: &Value, found: Option<&Value>, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Some(found @ Value::Object(_))) => {
            for (key, expected) in expected {
                compare(&format!("{name}.{key}"), expected, found.get(key), differences);
            }
        }
        (expected, Some(found)) if expected == found => {}
        (expected, Some(found)) => differences.push(format!("{name}: expected {expected}, found {found}")),
        (expected, None) => {
            differences.push(format!("{name}: expected {expected}, and the network has no such hyperparameter"));
        }
    }
}
