//! Any bytes are a valid manifest or give an error. A valid manifest is the same after it was written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tileforge_engine::Manifest;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let text = serde_json::to_vec(&manifest).expect("a manifest has a JSON form");
        assert_eq!(Manifest::parse(&text).expect("what was valid stays valid"), manifest);
    }
});
