//! Certificates for test servers, made by OpenSSL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A new authority that signs certificates. Its files are removed when this value is dropped.
pub struct Authority {
    folder: tempfile::TempDir,
}

/// A certificate with its private key, as files in PEM.
pub struct Certificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key, without a password.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "authority", "basicConstraints = critical, CA:TRUE\n", &["ec", "-pkeyopt", CURVE], None);
        Self { folder }
    }

    /// Its own certificate, which clients need to trust it.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("authority.crt")
    }

    /// Signs a certificate for a server at these addresses, such as `IP:127.0.0.1`.
    pub fn sign(&self, addresses: &str) -> Certificate {
        let extensions = format!("basicConstraints = critical, CA:FALSE\nsubjectAltName = {addresses}\n");
        make(self.folder.path(), "server", &extensions, &["ec", "-pkeyopt", CURVE], Some("authority"))
    }

    /// Makes a key for RSA signatures, with a self-signed certificate.
    pub fn signing_key(&self) -> Certificate {
        make(self.folder.path(), "signing", "basicConstraints = critical, CA:FALSE\n", &["rsa:2048"], None)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

const CURVE: &str = "ec_paramgen_curve:prime256v1";

/// Makes `NAME.crt` and `NAME.key`, signed by another certificate in the folder, or by itself.
fn make(folder: &Path, name: &str, extensions: &str, key: &[&str], signer: Option<&str>) -> Certificate {
    // Two authorities must not have the same name.
    let place = folder.file_name().unwrap().to_string_lossy();
    let settings = format!(
        "[req]\nprompt = no\ndistinguished_name = subject\nx509_extensions = extensions\n\
         [subject]\nCN = {name} {place}\n[extensions]\n{extensions}"
    );
    let file = |extension: &str| folder.join(format!("{name}.{extension}"));
    fs::write(file("conf"), settings).unwrap();
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-days", "30", "-nodes", "-newkey"]).args(key);
    command.arg("-config").arg(file("conf")).arg("-keyout").arg(file("key")).arg("-out").arg(file("crt"));
    if let Some(signer) = signer {
        command.arg("-CA").arg(folder.join(format!("{signer}.crt")));
        command.arg("-CAkey").arg(folder.join(format!("{signer}.key")));
    }
    let output = command.output().unwrap_or_else(|error| panic!("openssl: {error}; install it: apt install openssl"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Certificate { certificate: file("crt"), key: file("key") }
}
