//! Making keys, and signing with them.

use super::{KEY_MAXIMUM_BYTES, SIGNATURE_FILE};
use crate::{Engine, Error, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, Manifest, Result, exchange};
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey};
use ed25519_dalek::{Signer, SigningKey};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The two files of a key.
#[derive(Debug)]
pub struct Keys {
    /// The private key. Nobody else may read it.
    pub private: PathBuf,
    /// The public key. Everybody may have it.
    pub public: PathBuf,
}

/// Makes a new key: `NAME.key` and `NAME.pub`.
///
/// # Errors
/// One of the files exists or cannot be written, or the system gives no random numbers.
pub fn keygen(name: &Path) -> Result<Keys> {
    let with = |extension: &str| {
        let mut file = name.as_os_str().to_owned();
        file.push(extension);
        PathBuf::from(file)
    };
    let keys = Keys { private: with(".key"), public: with(".pub") };
    // Never overwrite a private key: it would be lost.
    if let Some(there) = [&keys.private, &keys.public].into_iter().find(|path| path.exists()) {
        return Err(Error::Place {
            path: there.clone(),
            problem: "the file exists; give another name, or move it away",
        });
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| Error::Random { reason: e.to_string() })?;
    let key = SigningKey::from_bytes(&seed);
    let unwritable =
        |e: &dyn std::fmt::Display| Error::file(name, "write a key as PEM to", std::io::Error::other(e.to_string()));
    let private = key.to_pkcs8_pem(LineEnding::LF).map_err(|e| unwritable(&e))?;
    let public = key.verifying_key().to_public_key_pem(LineEnding::LF).map_err(|e| unwritable(&e))?;
    write_new(&keys.private, private.as_bytes(), 0o600)?;
    write_new(&keys.public, public.as_bytes(), 0o644)?;
    Ok(keys)
}

/// Signs the engine in `directory` with a private key. The signature goes to `manifest.sig` and replaces an older one.
///
/// # Errors
/// The engine is not whole, the key is not a private key, or the signature cannot be written.
pub fn sign(directory: &Path, key: &Path) -> Result<()> {
    // The bytes that are signed are those that were checked.
    Engine::open(directory)?;
    let path = directory.join(MANIFEST_FILE);
    let manifest = tileforge_files::read(&path, MANIFEST_MAXIMUM_BYTES).map_err(|e| Error::file(&path, "read", e))?;
    Manifest::parse(&manifest)?;
    let text = tileforge_files::read_text(key, KEY_MAXIMUM_BYTES).map_err(|e| Error::file(key, "read", e))?;
    let signing = SigningKey::from_pkcs8_pem(text.trim()).map_err(|e| Error::Key {
        path: key.to_owned(),
        kind: "private",
        found: format!("something else ({e})"),
    })?;
    write_over(&directory.join(SIGNATURE_FILE), &signing.sign(&manifest).to_bytes(), 0o666)
}

/// Writes a file that is never visible in part.
fn temporary_file(path: &Path, content: &[u8], mode: u32) -> Result<tempfile::NamedTempFile> {
    let parent = exchange::parent_of(path);
    let file =
        tempfile::Builder::new().prefix(".writing-").permissions(Permissions::from_mode(mode)).tempfile_in(parent);
    let mut file = file.map_err(|e| Error::file(parent, "create a file in", e))?;
    file.write_all(content).and_then(|()| file.flush()).map_err(|e| Error::file(path, "write", e))?;
    Ok(file)
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let file = temporary_file(path, content, mode)?;
    file.persist_noclobber(path).map_err(|e| Error::file(path, "create", e.error))?;
    Ok(())
}

fn write_over(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let file = temporary_file(path, content, mode)?;
    file.persist(path).map_err(|e| Error::file(path, "rename the finished file to", e.error))?;
    Ok(())
}
