//! Windows.

/// The variable with the user's home folder, as Docker reads it.
pub(crate) const HOME: &str = "USERPROFILE";

/// None: every account may make a folder `\etc` on the current drive.
pub(crate) const CONFIGURATION: Option<&str> = None;

/// The name of the folder with the certificates for a registry on `HOST[:PORT]`. As Docker does, it leaves out the
/// colons, which no name has here.
pub(crate) fn folder_of(host: &str) -> String {
    host.replace(':', "")
}
