//! An engine directory as one file.

use crate::signature::SIGNATURE_FILE;
use crate::{Bundle, Error, MANIFEST_FILE, Result, exchange};
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tar::{EntryType, Header};
use tileforge_files::{outputs, unfinished};

/// Writes the engine in `directory` to the tar file `output`. Any tar program unpacks it to a folder of the engine's
/// name.
///
/// The same engine always gives the same bytes: files are in a fixed order, without owners and times. Manifest and
/// signature come first, and the manifest of a part comes before the part's files, so that the unpacking side knows
/// what to expect. A file that is equal to an earlier one becomes a hard link to it, except for manifests.
///
/// # Errors
/// The engine is not whole, or the file cannot be written. A failure leaves no file.
pub fn pack(directory: &Path, output: &Path) -> Result<()> {
    outputs::check(&[output], &[directory]).map_err(Error::Output)?;
    let bundle = Bundle::open(directory)?;
    let parent = exchange::parent_of(output);
    let file = unfinished::file_in(parent, 0o666).map_err(|e| Error::file(parent, "create a file in", e))?;
    let fail = |e: io::Error| Error::file(output, "write", e);

    let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 20, file.as_file()));
    let place = |name: &str| format!("{}/{name}", bundle.name());
    let manifest = bundle.opened().manifest_bytes();
    archive.append_data(&mut header(manifest.len()), place(MANIFEST_FILE), manifest).map_err(fail)?;
    if let Some(signature) = bundle.opened().signature()? {
        archive.append_data(&mut header(signature.len()), place(SIGNATURE_FILE), signature.as_slice()).map_err(fail)?;
    }
    let mut first: HashMap<String, String> = HashMap::new();
    for (name, digest, bytes) in bundle.files() {
        let is_manifest = name.ends_with(MANIFEST_FILE);
        if let Some(equal) = first.get(&digest.sha256).filter(|_| !is_manifest) {
            let mut header = header(0);
            header.set_entry_type(EntryType::Link);
            archive.append_link(&mut header, place(&name), place(equal)).map_err(fail)?;
        } else {
            archive.append_data(&mut header(bytes.len()), place(&name), bytes).map_err(fail)?;
            first.insert(digest.sha256, name);
        }
    }
    archive.into_inner().and_then(|mut out| out.flush()).map_err(fail)?;
    file.rename(output).map_err(|e| Error::file(output, "rename the finished file to", e))?;
    Ok(())
}

/// The header of a file of this many bytes.
fn header(bytes: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}
