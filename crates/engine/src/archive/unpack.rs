//! Unpacks an archive to an engine directory, and refuses archives that do not hold exactly one engine.

use super::Digesting;
use crate::digest::{FileDigest, sha256};
use crate::signature::{SIGNATURE_FILE, SIGNATURE_MAXIMUM_BYTES};
use crate::{BundleManifest, Contents, Error, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, PublicKey, Result, exchange};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use tileforge_files::{link_or_copy, outputs, unfinished};

/// An engine that was unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The engine's name: its directory's name when it was built.
    pub name: String,
    /// Number of checked files, without the engine's manifest and signature.
    pub files: usize,
}

/// Unpacks the tar file `archive` to the engine directory `directory`, which must be free or hold an older engine.
///
/// Files are digested while they are written, and no file is used before all have been checked. With a `key`, the
/// manifest is not parsed before its signature has been verified. Hard links in the archive become hard links.
///
/// # Errors
/// The archive does not hold an engine; a file is missing, additional or altered; the signature was not made with
/// `key`; or the folder cannot be written. After a failure, there is no new folder, and an older engine stays
/// unchanged.
pub fn unpack(archive: &Path, directory: &Path, key: Option<&PublicKey>) -> Result<Unpacked> {
    outputs::check(&[directory], &[archive]).map_err(Error::Output)?;
    let mut file = tileforge_files::open(archive).map_err(|e| Error::file(archive, "open", e))?;
    check_extensions(&file, archive).map_err(|problem| match problem {
        Problem::Read(e) => not_whole(archive, e),
        Problem::Other(e) => e,
    })?;
    file.rewind().map_err(|e| Error::file(archive, "read", e))?;
    let staging = exchange::temporary(exchange::place_for(directory)?)?;
    let unpacked = unpack_to(staging.path(), file, archive, key);
    let unpacked = unpacked.map_err(|error| error.relocated(staging.path(), directory))?;
    exchange::put_in_place(staging, directory)?;
    Ok(unpacked)
}

/// Unpacks the opened `archive` to the folder `staging`.
fn unpack_to(staging: &Path, file: File, archive: &Path, key: Option<&PublicKey>) -> Result<Unpacked> {
    let broken = |e| not_whole(archive, e);
    let mut tar = tar::Archive::new(BufReader::with_capacity(1 << 20, file));
    let refused =
        |name: &str, problem: String| Error::archive(&archive.join(name), format!("{problem}; copy the file again"));

    let mut head = Head { archive, key, bytes: Vec::new(), expected: None };
    let mut seen = BTreeSet::new();
    for entry in tar.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let Some((name, equal)) = names_in_engine(&entry) else {
            let found = String::from_utf8_lossy(&entry.path_bytes()).escape_debug().to_string();
            return Err(refused("", format!("expected files ENGINE/NAME, found `{found}`")));
        };
        if seen.contains(&name) {
            return Err(refused(&name, "it is there twice".into()));
        }
        let length = entry.size();
        let target = staging.join(&name);
        if name == MANIFEST_FILE && seen.is_empty() && equal.is_none() {
            head.bytes = read_small(&mut entry, MANIFEST_MAXIMUM_BYTES).map_err(broken)?.ok_or_else(|| {
                refused(&name, format!("expected at most {MANIFEST_MAXIMUM_BYTES} bytes, found {length}"))
            })?;
            fs::write(&target, &head.bytes).map_err(|e| Error::file(&target, "write", e))?;
            seen.insert(name);
            continue;
        }
        if name == SIGNATURE_FILE && seen.len() == 1 && !head.bytes.is_empty() && equal.is_none() {
            let signature = read_small(&mut entry, SIGNATURE_MAXIMUM_BYTES).map_err(broken)?;
            let signature =
                signature.ok_or_else(|| refused(&name, format!("expected a signature, found {length} bytes")))?;
            head.verify(&signature)?;
            fs::write(&target, &signature).map_err(|e| Error::file(&target, "write", e))?;
            seen.insert(name);
            continue;
        }
        let expected = head.expected()?;
        let Some(digest) = expected.files().get(&name).cloned() else {
            return Err(refused(&name, "the manifest does not list it".into()));
        };
        // Only names that a manifest lists get here, and the manifest's rules ensure that they stay in the folder.
        if let Some(folder) = target.parent() {
            unfinished::create_folders(folder).map_err(|e| Error::file(folder, "create", e))?;
        }
        if let Some(equal) = equal {
            // A part's manifest must be read to know what it lists, so it must not be a link.
            let is_manifest = expected.part_of_manifest(&name).is_some();
            if is_manifest || !seen.contains(&equal) || expected.files().get(&equal) != Some(&digest) {
                let found = equal.escape_debug();
                return Err(refused(&name, format!("expected a link to an equal file before it, found `{found}`")));
            }
            link_or_copy(&staging.join(equal), &target).map_err(|e| Error::file(&target, "create", e))?;
        } else if length != digest.bytes {
            return Err(refused(&name, format!("expected {} bytes, found {length}", digest.bytes)));
        } else if let Some(part) = expected.part_of_manifest(&name) {
            // The pipeline manifest's rules limit this size, so the bytes fit into memory.
            let bytes = read_small(&mut entry, MANIFEST_MAXIMUM_BYTES).map_err(broken)?.unwrap_or_default();
            check(&digest, &sha256(&bytes)).map_err(|problem| refused(&name, problem))?;
            expected.add_part(&part, BundleManifest::parse(&bytes)?)?;
            fs::write(&target, &bytes).map_err(|e| Error::file(&target, "write", e))?;
        } else {
            let mut out = File::create(&target).map_err(|e| Error::file(&target, "create", e))?;
            let mut content = Digesting::new(&mut entry);
            copy(&mut content, &mut out, &target).map_err(|problem| match problem {
                Problem::Read(e) => broken(e),
                Problem::Other(e) => e,
            })?;
            check(&digest, &content.finish()).map_err(|problem| refused(&name, problem))?;
        }
        seen.insert(name);
    }
    let expected = head.expected()?;
    if let Some(name) = expected.files().keys().find(|name| !seen.contains(*name)) {
        return Err(refused(name, "listed in the manifest, but missing".into()));
    }
    Ok(Unpacked { name: expected.name().to_owned(), files: expected.files().len() })
}

