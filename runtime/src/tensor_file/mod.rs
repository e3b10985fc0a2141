//! Tensors in files: safetensors, and NumPy's `.npy` and `.npz`.
//!
//! The shapes in a file are known before its elements are read. A file is written under a temporary name and renamed
//! at the end.

mod npy;
mod npz;
mod stored;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, SafeTensors, TensorView};
use tileforge_contract::DataType;
use tileforge_files::bounded;
use tileforge_session::{available_memory, safetensors_type};

use crate::error::{Error, Result};
use crate::output_file::OutputFile;
use npy::Header;

pub use npy::{from_npy, to_npy};
pub use stored::{Description, Stored};

/// Larger files are refused, because all elements are held in memory.
const BYTES_MAXIMUM: u64 = 16 << 30;

/// What a file of tensors holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Tensors by name, and texts about them, which only safetensors files have.
    Named {
        /// The tensors.
        tensors: BTreeMap<String, Stored>,
        /// The texts, by name.
        metadata: BTreeMap<String, String>,
    },
    /// One tensor without a name.
    Single(Stored),
}

/// A format, by the ending of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorFormat {
    /// Named tensors of any type, with texts.
    Safetensors,
    /// Named tensors of NumPy's types. Written without compression.
    Npz,
    /// One tensor of one of NumPy's types.
    Npy,
}

impl TensorFormat {
    /// The format for a file name's ending.
    ///
    /// # Errors
    /// [`Error::TensorFile`] for another ending.
    pub fn of_name(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "safetensors" => Ok(Self::Safetensors),
            "npz" => Ok(Self::Npz),
            "npy" => Ok(Self::Npy),
            _ => Err(Error::tensor_file(path, "expected a name that ends in .safetensors, .npz or .npy")),
        }
    }
}

/// Reads a file of tensors.
///
/// # Errors
/// [`Error::TensorFile`] for a file that is truncated, damaged or of another kind, or that has more elements than this
/// machine has memory for; [`Error::File`] if it cannot be read.
pub fn read(path: &Path) -> Result<Contents> {
    read_checked(path, |_| Ok(()))
}

/// Reads a file of tensors after `check` has accepted its contents: types and shapes by name. The name is empty for a
/// format without names. `check` runs before any element is read or unpacked.
///
/// # Errors
/// As [`read`]; the error of `check`.
pub fn read_checked(path: &Path, check: impl FnOnce(&BTreeMap<String, Description>) -> Result<()>) -> Result<Contents> {
    let format = TensorFormat::of_name(path)?;
    let unread = |source: io::Error| Error::file(path, "read", source);
    let refused = |problem: String| Error::tensor_file(path, problem);
    let mut file = tileforge_files::open(path).map_err(unread)?;
    let length = file.metadata().map_err(unread)?.len();
    let check = |descriptions: BTreeMap<String, Description>| {
        check_memory(&descriptions).map_err(refused)?;
        check(&descriptions)
    };
    match format {
        TensorFormat::Npy => {
            let (header, header_bytes) = Header::read(&mut file).map_err(refused)?;
            let bytes = header.bytes(length.saturating_sub(header_bytes)).map_err(refused)?;
            check(BTreeMap::from([(String::new(), header.description())]))?;
            let mut data = Vec::new();
            data.try_reserve_exact(bytes).map_err(|error| refused(error.to_string()))?;
            file.take(bytes as u64 + 1).read_to_end(&mut data).map_err(unread)?;
            header.tensor(data).map(Contents::Single).map_err(refused)
        }
        TensorFormat::Npz => {
            let archive = npz::Archive::open(file).map_err(refused)?;
            check(archive.descriptions())?;
            let tensors = archive.read().map_err(refused)?;
            Ok(Contents::Named { tensors, metadata: BTreeMap::new() })
        }
        TensorFormat::Safetensors => {
            check(safetensors_header(&mut file, length).map_err(refused)?)?;
            let bytes = tileforge_files::read(path, BYTES_MAXIMUM).map_err(unread)?;
            read_safetensors(&bytes).map_err(refused)
        }
    }
}

