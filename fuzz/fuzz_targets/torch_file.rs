//! Any bytes are a checkpoint of PyTorch or give an error, and every tensor lies inside the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tileforge_exporter::checkpoint::parse_torch;

fuzz_target!(|file: &[u8]| {
    let Ok(parsed) = parse_torch(file) else { return };
    for tensor in parsed.tensors.values() {
        let place = tensor.place;
        let stored = place.compressed.unwrap_or(place.length);
        assert!(place.offset + stored <= file.len() as u64);
        assert!(tensor.elements as u64 * tensor.data_type.size() as u64 <= place.length);
        assert_eq!(tensor.dims.len(), tensor.strides.len());
        let last = tensor.dims.iter().zip(&tensor.strides).fold(tensor.first, |last, (dim, stride)| {
            last + dim.saturating_sub(1) * stride
        });
        let elements: usize = tensor.dims.iter().product();
        assert!(elements == 0 || last < tensor.elements);
        assert!(elements <= tensor.elements);
    }
});