fn not_whole(archive: &Path, reason: io::Error) -> Error {
    // The tar reader quotes bytes of the file.
    let reason: String =
        reason.to_string().chars().take_while(|char| *char == ' ' || char.is_ascii_graphic()).collect();
    let reason = reason.trim_end_matches([':', ' ']);
    Error::archive(archive, format!("not a whole tar file of an engine: {reason}; copy it again"))
}

/// Most bytes of an entry's long name, and of its table of attributes.
const EXTENSION_MAXIMUM_BYTES: u64 = 1 << 16;

/// Most entries of an archive: no engine has as many files.
const ENTRIES_MAXIMUM: usize = 1 << 16;

/// Checks the length of entries that describe the next one: long names of GNU tar, and attributes of PAX. The tar
/// reader holds them in memory, whatever their length. Also checks the number of entries.
fn check_extensions(file: &File, archive: &Path) -> Result<(), Problem> {
    let refused = |problem: String| Problem::Other(Error::archive(archive, format!("{problem}; copy the file again")));
    let mut tar = tar::Archive::new(file);
    let entries = tar.entries_with_seek().map_err(Problem::Read)?.raw(true);
    for (number, entry) in entries.enumerate() {
        let entry = entry.map_err(Problem::Read)?;
        let kind = entry.header().entry_type();
        let describes = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        let length = entry.size();
        if describes && length > EXTENSION_MAXIMUM_BYTES {
            return Err(refused(format!(
                "expected names and attributes of at most {EXTENSION_MAXIMUM_BYTES} bytes, found {length}"
            )));
        }
        if number >= ENTRIES_MAXIMUM {
            return Err(refused(format!("expected at most {ENTRIES_MAXIMUM} entries, found more")));
        }
    }
    Ok(())
}

/// The first entries of an archive.
struct Head<'a> {
    archive: &'a Path,
    /// The key, until the signature has been verified with it.
    key: Option<&'a PublicKey>,
    bytes: Vec<u8>,
    expected: Option<Contents>,
}

impl Head<'_> {
    fn verify(&mut self, signature: &[u8]) -> Result<()> {
        if let Some(key) = self.key.take() {
            key.verify(&self.bytes, signature, &self.archive.join(SIGNATURE_FILE))?;
        }
        Ok(())
    }

    /// The contents that the manifest lists. The manifest is parsed only after its signature has been verified.
    fn expected(&mut self) -> Result<&mut Contents> {
        if self.bytes.is_empty() {
            return Err(Error::archive(
                self.archive,
                format!("expected {MANIFEST_FILE} first, found none: this is no packed engine"),
            ));
        }
        if self.key.is_some() {
            return Err(Error::Unsigned { path: self.archive.join(SIGNATURE_FILE) });
        }
        match &mut self.expected {
            Some(expected) => Ok(expected),
            empty => Ok(empty.insert(Contents::new(BundleManifest::parse(&self.bytes)?))),
        }
    }
}

/// The file's name without the engine's folder, and for a hard link the name of its target. `None` if the entry is
/// neither a file nor a hard link, or a path leads out of the folder.
fn names_in_engine(entry: &tar::Entry<'_, impl Read>) -> Option<(String, Option<String>)> {
    let kind = entry.header().entry_type();
    let name = name_in_engine(&entry.path().ok()?)?;
    if kind.is_hard_link() {
        return Some((name, Some(name_in_engine(&entry.link_name().ok()??)?)));
    }
    kind.is_file().then_some((name, None))
}

fn name_in_engine(path: &Path) -> Option<String> {
    let parts = path.components().map(|part| match part {
        std::path::Component::Normal(part) => part.to_str(),
        _ => None,
    });
    let parts = parts.collect::<Option<Vec<&str>>>()?;
    let (_engine, name) = parts.split_first().filter(|(_, name)| !name.is_empty())?;
    Some(name.join("/"))
}

/// Compares the SHA-256 of a file with the expected one. The error is a text.
fn check(expected: &FileDigest, found: &str) -> Result<(), String> {
    if found == expected.sha256 { Ok(()) } else { Err(format!("expected SHA-256 {}, found {found}", expected.sha256)) }
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

/// Why an entry is not unpacked: the archive cannot be read, or there is another error, for example a file cannot be
/// written.
enum Problem {
    Read(io::Error),
    Other(Error),
}

fn copy(from: &mut impl Read, to: &mut File, target: &Path) -> Result<(), Problem> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = from.read(&mut buffer).map_err(Problem::Read)?;
        if count == 0 {
            return Ok(());
        }
        io::Write::write_all(to, &buffer[..count]).map_err(|e| Problem::Other(Error::file(target, "write", e)))?;
    }
}
