//! The tokenizers of CLIP's text encoders, equal to those of transformers.
//!
//! Byte-pair encoding (Sennrich and others 2016, <https://arxiv.org/abs/1508.07909>) of lower-case text with one space
//! between words, where a word's last token ends in `</w>`. Reference: transformers 5.23,
//! `models/clip/tokenization_clip.py`.

#[cfg(test)]
mod any_files;
mod definition;
mod error;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::AddedToken;

use super::prompt::Part;
use definition::END_OF_WORD;
use definition::{Definition, PIECES};
use error::MOST_BYTES;
pub use error::{Error, Result};

const START: &str = "<|startoftext|>";
const END: &str = "<|endoftext|>";
/// Longer files are refused: CLIP's have 3.6 MB.
const MOST_FILE_BYTES: usize = 8 << 20;
/// The files of a tokenizer.
const FILES: [&str; 5] =
    ["vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"];

/// A tokenizer, with the start, end and padding tokens of every text.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    start: i64,
    end: i64,
    padding: i64,
}

/// The tokens of a text, as many as a text encoder takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The start, the text, the end, and padding.
    pub ids: Vec<i64>,
    /// The part of the text that did not fit; `None` if all of it did.
    pub cut_off: Option<String>,
}

/// A row of tokens as a text encoder takes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The start, the text, the end, and padding.
    pub(super) ids: Vec<i64>,
    /// How many of these come before the padding.
    pub(super) length: usize,
    /// How much each token counts; `None` if all of them count 1.
    pub(super) weights: Option<Vec<f32>>,
}

/// 1 for each of `length` tokens, 0 for the padding of the row.
pub(super) fn mask(length: usize, row: usize) -> impl Iterator<Item = f32> {
    (0..row).map(move |place| if place < length { 1.0 } else { 0.0 })
}

/// `tokenizer_config.json` and `special_tokens_map.json`. Their other values do not change tokens.
#[derive(Debug, Default, Deserialize)]
struct Special {
    bos_token: Option<SpecialToken>,
    eos_token: Option<SpecialToken>,
    unk_token: Option<SpecialToken>,
    pad_token: Option<SpecialToken>,
    #[serde(default)]
    added_tokens_decoder: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum SpecialToken {
    Text(String),
    Described {
        content: String,
        #[serde(default)]
        single_word: bool,
        #[serde(default)]
        lstrip: bool,
        #[serde(default)]
        rstrip: bool,
        #[serde(default)]
        normalized: bool,
    },
}

impl SpecialToken {
    fn content(&self) -> &str {
        let (Self::Text(content) | Self::Described { content, .. }) = self;
        content
    }

