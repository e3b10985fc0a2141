//! The permissions of finished files.

use std::io;
use std::path::Path;

use crate::system::making;

/// The permissions of any new file in a folder.
#[derive(Debug)]
pub struct UsualPermissions(making::Usual);

impl UsualPermissions {
    /// Determines the permissions in a folder, where a file is made for a moment.
    ///
    /// # Errors
    /// The system's reason.
    pub fn in_folder(folder: &Path) -> io::Result<Self> {
        making::Usual::in_folder(folder).map(Self)
    }

    /// Gives a file these permissions.
    ///
    /// # Errors
    /// The system's reason.
    pub fn give_to_file(&self, path: &Path) -> io::Result<()> {
        self.0.give_to_file(path)
    }

    /// Lets the users who may read a folder's files enter the folder.
    ///
    /// # Errors
    /// The system's reason.
    pub fn give_to_folder(&self, path: &Path) -> io::Result<()> {
        self.0.give_to_folder(path)
    }
}

/// Gives a private file the permissions of any new file.
///
/// # Errors
/// The system's reason.
pub fn give_usual_permissions(path: &Path) -> io::Result<()> {
    making::give_usual(path)
}
