//! Checkpoints: named tensors in files of safetensors or PyTorch, mapped and checked, under normalised names.

mod keys;
mod other_format;
mod safetensors;
mod sharded;
pub(crate) mod single_file;
mod torch;

pub use other_format::{FormatKind, OtherFormat, other_format};
pub use safetensors::{Header, TensorInfo, parse_header};
pub use torch::{Place, TorchFile, TorchTensor, parse_torch};

use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tileforge_files::TEXT_MAXIMUM_BYTES;
use tileforge_graph::{Checksum, MappedFile, StoredEntry, Weight};

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

/// What a file holds.
#[derive(Debug, Default)]
struct Stored {
    tensors: BTreeMap<String, Weight>,
    metadata: BTreeMap<String, String>,
    wrapper: String,
    set_aside: Vec<String>,
}

/// Maps one file.
fn open_file(path: &Path) -> Result<Stored> {
    let file = MappedFile::open(path)?;
    // The length of a valid header can look like the first bytes of another format, so other formats are only
    // considered where the header is invalid.
    let header = match parse_header(file.bytes()) {
        Ok(header) => header,
        Err(_) if torch::begins_as_one(file.bytes()) => return open_torch(&file),
        Err(reason) => {
            return Err(match other_format(file.bytes()) {
                Some(found) => Error::OtherFormat { path: path.to_owned(), found },
                None => Error::checkpoint(path, reason),
            });
        }
    };
    let mut tensors = BTreeMap::new();
    for (name, info) in header.tensors {
        let weight = Weight::mapped(file.clone(), info.offset, info.data_type, info.dims)?;
        tensors.insert(name, weight);
    }
    Ok(Stored { tensors, metadata: header.metadata, ..Stored::default() })
}

/// The tensors of a file of PyTorch.
fn open_torch(file: &Arc<MappedFile>) -> Result<Stored> {
    let TorchFile { tensors, wrapper, set_aside, notes } =
        parse_torch(file.bytes()).map_err(|reason| Error::checkpoint(file.path(), reason))?;
    let checksum = |tensor: &TorchTensor| {
        tensor.place.crc32.map(|crc32| Checksum { entry: tensor.storage.as_str().into(), crc32 })
    };
    // The system can link or copy entries that are stored uncompressed, so their checksums are compared in a separate
    // step. Compressed entries are compared when they are unpacked.
    let stored: BTreeMap<u64, StoredEntry> = tensors
        .values()
        .filter(|tensor| tensor.place.compressed.is_none())
        .filter_map(|tensor| {
            let Place { offset, length, .. } = tensor.place;
            Some((offset, StoredEntry { offset, length, checksum: checksum(tensor)? }))
        })
        .collect();
    file.expect(stored.into_values().collect());
    let weight = |tensor: TorchTensor| {
        let Place { offset, compressed, .. } = tensor.place;
        let (file, data_type, elements) = (file.clone(), tensor.data_type, vec![tensor.elements]);
        let storage = match compressed {
            None => Weight::mapped(file, offset, data_type, elements)?,
            Some(compressed) => Weight::deflated(file, offset, compressed, checksum(&tensor), data_type, elements)?,
        };
        let storage = if tensor.is_big_endian { storage.from_big_endian() } else { storage };
        let view = storage.strided(tensor.first, tensor.dims, &tensor.strides)?;
        if tensor.is_negated { view.negated() } else { Ok(view) }
    };
    let tensors =
        tensors.into_iter().map(|(name, tensor)| Ok((name, weight(tensor)?))).collect::<Result<BTreeMap<_, _>>>()?;
    Ok(Stored { tensors, metadata: notes, wrapper, set_aside })
}
