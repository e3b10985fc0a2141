//! `tokenizer.json`: one file with everything, as the `tokenizers` library writes it.
//!
//! That library has components that panic on some values, that may never end (regular expressions), or that let a text
//! of a few words fill the memory (a chain of normalisers that each double it). So the library never gets the file. It
//! is parsed here, must describe CLIP's tokenizer, and supplies only the vocabulary, the merges and the added tokens.
//!
//! `truncation`, `padding`, `post_processor` and `decoder` are not read. A text's length, its first and last token and
//! its padding are the text encoder's ([`Tokenizer::tokens`](super::Tokenizer::tokens)), and CLIP has one way to decode.

use serde::Deserialize;

use super::definition::{Added, Definition, END_OF_WORD, PIECES};
use super::{Error, Result};

const FILE: &str = "tokenizer.json";
/// The expression of tokenizers that transformers 4 wrote. Special tokens are found before it is used.
const OLDER_PIECES: &str = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";

#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    model: Model,
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Normalizer {
    Sequence {
        normalizers: Vec<Normalizer>,
    },
    #[serde(rename = "NFC")]
    Nfc,
    Replace {
        pattern: Pattern,
        content: String,
    },
    Lowercase,
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum PreTokenizer {
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
    Split {
        pattern: Pattern,
        behavior: String,
        invert: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        #[serde(rename = "trim_offsets")]
        _trim_offsets: Option<bool>,
        use_regex: Option<bool>,
    },
}

#[derive(Deserialize)]
enum Pattern {
    Regex(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: super::definition::Vocabulary,
    merges: Merges,
}

/// Newer files have pairs, older ones two tokens with a space between them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merges {
    Pairs(Vec<(String, String)>),
    Lines(Vec<String>),
}

/// Reads the file.
pub(super) fn read(bytes: &[u8]) -> Result<Definition> {
    let whole: Whole = serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
    if !is_normalizer(&whole.normalizer) {
        return Err(refused(
            r"normalizer: expected CLIP's, which is NFC, Replace of \s+ by a space, and Lowercase".into(),
        ));
    }
    let pieces = pieces(&whole.pre_tokenizer).ok_or_else(|| {
        refused("pre_tokenizer: expected CLIP's, which is Split by its expression, and ByteLevel".into())
    })?;
    let model = whole.model;
    for (is_so, expected) in [
        (model.kind.as_deref().is_none_or(|kind| kind == "BPE"), "type BPE"),
        (model.dropout.is_none_or(|dropout| dropout == 0.0), "no dropout"),
        (model.continuing_subword_prefix.as_deref().unwrap_or_default().is_empty(), "no continuing_subword_prefix"),
        (model.end_of_word_suffix.as_deref() == Some(END_OF_WORD), "end_of_word_suffix </w>"),
        (!model.fuse_unk.unwrap_or_default(), "fuse_unk false"),
        (!model.byte_fallback.unwrap_or_default(), "byte_fallback false"),
        (!model.ignore_merges.unwrap_or_default(), "ignore_merges false"),
    ] {
        if !is_so {
            return Err(refused(format!("model: expected CLIP's, with {expected}")));
        }
    }
    let merges = match model.merges {
        Merges::Pairs(pairs) => pairs,
        Merges::Lines(lines) => super::definition::pairs(FILE, lines.iter().map(String::as_str).enumerate())?,
    };
    Ok(Definition {
        file: FILE,
        vocabulary: model.vocab,
        merges,
        pieces,
        unknown: model.unk_token,
        added: whole.added_tokens,
    })
}

fn refused(problem: String) -> Error {
    Error::File { file: FILE, problem }
}

fn is_normalizer(normalizer: &Normalizer) -> bool {
    let Normalizer::Sequence { normalizers } = normalizer else { return false };
    let [Normalizer::Nfc, Normalizer::Replace { pattern: Pattern::Regex(spaces), content }, Normalizer::Lowercase] =
        normalizers.as_slice()
    else {
        return false;
    };
    spaces == r"\s+" && content == " "
}

/// The expression that splits a text, if the rest equals CLIP's.
fn pieces(splitting: &PreTokenizer) -> Option<&'static str> {
    let PreTokenizer::Sequence { pretokenizers } = splitting else { return None };
    let [
        PreTokenizer::Split { pattern: Pattern::Regex(pattern), behavior, invert: true },
        PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: Some(true) | None, .. },
    ] = pretokenizers.as_slice()
    else {
        return None;
    };
    let known = [PIECES, OLDER_PIECES].into_iter().find(|known| pattern == known);
    known.filter(|_| behavior == "Removed")
}
