//! Certificates of the authorities for one registry, from the folders where Podman and Docker keep them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ureq::tls::Certificate;

use crate::error::{Error, Result};
use crate::system::{CONFIGURATION, HOME, folder_of};

/// Folders of certificates. Each has a folder `HOST[:PORT]` for a registry (on Windows without the colon), with the
/// authorities of its certificate in files `*.crt` (PEM), as containers-certs.d(5) and Docker's documentation describe
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    /// The folders. Only the first one with a folder for the registry is used.
    pub folders: Vec<PathBuf>,
}

impl Authorities {
    /// The folders of Podman and Docker: first those of the user, in `XDG_CONFIG_HOME` or in `.config` of the home
    /// folder, then those of the system. On Windows the system has none: every account may make a folder `\etc`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = folder("XDG_CONFIG_HOME").or_else(|| folder(HOME).map(|home| home.join(".config")));
        let programs = |parent: PathBuf| ["containers", "docker"].map(|program| parent.join(program).join("certs.d"));
        let system = CONFIGURATION.map(PathBuf::from);
        Self { folders: user.into_iter().chain(system).flat_map(programs).collect() }
    }

    /// The authorities for the registry on `host`; `None` if there is no folder for it.
    ///
    /// # Errors
    /// The folder cannot be listed, or a file in it has no certificate.
    pub(crate) fn of(&self, host: &str) -> Result<Option<Vec<Certificate<'static>>>> {
        let Some(folder) =
            self.folders.iter().map(|folder| folder.join(folder_of(host))).find(|folder| folder.is_dir())
        else {
            return Ok(None);
        };
        let failed = || Error::on(&folder, "list");
        let entries = folder.read_dir().map_err(failed())?.collect::<io::Result<Vec<_>>>().map_err(failed())?;
        let paths = entries.iter().map(|entry| entry.path());
        let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "crt"));
        let read = files.map(|path| certificates(&path)).collect::<Result<Vec<_>>>()?;
        Ok(Some(read.concat()))
    }
}

/// The certificates in a file.
fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let refused = |reason: String| Error::Certificates { path: path.to_owned(), reason };
    let found = rustls_native_certs::load_certs_from_paths(Some(path), None);
    if let Some(error) = found.errors.first() {
        return Err(refused(error.to_string()));
    }
    if found.certs.is_empty() {
        return Err(refused("expected a certificate in PEM, found none".into()));
    }
    Ok(found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_folders_of_the_user_come_before_those_of_the_system() {
        let folders = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            Authorities::from_variables(value).folders
        };
        let (home, system) = if cfg!(windows) {
            ("USERPROFILE", Vec::new())
        } else {
            ("HOME", ["/etc/containers/certs.d", "/etc/docker/certs.d"].map(PathBuf::from).to_vec())
        };
        assert_eq!(folders(&[]), system);
        let user = ["/home/me/.config/containers/certs.d", "/home/me/.config/docker/certs.d"].map(PathBuf::from);
        assert_eq!(folders(&[(home, "/home/me")]), [user.to_vec(), system].concat());
        let other = folders(&[(home, "/home/me"), ("XDG_CONFIG_HOME", "/c")]);
        assert_eq!(other[..2], ["/c/containers/certs.d", "/c/docker/certs.d"].map(PathBuf::from));
    }

    #[test]
    fn only_the_folder_of_the_registry_is_read() {
        let work = tempfile::tempdir().unwrap();
        let authorities = Authorities { folders: vec![work.path().join("none"), work.path().to_owned()] };
        let folder = work.path().join(folder_of("example.org:5000"));
        fs::create_dir(&folder).unwrap();
        // A client's own certificate is not an authority's.
        fs::write(folder.join("client.cert"), "x").unwrap();
        let name = if cfg!(windows) { "example.org5000" } else { "example.org:5000" };
        assert!(folder.ends_with(name));
        assert!(authorities.of("example.org").unwrap().is_none());
        assert_eq!(authorities.of("example.org:5000").unwrap().unwrap().len(), 0);
        fs::write(folder.join("ca.crt"), "no certificate").unwrap();
        let refused = authorities.of("example.org:5000").unwrap_err().to_string();
        assert!(refused.contains("ca.crt") && refused.contains("expected a certificate in PEM"), "{refused}");
    }
}