    fn added(&self) -> AddedToken {
        match self {
            Self::Text(content) => AddedToken::from(content.clone(), true),
            Self::Described { content, single_word, lstrip, rstrip, normalized } => {
                AddedToken::from(content.clone(), true)
                    .single_word(*single_word)
                    .lstrip(*lstrip)
                    .rstrip(*rstrip)
                    .normalized(*normalized)
            }
        }
    }
}

/// The special tokens of a text.
struct Roles {
    start: SpecialToken,
    end: SpecialToken,
    unknown: SpecialToken,
    padding: SpecialToken,
}

impl Tokenizer {
    /// A tokenizer from the files of its folder: `vocab.json` and `merges.txt`, or `tokenizer.json`; and, if present,
    /// `special_tokens_map.json` and `tokenizer_config.json`. `file` returns the contents of a file by its name.
    ///
    /// # Errors
    /// A file is missing, does not describe a tokenizer, or lacks a token that every text needs.
    pub fn new<'f>(file: impl Fn(&str) -> Option<&'f [u8]>) -> Result<Self> {
        for name in FILES {
            if let Some(found) = file(name).map(<[u8]>::len).filter(|found| *found > MOST_FILE_BYTES) {
                let problem = format!("the file has {found} bytes; expected at most {MOST_FILE_BYTES}");
                return Err(Error::File { file: name, problem });
            }
        }
        let roles = roles(&file)?;
        let mut inner = match (file("vocab.json"), file("merges.txt"), file("tokenizer.json")) {
            (Some(vocabulary), Some(merges), _) => of_two_files(vocabulary, merges)?,
            (_, _, Some(whole)) => whole::read(whole)?,
            _ => return Err(Error::NoVocabulary),
        }
        .tokenizer(roles.unknown.content())?;
        // Special tokens are found in the middle of a text, too.
        let special = [&roles.start, &roles.end, &roles.unknown, &roles.padding];
        for (token, role) in special.into_iter().zip(["start", "end", "unknown token", "padding"]) {
            if inner.token_to_id(token.content()).is_none() {
                return Err(Error::NoToken { token: token.content().into(), role });
            }
        }
        // The definition in tokenizer.json takes precedence.
        let there: Vec<String> = inner.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        let missing = special.into_iter().filter(|token| !there.iter().any(|content| content == token.content()));
        let added = inner.add_special_tokens(missing.map(SpecialToken::added).collect::<Vec<_>>());
        added.map_err(|error| Error::File { file: "special tokens", problem: error.to_string() })?;
        let id = |token: &SpecialToken| inner.token_to_id(token.content()).map_or(0, i64::from);
        let (start, end, padding) = (id(&roles.start), id(&roles.end), id(&roles.padding));
        Ok(Self { inner, start, end, padding })
    }

    /// The size of the vocabulary, with added tokens.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The tokens of a text for a text encoder of `length` tokens. A longer text is cut off.
    ///
    /// # Errors
    /// The text exceeds the limit of bytes.
    pub fn tokens(&self, text: &str, length: usize) -> Result<Tokens> {
        let mut ids = self.ids(text)?;
        let room = length.saturating_sub(2);
        let cut_off = (ids.len() > room).then(|| ids.split_off(room)).map(|rest| self.text(&rest)).transpose()?;
        Ok(Tokens { ids: self.framed(&ids, length), cut_off })
    }

    /// The tokens of a long text in as many pieces of `length` tokens as it needs, each with its own start and end.
    ///
    /// # Errors
    /// As [`Tokenizer::tokens`].
    pub fn pieces(&self, text: &str, length: usize) -> Result<Vec<Vec<i64>>> {
        let ids = self.ids(text)?;
        let room = length.saturating_sub(2).max(1);
        let pieces: Vec<Vec<i64>> = ids.chunks(room).map(|piece| self.framed(piece, length)).collect();
        Ok(if pieces.is_empty() { vec![self.framed(&[], length)] } else { pieces })
    }

    /// The rows of tokens that a text encoder of `length` tokens takes for a prompt: as many as it needs if it is
    /// `long`, else one and the part of the text that did not fit.
    pub(super) fn rows(&self, parts: &[Part], length: usize, long: bool) -> Result<(Vec<Row>, Option<String>)> {
        let mut tokens = Vec::new();
        for Part { text, weight } in parts {
            tokens.extend(self.ids(text)?.into_iter().map(|id| (id, *weight as f32)));
        }
        let room = length.saturating_sub(2);
        let row = |tokens: &[(u32, f32)]| {
            let (ids, weights): (Vec<u32>, Vec<f32>) = tokens.iter().copied().unzip();
            let filled = ids.len() + 2;
            let ids = self.framed(&ids, length);
            // The start, the end and the padding have their own state.
            let weighted = weights.iter().any(|weight| *weight != 1.0);
            let weights = weighted.then(|| {
                let rest = ids.len() - 1 - weights.len();
                [1.0].into_iter().chain(weights).chain(std::iter::repeat_n(1.0, rest)).collect()
            });
            Row { ids, length: filled, weights }
        };
        if !long {
            let rest: Vec<u32> = tokens.drain(room.min(tokens.len())..).map(|(id, _)| id).collect();
            let cut_off = (!rest.is_empty()).then(|| self.text(&rest)).transpose()?;
            return Ok((vec![row(&tokens)], cut_off));
        }
        let rows: Vec<Row> = tokens.chunks(room.max(1)).map(row).collect();
        Ok((if rows.is_empty() { vec![row(&[])] } else { rows }, None))
    }

