//! The zip archives that `torch.save` writes since PyTorch 1.6: a pickle, and one entry for each storage.
//!
//! Layout: `caffe2/serialize/inline_container.h` in PyTorch. Entries are stored uncompressed, at multiples of 64 bytes.
//! Archives that other programs packed again may compress them.

use super::place::Place;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read};
use zip::{CompressionMethod, ZipArchive};

/// Bytes of a compressed pickle. A checkpoint takes about 200 bytes a tensor.
const LONGEST_PICKLE: u64 = 64 << 20;

const TWICE: &str = "the zip archive has two entries of one name, and programs differ in which of them they read; save \
                     the checkpoint again with `torch.save`";

/// The entries of an archive of PyTorch.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    file: &'a [u8],
    entries: HashMap<String, Place>,
    /// The folder that holds every entry, with a slash.
    folder: String,
}

impl<'a> Archive<'a> {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// The archive is damaged, is not one of `torch.save`, or has an entry in a form that is not supported.
    pub(super) fn open(file: &'a [u8]) -> Result<Self, String> {
        let damaged = |e: zip::result::ZipError| {
            format!("not a complete zip archive of PyTorch: {e}; the file is truncated or damaged, download it again")
        };
        let mut archive = ZipArchive::new(Cursor::new(file)).map_err(damaged)?;
        if archive.has_overlapping_entries().map_err(damaged)? {
            return Err("entries of the zip archive overlap; the file is damaged".into());
        }
        // If two entries have one name, some readers take the first and others the last. PyTorch's reader ignores the
        // case of names.
        if archive.has_duplicate_names() {
            return Err(TWICE.into());
        }
        let mut names = HashSet::with_capacity(archive.len());
        let mut entries = HashMap::with_capacity(archive.len());
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index).map_err(damaged)?;
            let name = entry.name().map_err(damaged)?.into_owned();
            if !names.insert(name.to_ascii_lowercase()) {
                return Err(TWICE.into());
            }
            let unsupported = |how: String| format!("the entry `{}` of the zip archive {how}", name.escape_debug());
            if entry.encrypted() {
                return Err(unsupported("is encrypted; save the checkpoint without a password".into()));
            }
            let stored = entry.compressed_size();
            let compressed = match entry.compression() {
                CompressionMethod::Stored if stored == entry.size() => None,
                CompressionMethod::Stored => {
                    return Err(unsupported(format!("has {stored} bytes of {}: the file is damaged", entry.size())));
                }
                CompressionMethod::Deflated => Some(stored),
                other => {
                    return Err(unsupported(format!(
                        "is compressed by {other:?}, which is not supported; unpack the file, and pack it again with \
                         `zip -0`"
                    )));
                }
            };
            let offset = entry.data_start().ok_or_else(|| unsupported("has no data".into()))?;
            let end = offset.checked_add(stored).filter(|end| *end <= file.len() as u64);
            if end.is_none() {
                return Err(unsupported("ends past the file: it is truncated, download it again".into()));
            }
            let (length, crc32) = (entry.size(), Some(entry.crc32()));
            drop(entry);
            entries.insert(name, Place { offset, length, compressed, crc32 });
        }
        let folders: Vec<&str> = entries.keys().filter_map(|name| name.strip_suffix("data.pkl")).collect();
        let [folder] = folders.as_slice() else {
            return Err(match folders.len() {
                0 => "a zip archive without `data.pkl`: expected one that `torch.save` wrote".into(),
                count => format!("the zip archive holds {count} checkpoints; expected one"),
            });
        };
        let folder = (*folder).to_owned();
        // `torch.serialization.set_crc32_options(False)` writes zeros in place of all checksums.
        if entries.get(&format!("{folder}data.pkl")).is_some_and(|place| place.crc32 == Some(0)) {
            entries.values_mut().for_each(|place| place.crc32 = None);
        }
        if entries.keys().any(|name| name.strip_prefix(&folder).is_some_and(|rest| rest.starts_with("code/"))) {
            return Err("this is a TorchScript program; expected the tensors alone. Load it in PyTorch with \
                        `torch.jit.load`, and save its `state_dict()`"
                .into());
        }
        Ok(Archive { file, entries, folder })
    }

    /// The entry of this name below the archive's folder, and its whole name.
    pub(super) fn entry(&self, name: &str) -> Option<(String, Place)> {
        let name = format!("{}{name}", self.folder);
        self.entries.get(&name).copied().map(|place| (name, place))
    }

    /// The pickle of the tensors.
    pub(super) fn pickle(&self) -> Result<Cow<'a, [u8]>, String> {
        let (name, place) = self.entry("data.pkl").ok_or("the zip archive has no `data.pkl`")?;
        self.content(&name, place)
    }

    /// Whether the storages have the highest byte of each number first.
    pub(super) fn is_big_endian(&self) -> Result<bool, String> {
        // Archives from before PyTorch 2.1 do not say, and are read as little-endian.
        let Some((name, place)) = self.entry("byteorder") else { return Ok(false) };
        match self.content(&name, place)?.as_ref() {
            b"little" => Ok(false),
            b"big" => Ok(true),
            _ => Err("expected the byte order `little` or `big`, found another".into()),
        }
    }

    /// The content of a small entry.
    fn content(&self, name: &str, place: Place) -> Result<Cow<'a, [u8]>, String> {
        let content = self.unpacked(place)?;
        let mut crc = Crc::new();
        crc.update(&content);
        match place.crc32 {
            Some(expected) if expected != crc.sum() => Err(format!(
                "the entry `{}` is damaged: expected the CRC-32 {expected:08x}, found {:08x}; download the file again",
                name.escape_debug(),
                crc.sum()
            )),
            _ => Ok(content),
        }
    }

    fn unpacked(&self, place: Place) -> Result<Cow<'a, [u8]>, String> {
        let stored = place.compressed.unwrap_or(place.length);
        // The directory's entries were compared with the file's length.
        let bytes = &self.file[place.offset as usize..][..stored as usize];
        if place.compressed.is_none() {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut content = Vec::new();
        let most = place.length.min(LONGEST_PICKLE);
        let read = DeflateDecoder::new(bytes).take(most + 1).read_to_end(&mut content);
        read.map_err(|e| format!("a compressed entry is damaged: {e}; download the file again"))?;
        if content.len() as u64 > LONGEST_PICKLE {
            return Err(format!("its pickle has more than {LONGEST_PICKLE} bytes; a checkpoint has far fewer"));
        }
        if content.len() as u64 != place.length {
            return Err(format!(
                "a compressed entry does not have its {} bytes; download the file again",
                place.length
            ));
        }
        Ok(Cow::Owned(content))
    }
}
