//! Any bytes are a picture or give an error, in bounded memory.
#![cfg_attr(fuzzing, no_main)]

use std::io::Write;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_image::{ImageReader, Limits, RowSource};

fuzz_target!(|bytes: &[u8]| {
    // The bytes begin like a TIFF, so that no time is spent on other formats. The two highest bits choose the kind.
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let start: &[u8] = [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"][usize::from(kind >> 6)];
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&[start, rest].concat()).expect("a temporary file can be written");
    let limits = Limits { megapixels: 1, decoded_bytes: 16 << 20 };
    let Ok(mut reader) = ImageReader::open(file.path(), &limits) else { return };
    let height = reader.header().size.height;
    assert!(reader.header().size.pixels() <= 1_000_000);
    let mut row = vec![0; reader.header().row_bytes().expect("a row of a picture within limits")];
    let mut rows = (0..height).take(1000);
    // The first damaged row ends the picture.
    while rows.next().is_some() && reader.read_row(&mut row).is_ok() {}
});