    /// Refuses a text that exceeds the limit of bytes.
    pub(super) fn check_length(&self, text: &str) -> Result<()> {
        if text.len() > MOST_BYTES { Err(Error::TooLong { found: text.len() }) } else { Ok(()) }
    }

    /// The tokens of a text, without start, end and padding.
    fn ids(&self, text: &str) -> Result<Vec<u32>> {
        self.check_length(text)?;
        let encoding = self.inner.encode_fast(text, false).map_err(|error| Error::Text(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn framed(&self, ids: &[u32], length: usize) -> Vec<i64> {
        let mut framed = vec![self.start];
        framed.extend(ids.iter().copied().map(i64::from));
        framed.push(self.end);
        framed.resize(length.max(framed.len()), self.padding);
        framed
    }

    fn text(&self, ids: &[u32]) -> Result<String> {
        let text = self.inner.decode(ids, false).map_err(|error| Error::Text(error.to_string()))?;
        Ok(text.replace(END_OF_WORD, " ").trim().to_owned())
    }
}

/// The parts in `vocab.json` and `merges.txt`.
fn of_two_files(vocabulary: &[u8], merges: &[u8]) -> Result<Definition> {
    let refused = |file| move |problem: String| Error::File { file, problem };
    let vocabulary = serde_json::from_slice(vocabulary).map_err(|error| refused("vocab.json")(error.to_string()))?;
    let merges = std::str::from_utf8(merges).map_err(|error| refused("merges.txt")(error.to_string()))?;
    // The first line states the version of the format.
    let lines = merges.lines().enumerate().filter(|(number, line)| {
        let about = *number == 0 && line.starts_with("#version");
        !about && !line.is_empty()
    });
    let merges = definition::pairs("merges.txt", lines)?;
    Ok(Definition {
        file: "vocab.json and merges.txt",
        vocabulary,
        merges,
        pieces: PIECES,
        unknown: None,
        added: Vec::new(),
    })
}

/// Finds the special tokens. Newer configurations list all of them; older files have them in the map.
fn roles<'f>(file: &impl Fn(&str) -> Option<&'f [u8]>) -> Result<Roles> {
    let read = |name: &'static str| -> Result<Special> {
        let parsed = file(name).map(serde_json::from_slice).transpose();
        Ok(parsed.map_err(|error| Error::File { file: name, problem: error.to_string() })?.unwrap_or_default())
    };
    let (config, map) = (read("tokenizer_config.json")?, read("special_tokens_map.json")?);
    let (first, second) = if config.added_tokens_decoder.is_empty() { (map, config) } else { (config, map) };
    let described = |content: &str| {
        let by_content = |value: &&Value| value.get("content").and_then(Value::as_str) == Some(content);
        let all = [&first, &second].into_iter().flat_map(|special| special.added_tokens_decoder.values());
        all.filter(by_content).find_map(|value| serde_json::from_value::<SpecialToken>(value.clone()).ok())
    };
    let choose = |one: &Option<SpecialToken>, other: &Option<SpecialToken>, default: &str| {
        let named = one.clone().or_else(|| other.clone()).unwrap_or_else(|| SpecialToken::Text(default.into()));
        described(named.content()).unwrap_or(named)
    };
    Ok(Roles {
        start: choose(&first.bos_token, &second.bos_token, START),
        end: choose(&first.eos_token, &second.eos_token, END),
        unknown: choose(&first.unk_token, &second.unk_token, END),
        padding: choose(&first.pad_token, &second.pad_token, END),
    })
}
