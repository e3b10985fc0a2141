//! The files of `torch.save`: `.pth`, `.pt`, `.ckpt`, `.bin`.
//!
//! They are pickles, which can run any code when Python opens them. This reader runs nothing: it knows tensors,
//! containers and the few names that PyTorch's own `weights_only` allows ([`globals`]), and refuses everything else by
//! name. The data of the tensors stays where it is in the file.

mod archive;
mod globals;
mod legacy;
mod network;
mod pickle;
mod place;

use archive::Archive;
use network::Network;
use pickle::{Pickle, Storage, Value, View};
use std::collections::{BTreeMap, HashMap};
use tileforge_graph::DataType;

pub use place::Place;

/// The largest size in bytes of a compressed storage whose elements are not read in order: it is unpacked into memory.
const LARGEST_UNPACKED: u64 = 1 << 30;

/// The tensors of a file of `torch.save`.
#[derive(Debug, Default, PartialEq)]
pub struct TorchFile {
    /// The tensors of the network by name.
    pub tensors: BTreeMap<String, TorchTensor>,
    /// The dictionaries that hold the network, such as `params_ema.`.
    pub wrapper: String,
    /// Entries beside the network that hold tensors, such as the state of an optimiser.
    pub set_aside: Vec<String>,
    /// Texts and numbers among the network's tensors, by name.
    pub notes: BTreeMap<String, String>,
}

/// One tensor of a file: a view of a storage.
#[derive(Debug, Clone, PartialEq)]
pub struct TorchTensor {
    /// The element type.
    pub data_type: DataType,
    /// The sizes, outermost first.
    pub dims: Vec<usize>,
    /// Steps in elements, one for each size.
    pub strides: Vec<usize>,
    /// The first element, counted from the beginning of the storage.
    pub first: usize,
    /// Number of elements of the storage.
    pub elements: usize,
    /// The place of the storage.
    pub place: Place,
    /// The name of the storage: that of its entry in the archive, or its key.
    pub storage: String,
    /// Whether the storage has the highest byte of each number first.
    pub is_big_endian: bool,
    /// Whether the values are those of the storage with the other sign.
    pub is_negated: bool,
}

/// Whether a file begins as a pickle, or as an archive that can hold one.
pub(super) fn begins_as_one(file: &[u8]) -> bool {
    file.starts_with(b"PK\x03\x04")
        || (file.first() == Some(&0x80) && file.get(1).is_some_and(|protocol| *protocol <= 5))
}

/// Finds the tensors in a whole file. Nothing in the file is run.
///
/// # Errors
/// The file was not written by `torch.save`, is damaged, contains something else than tensors and containers, or
/// exceeds a limit.
pub fn parse_torch(file: &[u8]) -> Result<TorchFile, String> {
    if file.starts_with(b"PK\x03\x04") {
        let archive = Archive::open(file)?;
        let bytes = archive.pickle()?;
        let (pickle, _) = Pickle::read(&bytes)?;
        let is_big_endian = archive.is_big_endian()?;
        return tensors(&pickle, |key| archive.entry(&format!("data/{key}")), is_big_endian);
    }
    if legacy::is_one(file) {
        let (pickle, rest) = legacy::pickle(file)?;
        let places = legacy::places(file, rest, storages(&pickle))?;
        return tensors(&pickle, |key| places.get(key).map(|place| (key.to_owned(), *place)), false);
    }
    let names = "expected a zip archive or the older format of `torch.save`";
    if begins_as_one(file) {
        return Err(format!("this is a pickle that `torch.save` did not write; {names}"));
    }
    if file.get(257..262) == Some(b"ustar") {
        return Err(format!("this is a file of PyTorch before 0.1.11, which is not supported; {names}"));
    }
    Err(format!("not a checkpoint of PyTorch; {names}"))
}

/// All storages that a pickle refers to.
fn storages<'p, 'a>(pickle: &'p Pickle<'a>) -> impl Iterator<Item = Storage<'a>> + use<'p, 'a> {
    pickle.values().iter().filter_map(|value| match value {
        Value::Storage(storage) => Some(**storage),
        _ => None,
    })
}

/// The network's tensors, with the places of their storages.
fn tensors(
    pickle: &Pickle<'_>,
    place_of: impl Fn(&str) -> Option<(String, Place)>,
    is_big_endian: bool,
) -> Result<TorchFile, String> {
    let Network { tensors, wrapper, set_aside, notes } = network::network(pickle)?;
    let mut known = HashMap::new();
    let mut found = BTreeMap::new();
    for (name, view) in tensors {
        let key = view.storage.key;
        let place = known.entry(key).or_insert_with(|| place_of(key)).as_ref();
        let place = place.ok_or_else(|| format!("the storage `{}`, which it needs, is missing", key.escape_debug()));
        let tensor = place.and_then(|(storage, place)| tensor(view, storage, *place, is_big_endian));
        let tensor = tensor.map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        found.insert(name, tensor);
    }
    Ok(TorchFile { tensors: found, wrapper, set_aside, notes })
}

