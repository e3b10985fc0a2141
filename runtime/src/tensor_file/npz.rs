//! NumPy's `.npz` files: archives of `.npy` files.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{from_npy, to_npy};
use super::{BYTES_MAXIMUM, Stored};

pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, Stored>, String> {
    let damaged = |error: &dyn std::fmt::Display| format!("not a .npz file, or a damaged one: {error}");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(&error))?;
    let mut tensors = BTreeMap::new();
    let mut left = BYTES_MAXIMUM;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| damaged(&error))?;
        let name = entry.name().map_err(|error| damaged(&error))?.into_owned();
        let short = name.strip_suffix(".npy").ok_or_else(|| format!("expected .npy files in it, found {name}"))?;
        let mut data = Vec::new();
        let read = entry.by_ref().take(left).read_to_end(&mut data).map_err(|error| damaged(&error))?;
        left -= read as u64;
        if left == 0 {
            return Err(format!("{short}: more than {BYTES_MAXIMUM} bytes"));
        }
        let tensor = from_npy(&data).map_err(|problem| format!("{short}: {problem}"))?;
        if tensors.insert(short.to_owned(), tensor).is_some() {
            return Err(format!("{short}: two tensors of this name"));
        }
    }
    Ok(tensors)
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
