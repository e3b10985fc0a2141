//! Malicious tokenizers: they give a tokenizer or an error, never a panic, and take little memory.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{Files, files, tokenizer};

/// The tokenizer in one file, after a change.
fn changed(change: impl FnOnce(&mut Value)) -> Files {
    let mut files = files("one-file");
    let mut whole: Value = serde_json::from_slice(&files["tokenizer.json"]).unwrap();
    change(&mut whole);
    files.insert("tokenizer.json".into(), whole.to_string().into_bytes());
    files
}

fn refused(change: impl FnOnce(&mut Value)) -> String {
    tokenizer(&changed(change)).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn components_that_clip_has_not_are_refused() {
    let doubling = json!({ "type": "Replace", "pattern": { "Regex": "(.*)" }, "content": "aa" });
    let forty = json!({ "type": "Sequence", "normalizers": vec![doubling.clone(); 40] });
    for normalizer in [json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA" }), json!({ "type": "Prepend" })] {
        let text = refused(|whole| whole["normalizer"] = normalizer);
        assert!(text.starts_with("the tokenizer's tokenizer.json: unknown variant"), "{text}");
    }
    for normalizer in [forty, doubling, json!({ "type": "Sequence", "normalizers": [] })] {
        let text = refused(|whole| whole["normalizer"] = normalizer);
        assert!(text.contains("normalizer: expected CLIP's"), "{text}");
    }
    let expression = json!("(a|a)*b");
    let text = refused(|whole| whole["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = expression);
    assert!(text.contains("pre_tokenizer: expected CLIP's"), "{text}");
    let text = refused(|whole| whole["pre_tokenizer"] = json!({ "type": "Metaspace" }));
    assert!(text.contains("unknown variant `Metaspace`"), "{text}");
    for (key, value, expected) in [
        ("type", json!("WordPiece"), "type BPE"),
        ("dropout", json!(0.5), "no dropout"),
        ("continuing_subword_prefix", json!("日本"), "no continuing_subword_prefix"),
        ("end_of_word_suffix", Value::Null, "end_of_word_suffix </w>"),
        ("fuse_unk", json!(true), "fuse_unk false"),
        ("byte_fallback", json!(true), "byte_fallback false"),
        ("ignore_merges", json!(true), "ignore_merges false"),
        ("max_input_chars_per_word", json!(1), "unknown field"),
    ] {
        let text = refused(|whole| whole["model"][key] = value);
        assert!(text.contains(expected), "{text}");
    }
}

/// These never reach the library: lengths and padding belong to the text encoder, and CLIP has only one way to decode.
#[test]
fn components_that_no_text_needs_have_no_effect() {
    let decoders = vec![json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" }); 40];
    let odd = changed(|whole| {
        whole["padding"] = json!({ "strategy": { "FixedLength": 0 }, "direction": "Right", "pad_to_multiple_of": 0 });
        whole["truncation"] = json!({ "max_length": 0, "stride": 9, "strategy": "LongestFirst", "direction": "Left" });
        whole["post_processor"] = json!({ "type": "TemplateProcessing" });
        whole["decoder"] = json!({ "type": "Sequence", "decoders": decoders });
    });
    let (odd, plain) = (tokenizer(&odd).unwrap(), tokenizer(&files("one-file")).unwrap());
    let text = "a red fox in the snow, ".repeat(20);
    assert_eq!(odd.tokens(&text, 77).unwrap(), plain.tokens(&text, 77).unwrap());
}

#[test]
fn numbers_and_lengths_are_checked() {
    for (token, id, expected) in [
        ("fox-token", json!(u32::MAX), "the token \"fox-token\" has the number 4294967295; expected numbers below"),
        ("fox-token", json!(3), "two tokens have the number 3"),
        ("fox-token", json!(1_u64 << 40), "invalid value"),
        ("fox-token", json!(-1), "invalid value"),
    ] {
        let text = refused(|whole| whole["model"]["vocab"][token] = id);
        assert!(text.contains(expected), "{text}");
    }
    let added = |content: String, id: u64| json!({ "id": id, "content": content, "special": false });
    let next = tokenizer(&files("one-file")).unwrap().vocabulary() as u64;
    for (added, expected) in [
        (vec![added("x".repeat(257), next)], "an added token has 257 bytes; expected 1 to 256"),
        (vec![added(String::new(), next)], "an added token has 0 bytes; expected 1 to 256"),
        (vec![added("fox-token".into(), u64::from(u32::MAX))], "has the number 4294967295; expected"),
        ((0..5000).map(|id| added(format!("t{id}"), next + id)).collect(), "at most 4096 added tokens, found 5003"),
    ] {
        let text = refused(|whole| whole["added_tokens"].as_array_mut().unwrap().extend(added));
        assert!(text.contains(expected), "{text}");
    }
    // A trained embedding adds its own token.
    let more = changed(|whole| whole["added_tokens"].as_array_mut().unwrap().push(added("<fox>".into(), next)));
    let found = tokenizer(&more).unwrap().tokens("a <fox>", 77).unwrap().ids;
    assert!(found.contains(&(next as i64)), "{found:?}");
    for name in super::FILES {
        let mut files = files("one-file");
        files.insert(name.into(), vec![b' '; (8 << 20) + 1]);
        let text = tokenizer(&files).map(|_| ()).unwrap_err().to_string();
        assert_eq!(text, format!("the tokenizer's {name}: the file has 8388609 bytes; expected at most 8388608"));
    }
}

/// Older files store merges as lines.
#[test]
fn files_of_older_releases_are_read() {
    let older = changed(|whole| {
        let lines = |pair: &Value| json!(format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
        whole["model"]["merges"] = whole["model"]["merges"].as_array().unwrap().iter().map(lines).collect();
        let older = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
        whole["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = older.into();
        whole["pre_tokenizer"]["pretokenizers"][1] = json!({ "type": "ByteLevel", "add_prefix_space": false });
    });
    let (older, newer) = (tokenizer(&older).unwrap(), tokenizer(&files("one-file")).unwrap());
    for text in ["a red fox in the snow", "don't they've 12 <|endoftext|> !", "日本 🦊"] {
        assert_eq!(older.tokens(text, 77).unwrap(), newer.tokens(text, 77).unwrap());
    }
}

/// A value for any place of the file.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        (0_u32..800).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["BPE", "NFC", "Sequence", "!", "</w>", "<|endoftext|>", "日本"])
            .prop_map(Value::from),
    ]
}

/// Puts a value at a place that `path` leads to, one number for each level.
fn put(at: &mut Value, path: &[usize], value: Value) {
    match (path, at) {
        ([first, rest @ ..], Value::Array(list)) if !list.is_empty() => {
            let index = first % list.len();
            put(&mut list[index], rest, value);
        }
        ([first, rest @ ..], Value::Object(object)) if !object.is_empty() => {
            let index = first % object.len();
            if let Some(entry) = object.values_mut().nth(index) {
                put(entry, rest, value);
            }
        }
        (_, at) => *at = value,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_file_is_a_tokenizer_or_an_error(
        changes in prop::collection::vec((prop::collection::vec(0_usize..1000, 1..5), value()), 1..3),
        text in "\\PC{0,40}",
    ) {
        let files = changed(|whole| changes.into_iter().for_each(|(path, value)| put(whole, &path, value)));
        if let Ok(tokenizer) = tokenizer(&files)
            && let Ok(tokens) = tokenizer.tokens(&text, 77)
        {
            let vocabulary = tokenizer.vocabulary() as i64;
            prop_assert!(tokens.ids.len() == 77 && tokens.ids.iter().all(|id| (0..vocabulary).contains(id)));
        }
    }
}
