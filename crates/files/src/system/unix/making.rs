//! Making files and folders for certain users.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tempfile::NamedTempFile;

/// Makes a temporary file with these permissions, reduced by the system's mask.
pub(crate) fn file(builder: &mut tempfile::Builder<'_, '_>, parent: &Path, mode: u32) -> io::Result<NamedTempFile> {
    builder.permissions(fs::Permissions::from_mode(mode)).tempfile_in(parent)
}

/// Makes a temporary file that no other user may open.
pub(crate) fn private_file(builder: &mut tempfile::Builder<'_, '_>, parent: &Path) -> io::Result<NamedTempFile> {
    file(builder, parent, 0o600)
}

/// Makes a folder and missing folders above it, which no other user may enter.
pub(crate) fn private_folders(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The permissions that the system gives to new files in a folder.
#[derive(Debug)]
pub(crate) struct Usual(u32);

impl Usual {
    /// The permissions of new files in `folder`, where a file is made for a moment.
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        // A newly made file shows which permissions the system gives.
        let probe = folder.join(".permissions");
        let mode = fs::File::create(&probe)?.metadata()?.permissions().mode();
        fs::remove_file(&probe)?;
        Ok(Self(mode))
    }

    pub(crate) fn give_to_file(&self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(self.0))
    }

    /// Users who may read the files may enter the folder.
    pub(crate) fn give_to_folder(&self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode_of_folder(self.0)))
    }
}

/// The permissions of a folder whose files have the permissions `files`.
fn mode_of_folder(files: u32) -> u32 {
    files | ((files & 0o444) >> 2)
}

/// Gives a file the permissions of any new file.
pub(crate) fn give_usual(path: &Path) -> io::Result<()> {
    // `umask` can only read the mask by setting it, which is not safe with threads; /proc shows it without that.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    fs::set_permissions(path, fs::Permissions::from_mode(0o666 & !mask.unwrap_or(0o022)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_read_the_files_may_enter_the_folder() {
        for (files, folder) in [(0o644, 0o755), (0o640, 0o750), (0o600, 0o700), (0o755, 0o755)] {
            assert_eq!(mode_of_folder(files), folder, "{files:o}");
        }
    }
}
