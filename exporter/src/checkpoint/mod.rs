//! Checkpoints: named tensors in safetensors files, mapped and checked, under normalised names.

mod keys;
mod safetensors;
mod sharded;
pub(crate) mod single_file;

pub use safetensors::{Header, TensorInfo, parse_header};

use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_files::TEXT_MAXIMUM_BYTES;
use tileforge_graph::{MappedFile, Weight};

/// The tensors of a trained model, under normalised names.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Weight>,
    metadata: BTreeMap<String, String>,
    names: Names,
    /// Whether a `config.json` beside the weights describes them.
    has_config: bool,
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
    /// Maps a `.safetensors` file, or the shards that a `*.safetensors.index.json` lists.
    ///
    /// Only the headers are read. Names are normalised: wrappers of training frameworks (`params_ema.`, `module.`, …)
    /// are stripped.
    ///
    /// # Errors
    /// A file cannot be read or is not a valid safetensors file, a shard is missing, or the file is a pickle.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (files, found) = if path.extension().is_some_and(|extension| extension == "json") {
            sharded::open(path)?
        } else {
            let (tensors, metadata) = open_file(path)?;
            (vec![path.to_owned()], (tensors, metadata))
        };
        let (tensors, metadata) = found;
        let names: BTreeSet<&str> = tensors.keys().map(String::as_str).collect();
        let normalisation = keys::Normalisation::new(&names);
        let tensors = tensors
            .into_iter()
            .filter_map(|(name, weight)| Some((normalisation.apply(&name)?.to_owned(), weight)))
            .collect();
        let names = Names::Stripped(normalisation.prefix().to_owned());
        Ok(Checkpoint { path: path.to_owned(), files, tensors, metadata, names, has_config: true })
    }

    /// The path that was opened: the file, or the index of the shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The safetensors files that hold the tensors.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The `config.json` of diffusers or transformers beside the weights; `None` if there is none.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn config(&self) -> Result<Option<serde_json::Map<String, serde_json::Value>>, String> {
        let path = self.path.with_file_name("config.json");
        if !self.has_config {
            return Ok(None);
        }
        match tileforge_files::read(&path, TEXT_MAXIMUM_BYTES) {
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

    /// The header's free-form `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The prefix that was stripped from every name: empty, or one that ends in a dot.
    pub fn stripped_prefix(&self) -> &str {
        match &self.names {
            Names::Stripped(prefix) => prefix,
            Names::Translated(_) => "",
        }
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

type Tensors = (BTreeMap<String, Weight>, BTreeMap<String, String>);

/// Maps one safetensors file.
fn open_file(path: &Path) -> Result<Tensors> {
    let file = MappedFile::open(path)?;
    // The length of a valid header can look like the first bytes of another format, so other formats are only
    // considered where the header is invalid.
    let header = parse_header(file.bytes())
        .map_err(|reason| Error::checkpoint(path, other_format(path, file.bytes()).unwrap_or(reason)))?;
    let mut tensors = BTreeMap::new();
    for (name, info) in header.tensors {
        let weight = Weight::mapped(file.clone(), info.offset, info.data_type, info.dims)?;
        tensors.insert(name, weight);
    }
    Ok((tensors, header.metadata))
}

/// The error for a file in another format that people mistake for safetensors, which its first bytes show.
fn other_format(path: &Path, bytes: &[u8]) -> Option<String> {
    let pickle = bytes.first() == Some(&0x80) && bytes.get(1).is_some_and(|version| *version <= 5);
    if pickle || bytes.starts_with(b"PK\x03\x04") {
        let (from, to) = (path.display(), path.with_extension("safetensors"));
        return Some(format!(
            "this is a PyTorch pickle, which can run any code when it is opened; expected a .safetensors file. \
             Convert it once, on a machine where you may run its code:\n  \
             python3 -c \"import torch, safetensors.torch as s; \
             d = torch.load('{from}', map_location='cpu', weights_only=True); \
             d = next((d[k] for k in ('params_ema', 'params', 'state_dict') if k in d), d); \
             s.save_file({{k: v.contiguous() for k, v in d.items()}}, '{}')\"",
            to.display()
        ));
    }
    let gguf = bytes.starts_with(b"GGUF");
    gguf.then(|| "this is a GGUF file; expected the .safetensors file that it was made from".into())
}
