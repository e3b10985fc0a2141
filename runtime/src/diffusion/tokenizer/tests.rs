//! Tokens of hard texts, as transformers gives them (`tests/golden-tokenizer`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{Error, Tokenizer};

const LENGTH: usize = 77;

#[derive(Deserialize)]
struct Expected {
    texts: Vec<Text>,
    long: Long,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<i64>,
    padding: i64,
    cut_off: Option<String>,
}

#[derive(Deserialize)]
struct Long {
    sentence: String,
    times: usize,
    tokens: usize,
    sha256: String,
}

pub(super) type Files = BTreeMap<String, Vec<u8>>;

pub(super) fn files(case: &str) -> Files {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden-tokenizer").join(case);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
    };
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

pub(super) fn tokenizer(files: &Files) -> super::Result<Tokenizer> {
    Tokenizer::new(|name| files.get(name).map(Vec::as_slice))
}

#[test]
fn tokens_are_those_of_transformers() {
    for case in ["padded-with-end", "padded-with-token", "one-file"] {
        let files = files(case);
        let tokenizer = tokenizer(&files).unwrap();
        let expected: Expected = serde_json::from_slice(&files["expected.json"]).unwrap();
        assert!(expected.texts.len() >= 24);
        for Text { text, mut ids, padding, cut_off } in expected.texts {
            ids.resize(LENGTH, padding);
            let found = tokenizer.tokens(&text, LENGTH).unwrap();
            assert_eq!((found.ids, found.cut_off), (ids, cut_off), "{case}: {text:?}");
        }
        let Long { sentence, times, tokens, sha256 } = expected.long;
        let text = sentence.repeat(times);
        assert!(text.split_whitespace().count() >= 10_000);
        let all: Vec<i64> = tokenizer.framed(&tokenizer.ids(&text).unwrap(), 0);
        let digest = Sha256::digest(all.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((all.len(), digest), (tokens, sha256), "{case}");
    }
}

#[test]
fn the_tokens_of_a_long_text_come_in_pieces_and_none_is_lost() {
    let tokenizer = tokenizer(&files("padded-with-token")).unwrap();
    let text = "a red fox in the snow ".repeat(40);
    let all = tokenizer.ids(&text).unwrap();
    let pieces = tokenizer.pieces(&text, LENGTH).unwrap();
    assert_eq!(pieces.len(), all.len().div_ceil(75));
    let inner: Vec<u32> = pieces
        .iter()
        .flat_map(|piece| {
            assert_eq!((piece.len(), piece[0]), (LENGTH, tokenizer.start));
            let end = piece.iter().position(|id| *id == tokenizer.end).unwrap();
            assert!(piece[end + 1..].iter().all(|id| *id == tokenizer.padding));
            piece[1..end].iter().map(|id| *id as u32).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(inner, all);
    // A text that fits is one piece, as without pieces.
    for text in ["", "a red fox"] {
        assert_eq!(tokenizer.pieces(text, LENGTH).unwrap(), [tokenizer.tokens(text, LENGTH).unwrap().ids]);
    }
}

#[test]
fn a_text_of_a_megabyte_is_refused() {
    let tokenizer = tokenizer(&files("one-file")).unwrap();
    let error = tokenizer.tokens(&"fox ".repeat(1 << 18), LENGTH).unwrap_err();
    assert_eq!(error.to_string(), "the text has 1048576 bytes; expected at most 262144");
}

#[test]
fn files_that_are_no_tokenizer_are_refused() {
    let whole = files("padded-with-end");
    let with = |name: &str, contents: &str| {
        let mut changed = whole.clone();
        changed.insert(name.into(), contents.as_bytes().to_vec());
        tokenizer(&changed).unwrap_err().to_string()
    };
    assert!(with("vocab.json", "{").starts_with("the tokenizer's vocab.json: EOF"));
    assert!(with("vocab.json", "{\"a\": 0}").contains("merges.txt"));
    assert!(with("merges.txt", "#version: 0.2\na b c\n").contains("line 2: expected two tokens, found \"a b c\""));
    assert!(with("merges.txt", "#version: 0.2\n日 x\n").contains("merges.txt"));
    assert!(with("special_tokens_map.json", "[]").starts_with("the tokenizer's special_tokens_map.json"));
    let text = with("special_tokens_map.json", r#"{"pad_token": "<pad>"}"#);
    assert_eq!(text, "the tokenizer's vocabulary has no token \"<pad>\", its padding");
    let mut outside = whole.clone();
    outside.insert("vocab.json".into(), br#"{"a": 0, "b</w>": 1}"#.to_vec());
    outside.insert("merges.txt".into(), b"#version: 0.2\na b</w>\n".to_vec());
    let text = "the tokenizer's vocab.json and merges.txt: expected tokens for \"a\" and \"b</w>\" and for both in \
                one, found none for \"ab</w>\"";
    assert_eq!(tokenizer(&outside).unwrap_err().to_string(), text);
    let mut without = whole.clone();
    without.remove("merges.txt");
    assert!(matches!(tokenizer(&without).unwrap_err(), Error::NoVocabulary));
    let mut broken = files("one-file");
    broken.insert("tokenizer.json".into(), b"{}".to_vec());
    assert!(tokenizer(&broken).unwrap_err().to_string().starts_with("the tokenizer's tokenizer.json"));
}
