//! SHA-256 of files and bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::file_map::FileMap;

pub use crate::hexadecimal::hexadecimal;

/// Size and SHA-256 of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDigest {
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// Digests a file through a memory mapping, so that memory use does not grow with the file.
///
/// # Errors
/// The file cannot be opened or mapped.
pub fn sha256_file(path: &Path) -> Result<FileDigest> {
    let map = FileMap::open(path)?;
    Ok(FileDigest { bytes: map.len() as u64, sha256: map.sha256() })
}

/// SHA-256 of some bytes, as 64 lower-case hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_empty_message_has_the_digest_of_fips_180() {
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::sha256(b""), expected);
    }
}
