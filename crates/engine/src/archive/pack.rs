//! An engine directory as one file.

use crate::signature::SIGNATURE_FILE;
use crate::{Engine, Error, MANIFEST_FILE, Result, exchange};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tileforge_files::{outputs, unfinished};

/// Writes the engine in `directory` to the tar file `output`. Any tar program unpacks it to a folder of the engine's
/// name.
///
/// The same engine always gives the same bytes: files stand in a fixed order, without owners and times. Manifest and
/// signature come first, so that the unpacking side knows what to expect.
///
/// # Errors
/// The engine is not whole, or the file cannot be written. A failure leaves no file.
pub fn pack(directory: &Path, output: &Path) -> Result<()> {
    outputs::check(&[output], &[directory]).map_err(Error::Output)?;
    let engine = Engine::open(directory)?;
    let parent = exchange::parent_of(output);
    let file = unfinished::file_in(parent, 0o666).map_err(|e| Error::file(parent, "create a file in", e))?;
    let fail = |e: io::Error| Error::file(output, "write", e);

    let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 20, file.as_file()));
    let signature = engine.signature()?;
    let signature = signature.as_deref().map(|bytes| (SIGNATURE_FILE, bytes));
    for (name, bytes) in [(MANIFEST_FILE, engine.manifest_bytes())].into_iter().chain(signature).chain(engine.files()) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{}/{name}", engine.manifest().name), bytes).map_err(fail)?;
    }
    archive.into_inner().and_then(|mut out| out.flush()).map_err(fail)?;
    file.rename(output).map_err(|e| Error::file(output, "rename the finished file to", e))?;
    Ok(())
}