/// Refuses tensors that exceed this machine's memory: such allocations can end the process.
fn check_memory(descriptions: &BTreeMap<String, Description>) -> Result<(), String> {
    let bytes = descriptions.values().fold(0_u64, |all, tensor| all.saturating_add(tensor.bytes()));
    let most = available_memory().unwrap_or(u64::MAX).min(BYTES_MAXIMUM);
    if bytes <= most {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    Err(format!("its tensors have {} MB, and at most {} MB can be held here", megabytes(bytes), megabytes(most)))
}

/// The longest header that the format's own reader accepts.
const HEADER_MAXIMUM_BYTES: u64 = 100_000_000;

/// The types and shapes of the tensors of a safetensors file of `length` bytes.
fn safetensors_header(file: &mut File, length: u64) -> Result<BTreeMap<String, Description>, String> {
    let damaged = |error: &dyn Display| format!("not a safetensors file, or a truncated one: {error}");
    let mut size = [0; 8];
    file.read_exact(&mut size).map_err(|error| damaged(&error))?;
    let size = u64::from_le_bytes(size);
    if size > HEADER_MAXIMUM_BYTES || size.saturating_add(8) > length {
        return Err(damaged(&format!("its header should have {size} bytes, and the file has {length}")));
    }
    let mut header = Vec::new();
    file.take(size).read_to_end(&mut header).map_err(|error| damaged(&error))?;
    let header: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(&error))?;
    let described = header.tensors().into_iter().map(|(name, tensor)| {
        let data_type = data_type_of(&name, tensor.dtype)?;
        Ok((name, Description { data_type, shape: tensor.shape.clone() }))
    });
    described.collect()
}

fn data_type_of(name: &str, found: Dtype) -> Result<DataType, String> {
    let known = |data_type: &&DataType| safetensors_type(**data_type) == found;
    let data_type = DataType::ALL.iter().find(known).copied();
    data_type.ok_or_else(|| format!("{}: no engine takes elements of {found:?}", bounded(name.to_owned())))
}

/// The contents of a safetensors file's bytes, or what is wrong with them.
pub(crate) fn read_safetensors(bytes: &[u8]) -> Result<Contents, String> {
    let damaged = |error: safetensors::SafeTensorError| format!("not a safetensors file, or a truncated one: {error}");
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
    let tensors = file.iter().map(|(name, tensor)| {
        let data_type = data_type_of(name, tensor.dtype())?;
        let stored = Stored { data_type, shape: tensor.shape().to_vec(), bytes: tensor.data().to_vec() };
        Ok((name.to_owned(), stored))
    });
    Ok(Contents::Named { tensors: tensors.collect::<Result<_, String>>()?, metadata })
}

/// Writes tensors to a file, which appears only when it is complete. Only safetensors files store texts.
///
/// # Errors
/// [`Error::TensorFile`] for several tensors in `.npy`, and for elements of a type that the format lacks;
/// [`Error::File`] if the file cannot be written.
pub fn write(path: &Path, tensors: &[(String, Stored)], metadata: &BTreeMap<String, String>) -> Result<()> {
    let format = TensorFormat::of_name(path)?;
    let refused = |problem: String| Error::tensor_file(path, problem);
    let output = OutputFile::create(path)?;
    let unwritten = |source: io::Error| Error::file(path, "write", source);
    let mut file = BufWriter::new(output.file());
    match (format, tensors) {
        (TensorFormat::Npy, [(name, tensor)]) => {
            let start = to_npy(tensor).map_err(|problem| refused(format!("{name}: {problem}")))?;
            file.write_all(&start).map_err(unwritten)?;
        }
        (TensorFormat::Npy, _) => {
            return Err(refused(format!("a .npy file holds one tensor, found {}", tensors.len())));
        }
        (TensorFormat::Npz, _) => npz::write(&mut file, tensors).map_err(refused)?,
        (TensorFormat::Safetensors, _) => {
            let views = tensors.iter().map(|(name, stored)| {
                let problem = |problem: &dyn Display| refused(format!("{name}: {problem}"));
                let view = TensorView::new(safetensors_type(stored.data_type), stored.shape.clone(), &stored.bytes);
                Ok((name.as_str(), view.map_err(|error| problem(&error))?))
            });
            let views = views.collect::<Result<Vec<_>>>()?;
            let texts = (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect());
            let mut bytes = safetensors::serialize(views, texts).map_err(|error| refused(error.to_string()))?;
            order_texts(&mut bytes).ok_or_else(|| Error::internal("order of texts"))?;
            file.write_all(&bytes).map_err(unwritten)?;
        }
    }
    file.flush().map_err(unwritten)?;
    drop(file);
    output.finish()
}

