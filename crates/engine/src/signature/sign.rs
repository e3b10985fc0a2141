//! Making keys, and signing with them.

use super::{KeyFile, SIGNATURE_FILE};
use crate::{Bundle, Error, Result, exchange};
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey, KeypairBytes};
use ed25519_dalek::{Signer, SigningKey};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tileforge_files::unfinished;

/// The two files of a key.
#[derive(Debug)]
pub struct Keys {
    /// The private key. Only its owner may read it.
    pub private: PathBuf,
    /// The public key, which may be published.
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
            problem: "the file exists; give another name, or move it away".into(),
        });
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| Error::Random { reason: e.to_string() })?;
    let key = SigningKey::from_bytes(&seed);
    let unwritable =
        |e: &dyn std::fmt::Display| Error::file(name, "write a key as PEM to", std::io::Error::other(e.to_string()));
    // Without the public half, as in RFC 8410: OpenSSL 3.0 cannot read PKCS#8 version 2, which contains both halves.
    let private = KeypairBytes { secret_key: seed, public_key: None };
    let private = private.to_pkcs8_pem(LineEnding::LF).map_err(|e| unwritable(&e))?;
    let public = key.verifying_key().to_public_key_pem(LineEnding::LF).map_err(|e| unwritable(&e))?;
    write_new(&[(&keys.private, private.as_bytes(), PRIVATE), (&keys.public, public.as_bytes(), 0o644)])?;
    Ok(keys)
}

/// Signs an engine, or a pipeline engine with all its parts, with a private key. The signature goes to `manifest.sig`
/// and replaces an older one.
///
/// # Errors
/// The engine's directory holds a file that no manifest lists, the key is not a private key or others may read it, or
/// the signature cannot be written.
pub fn sign(bundle: &Bundle, key: &Path) -> Result<()> {
    // Temporary files of a killed run of this function are no reason to refuse the engine.
    unfinished::remove_abandoned(bundle.directory());
    bundle.check_nothing_unlisted()?;
    // Sign the bytes that were checked.
    let signature = PrivateKey::read(key)?.sign(bundle.opened().manifest_bytes());
    write_over(&bundle.directory().join(SIGNATURE_FILE), &signature, 0o666)
}

/// The private half of a key, which can sign.
///
/// One key may sign engines and other files: a manifest is JSON, so the signature of a manifest is never valid for a
/// file of another kind.
pub struct PrivateKey(SigningKey);

impl PrivateKey {
    /// Reads a private key. Only its owner may be able to read or write the file.
    ///
    /// # Errors
    /// The file cannot be read, is not a private key, or others may read it.
    pub fn read(key: &Path) -> Result<Self> {
        let KeyFile { text, access } = KeyFile::read(key, "private")?;
        let refused = |found: String| Error::Key { path: key.to_owned(), kind: "private", found };
        let signing = SigningKey::from_pkcs8_pem(text.trim()).map_err(|e| refused(format!("something else ({e})")))?;
        if let Some((permissions, remedy)) = access.is_shared() {
            let remedy = format!("make another key, or {remedy} if others have not read it");
            return Err(refused(format!("one that others may read or write ({permissions}): {remedy}")));
        }
        Ok(Self(signing))
    }

    /// The 64 bytes of the Ed25519 signature over `bytes`.
    #[must_use]
    pub fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }
}

/// The mode of a file that only its owner may read.
const PRIVATE: u32 = 0o600;

/// A complete temporary file with this content, to be renamed to `path`, so that no partial file is ever visible.
fn temporary_file(path: &Path, content: &[u8], mode: u32) -> Result<unfinished::File> {
    let parent = exchange::parent_of(path);
    let made = if mode == PRIVATE { unfinished::private_file_in(parent) } else { unfinished::file_in(parent, mode) };
    let mut file = made.map_err(|e| Error::file(parent, "create a file in", e))?;
    file.write_all(content).and_then(|()| file.flush()).map_err(|e| Error::file(path, "write", e))?;
    Ok(file)
}

/// Writes all of these files or none. Their names must be free.
fn write_new(files: &[(&Path, &[u8], u32)]) -> Result<()> {
    let mut written = Vec::new();
    for (path, content, mode) in files {
        let file = temporary_file(path, content, *mode)?;
        // A key that a signature was made with must still be there after a loss of power.
        file.as_file().sync_all().map_err(|e| Error::file(path, "write", e))?;
        written.push((*path, file));
    }
    // A program that a signal stops leaves all of the files or none.
    let _finishing = unfinished::finishing();
    let mut named: Vec<&Path> = Vec::new();
    for (path, file) in written {
        if let Err(source) = file.rename_to_free(path) {
            // The names were free, so these are the files from above. Errors of the removal are ignored: the first
            // error is reported.
            named.iter().for_each(|path| drop(fs::remove_file(path)));
            return Err(Error::file(path, "create", source));
        }
        named.push(path);
    }
    Ok(())
}

fn write_over(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let file = temporary_file(path, content, mode)?;
    file.rename(path).map_err(|e| Error::file(path, "rename the finished file to", e))
}
