mod bmp_and_gif;
mod damage;
mod jpeg;
mod metadata;
mod profiles;
mod tiff;

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{ImageWriter, RowSink};
use super::*;
use tiff::{BITS, Entry, HEIGHT, INTERPRETATION, TURNED, WIDTH, read_tiff};

fn read_all(path: &Path, limits: &Limits) -> Result<(Header, Vec<u8>)> {
    let mut reader = ImageReader::open(path, limits)?;
    let header = reader.header().clone();
    let mut bytes = Vec::new();
    let mut row = vec![0; header.row_bytes().unwrap()];
    for _ in 0..header.size.height {
        reader.read_row(&mut row)?;
        bytes.extend_from_slice(&row);
    }
    Ok((header, bytes))
}

fn header(width: u32, height: u32, colour: Colour, depth: Depth) -> Header {
    Header::new(Size { width, height }, colour, depth)
}

fn samples(header: &Header) -> Vec<u8> {
    let length = header.row_bytes().unwrap() * header.size.height as usize;
    if header.depth == Depth::Float {
        return (0..length / 4)
            .flat_map(|position| (position as f32 / length as f32 * 5.0 - 0.1).to_ne_bytes())
            .collect();
    }
    (0..length).map(|position| (position * 7 + position / 5) as u8).collect()
}

fn write(path: &Path, format: Format, header: &Header, rows: &[u8]) -> Result<()> {
    let mut writer = ImageWriter::create(path, format, header.clone())?;
    rows.chunks(header.row_bytes().unwrap()).try_for_each(|row| writer.write_rows(row))?;
    Box::new(writer).finish()
}

fn message(result: Result<impl Sized>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn formats_without_loss_keep_every_sample_and_the_profile() {
    let folder = TempDir::new().unwrap();
    for colour in [Colour::Grey, Colour::GreyAlpha, Colour::Rgb, Colour::Rgba] {
        for (format, depth) in [
            (Format::Png, Depth::Eight),
            (Format::Png, Depth::Sixteen),
            (Format::Tiff, Depth::Eight),
            (Format::Tiff, Depth::Sixteen),
            (Format::Tiff, Depth::Float),
            (Format::WebP, Depth::Eight),
        ] {
            let path = folder.path().join("picture");
            let header = Header { icc_profile: Some(vec![1, 2, 3, 4]), ..header(7, 5, colour, depth) };
            write(&path, format, &header, &samples(&header)).unwrap();
            let (found, bytes) = read_all(&path, &Limits::default()).unwrap();
            let grey_in_webp = format == Format::WebP && colour.colour_channels() == 1;
            if grey_in_webp {
                // WebP has no grey.
                assert_eq!((found.size, found.colour.has_alpha()), (header.size, colour.has_alpha()));
            } else {
                assert_eq!((found, bytes), (header.clone(), samples(&header)), "{format:?}");
            }
        }
    }
}

#[test]
fn small_depths_and_palettes_are_expanded() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("palette.png");
    let mut encoder = ::png::Encoder::new(File::create(&path).unwrap(), 3, 1);
    encoder.set_color(::png::ColorType::Indexed);
    encoder.set_depth(::png::BitDepth::Two);
    encoder.set_palette(vec![1, 2, 3, 4, 5, 6, 7, 8, 9]);
    encoder.set_trns(vec![255, 0]);
    encoder.write_header().unwrap().write_image_data(&[0b00_01_10_00]).unwrap();
    let (header, bytes) = read_all(&path, &Limits::default()).unwrap();
    assert_eq!(header.colour, Colour::Rgba);
    assert_eq!(bytes, [1, 2, 3, 255, 4, 5, 6, 0, 7, 8, 9, 255]);

    let mut encoder = ::png::Encoder::new(File::create(&path).unwrap(), 4, 1);
    encoder.set_color(::png::ColorType::Grayscale);
    encoder.set_depth(::png::BitDepth::One);
    encoder.write_header().unwrap().write_image_data(&[0b0101_0000]).unwrap();
    let (header, bytes) = read_all(&path, &Limits::default()).unwrap();
    assert_eq!((header.colour, bytes), (Colour::Grey, vec![0, 255, 0, 255]));
}

