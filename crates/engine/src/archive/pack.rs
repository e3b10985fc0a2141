//! An engine directory as one file.

use super::Digesting;
use crate::signature::SIGNATURE_FILE;
use crate::{Engine, Error, MANIFEST_FILE, Result, exchange};
use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes the engine in `directory` to the tar file `output`. Any tar program unpacks it to a folder of the engine's
/// name.
///
/// The same engine always gives the same bytes: files stand in a fixed order, without owners and times. Manifest and
/// signature come first, so that the unpacking side knows what to expect.
///
/// # Errors
/// The engine is not whole, or the file cannot be written. A failure leaves no file.
pub fn pack(directory: &Path, output: &Path) -> Result<()> {
    let engine = Engine::open(directory)?;
    let manifest = engine.manifest();
    let parent = exchange::parent_of(output);
    let file =
        tempfile::Builder::new().prefix(".packing-").permissions(Permissions::from_mode(0o666)).tempfile_in(parent);
    let file = file.map_err(|e| Error::file(parent, "create a file in", e))?;
    let fail = |e: io::Error| Error::file(output, "write", e);

    let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 20, file.as_file()));
    let signature = directory.join(SIGNATURE_FILE).is_file().then_some(SIGNATURE_FILE);
    let listed = manifest.files.keys().map(String::as_str);
    for name in [MANIFEST_FILE].into_iter().chain(signature).chain(listed) {
        let path = directory.join(name);
        let source = tileforge_files::open(&path).map_err(|e| Error::file(&path, "open", e))?;
        let length = source.metadata().map_err(|e| Error::file(&path, "inspect", e))?.len();
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(length);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        let mut source = Digesting::new(source);
        archive.append_data(&mut header, format!("{}/{name}", manifest.name), &mut source).map_err(fail)?;
        // A file may have changed since the engine was checked, so the packed bytes are digested again.
        let (sha256, bytes) = source.finish();
        if manifest.files.get(name).is_some_and(|expected| (expected.bytes, &expected.sha256) != (bytes, &sha256)) {
            return Err(Error::archive(&path, "it changed while it was packed; pack the engine again"));
        }
    }
    archive.into_inner().and_then(|mut out| out.flush()).map_err(fail)?;
    file.persist(output).map_err(|e| Error::file(output, "rename the finished file to", e.error))?;
    Ok(())
}
