//! The texts of programs in a plan's file.

use crate::{Error, Result};
use std::io::Read;

/// The bytes before every text: a tag, and a number that is the same in every plan of release 1.7.1. Eight bytes can
/// occur by chance in gigabytes of weights, so the beginning of the text is checked, too.
const TAG: [u8; 8] = *b"NLYM\xa1\xda\x1e\x00";
/// The tag, and the length of the text.
const PREFIX: usize = TAG.len() + 8;
/// The beginning of every text.
const BEGINNING: &[u8] = b"header {";
/// The longest text. SDXL's UNet has one of a few megabytes.
const LONGEST: u64 = 1 << 28;
/// The maximum bytes of all texts of a plan together.
const MOST: u64 = 1 << 30;
/// Bytes of the file that are searched at once.
const WINDOW: usize = 1 << 20;

/// The texts in file order. The file is read once from front to back.
pub(super) fn texts(plan: &mut impl Read) -> Result<Vec<String>> {
    let mut window = Window { plan, bytes: Vec::new(), at: 0 };
    let (mut texts, mut total) = (Vec::new(), 0);
    while let Some(length) = window.next_text()? {
        total += length.min(MOST + 1);
        if length > LONGEST || total > MOST {
            return Err(Error::not_known(format!("a program of {length} bytes at byte {}", window.at)));
        }
        let end = PREFIX + length as usize;
        window.fill(end)?;
        let Some(text) = window.bytes.get(PREFIX..end) else {
            let read = window.bytes.len().saturating_sub(PREFIX);
            let found = format!("a program of {length} bytes at byte {}, of which {read} are there", window.at);
            return Err(Error::not_known(found));
        };
        // Names of a graph's nodes may be any bytes.
        texts.push(String::from_utf8_lossy(text).into_owned());
        window.drop_front(end);
    }
    Ok(texts)
}

/// A part of the file.
struct Window<'p, R> {
    plan: &'p mut R,
    bytes: Vec<u8>,
    /// The position of the part in the file.
    at: u64,
}

impl<R: Read> Window<'_, R> {
    /// Reads until the part has `count` bytes, or the file ends.
    fn fill(&mut self, count: usize) -> Result<()> {
        let more = count.saturating_sub(self.bytes.len()) as u64;
        let read = self.plan.by_ref().take(more).read_to_end(&mut self.bytes);
        read.map(drop).map_err(|error| Error::not_known(format!("it cannot be read: {error}")))
    }

    fn drop_front(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.at += count as u64;
    }

    /// Moves to the next text's tag, and returns the text's length.
    fn next_text(&mut self) -> Result<Option<u64>> {
        let whole = PREFIX + BEGINNING.len();
        loop {
            self.fill(WINDOW)?;
            let text = self.bytes.windows(whole).enumerate().find_map(|(position, found)| {
                let found = found.strip_prefix(&TAG)?.strip_suffix(BEGINNING)?;
                let length = u64::from_le_bytes(found.try_into().ok()?);
                (length >= BEGINNING.len() as u64).then_some((position, length))
            });
            if let Some((position, length)) = text {
                self.drop_front(position);
                return Ok(Some(length));
            }
            if self.bytes.len() < WINDOW {
                return Ok(None);
            }
            // A tag may cross the end of the window.
            self.drop_front(self.bytes.len() - (whole - 1));
        }
    }
}
