//! Files of PyTorch with any damage give tensors inside the file, or an error.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use std::fs;
use tileforge_exporter::checkpoint::parse_torch;

/// The seeds of the fuzz target: small valid files in every format.
fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/torch_file");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The opcodes of the pickle machine, and a few bytes for their arguments.
const OPCODES: &[u8] = b"\x80\x02\x04\x95(.NJKMGUCXTB)t]ae}su0hqjrRbQc\x81\x85\x86\x87\x88\x89\x8a\x8c\x8f\x90\
    \x91\x93\x94\0\x01";

fn check(file: &[u8]) -> bool {
    let Ok(parsed) = parse_torch(file) else { return false };
    for (name, tensor) in &parsed.tensors {
        let place = tensor.place;
        assert!(place.offset + place.compressed.unwrap_or(place.length) <= file.len() as u64, "{name}");
        assert!(tensor.elements as u64 * tensor.data_type.size() as u64 <= place.length, "{name}");
        let steps = tensor.dims.iter().zip(&tensor.strides).map(|(dim, stride)| dim.saturating_sub(1) * stride);
        let elements: usize = tensor.dims.iter().product();
        assert!(elements == 0 || tensor.first + steps.sum::<usize>() < tensor.elements, "{name}");
        assert!(elements <= tensor.elements, "{name}");
    }
    true
}

#[test]
fn every_seed_is_valid() {
    let seeds = seeds();
    assert_eq!(seeds.len(), 6);
    assert!(seeds.iter().all(|seed| check(seed)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damaged_files_have_an_answer(
        seed in 0_usize..6,
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut file = seeds().swap_remove(seed);
        for (place, byte) in &damages {
            let place = place.index(file.len());
            file[place] = *byte;
        }
        if is_cut {
            file.truncate(cut.index(file.len()));
        }
        let _ = check(&file);
    }

    /// Any program of the pickle machine.
    #[test]
    fn any_opcodes_have_an_answer(opcodes in prop::collection::vec(prop::sample::select(OPCODES), 0..60)) {
        let magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.";
        let _ = check(&[magic.as_slice(), &opcodes, b"."].concat());
    }
}
