//! Any bytes are a manifest or an index of a registry, or give an error; what is valid is the same after it was written
//! and read again. Any annotations say what an engine needs, or give an error. Any text is a reference, or gives an
//! error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tileforge_registry::document::Document;
use tileforge_registry::{Reference, annotations};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::parse(bytes) {
        let (text, entries) = match &document {
            Document::Manifest(manifest) => (serde_json::to_vec(manifest), &manifest.layers),
            Document::Index(index) => (serde_json::to_vec(index), &index.manifests),
        };
        for entry in entries {
            let _ = annotations::requirements(&entry.annotations);
            let _ = annotations::size(&entry.annotations);
        }
        // What is written has no spaces, so that it is never longer than what was read.
        let text = text.expect("a document has a JSON form");
        assert_eq!(Document::parse(&text).expect("what was valid stays valid"), document);
    }
    if let Some(reference) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Reference>().ok()) {
        assert_eq!(reference.to_string().parse::<Reference>().expect("what was valid stays valid"), reference);
    }
});
