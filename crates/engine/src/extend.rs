//! An engine with more files than it was built with.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tileforge_files::{outputs, unfinished};

use crate::digest::sha256_file;
use crate::{Engine, Error, Manifest, Result, exchange};

/// Writes an engine that holds the files of `engine` and of `added`, which maps names in the new engine to source
/// files. Files of `engine` become hard links if the file system allows it. The new manifest lists all files, so the
/// engine has to be signed again.
///
/// # Errors
/// `directory` is the directory of `engine`, or holds something else than an engine; a name breaks a rule of the
/// manifest; or a file cannot be read or written. After an error, nothing is written.
pub fn extend(engine: &Engine, added: &BTreeMap<String, PathBuf>, directory: &Path) -> Result<Manifest> {
    outputs::check(&[directory], &[engine.directory()]).map_err(Error::Output)?;
    let staging = exchange::temporary(exchange::place_for(directory)?)?;
    let written = write_to(staging.path(), engine, added);
    let manifest = written.map_err(|error| error.relocated(staging.path(), directory))?;
    exchange::put_in_place(staging, directory)?;
    Ok(manifest)
}

fn write_to(staging: &Path, engine: &Engine, added: &BTreeMap<String, PathBuf>) -> Result<Manifest> {
    let mut manifest = engine.manifest().clone();
    let folder_of = |name: &str| -> Result<PathBuf> {
        let place = staging.join(name);
        let folder = exchange::parent_of(&place).to_owned();
        unfinished::create_folders(&folder).map_err(|e| Error::file(&folder, "create", e))?;
        Ok(folder)
    };
    for (name, _) in engine.files().filter(|(name, _)| !added.contains_key(*name)) {
        engine.place_files([name], &folder_of(name)?)?;
    }
    // Check the names before a file is written under them.
    let unknown = crate::digest::FileDigest { bytes: 0, sha256: "0".repeat(64) };
    manifest.files.extend(added.keys().map(|name| (name.clone(), unknown.clone())));
    manifest.validate()?;
    for (name, source) in added {
        let place = folder_of(name)?.join(Path::new(name).file_name().unwrap_or_default());
        let mut read = tileforge_files::open(source).map_err(|e| Error::file(source, "open", e))?;
        let mut file = File::create(&place).map_err(|e| Error::file(&place, "create", e))?;
        io::copy(&mut read, &mut file).map_err(|e| Error::file(&place, "write", e))?;
        manifest.files.insert(name.clone(), sha256_file(&place)?);
    }
    exchange::write_manifest(&manifest, staging)?;
    Ok(manifest)
}
