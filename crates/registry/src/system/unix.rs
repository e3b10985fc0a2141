//! Unix.

/// The variable with the user's home folder, as Docker reads it.
pub(crate) const HOME: &str = "HOME";

/// The folder with the system's configuration of programs, which its administrator alone writes.
pub(crate) const CONFIGURATION: Option<&str> = Some("/etc");

/// The name of the folder with the certificates for a registry on `HOST[:PORT]`.
pub(crate) fn folder_of(host: &str) -> String {
    host.to_owned()
}
