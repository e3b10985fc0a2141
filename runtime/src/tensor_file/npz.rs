//! NumPy's `.npz` files: archives of `.npy` files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{Header, to_npy};
use super::{Description, Stored, bounded};

/// An opened archive, of which only the headers of the tensors have been read.
pub(super) struct Archive {
    zip: ZipArchive<BufReader<File>>,
    tensors: BTreeMap<String, Entry>,
}

/// The place of a tensor: its number in the archive, the bytes of its header, and those of its elements.
struct Entry {
    index: usize,
    header: Header,
    header_bytes: u64,
    bytes: usize,
}

impl Archive {
    /// Reads the directory and the headers. What an archive says about lengths is compared with the headers here, so
    /// that a small file cannot fill the memory before its shapes are known.
    pub(super) fn open(file: File) -> Result<Self, String> {
        let mut zip = ZipArchive::new(BufReader::new(file)).map_err(|error| damaged(&error))?;
        // Of two entries with one name, programs read the first or the last.
        if zip.has_duplicate_names() {
            return Err("two tensors of one name".into());
        }
        let mut tensors = BTreeMap::new();
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).map_err(|error| damaged(&error))?;
            let name = bounded(entry.name().map_err(|error| damaged(&error))?.into_owned());
            let short = name.strip_suffix(".npy").ok_or_else(|| format!("expected .npy files in it, found {name}"))?;
            let problem = |problem: String| format!("{short}: {problem}");
            let (header, header_bytes) = Header::read(&mut entry).map_err(problem)?;
            let bytes = header.bytes(entry.size().saturating_sub(header_bytes)).map_err(problem)?;
            tensors.insert(short.to_owned(), Entry { index, header, header_bytes, bytes });
        }
        Ok(Self { zip, tensors })
    }

    pub(super) fn descriptions(&self) -> BTreeMap<String, Description> {
        self.tensors.iter().map(|(name, entry)| (name.clone(), entry.header.description())).collect()
    }

    /// Unpacks the elements of all tensors.
    pub(super) fn read(mut self) -> Result<BTreeMap<String, Stored>, String> {
        let mut tensors = BTreeMap::new();
        for (name, Entry { index, header, header_bytes, bytes }) in self.tensors {
            let problem = |problem: String| format!("{name}: {problem}");
            let mut entry = self.zip.by_index(index).map_err(|error| damaged(&error))?;
            let skipped = std::io::copy(&mut entry.by_ref().take(header_bytes), &mut std::io::sink());
            let mut data = Vec::new();
            data.try_reserve_exact(bytes).map_err(|error| problem(error.to_string()))?;
            // One byte more shows whether there are more, and lets the archive compare its checksum.
            let read = skipped.and_then(|_| entry.take(bytes as u64 + 1).read_to_end(&mut data));
            read.map_err(|error| damaged(&error))?;
            tensors.insert(name.clone(), header.tensor(data).map_err(problem)?);
        }
        Ok(tensors)
    }
}

fn damaged(error: &dyn std::fmt::Display) -> String {
    format!("not a .npz file, or a damaged one: {error}")
}

pub(super) fn write(file: &mut (impl Write + Seek), tensors: &[(String, Stored)]) -> Result<(), String> {
    let mut archive = ZipWriter::new(file);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (name, tensor) in tensors {
        let bytes = to_npy(tensor).map_err(|problem| format!("{name}: {problem}"))?;
        archive.start_file(format!("{name}.npy"), options).map_err(|error| error.to_string())?;
        archive.write_all(&bytes).map_err(|error| error.to_string())?;
    }
    archive.finish().map(drop).map_err(|error| error.to_string())
}
