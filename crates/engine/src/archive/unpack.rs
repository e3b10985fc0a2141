//! Unpacks an archive to an engine directory, and refuses everything that is not exactly one engine.

use super::Digesting;
use crate::signature::SIGNATURE_FILE;
use crate::{Error, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, Manifest, PublicKey, Result, exchange};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longer than any signature.
const SIGNATURE_MAXIMUM_BYTES: u64 = 1 << 10;

/// Unpacks the tar file `archive` to the engine directory `directory`, which must be free or hold an older engine.
///
/// Files are digested while they are written, and none is used before all have been checked. With a `key`, the manifest
/// is not parsed before its signature has been verified.
///
/// # Errors
/// The archive does not hold an engine, a file is missing, additional or altered, the signature is not by `key`, or the
/// folder cannot be written. After a failure there is no folder, or still the older engine.
pub fn unpack(archive: &Path, directory: &Path, key: Option<&PublicKey>) -> Result<Manifest> {
    let staging = exchange::temporary(exchange::place_for(directory)?)?;
    let file = File::open(archive).map_err(|e| Error::file(archive, "open", e))?;
    let mut tar = tar::Archive::new(BufReader::with_capacity(1 << 20, file));
    let broken =
        |e: io::Error| Error::archive(archive, format!("not a whole tar file of an engine: {e}; copy it again"));
    let refused =
        |name: &str, problem: String| Error::archive(&archive.join(name), format!("{problem}; copy the file again"));

    let mut head = Head { archive, key, bytes: Vec::new(), manifest: None };
    let mut seen = BTreeSet::new();
    for entry in tar.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = name_in_engine(&entry).ok_or_else(|| {
            let found = String::from_utf8_lossy(&entry.path_bytes()).escape_debug().to_string();
            refused("", format!("expected files ENGINE/NAME, found `{found}`"))
        })?;
        if !seen.insert(name.clone()) {
            return Err(refused(&name, "it is there twice".into()));
        }
        let length = entry.size();
        let target = staging.path().join(&name);
        if name == MANIFEST_FILE && seen.len() == 1 {
            head.bytes = read_small(&mut entry, MANIFEST_MAXIMUM_BYTES).map_err(broken)?.ok_or_else(|| {
                refused(&name, format!("expected at most {MANIFEST_MAXIMUM_BYTES} bytes, found {length}"))
            })?;
            fs::write(&target, &head.bytes).map_err(|e| Error::file(&target, "write", e))?;
            continue;
        }
        if name == SIGNATURE_FILE && seen.len() == 2 && !head.bytes.is_empty() {
            let signature = read_small(&mut entry, SIGNATURE_MAXIMUM_BYTES).map_err(broken)?;
            let signature =
                signature.ok_or_else(|| refused(&name, format!("expected a signature, found {length} bytes")))?;
            head.verify(&signature)?;
            fs::write(&target, &signature).map_err(|e| Error::file(&target, "write", e))?;
            continue;
        }
        let manifest = head.manifest()?;
        let Some(expected) = manifest.files.get(&name) else {
            return Err(refused(&name, "the manifest does not list it".into()));
        };
        if length != expected.bytes {
            return Err(refused(&name, format!("expected {} bytes, found {length}", expected.bytes)));
        }
        // Only names that the manifest lists get here, and the manifest's rules keep them in the folder.
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|e| Error::file(folder, "create", e))?;
        }
        let mut out = File::create(&target).map_err(|e| Error::file(&target, "create", e))?;
        let mut content = Digesting::new(&mut entry);
        copy(&mut content, &mut out, &target).map_err(|problem| match problem {
            Problem::Read(e) => broken(e),
            Problem::Write(e) => e,
        })?;
        let (sha256, _) = content.finish();
        if sha256 != expected.sha256 {
            return Err(refused(&name, format!("expected SHA-256 {}, found {sha256}", expected.sha256)));
        }
    }
    let manifest = head.manifest()?.clone();
    if let Some(name) = manifest.files.keys().find(|name| !seen.contains(*name)) {
        return Err(refused(name, "listed in the manifest, but missing".into()));
    }
    exchange::put_in_place(staging, directory)?;
    Ok(manifest)
}

/// The first entries of an archive.
struct Head<'a> {
    archive: &'a Path,
    /// The key whose signature has not been read yet.
    key: Option<&'a PublicKey>,
    bytes: Vec<u8>,
    manifest: Option<Manifest>,
}

impl Head<'_> {
    fn verify(&mut self, signature: &[u8]) -> Result<()> {
        if let Some(key) = self.key.take() {
            key.verify(&self.bytes, signature, &self.archive.join(SIGNATURE_FILE))?;
        }
        Ok(())
    }

    /// The manifest, parsed once its signature allows it.
    fn manifest(&mut self) -> Result<&Manifest> {
        if self.bytes.is_empty() {
            return Err(Error::archive(
                self.archive,
                format!("expected {MANIFEST_FILE} first, found none: this is no packed engine"),
            ));
        }
        if self.key.is_some() {
            return Err(Error::Unsigned { path: self.archive.join(SIGNATURE_FILE) });
        }
        match &mut self.manifest {
            Some(manifest) => Ok(manifest),
            empty => Ok(empty.insert(Manifest::parse(&self.bytes)?)),
        }
    }
}

/// The file's name without the engine's folder in front. `None` if the entry is not a file, or its path leads out of
/// the folder.
fn name_in_engine(entry: &tar::Entry<'_, impl Read>) -> Option<String> {
    let path: PathBuf = entry.path().ok()?.into_owned();
    let parts = path.components().map(|part| match part {
        std::path::Component::Normal(part) => part.to_str(),
        _ => None,
    });
    let parts = parts.collect::<Option<Vec<&str>>>()?;
    let (_engine, name) = parts.split_first().filter(|(_, name)| !name.is_empty())?;
    entry.header().entry_type().is_file().then(|| name.join("/"))
}

/// The whole content of an entry; `None` if it has more than `most` bytes.
fn read_small(entry: &mut tar::Entry<'_, impl Read>, most: u64) -> io::Result<Option<Vec<u8>>> {
    if entry.size() > most {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Which side of a copy failed: the archive that is read, or the file that is written.
enum Problem {
    Read(io::Error),
    Write(Error),
}

fn copy(from: &mut impl Read, to: &mut File, target: &Path) -> Result<(), Problem> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = from.read(&mut buffer).map_err(Problem::Read)?;
        if count == 0 {
            return Ok(());
        }
        io::Write::write_all(to, &buffer[..count]).map_err(|e| Problem::Write(Error::file(target, "write", e)))?;
    }
}
