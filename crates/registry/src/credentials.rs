//! User names and passwords, from Docker's configuration or from the caller.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

use docker_credential::{CredentialRetrievalError, DockerCredential};
use tileforge_files::TEXT_MAXIMUM_BYTES;

use crate::error::{Error, Result};
use crate::system::HOME;

/// The sources of passwords.
#[derive(Clone, Default)]
pub struct Credentials {
    /// A name and a password for the registry of the reference.
    pub given: Option<(String, String)>,
    /// Docker's `config.json`, which holds passwords or names the credential helpers that keep them.
    pub docker_configuration: Option<PathBuf>,
}

/// Passwords do not get into logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.given.as_ref().map(|(name, _)| name);
        formatter
            .debug_struct("Credentials")
            .field("name", &name)
            .field("docker_configuration", &self.docker_configuration)
            .finish()
    }
}

/// The user's login at a registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    Anonymous,
    Password {
        name: String,
        password: String,
    },
    /// A token that a token server accepts in place of a password.
    IdentityToken(String),
}

impl Credentials {
    /// The variable with the user's name.
    pub const NAME_VARIABLE: &str = "TILEFORGE_REGISTRY_USERNAME";
    /// The variable with the password.
    pub const PASSWORD_VARIABLE: &str = "TILEFORGE_REGISTRY_PASSWORD";

    /// Credentials from environment variables: our own name and password, and Docker's configuration in
    /// `DOCKER_CONFIG` or in `.docker` of the home folder, which is `USERPROFILE` on Windows and `HOME` elsewhere.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| variable(name).and_then(|value| value.into_string().ok()).filter(|text| !text.is_empty());
        let folder = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let docker = folder("DOCKER_CONFIG").or_else(|| folder(HOME).map(|home| home.join(".docker")));
        Self {
            given: text(Self::NAME_VARIABLE).zip(text(Self::PASSWORD_VARIABLE)),
            docker_configuration: docker.map(|folder| folder.join("config.json")),
        }
    }

    /// The login for the registry on `host`.
    ///
    /// # Errors
    /// Docker's configuration cannot be read, or the program that keeps the password fails.
    pub(crate) fn login(&self, host: &str) -> Result<Login> {
        if let Some((name, password)) = &self.given {
            return Ok(Login::Password { name: name.clone(), password: password.clone() });
        }
        let Some(path) = &self.docker_configuration else { return Ok(Login::Anonymous) };
        let text = match tileforge_files::read(path, TEXT_MAXIMUM_BYTES) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Login::Anonymous);
            }
            read => read.map_err(|source| Error::file(path, "read", source))?,
        };
        // Docker Hub has another name in Docker's configuration.
        let key = if is_docker_hub(host) { "https://index.docker.io/v1/" } else { host };
        match docker_credential::get_credential_from_reader(text.as_slice(), key) {
            Ok(DockerCredential::UsernamePassword(name, password)) => Ok(Login::Password { name, password }),
            Ok(DockerCredential::IdentityToken(token)) => Ok(Login::IdentityToken(token)),
            Err(CredentialRetrievalError::NoCredentialConfigured | CredentialRetrievalError::ConfigNotFound) => {
                Ok(Login::Anonymous)
            }
            // The message of Docker's credential helpers when they have no password for a registry.
            Err(CredentialRetrievalError::HelperFailure { stdout, stderr, .. })
                if stdout.contains("credentials not found") || stderr.contains("credentials not found") =>
            {
                Ok(Login::Anonymous)
            }
            Err(error) => Err(Error::Credentials { path: path.clone(), reason: error.to_string() }),
        }
    }
}

/// Whether a host is Docker Hub, whose API is on another host.
pub(crate) fn is_docker_hub(host: &str) -> bool {
    ["docker.io", "index.docker.io", "registry-1.docker.io"].contains(&host)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn login(configuration: &str, host: &str) -> Result<Login, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, configuration).unwrap();
        let credentials = Credentials { given: None, docker_configuration: Some(path) };
        credentials.login(host).map_err(|error| error.to_string())
    }

    fn password(name: &str, password: &str) -> Login {
        Login::Password { name: name.into(), password: password.into() }
    }

    #[test]
    fn passwords_come_from_the_variables_or_from_dockers_configuration() {
        // "me:secret" and "you:word" in base64.
        let configuration = r#"{ "auths": {
            "localhost:5000": { "auth": "bWU6c2VjcmV0" },
            "https://index.docker.io/v1/": { "auth": "eW91OndvcmQ=" } } }"#;
        assert!(login(configuration, "localhost:5000") == Ok(password("me", "secret")));
        assert!(login(configuration, "docker.io") == Ok(password("you", "word")));
        assert!(login(configuration, "example.org") == Ok(Login::Anonymous));
        assert!(login("no JSON", "example.org").err().unwrap().contains("config.json"));
        let variables = |name: &str| match name {
            "TILEFORGE_REGISTRY_USERNAME" => Some("a".into()),
            "TILEFORGE_REGISTRY_PASSWORD" => Some("b".into()),
            "DOCKER_CONFIG" => Some("/nowhere".into()),
            _ => None,
        };
        let given = Credentials::from_variables(variables);
        assert!(given.login("localhost:5000").ok() == Some(password("a", "b")));
        assert_eq!(given.docker_configuration, Some("/nowhere/config.json".into()));
        assert!(!format!("{given:?}").contains("\"b\""));
        let variable = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        let home = Credentials::from_variables(|name| (name == variable).then(|| "/home/me".into()));
        assert_eq!((home.docker_configuration, home.given), (Some("/home/me/.docker/config.json".into()), None));
    }
}
