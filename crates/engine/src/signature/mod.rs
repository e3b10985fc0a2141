//! Ed25519 signatures (RFC 8032) of the manifest, which holds the digests of all other files. They prove who made an
//! engine.
//!
//! `manifest.sig` holds the 64 bytes of the signature over the bytes of `manifest.json`. Keys are PEM files (RFC 8410),
//! which other tools read too: `openssl pkeyutl -verify -rawin -pubin -inkey KEY.pub -sigfile manifest.sig -in
//! manifest.json`.

mod sign;

use std::io;
use std::path::Path;

use ed25519_dalek::pkcs8::DecodePublicKey;
use ed25519_dalek::{Signature, VerifyingKey};
use tileforge_files::owner::KeyAccess;

pub use sign::{Keys, PrivateKey, keygen, sign};

use crate::error::{Error, Result};

/// The name of the signature in an engine directory.
pub const SIGNATURE_FILE: &str = "manifest.sig";

/// Larger signatures are refused without being read. A signature has 64 bytes.
pub const SIGNATURE_MAXIMUM_BYTES: u64 = 1 << 10;

/// Larger key files are refused without being read. A key has about a hundred bytes.
const KEY_MAXIMUM_BYTES: u64 = 1 << 14;

/// A file that should hold a key.
struct KeyFile {
    text: String,
    access: KeyAccess,
}

impl KeyFile {
    /// Reads a key file. `kind` is "public" or "private", for errors.
    fn read(path: &Path, kind: &'static str) -> Result<Self> {
        let fail = |source| Error::file(path, "read", source);
        let refused = |found: String| Error::Key { path: path.to_owned(), kind, found };
        let file = tileforge_files::open(path).map_err(fail)?;
        let access = KeyAccess::of(&file).map_err(fail)?;
        let bytes = match tileforge_files::read_opened(file, KEY_MAXIMUM_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(refused(format!("more than {KEY_MAXIMUM_BYTES} bytes")));
            }
            read => read.map_err(fail)?,
        };
        let text = String::from_utf8(bytes).map_err(|_| refused("no text".into()))?;
        Ok(Self { text, access })
    }
}

/// The public key of a trusted maker of engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads a public key: a PEM file that `engine-builder keygen` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or is not a public key.
    pub fn read(path: &Path) -> Result<Self> {
        let KeyFile { text, access } = KeyFile::read(path, "public")?;
        let refused = |found: String| Error::Key { path: path.to_owned(), kind: "public", found };
        if let Some((permissions, remedy)) = access.is_public() {
            return Err(refused(format!("one that everybody may replace ({permissions}); make it yours: {remedy}")));
        }
        if text.contains("PRIVATE KEY") {
            return Err(refused("a private key, which only its owner should have".into()));
        }
        let key = VerifyingKey::from_public_key_pem(text.trim());
        key.map(Self).map_err(|error| refused(format!("something else ({error})")))
    }

    /// Checks that `signature` was made over `manifest` with this key's private half. `place` is the signature's file,
    /// for errors.
    ///
    /// # Errors
    /// [`Error::Signature`]: it was not.
    pub fn verify(&self, manifest: &[u8], signature: &[u8], place: &Path) -> Result<()> {
        let refused = |problem| Error::Signature { path: place.to_owned(), problem };
        let signature =
            Signature::from_slice(signature).map_err(|_| refused("expected the 64 bytes of a signature"))?;
        // Strict verification refuses weak keys, for which one signature can be valid for several messages.
        self.0
            .verify_strict(manifest, &signature)
            .map_err(|_| refused("the signature is not one of this key over this manifest"))
    }
}