/// Checks a view against its storage.
fn tensor(view: &View<'_>, name: &str, place: Place, is_big_endian: bool) -> Result<TorchTensor, String> {
    let View { storage, data_type, dims, strides, is_negated, .. } = view;
    let data_type = data_type.ok_or("its element type is not supported")?;
    if *is_negated && !matches!(data_type, DataType::F32 | DataType::F16 | DataType::Bf16 | DataType::F64) {
        return Err(format!(
            "its negative bit is set, and its elements are {data_type}; save what its `resolve_neg()` gives"
        ));
    }
    let size = data_type.size() as u64;
    let bytes = storage.first.checked_add(storage.elements).and_then(|end| end.checked_mul(storage.class.element));
    if bytes.is_none_or(|bytes| bytes > place.length) {
        let (elements, held) = (storage.elements, place.length);
        return Err(format!("its storage should have {elements} elements and has {held} bytes: the file is damaged"));
    }
    let elements = place.length / size;
    // An untyped storage counts bytes.
    let first = (storage.first * storage.class.element / size).checked_add(view.first);
    // An empty tensor can have any other sizes beside the size 0.
    let most = dims.iter().try_fold(1_u64, |count, dim| count.checked_mul((*dim as u64).max(1)));
    let most = most.ok_or("its sizes are beyond memory")?;
    let count = if dims.contains(&0) { 0 } else { most };
    let end = first.and_then(|first| Some((first, end_of(first, dims, strides)?)));
    if end.is_none_or(|(first, end)| if count == 0 { first > elements } else { end > elements }) {
        return Err(format!(
            "{data_type}{dims:?} with the strides {strides:?} ends past the {elements} elements of its storage: the \
             file is damaged"
        ));
    }
    if count > elements {
        // Otherwise a small file could describe tensors of any size.
        return Err(format!("{dims:?} repeats the {elements} elements of its storage; save a contiguous copy"));
    }
    if place.compressed.is_some() && place.length > LARGEST_UNPACKED && !is_contiguous(dims, strides) {
        let length = place.length;
        return Err(format!(
            "its elements lie apart in a compressed storage of {length} bytes; unpack the file, and pack it again with \
             `zip -0`"
        ));
    }
    let addressable = |value: u64| usize::try_from(value).map_err(|_| "its storage is beyond memory".to_owned());
    Ok(TorchTensor {
        data_type,
        dims: dims.clone(),
        strides: strides.clone(),
        first: addressable(first.unwrap_or_default())?,
        elements: addressable(elements)?,
        place,
        storage: name.to_owned(),
        is_big_endian,
        is_negated: *is_negated,
    })
}

/// Whether the elements of a view lie one after another, in row-major order.
fn is_contiguous(dims: &[usize], strides: &[usize]) -> bool {
    let mut step = 1;
    dims.iter().zip(strides).rev().all(|(dim, stride)| {
        let expected = step;
        step *= dim;
        *dim == 1 || *stride == expected
    })
}

/// The element after the last one of a view.
fn end_of(first: u64, dims: &[usize], strides: &[usize]) -> Option<u64> {
    let last = dims.iter().zip(strides).try_fold(first, |last, (dim, stride)| {
        last.checked_add((*dim as u64).saturating_sub(1).checked_mul(*stride as u64)?)
    });
    last?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use globals::StorageClass;

    #[test]
    fn a_compressed_storage_is_unpacked_into_memory_only_if_it_is_small() {
        let class = StorageClass { data_type: Some(DataType::F32), element: 4 };
        let elements = LARGEST_UNPACKED / 2;
        let storage = Storage { key: "0", class, elements, first: 0 };
        let packed = Place { offset: 0, length: 4 * elements, compressed: Some(1000), crc32: None };
        let view = |strides: [usize; 3]| View {
            storage,
            data_type: class.data_type,
            first: 8,
            dims: vec![2, 1, 3],
            strides: strides.into(),
            is_negated: false,
        };
        // The stride of a dimension with a single element is never used.
        assert!(tensor(&view([3, 77, 1]), "0", packed, false).is_ok());
        assert!(tensor(&view([1, 1, 2]), "0", packed, false).unwrap_err().contains("pack it again with `zip -0`"));
        let stored = Place { compressed: None, ..packed };
        assert!(tensor(&view([1, 1, 2]), "0", stored, false).is_ok());
    }
}
