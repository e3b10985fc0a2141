//! What one file holds, of safetensors or of PyTorch.

use super::other_format::other_format;
use super::safetensors::parse_header;
use super::torch::{self, Place, TorchFile, TorchTensor, parse_torch};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tileforge_graph::{Checksum, MappedFile, StoredEntry, Weight};

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) tensors: BTreeMap<String, Weight>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) wrapper: String,
    pub(super) set_aside: Vec<String>,
}

/// Maps one file.
pub(super) fn open_file(path: &Path) -> Result<Stored> {
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
