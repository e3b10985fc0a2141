//! The texts of programs in a plan's file.

use crate::{Error, Result};
use std::io::{Read, Seek, SeekFrom};

/// What stands before every text: a tag and a number that is the same in every plan of release 1.7.1. Eight bytes alone
/// would be met by chance in gigabytes of weights, so that a text also has to begin as one.
const TAG: [u8; 8] = *b"NLYM\xa1\xda\x1e\x00";
/// The tag, and the length of the text.
const PREFIX: usize = TAG.len() + 8;
/// What every text begins with.
const BEGINNING: &[u8] = b"header {";
/// The longest text. SDXL's UNet has one of a few megabytes.
const LONGEST: u64 = 1 << 28;
/// All texts of a plan together.
const MOST: u64 = 1 << 30;
/// How much of the file is looked through at once.
const WINDOW: usize = 1 << 20;

/// The texts in the order in which they stand in the file.
pub(super) fn texts(plan: &mut (impl Read + Seek)) -> Result<Vec<String>> {
    let (mut texts, mut total) = (Vec::new(), 0);
    let mut from = 0;
    while let Some((at, length)) = next(plan, from)? {
        total += length;
        if length > LONGEST || total > MOST {
            return Err(Error::not_known(format!("a program of {length} bytes at byte {at}")));
        }
        let start = at + PREFIX as u64;
        let mut text = Vec::new();
        plan.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        let read = plan.take(length).read_to_end(&mut text).map_err(unreadable)?;
        if read as u64 != length {
            return Err(Error::not_known(format!(
                "a program of {length} bytes at byte {at}, of which {read} are there"
            )));
        }
        // Names of a graph's nodes may be anything.
        texts.push(String::from_utf8_lossy(&text).into_owned());
        from = start + length;
    }
    Ok(texts)
}

/// Where the next text's tag is, and how long the text is.
fn next(plan: &mut (impl Read + Seek), from: u64) -> Result<Option<(u64, u64)>> {
    let (mut window, mut at) = (Vec::new(), from);
    plan.seek(SeekFrom::Start(from)).map_err(unreadable)?;
    loop {
        let read = plan.take((WINDOW - window.len()) as u64).read_to_end(&mut window).map_err(unreadable)?;
        let whole = PREFIX + BEGINNING.len();
        for (position, found) in window.windows(whole).enumerate().filter(|(_, found)| found.starts_with(&TAG)) {
            let length = found[TAG.len()..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if found.ends_with(BEGINNING) && length >= BEGINNING.len() as u64 {
                return Ok(Some((at + position as u64, length)));
            }
        }
        if read == 0 {
            return Ok(None);
        }
        // A tag may stand across the end of the window.
        let done = window.len().saturating_sub(whole - 1);
        window.drain(..done);
        at += done as u64;
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::not_known(format!("it cannot be read: {error}"))
}