/// Sorts the texts of a safetensors file by name. The crate keeps them in a map with a random order, but equal
/// contents should give equal bytes.
fn order_texts(bytes: &mut [u8]) -> Option<()> {
    let (length, rest) = bytes.split_first_chunk_mut::<8>()?;
    let header = rest.get_mut(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let mut entries: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(header).ok()?;
    if let Some(serde_json::Value::Object(texts)) = entries.get_mut("__metadata__") {
        texts.sort_keys();
    }
    // The length does not change: the crate writes the header with the same serializer. Trailing blanks stay.
    let ordered = serde_json::to_vec(&entries).ok()?;
    header.get_mut(..ordered.len())?.copy_from_slice(&ordered);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_same_contents_are_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let stored = Stored { data_type: DataType::F32, shape: vec![1], bytes: vec![0; 4] };
        let texts: BTreeMap<_, _> =
            ["width", "height", "frames", "a \"b\"", "ä"].map(|t| (t.to_owned(), t.to_owned())).into();
        let written = || {
            write(&path, &[("a".to_owned(), stored.clone())], &texts).unwrap();
            fs::read(&path).unwrap()
        };
        let first = written();
        for _ in 0..8 {
            assert_eq!(written(), first);
        }
        assert!(matches!(read(&path).unwrap(), Contents::Named { metadata, .. } if metadata == texts));
    }

    #[test]
    fn what_is_written_is_read_back_in_every_format() {
        let folder = tempfile::tempdir().unwrap();
        let stored = Stored { data_type: DataType::I64, shape: vec![2, 1], bytes: (0..16).collect() };
        let scalar = Stored { data_type: DataType::F32, shape: vec![], bytes: vec![0, 0, 128, 63] };
        let named = vec![("a".to_owned(), stored.clone()), ("b.c/d".to_owned(), scalar)];
        let metadata = BTreeMap::from([("key".to_owned(), "text".to_owned())]);
        for name in ["x.safetensors", "x.npz"] {
            let path = folder.path().join(name);
            write(&path, &named, &metadata).unwrap();
            let Contents::Named { tensors, metadata: read } = read(&path).unwrap() else { panic!("no names") };
            assert_eq!(tensors.into_iter().collect::<Vec<_>>(), named);
            assert_eq!(read == metadata, name == "x.safetensors");
        }
        let path = folder.path().join("x.npy");
        write(&path, &named[..1], &BTreeMap::new()).unwrap();
        assert_eq!(read(&path).unwrap(), Contents::Single(stored));
        fs::remove_file(&path).unwrap();
        assert!(write(&path, &named, &BTreeMap::new()).unwrap_err().to_string().contains("holds one tensor, found 2"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing partial is left");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let stored = Stored { data_type: DataType::F32, shape: vec![4], bytes: vec![0; 16] };
        for name in ["x.safetensors", "x.npz", "x.npy"] {
            let path = folder.path().join(name);
            write(&path, &[("a".to_owned(), stored.clone())], &BTreeMap::new()).unwrap();
            let bytes = fs::read(&path).unwrap();
            for length in 0..bytes.len() {
                fs::write(&path, &bytes[..length]).unwrap();
                assert!(matches!(read(&path), Err(Error::TensorFile { .. })), "{name}: {length} bytes");
            }
        }
    }
}
