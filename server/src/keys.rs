//! Keys that clients show.
//!
//! A file of keys has a line for each: a name, a space, and the SHA-256 of the key in hexadecimal. The keys themselves
//! are not stored.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The longest name of a key.
const NAME_MAXIMUM: usize = 64;

/// Most keys of a file.
const KEYS_MAXIMUM: usize = 10_000;

/// Keys that clients show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys(Vec<(String, [u8; 32])>);

impl Keys {
    /// Parses a file's text. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The number of the first invalid line, with what was expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {number}: expected a name, a space, and 64 hexadecimal digits");
            let (name, digits) = line.split_once(' ').ok_or_else(wrong)?;
            let digest = of_digits(digits.trim()).filter(|_| name.len() <= NAME_MAXIMUM).ok_or_else(wrong)?;
            if keys.iter().any(|(other, _)| other == name) {
                return Err(format!("line {number}: there are two keys of the name {name}; remove one of them"));
            }
            keys.push((name.to_owned(), digest));
            if keys.len() > KEYS_MAXIMUM {
                return Err(format!("expected at most {KEYS_MAXIMUM} keys"));
            }
        }
        Ok(Self(keys))
    }

    /// The number of the key that a client shows. The time does not depend on which key matches, or whether any does.
    pub(crate) fn number_of(&self, shown: &str) -> Option<u64> {
        let digest: [u8; 32] = Sha256::digest(shown.as_bytes()).into();
        let mut found = None;
        for (number, (_, key)) in (1..).zip(&self.0) {
            if bool::from(key[..].ct_eq(&digest[..])) {
                found = Some(number);
            }
        }
        found
    }
}

fn of_digits(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// A new key, and its line for a file of keys with the text `file`.
///
/// # Errors
/// The system gives no random numbers; the name is not one word of at most 64 bytes; the file is not one of keys, or has
/// a key of this name.
pub fn new_key(name: &str, file: &str) -> Result<[String; 2], String> {
    if Keys::parse(file)?.0.iter().any(|(other, _)| other == name) {
        return Err(format!("there is a key of the name {name}; give another name, or remove its line"));
    }
    if !(1..=NAME_MAXIMUM).contains(&name.len())
        || !name.bytes().all(|byte| byte.is_ascii_graphic())
        || name.starts_with('#')
    {
        return Err(format!("expected a name of 1 to {NAME_MAXIMUM} visible bytes that does not begin with #"));
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = text(&bytes);
    let line = format!("{name} {}", text(&Sha256::digest(key.as_bytes())));
    Ok([key, line])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    #[test]
    fn a_new_key_is_known_by_its_line_alone() {
        let [key, line] = new_key("me", "").unwrap();
        let [other, more] = new_key("you", &line).unwrap();
        assert!(new_key("me", &line).unwrap_err().starts_with("there is a key of the name me"));
        assert!(new_key("you", "no keys").is_err());
        let keys = Keys::parse(&format!("# keys\n\n{line}\n{more}\n")).unwrap();
        assert_eq!([keys.number_of(&key), keys.number_of(&other)], [Some(1), Some(2)]);
        assert_eq!([keys.number_of(""), keys.number_of(&line), keys.number_of(&key[1..])], [None; 3]);
        assert_eq!(
            Keys::parse(&format!("{line}\n{line}")).unwrap_err(),
            "line 2: there are two keys of the name me; remove one of them"
        );
        for text in ["me", "me 00", &format!("me {}", "g".repeat(64)), &format!("me {}", "é".repeat(32)), &line[3..]] {
            assert!(Keys::parse(text).unwrap_err().starts_with("line 1: expected a name"), "{text}");
        }
        assert!(["", "a b", "#x", "ä"].into_iter().all(|name| new_key(name, "").is_err()));
    }
}
