//! Windows.

/// The variable with the user's home folder, as Docker reads it.
pub(crate) const HOME: &str = "USERPROFILE";

/// None: every account may make a folder `\etc` on the current drive.
pub(crate) const CONFIGURATION: Option<&str> = None;
