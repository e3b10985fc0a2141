//! Our reader accepts a header only if the reference implementation does, and never panics.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use safetensors::SafeTensors;
use tileforge_exporter::checkpoint::parse_header;

fuzz_target!(|file: &[u8]| {
    match (parse_header(file), SafeTensors::deserialize(file)) {
        (Ok(ours), Ok(reference)) => {
            assert_eq!(ours.tensors.len(), reference.len());
            for (name, info) in ours.tensors {
                let tensor = reference.tensor(&name).expect("the reference has the same names");
                assert_eq!(info.dims, tensor.shape());
                assert_eq!(&file[info.offset as usize..][..info.length as usize], tensor.data());
            }
        }
        (Ok(ours), Err(error)) => panic!("we accept {ours:?}, the reference says {error}"),
        // Our reader refuses more: duplicates, unknown fields, types that no graph can hold.
        (Err(_), _) => {}
    }
});
