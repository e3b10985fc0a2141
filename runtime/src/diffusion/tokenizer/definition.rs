//! The parts that differ between CLIP's tokenizers: vocabulary, merges and added tokens.

use std::collections::HashMap;

use serde::Deserialize;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers, replace::ReplacePattern};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::error::{Error, Result};
use crate::diffusion::quote::quoted;

/// The suffix of the last token of a word.
pub(super) const END_OF_WORD: &str = "</w>";

/// Matches a word, a digit or a run of punctuation.
pub(super) const PIECES: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// More tokens than any trained embedding brings.
const MOST_ADDED: usize = 4096;
/// The most bytes of an added token.
const MOST_ADDED_BYTES: usize = 256;

/// Tokens and their numbers.
pub(super) type Vocabulary = HashMap<String, u32>;

/// A tokenizer's parts.
pub(super) struct Definition {
    /// The file that they come from, for messages.
    pub(super) file: &'static str,
    pub(super) vocabulary: Vocabulary,
    /// Pairs of tokens that merge to one, in order of priority.
    pub(super) merges: Vec<(String, String)>,
    /// The expression that a text is split by.
    pub(super) pieces: &'static str,
    /// The token for bytes without a token.
    pub(super) unknown: Option<String>,
    pub(super) added: Vec<Added>,
}

/// A token that is found in a text before it is split.
#[derive(Deserialize)]
pub(super) struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

impl Added {
    fn token(&self) -> AddedToken {
        AddedToken::from(self.content.clone(), self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized)
    }
}

/// Pairs of tokens from numbered lines, each with a space between two tokens.
pub(super) fn pairs<'l>(
    file: &'static str,
    lines: impl Iterator<Item = (usize, &'l str)>,
) -> Result<Vec<(String, String)>> {
    let pair = |(number, line): (usize, &str)| match line.split_once(' ') {
        Some((one, other)) if !other.contains(' ') => Ok((one.to_owned(), other.to_owned())),
        _ => {
            let problem = format!("line {}: expected two tokens, found {:?}", number + 1, quoted(line));
            Err(Error::File { file, problem })
        }
    };
    lines.map(pair).collect()
}

impl Definition {
    /// CLIP's tokenizer with these parts.
    pub(super) fn tokenizer(self, default_unknown: &str) -> Result<tokenizers::Tokenizer> {
        let file = self.file;
        let refused = move |problem: String| Error::File { file, problem };
        let count = self.vocabulary.len();
        // A number beyond the vocabulary would also be beyond the text encoder's table.
        let mut taken = vec![false; count];
        for (token, id) in &self.vocabulary {
            match taken.get_mut(*id as usize) {
                Some(taken) if !*taken => *taken = true,
                Some(_) => return Err(refused(format!("two tokens have the number {id}; expected one"))),
                None => {
                    let token = quoted(token);
                    let expected = format!("expected numbers below {count}, one for each token");
                    return Err(refused(format!("the token {token:?} has the number {id}; {expected}")));
                }
            }
        }
        // The library panics if the merged text is longer than every token.
        for (one, other) in &self.merges {
            let both = format!("{one}{other}");
            if let Some(missing) = [one, other, &both].into_iter().find(|token| !self.vocabulary.contains_key(*token)) {
                let [one, other, missing] = [one, other, missing].map(|token| quoted(token));
                let problem = format!(
                    "expected tokens for {one:?} and {other:?} and for both in one, found none for {missing:?}"
                );
                return Err(refused(problem));
            }
        }
        let model = BPE::builder()
            .vocab_and_merges(self.vocabulary.into_iter().collect::<HashMap<_, _, _>>(), self.merges)
            .continuing_subword_prefix(String::new())
            .end_of_word_suffix(END_OF_WORD.into())
            .unk_token(self.unknown.unwrap_or_else(|| default_unknown.into()))
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        let pieces = self.pieces;
        let built = || -> tokenizers::Result<(Normalizers, PreTokenizers)> {
            let spaces = Replace::new(ReplacePattern::Regex(r"\s+".into()), " ")?;
            let normalizers: Vec<NormalizerWrapper> = vec![NFC.into(), spaces.into(), Lowercase.into()];
            let pieces = Split::new(SplitPattern::Regex(pieces.into()), SplitDelimiterBehavior::Removed, true)?;
            let splitting: Vec<PreTokenizerWrapper> = vec![pieces.into(), ByteLevel::new(false, true, true).into()];
            Ok((Normalizers::new(normalizers), PreTokenizers::new(splitting)))
        };
        let (normalizers, splitting) = built().map_err(|error| refused(error.to_string()))?;
        inner
            .with_normalizer(Some(normalizers))
            .map_err(|error| refused(error.to_string()))?
            .with_pre_tokenizer(Some(splitting))
            .with_decoder(Some(ByteLevel::default()));
        add(&mut inner, &self.added, refused)?;
        Ok(inner)
    }
}

/// Adds tokens. Their numbers must be those in the file.
fn add(inner: &mut tokenizers::Tokenizer, added: &[Added], refused: impl Fn(String) -> Error) -> Result<()> {
    if added.len() > MOST_ADDED {
        return Err(refused(format!("expected at most {MOST_ADDED} added tokens, found {}", added.len())));
    }
    if let Some(long) = added.iter().find(|added| !(1..=MOST_ADDED_BYTES).contains(&added.content.len())) {
        let found = long.content.len();
        return Err(refused(format!("an added token has {found} bytes; expected 1 to {MOST_ADDED_BYTES}")));
    }
    // All at once: the library rebuilds its table of added tokens in each call.
    inner.add_tokens(added.iter().map(Added::token).collect::<Vec<_>>()).map_err(|error| refused(error.to_string()))?;
    for Added { id, content, .. } in added {
        let found = inner.token_to_id(content);
        if found != Some(*id) {
            let found = found.map_or("none".into(), |found| found.to_string());
            return Err(refused(format!("the added token {content:?} has the number {id}; expected {found}")));
        }
    }
    Ok(())
}
