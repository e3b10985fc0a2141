//! A shard of the pictures, for several machines without communication.

use std::path::Path;
use std::str::FromStr;

use tileforge_engine::digest::sha256;

/// The most shards.
const COUNT_MAXIMUM: u64 = 1_000_000;

/// Part `index` of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    /// From 0.
    index: u64,
    count: u64,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shard = || {
            let (index, count) = text.split_once('/')?;
            Some(Self { index: number(index)?, count: number(count)? })
        };
        let shard = shard().filter(|shard| shard.index < shard.count && shard.count <= COUNT_MAXIMUM);
        shard.ok_or_else(|| "expected I/N, from 0/N to the number before N, such as 3/16".into())
    }
}

/// Digits alone: `parse` also takes a sign.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Shard {
    /// Whether a picture belongs to the shard: by the first 64 bits of the SHA-256 of its path relative to the given
    /// folder, with `/` between names. So every machine gets the same answer, independent of the folder's place and of
    /// other pictures.
    pub(super) fn has(self, relative: &Path) -> bool {
        let digest = sha256(relative.as_os_str().as_encoded_bytes());
        // A digest has 64 hexadecimal digits.
        let first = digest.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
        first % self.count == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_in_one_shard_and_always_in_the_same() {
        let shards: Vec<Shard> = (0..16).map(|index| format!("{index}/16").parse().unwrap()).collect();
        let mut counts = [0; 16];
        for number in 0..1600 {
            let path = format!("folder/{number}.png");
            let having: Vec<usize> = (0..16).filter(|index| shards[*index].has(Path::new(&path))).collect();
            assert_eq!(having.len(), 1, "{path}");
            counts[having[0]] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
        // As `printf photo.png | sha256sum` says: 9c6d2a507163f05e modulo 16.
        assert!(shards[14].has(Path::new("photo.png")));
        assert!("0/1".parse::<Shard>().unwrap().has(Path::new("photo.png")));
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in ["", "3", "3/", "/3", "3/3", "4/3", "-1/3", "+1/3", "1/+3", "0/0", "1/2/3", "1 / 3", "0/1000001"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
