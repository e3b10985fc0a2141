//! The files that `torch.save` wrote before PyTorch 1.6: pickles one after another, then the storages.
//!
//! Layout: `_legacy_save` in PyTorch's `torch/serialization.py`. Storages are little-endian on every machine. They
//! begin at any byte, so a graph cannot point into such a file: its weights are copied.

use super::Place;
use super::pickle::{Pickle, Storage, Value};
use std::collections::HashMap;

/// The integer at the beginning of every such file, in little-endian order.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// Whether a file begins as one of these: with the pickle of one integer.
pub(super) fn is_one(file: &[u8]) -> bool {
    // Protocol, two bytes. From protocol 4 on, a frame with its length, nine bytes.
    let start = if file.get(2) == Some(&0x95) { 11 } else { 2 };
    // LONG1 with its length.
    let integer = file.get(start..).and_then(|rest| rest.strip_prefix(&[0x8a, 10]));
    file.first() == Some(&0x80) && integer.is_some_and(|integer| integer.starts_with(&MAGIC))
}

/// The pickle of the tensors, and what follows it.
pub(super) fn pickle(file: &[u8]) -> Result<(Pickle<'_>, &[u8]), String> {
    // The magic number, the version of the format, and the sizes of the writing machine's types.
    let (magic, rest) = Pickle::read(file)?;
    if *magic.root() != Value::LongInteger(&MAGIC) {
        return Err("not a file of `torch.save`".into());
    }
    let (version, rest) = Pickle::read(rest)?;
    if *version.root() != Value::Integer(1001) {
        return Err(format!("expected version 1001 of the format, found {}", version.root()));
    }
    let (_machine, rest) = Pickle::read(rest)?;
    Pickle::read(rest)
}

/// The places of the storages, which follow the list of their keys: for each its number of elements, and its elements.
/// `rest` is the end of the file from that list on.
pub(super) fn places<'a>(
    file: &[u8],
    rest: &[u8],
    storages: impl Iterator<Item = Storage<'a>>,
) -> Result<HashMap<String, Place>, String> {
    let element: HashMap<&str, u64> = storages.map(|storage| (storage.key, storage.class.element)).collect();
    let (keys, mut rest) = Pickle::read(rest)?;
    let Value::List(items) = keys.root() else {
        return Err(format!("expected the list of storages, found {}", keys.root()));
    };
    let mut places = HashMap::with_capacity(items.len());
    for item in items {
        let key = match keys.value(*item) {
            Value::Text(key) => std::str::from_utf8(key).map_err(|_| "the key of a storage is no text")?,
            other => return Err(format!("expected the key of a storage, found {other}")),
        };
        let truncated = || format!("the storage `{key}` is truncated; download the file again");
        let (count, data) = rest.split_first_chunk::<8>().ok_or_else(truncated)?;
        let Some(element) = element.get(key) else {
            return Err(format!("the storage `{key}` belongs to no tensor: the file is damaged"));
        };
        let length = u64::from_le_bytes(*count).checked_mul(*element).ok_or_else(truncated)?;
        let end = usize::try_from(length).ok().filter(|end| *end <= data.len()).ok_or_else(truncated)?;
        let offset = (file.len() - data.len()) as u64;
        places.insert(key.to_owned(), Place { offset, length, compressed: None, crc32: None });
        rest = &data[end..];
    }
    Ok(places)
}
