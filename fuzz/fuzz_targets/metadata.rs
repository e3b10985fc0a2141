//! Any bytes are EXIF or none, in bounded memory; what is kept is written into every format, and read again as it was.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_image::{Colour, Depth, Format, Header, ImageReader, ImageWriter, Limits, RowSink, RowSource, Size};

const FORMATS: [Format; 4] = [Format::Png, Format::Jpeg, Format::WebP, Format::Tiff];

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, exif)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.png"), folder.path().join("out"));
    // The two highest bits choose the format, the next one whether the byte order is fuzzed, too.
    let start: &[u8] = if kind & 0x20 == 0 { b"" } else { b"II*\0\x08\0\0\0" };
    let exif = [start, exif].concat();
    let mut info = png::Info::with_size(1, 1);
    info.bit_depth = png::BitDepth::Eight;
    info.exif_metadata = Some(exif.into());
    let file = std::fs::File::create(&input).expect("a temporary file");
    let written = png::Encoder::with_info(file, info).and_then(png::Encoder::write_header);
    written.and_then(|mut writer| writer.write_image_data(&[7])).expect("a picture of one pixel");
    let Ok(reader) = ImageReader::open(&input, &Limits::default()) else { return };
    let metadata = reader.header().metadata.clone();
    let header = Header { metadata, ..Header::new(Size { width: 1, height: 1 }, Colour::Grey, Depth::Eight) };
    let format = FORMATS[usize::from(kind >> 6)];
    let mut writer = ImageWriter::create(&output, format, header.clone()).expect("a picture of one pixel");
    writer.write_rows(&[7]).and_then(|()| Box::new(writer).finish()).expect("what was kept can be written");
    let again = ImageReader::open(&output, &Limits::default()).expect("what was written can be read");
    assert!(again.notes().is_empty(), "{:?}", again.notes());
    assert_eq!(again.header().metadata.exif.is_some(), header.metadata.exif.is_some());
    assert_eq!(again.header().size, header.size);
});