#[test]
fn palettes_of_other_than_whole_colours_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("palette.png");
    let read = |palette_bytes: usize| {
        let mut encoder = ::png::Encoder::new(File::create(&path).unwrap(), 1, 1);
        encoder.set_color(::png::ColorType::Indexed);
        encoder.set_palette(vec![7; palette_bytes]);
        encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
        read_all(&path, &Limits::default())
    };
    for bytes in [1, 2, 257 * 3] {
        assert!(message(read(bytes)).contains("Chunk length wrong"), "{bytes} bytes");
    }
    for bytes in [4, 8] {
        let error = message(read(bytes));
        assert!(error.contains(&format!("a palette of 3 bytes a colour, found {bytes} bytes")), "{error:?}");
    }
    for bytes in [3, 256 * 3] {
        assert_eq!(read(bytes).unwrap().1, [7; 3]);
    }
}

#[test]
fn every_truncation_is_an_error() {
    let folder = TempDir::new().unwrap();
    for format in [Format::Png, Format::Jpeg, Format::WebP, Format::Tiff] {
        let path = folder.path().join("whole");
        let header = header(40, 30, Colour::Rgb, Depth::Eight);
        write(&path, format, &header, &samples(&header)).unwrap();
        read_all(&path, &Limits::default()).unwrap();
        let whole = fs::read(&path).unwrap();
        let cut = folder.path().join("cut");
        for length in (0..whole.len() - 2).step_by(whole.len() / 40 + 1) {
            fs::write(&cut, &whole[..length]).unwrap();
            let error = message(read_all(&cut, &Limits::default()));
            assert!(error.contains("cut: "), "{format:?} cut at {length}: {error:?}");
        }
    }
}

