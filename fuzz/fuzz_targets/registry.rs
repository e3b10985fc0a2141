//! Any bytes are a manifest or an index of a registry, or give an error; what is valid is the same after it was written
//! and read again. Any annotations say what an engine needs, or give an error. Any text is a reference, or gives an
//! error. Any text is an address that a server names, or gives an error, and so is any `Content-Range`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_registry::document::Document;
use tileforge_registry::download::ContentRange;
use tileforge_registry::http::Address;
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
    if let Ok(text) = std::str::from_utf8(bytes) {
        let base = Address::parse("https://example.org:5000/v2/a/").expect("an address");
        if let Ok(address) = base.join(text) {
            assert_eq!(Address::named(&address.to_string()).expect("what was valid stays valid"), address);
            // What begins with one slash, or with none and no scheme, stays on the server.
            let stays = text.starts_with('/') && !text.starts_with("//");
            assert!(!stays || address.origin() == base.origin());
        }
        if let Ok(ContentRange { bytes: Some((first, last)), total }) = text.parse() {
            assert!(first <= last && last < total.unwrap_or(u64::MAX));
        }
    }
    if let Some(reference) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Reference>().ok()) {
        assert_eq!(reference.to_string().parse::<Reference>().expect("what was valid stays valid"), reference);
    }
});
