//! The files of a folder and its subfolders.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::digest::{FileDigest, sha256_file};
use crate::error::{Error, Result};

/// Size and SHA-256 of every file in a folder and its subfolders, by name: `NAME`, or `FOLDER/NAME`.
pub fn files(folder: &Path) -> Result<BTreeMap<String, FileDigest>> {
    names(folder)?.into_iter().map(|name| Ok((name.clone(), sha256_file(&folder.join(name))?))).collect()
}

/// The names of all files in a folder and its subfolders: `NAME`, or `FOLDER/NAME`.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (path, is_folder) in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_folder {
            names.extend(self::names(&path)?.into_iter().map(|inner| format!("{name}/{inner}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The paths of the entries in a folder, and whether each entry is a folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let fail = |e| Error::file(folder, "list", e);
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.map_err(fail)?;
        Ok((entry.path(), entry.file_type().map_err(fail)?.is_dir()))
    };
    folder.read_dir().map_err(fail)?.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;

    #[test]
    fn files_are_listed_with_their_digests() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tokenizer")).unwrap();
        let digest = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            (name.to_owned(), FileDigest { bytes: text.len() as u64, sha256: sha256(text.as_bytes()) })
        };
        let expected = BTreeMap::from([digest("tokenizer/vocab.json", "{}"), digest("graph.onnx", "graph")]);
        assert_eq!(files(folder.path()).unwrap(), expected);
    }
}
