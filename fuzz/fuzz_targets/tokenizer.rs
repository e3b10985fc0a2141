//! Any files are a tokenizer or give an error, and any text has parts and tokens or gives an error. Parts of the input
//! are separated by zero bytes: a text, `tokenizer.json` or `vocab.json`, `merges.txt`, and a configuration.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_runtime::diffusion::prompt;
use tileforge_runtime::diffusion::tokenizer::Tokenizer;

fuzz_target!(|bytes: &[u8]| {
    let parts: Vec<&[u8]> = bytes.splitn(4, |byte| *byte == 0).collect();
    let part = |index: usize| parts.get(index).copied();
    let text = String::from_utf8_lossy(part(0).unwrap_or_default());
    if let Ok(parts) = prompt::parse(&text) {
        assert!(!parts.is_empty() && parts.iter().all(|part| part.weight.abs() <= 100.0));
    }
    for in_one_file in [true, false] {
        let tokenizer = Tokenizer::new(|name| match name {
            "tokenizer.json" if in_one_file => part(1),
            "vocab.json" if !in_one_file => part(1),
            "merges.txt" if !in_one_file => part(2),
            "tokenizer_config.json" => part(3),
            _ => None,
        });
        let Ok(tokenizer) = tokenizer else { continue };
        let vocabulary = tokenizer.vocabulary() as i64;
        if let Ok(tokens) = tokenizer.tokens(&text, 77) {
            assert!(tokens.ids.len() == 77 && tokens.ids.iter().all(|id| (0..vocabulary).contains(id)));
        }
    }
});