#[test]
fn a_bomb_is_refused_before_it_is_decoded() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bomb.png");
    let header = header(2000, 1000, Colour::Grey, Depth::Eight);
    write(&path, Format::Png, &header, &vec![0; 2_000_000]).unwrap();
    let limits = Limits { megapixels: 1, ..Limits::default() };
    assert!(message(ImageReader::open(&path, &limits)).contains("expected at most 1 megapixels, found 2000×1000"));
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_any_work() {
    let folder = TempDir::new().unwrap();
    let refused = |format, header| message(ImageWriter::create(&folder.path().join("out"), format, header));
    assert!(refused(Format::Jpeg, header(4, 4, Colour::Rgba, Depth::Eight)).contains("transparency"));
    assert!(refused(Format::Jpeg, header(65_536, 4, Colour::Rgb, Depth::Eight)).contains("65535"));
    assert!(refused(Format::WebP, header(4, 16_384, Colour::Rgb, Depth::Eight)).contains("16383"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_unfinished_picture_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("out.png");
    let header = header(4, 4, Colour::Grey, Depth::Eight);
    let mut writer = ImageWriter::create(&path, Format::Png, header.clone()).unwrap();
    writer.write_rows(&[0; 8]).unwrap();
    assert!(message(Box::new(writer).finish()).contains("2 rows are missing"));
    drop(ImageWriter::create(&path, Format::Png, header).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_png_holds_texts_beside_its_pixels() {
    let folder = TempDir::new().unwrap();
    let written = |name: &str, format| {
        let path = folder.path().join(name);
        let header = header(4, 4, Colour::Grey, Depth::Eight);
        let texts = [("first", "a red fox, café 🦊\n{}"), ("second", "")];
        let mut writer = ImageWriter::create_with_texts(&path, format, header, &texts).unwrap();
        writer.write_rows(&[7; 16]).unwrap();
        Box::new(writer).finish().unwrap();
        assert_eq!(read_all(&path, &Limits::default()).unwrap().1, [7; 16]);
        path
    };
    let png = written("texts.png", Format::Png);
    let text = |path: &Path, keyword| png_text(path, keyword).unwrap();
    assert_eq!(text(&png, "first").as_deref(), Some("a red fox, café 🦊\n{}"));
    assert_eq!(text(&png, "second").as_deref(), Some(""));
    assert_eq!(text(&png, "third"), None);
    // Other formats leave them out.
    let tiff = written("texts.tiff", Format::Tiff);
    assert!(message(png_text(&tiff, "first")).contains("texts.tiff"));
    assert!(message(png_text(&folder.path().join("missing.png"), "first")).contains("missing.png"));
    // A text that is cut off is an error; one whose checksum is wrong is not read.
    let bytes = fs::read(&png).unwrap();
    let place = bytes.windows(3).position(|three| three == b"fox").unwrap();
    fs::write(&png, &bytes[..place]).unwrap();
    assert!(message(png_text(&png, "first")).contains("texts.png"));
    let mut changed = bytes;
    changed[place] = b'b';
    fs::write(&png, &changed).unwrap();
    assert!(png_text(&png, "first").map_or(true, |text| text.is_none()));
}

/// A text is decompressed up to a limit only.
#[test]
fn a_large_text_in_a_small_png_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bomb.png");
    let mut info = ::png::Info::with_size(1, 1);
    let mut text = ::png::text_metadata::ITXtChunk::new("first", "a".repeat(64 << 20));
    text.compressed = true;
    info.utf8_text = vec![text];
    let encoder = ::png::Encoder::with_info(File::create(&path).unwrap(), info).unwrap();
    encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    assert!(message(png_text(&path, "first")).contains("bomb.png"));
}

fn read_bytes(name: &str, bytes: &[u8]) -> Result<(Header, Vec<u8>)> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    read_all(&path, &Limits::default())
}

/// EXIF data with an orientation only.
fn exif(orientation: u8) -> Vec<u8> {
    [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", &[orientation, 0, 0, 0][..], &[0; 4]].concat()
}

#[test]
fn turned_pictures_are_turned_back() {
    // Stored as c f / b e / a d, shown after a turn by 90° clockwise: a b c / d e f.
    let stored = [3, 6, 2, 5, 1, 4];
    let expected = (Size { width: 3, height: 2 }, vec![1, 2, 3, 4, 5, 6]);
    let upright = |result: Result<(Header, Vec<u8>)>| result.map(|(header, bytes)| (header.size, bytes)).unwrap();
    let entries: &[Entry] = &[(WIDTH, &[2]), (HEIGHT, &[3]), (BITS, &[8]), (INTERPRETATION, &[1]), (TURNED, &[6])];
    assert_eq!(upright(read_tiff(false, entries, &stored)), expected);

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("turned.png");
    let mut info = ::png::Info::with_size(2, 3);
    info.color_type = ::png::ColorType::Grayscale;
    info.bit_depth = ::png::BitDepth::Eight;
    info.exif_metadata = Some(exif(6).into());
    let encoder = ::png::Encoder::with_info(File::create(&path).unwrap(), info).unwrap();
    encoder.write_header().unwrap().write_image_data(&stored).unwrap();
    assert_eq!(upright(read_all(&path, &Limits::default())), expected);

    // The same, with the EXIF chunk after the pixels.
    let mut encoder = ::png::Encoder::new(File::create(&path).unwrap(), 2, 3);
    encoder.set_color(::png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&stored).unwrap();
    writer.write_chunk(::png::chunk::eXIf, &exif(6)).unwrap();
    writer.finish().unwrap();
    assert_eq!(upright(read_all(&path, &Limits::default())), expected);
    let little = Limits { decoded_bytes: 5, ..Limits::default() };
    assert!(message(ImageReader::open(&path, &little)).contains("stored turned or mirrored and has to be held whole"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(kind in 0_usize..5, tail in proptest::collection::vec(any::<u8>(), 0..256)) {
        let starts: [&[u8]; 5] =
            [
                b"\x89PNG\r\n\x1a\n",
                b"\xff\xd8\xff",
                b"RIFF\x40\0\0\0WEBP",
                b"II*\0\x08\0\0\0",
                b"MM\0+\0\x08\0\0\0\0\0\0\0\0\0\x10",
            ];
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &[starts[kind], &tail].concat()).unwrap();
        let _ = read_all(file.path(), &Limits::default());
    }
}
