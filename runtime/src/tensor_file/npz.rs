//! NumPy's `.npz` files: archives of `.npy` files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};

use tileforge_files::bounded;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{Header, to_npy};
use super::stored::{Description, Stored};

/// An open archive; only the headers of its tensors have been read.
pub(super) struct Archive {
    zip: ZipArchive<BufReader<File>>,
    tensors: BTreeMap<String, Entry>,
}

/// A tensor in the archive: its index, its header, and the number of bytes of its header and its elements.
struct Entry {
    index: usize,
    header: Header,
    header_bytes: u64,
    bytes: usize,
}

impl Archive {
    /// Reads the directory and the headers. Compares the archive's lengths with the headers, so that a small file
    /// cannot fill the memory before its shapes are known.
    pub(super) fn open(file: File) -> Result<Self, String> {
        let mut zip = ZipArchive::new(BufReader::new(file)).map_err(|error| damaged(&error))?;
        // Programs differ in which of two entries with one name they read.
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
            // Reading one extra byte detects a longer entry, and makes the archive check its checksum.
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

#[cfg(test)]
mod tests {
    use super::super::{Contents, read, read_checked};
    use super::*;
    use crate::Error;
    use std::path::{Path, PathBuf};
    use tileforge_contract::DataType;

    fn header(shape: &str) -> Vec<u8> {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        [b"\x93NUMPY\x01\0".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat()
    }

    /// An archive of compressed entries.
    fn archive(folder: &Path, entries: &[(&str, Vec<u8>)]) -> PathBuf {
        let path = folder.join("x.npz");
        let mut zip = ZipWriter::new(File::create(&path).unwrap());
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (name, bytes) in entries {
            zip.start_file(*name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    fn refusal(path: &Path) -> String {
        read(path).unwrap_err().to_string()
    }

    #[test]
    fn nothing_is_unpacked_before_the_shapes_were_agreed_to() {
        let folder = tempfile::tempdir().unwrap();
        let values = [header("(1000000,)"), vec![7; 4_000_000]].concat();
        let path = archive(folder.path(), &[("a.npy", values.clone())]);
        let Contents::Named { tensors, .. } = read(&path).unwrap() else { panic!("no names") };
        assert_eq!((tensors["a"].shape.as_slice(), tensors["a"].bytes.len()), (&[1_000_000][..], 4_000_000));
        // Elements that cannot be unpacked, or have a wrong checksum.
        let mut bytes = std::fs::read(&path).unwrap();
        let end = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
        bytes[end - 30..end].fill(0xff);
        std::fs::write(&path, &bytes).unwrap();
        let mut seen = Vec::new();
        let checked = read_checked(&path, |found| {
            seen.extend(found.iter().map(|(name, tensor)| format!("{name} {tensor}")));
            Err(Error::internal("refused"))
        });
        assert!(checked.unwrap_err().to_string().contains("refused"));
        assert_eq!(seen, ["a f32 [1000000]"]);
        assert!(refusal(&path).contains("a damaged one"), "{}", refusal(&path));
    }

    #[test]
    fn what_an_archive_says_about_lengths_agrees_with_the_shapes() {
        let folder = tempfile::tempdir().unwrap();
        for (shape, length, expected) in [
            ("(5,)", 16, "a: expected 20 bytes of elements, found 16"),
            ("(3,)", 16, "a: expected 12 bytes of elements, found 16"),
            ("(4611686018427387904,)", 16, "a: expected more than there can be"),
            ("()", 0, "a: expected 4 bytes of elements, found 0"),
        ] {
            let path = archive(folder.path(), &[("a.npy", [header(shape), vec![0; length]].concat())]);
            assert!(refusal(&path).contains(expected), "{}", refusal(&path));
        }
        // A directory that states fewer or more bytes than the entry has.
        let path = archive(folder.path(), &[("a.npy", [header("(4,)"), vec![0; 16]].concat())]);
        let good = std::fs::read(&path).unwrap();
        let entry = good.windows(4).position(|four| four == b"PK\x01\x02").unwrap() + 24;
        for change in [-4_i64, 4, 1 << 30] {
            let mut bytes = good.clone();
            let field: &mut [u8; 4] = (&mut bytes[entry..entry + 4]).try_into().unwrap();
            *field = ((i64::from(u32::from_le_bytes(*field)) + change) as u32).to_le_bytes();
            std::fs::write(&path, &bytes).unwrap();
            assert!(matches!(read(&path), Err(Error::TensorFile { .. })), "{change}");
        }
    }

    #[test]
    fn more_than_memory_holds_is_refused_before_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        // 4 TB in a sparse file: more than any machine has.
        let sparse = folder.path().join("x.npy");
        std::fs::write(&sparse, header("(1000000000000,)")).unwrap();
        let length = header("(1000000000000,)").len() as u64;
        File::options().write(true).open(&sparse).unwrap().set_len(length + 4_000_000_000_000).unwrap();
        assert!(refusal(&sparse).contains("its tensors have 4000000 MB"), "{}", refusal(&sparse));
        let tensors = folder.path().join("x.safetensors");
        let header = r#"{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}"#;
        std::fs::write(&tensors, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
        let length = header.len() as u64 + 8;
        File::options().write(true).open(&tensors).unwrap().set_len(length + 4_000_000_000_000).unwrap();
        assert!(refusal(&tensors).contains("its tensors have 4000000 MB"), "{}", refusal(&tensors));
    }

    #[test]
    fn names_are_told_apart_and_kept_short() {
        let folder = tempfile::tempdir().unwrap();
        let tensor = [header("(1,)"), vec![0; 4]].concat();
        let path = archive(folder.path(), &[("a.npy", tensor.clone()), ("b.npy", tensor.clone())]);
        let mut bytes = std::fs::read(&path).unwrap();
        let places: Vec<usize> = (0..bytes.len() - 5).filter(|at| bytes[*at..].starts_with(b"b.npy")).collect();
        places.into_iter().for_each(|at| bytes[at] = b'a');
        std::fs::write(&path, &bytes).unwrap();
        assert!(refusal(&path).contains("two tensors of one name"), "{}", refusal(&path));
        let long = "x".repeat(60_000);
        let path = archive(folder.path(), &[(&long, tensor.clone())]);
        assert!(refusal(&path).len() < 3000, "{}", refusal(&path).len());
        let path = archive(folder.path(), &[(&format!("{long}.npy"), tensor[..20].to_vec())]);
        assert!(refusal(&path).len() < 3000, "{}", refusal(&path).len());
        // A header that never ends.
        let endless = [b"\x93NUMPY\x02\0".as_slice(), &u32::MAX.to_le_bytes(), &[b' '; 100]].concat();
        let path = archive(folder.path(), &[("a.npy", endless)]);
        assert!(refusal(&path).contains("expected a header of at most 65536 bytes, found 4294967295"));
        let stored = Stored { data_type: DataType::F32, shape: vec![1], bytes: vec![0; 4] };
        let path = archive(folder.path(), &[("a.npy", tensor)]);
        let Contents::Named { tensors, .. } = read(&path).unwrap() else { panic!("no names") };
        assert_eq!(tensors["a"], stored);
    }
}
