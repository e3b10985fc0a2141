//! Any bytes are a valid manifest, of one network or of several parts, or give an error. A valid manifest is the same
//! after it was written and read again, and says of each graph whether it takes other sizes.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_contract::Sizes;
use tileforge_engine::BundleManifest;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = BundleManifest::parse(bytes) {
        if let BundleManifest::Engine(manifest) = &manifest {
            for graph in &manifest.graphs {
                for size in [0, 1, 7, usize::MAX] {
                    let sizes = Sizes { batch: size, height: size, width: size, ..Sizes::default() };
                    if let Ok(resized) = graph.resized(&manifest.contract, sizes) {
                        assert!(resized.values_bytes <= graph.values_bytes);
                    }
                }
            }
        }
        let text = match &manifest {
            BundleManifest::Engine(manifest) => serde_json::to_vec(manifest),
            BundleManifest::Pipeline(manifest) => serde_json::to_vec(manifest),
        };
        let text = text.expect("a manifest has a JSON form");
        assert_eq!(BundleManifest::parse(&text).expect("what was valid stays valid"), manifest);
    }
});
