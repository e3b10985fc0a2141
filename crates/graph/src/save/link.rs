//! Checkpoints beside the graphs that point into them.

use super::meter::Meter;
use super::place::{FOREIGN, folder_of};
use super::staged::{LINKED, Staged};
use crate::{Error, MappedFile, Result};
use indexmap::IndexMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tileforge_files::{is_same_file, unfinished};

/// How a checkpoint was placed beside the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMethod {
    /// It was already there.
    InPlace,
    /// A second name of the same file.
    HardLink,
    /// A copy that shares the disk blocks.
    Reflink,
    /// A real copy: the system allows neither a link nor a shared copy here.
    Copied {
        /// The system's reason why there is no hard link.
        reason: NoLink,
    },
}

/// Why a checkpoint has no second name beside the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLink {
    /// The folder is on another file system.
    OtherFileSystem,
    /// The system forbids hard links to files of other users (`protected_hardlinks` of proc_sys_fs(5)), or this file
    /// system has no hard links.
    NotPermitted,
    /// Another reason, such as too many links.
    Other,
}

impl NoLink {
    fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::CrossesDevices => Self::OtherFileSystem,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported => Self::NotPermitted,
            _ => Self::Other,
        }
    }
}

/// A checkpoint that a graph points into.
#[derive(Debug, Clone)]
pub struct LinkedFile {
    /// Its name beside the graph.
    pub path: PathBuf,
    /// How it was placed there.
    pub method: LinkMethod,
}

/// The name of a mapped file beside the graph: its own name, if it is already in that folder.
pub(super) fn link_name(
    folder: &Path,
    prefix: &str,
    file: &Arc<MappedFile>,
    known: &IndexMap<Arc<MappedFile>, String>,
) -> String {
    if let Some(name) = known.get(file) {
        return name.clone();
    }
    let own = file.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let real_folder = |path: &Path| path.canonicalize().ok();
    // ONNX Runtime does not follow a symbolic link out of the folder, so the real path counts.
    let here = file.path().canonicalize().is_ok_and(|real| real.parent().map(Path::to_owned) == real_folder(folder));
    if here
        && file
            .path()
            .canonicalize()
            .is_ok_and(|real| real.file_name().is_some_and(|name| name.to_string_lossy() == own))
    {
        return own;
    }
    let taken = |name: &str| known.values().any(|known| known == name);
    let mut name = format!("{prefix}.{own}");
    let mut number = 1_u64;
    while taken(&name) {
        number += 1;
        name = format!("{prefix}.{number}.{own}");
    }
    name
}

/// Makes `target` a link to `file`, or a copy of it, unless it already is one. Another file there is replaced only if
/// `replaces`.
pub(super) fn link(
    file: &MappedFile,
    target: &Path,
    replaces: bool,
    meter: &mut Meter<'_>,
) -> Result<(Option<Staged>, LinkMethod)> {
    let fail = |e: std::io::Error| Error::file(target, "link the checkpoint", e);
    // A hard link to a symbolic link would be another symbolic link.
    let source = file.path().canonicalize().map_err(fail)?;
    if is_same_file(target, &source).unwrap_or(false) {
        let same_name = source == target.canonicalize().unwrap_or_default();
        return Ok((None, if same_name { LinkMethod::InPlace } else { LinkMethod::HardLink }));
    }
    if fs::symlink_metadata(target).is_ok() {
        if has_content_of(file, target)? {
            return Ok((None, LinkMethod::InPlace));
        }
        if !replaces {
            return Err(Error::file(target, "link the checkpoint", FOREIGN));
        }
    }
    let folder = unfinished::folder_in(folder_of(target)).map_err(fail)?;
    let made = folder.path().join(LINKED);
    let method = match fs::hard_link(&source, &made) {
        Ok(()) => LinkMethod::HardLink,
        Err(_) if reflink_copy::reflink(&source, &made).is_ok() => LinkMethod::Reflink,
        Err(error) => {
            copy(file, &made, meter).map_err(fail)?;
            LinkMethod::Copied { reason: NoLink::of(&error) }
        }
    };
    Ok((Some(Staged::Link(folder)), method))
}

/// Whether there is a regular file with the same bytes at `target`, such as an earlier copy of the checkpoint.
fn has_content_of(file: &MappedFile, target: &Path) -> Result<bool> {
    let is_file =
        fs::symlink_metadata(target).is_ok_and(|found| found.is_file() && found.len() == file.bytes().len() as u64);
    if !is_file {
        return Ok(false);
    }
    let other = MappedFile::open(target)?;
    let mut offset = 0;
    let mut same = true;
    file.stream(0, file.bytes().len() as u64, &mut |piece| {
        same = same && other.bytes().get(offset..offset + piece.len()) == Some(piece);
        offset += piece.len();
        Ok(())
    })?;
    Ok(same)
}

/// Copies a file with its permissions.
fn copy(file: &MappedFile, to: &Path, meter: &mut Meter<'_>) -> std::io::Result<()> {
    let length = file.bytes().len() as u64;
    meter.expect(length);
    let mut target = fs::File::create_new(to)?;
    match file.append_to(0, length, &target, &mut |bytes| meter.add(bytes)) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            let stream = file.stream(0, length, &mut |piece| {
                target.write_all(piece).map_err(|e| Error::file(to, "write", e))?;
                meter.add(piece.len() as u64);
                Ok(())
            });
            stream.map_err(std::io::Error::other)?;
        }
        done => done?,
    }
    fs::set_permissions(to, fs::metadata(file.path())?.permissions())
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use super::super::Written;
    #[cfg(unix)]
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_copied_checkpoint_counts_and_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, [7; 3000]).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o640)).unwrap();
        let mut reports = Vec::new();
        let mut report = |written| reports.push(written);
        copy(&MappedFile::open(&from).unwrap(), &to, &mut Meter::new(&mut report)).unwrap();
        assert_eq!(fs::read(&to).unwrap(), [7; 3000]);
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(reports, [0, 3000].map(|bytes| Written { bytes, total: 3000 }));
    }
}
