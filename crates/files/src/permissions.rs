//! The permissions of finished files.

use std::io;
use std::path::Path;

use crate::system::making;

/// The permissions of any new file in a folder.
#[derive(Debug)]
pub struct UsualPermissions(making::Usual);

impl UsualPermissions {
    /// Finds them out in a folder, where a file is made for a moment.
    ///
    /// # Errors
    /// The system's reason.
    pub fn in_folder(folder: &Path) -> io::Result<Self> {
        making::Usual::in_folder(folder).map(Self)
    }

    /// Gives them to a file.
    ///
    /// # Errors
    /// The system's reason.
    pub fn give_to_file(&self, path: &Path) -> io::Result<()> {
        self.0.give_to_file(path)
    }

    /// Lets those enter a folder who may read its files.
    ///
    /// # Errors
    /// The system's reason.
    pub fn give_to_folder(&self, path: &Path) -> io::Result<()> {
        self.0.give_to_folder(path)
    }
}

/// Gives a file that was private the permissions of any new one.
///
/// # Errors
/// The system's reason.
pub fn give_usual_permissions(path: &Path) -> io::Result<()> {
    making::give_usual(path)
}
