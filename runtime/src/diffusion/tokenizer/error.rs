//! The errors of tokenizers.

/// Longer texts are refused: 10,000 words have fewer bytes.
pub(super) const MOST_BYTES: usize = 1 << 18;

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no vocabulary.
    #[error("the tokenizer has no vocabulary; expected vocab.json and merges.txt, or tokenizer.json")]
    NoVocabulary,
    /// A file has unexpected contents.
    #[error("the tokenizer's {file}: {problem}")]
    File {
        /// Its name.
        file: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A token that every text needs is not in the vocabulary.
    #[error("the tokenizer's vocabulary has no token {token:?}, its {role}")]
    NoToken {
        /// The token.
        token: String,
        /// What it is for.
        role: &'static str,
    },
    /// The text is too long.
    #[error("the text has {found} bytes; expected at most {MOST_BYTES}")]
    TooLong {
        /// Its bytes.
        found: usize,
    },
    /// The tokenizer refuses a text.
    #[error("the text has no tokens: {0}")]
    Text(String),
}
