//! Checkpoints: named tensors in files of safetensors or PyTorch, mapped and checked, under normalised names.

mod keys;
mod other_format;
mod safetensors;
mod sharded;
pub(crate) mod single_file;
mod stored;
mod torch;

pub use other_format::{FormatKind, OtherFormat, other_format};
pub use safetensors::{Header, TensorInfo, parse_header};
pub use torch::{Place, TorchFile, TorchTensor, parse_torch};

use self::stored::{Stored, open_file};
use crate::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_files::TEXT_MAXIMUM_BYTES;
use tileforge_graph::Weight;

/// The tensors of a trained model, under normalised names.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Weight>,
    metadata: BTreeMap<String, String>,
    names: Names,
    /// The dictionaries that a file of PyTorch holds the network in.
    wrapper: String,
    set_aside: Vec<String>,
    /// The `config.json` that describes the weights, if it is there.
    config: Option<PathBuf>,
}

/// How the tensors' names were made.
#[derive(Debug, Clone)]
enum Names {
    /// A prefix was stripped.
    Stripped(String),
    /// They were translated; holds the name in the file for each.
    Translated(BTreeMap<String, String>),
}

impl Checkpoint {
    /// Maps a file of safetensors or of PyTorch (`torch.save`), or the shards that a `*.index.json` lists. The format
    /// is recognised by the content, not by the name.
    ///
    /// Only the headers are read. Names are normalised: wrappers of training frameworks (`params_ema.`, `module.`, …)
    /// are stripped.
    ///
    /// # Errors
    /// A file cannot be read or is not valid, a shard is missing, or a file of PyTorch contains something else than
    /// tensors and containers.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (files, Stored { tensors, metadata, wrapper, set_aside }) =
            if path.extension().is_some_and(|extension| extension == "json") {
                sharded::open(path)?
            } else {
                (vec![path.to_owned()], open_file(path)?)
            };
        let names: BTreeSet<&str> = tensors.keys().map(String::as_str).collect();
        let normalisation = keys::Normalisation::new(&names);
        let tensors = tensors
            .into_iter()
            .filter_map(|(name, weight)| Some((normalisation.apply(&name)?.to_owned(), weight)))
            .collect();
        let names = Names::Stripped(normalisation.prefix().to_owned());
        let config = Some(path.with_file_name("config.json"));
        Ok(Checkpoint { path: path.to_owned(), files, tensors, metadata, names, wrapper, set_aside, config })
    }

    /// The same tensors, described by another `config.json` than the one beside the weights.
    #[must_use]
    pub fn with_config(self, config: PathBuf) -> Self {
        Self { config: Some(config), ..self }
    }

    /// The path that was opened: the file, or the index of the shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold the tensors.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Where the `config.json` that describes the weights would be; `None` if there can be none.
    pub fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The `config.json` of diffusers or transformers that describes the weights; `None` if there is none.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn config(&self) -> Result<Option<serde_json::Map<String, serde_json::Value>>, String> {
        let Some(path) = &self.config else { return Ok(None) };
        match tileforge_files::read(path, TEXT_MAXIMUM_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| format!("{}: not a JSON object: {e}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: cannot read: {error}", path.display())),
        }
    }

    /// The tensors under their normalised names.
    pub fn tensors(&self) -> &BTreeMap<String, Weight> {
        &self.tensors
    }

    /// A tensor, to replace it by another one of the same sizes.
    pub(crate) fn tensor_mut(&mut self, name: &str) -> Option<&mut Weight> {
        self.tensors.get_mut(name)
    }

    /// The header's free-form `__metadata__`, or the texts and numbers among the tensors of a PyTorch file.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The prefix that was stripped from every name: empty, or one that ends in a dot.
    pub fn stripped_prefix(&self) -> String {
        match &self.names {
            Names::Stripped(prefix) => format!("{}{prefix}", self.wrapper),
            Names::Translated(_) => String::new(),
        }
    }

    /// Contents of a PyTorch file beside the network that no graph needs, such as the state of an optimiser.
    pub fn set_aside(&self) -> &[String] {
        &self.set_aside
    }

    /// The name of a tensor in the file.
    pub fn original_name(&self, name: &str) -> String {
        match &self.names {
            Names::Stripped(prefix) => format!("{prefix}{name}"),
            Names::Translated(originals) => originals.get(name).map_or(name, String::as_str).to_owned(),
        }
    }

    /// Number of elements of all tensors together.
    pub fn parameters(&self) -> u64 {
        self.tensors.values().map(|weight| weight.elements() as u64).sum()
    }
}
