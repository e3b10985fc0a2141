use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{ImageWriter, RowSink};
use super::*;

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
    Header { size: Size { width, height }, colour, depth, icc_profile: None }
}

fn samples(header: &Header) -> Vec<u8> {
    let length = header.row_bytes().unwrap() * header.size.height as usize;
    if header.depth == Depth::Float {
        return (0..length / 4).flat_map(|position| (position as f32 / length as f32 * 5.0 - 0.1).to_ne_bytes()).collect();
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
                // WebP knows no grey.
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
fn every_truncation_is_an_error() {
    let folder = TempDir::new().unwrap();
    for format in [Format::Png, Format::Jpeg, Format::WebP, Format::Tiff] {
        let path = folder.path().join("whole");
        let header = header(40, 30, Colour::Rgb, Depth::Eight);
        write(&path, format, &header, &samples(&header)).unwrap();
        read_all(&path, &Limits::default()).unwrap();
        let whole = fs::read(&path).unwrap();
        let cut = folder.path().join("cut");
        // The end chunk of a PNG follows the last row, which is all that is read.
        let pixels = if format == Format::Png { whole.len() - 16 } else { whole.len() - 2 };
        for length in (0..pixels).step_by(whole.len() / 40 + 1) {
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
    assert!(message(ImageReader::open(&path, &limits)).contains("--max-megapixels"));
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

/// A TIFF entry: tag, numbers; those of 16 bits if they fit.
type Entry<'e> = (u16, &'e [u32]);

/// A file with one directory, its samples first. Where `entries` hold none of them, the samples are one strip.
fn tiff(big_endian: bool, entries: &[Entry], samples: &[u8]) -> Vec<u8> {
    let two = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let four = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let has = |tag| entries.iter().any(|entry| entry.0 == tag);
    let (place, length) = ([8], [samples.len() as u32]);
    let mut entries: Vec<Entry> = entries.to_vec();
    if !has(324) && !has(273) {
        entries.extend([(273, &place[..]), (279, &length[..])]);
    }
    entries.sort();
    let mut bytes = [if big_endian { b"MM" } else { b"II" }, &two(42)[..], &four(8 + samples.len() as u32)].concat();
    bytes.extend_from_slice(samples);
    let (mut directory, mut values) = (two(entries.len() as u16).to_vec(), Vec::new());
    let values_at = bytes.len() + 2 + 12 * entries.len() + 4;
    for (tag, numbers) in entries {
        let short = numbers.iter().all(|&number| number <= 0xffff);
        let bytes = tag == PROFILE;
        let mut field: Vec<u8> = numbers
            .iter()
            .flat_map(|&number| {
                if bytes {
                    vec![number as u8]
                } else if short {
                    two(number as u16).to_vec()
                } else {
                    four(number).to_vec()
                }
            })
            .collect();
        directory.extend(
            [
                &two(tag)[..],
                &two(if bytes {
                    7
                } else if short {
                    3
                } else {
                    4
                }),
                &four(numbers.len() as u32),
            ]
            .concat(),
        );
        if field.len() > 4 {
            directory.extend(four((values_at + values.len()) as u32));
            values.append(&mut field);
        } else {
            field.resize(4, 0);
            directory.extend(field);
        }
    }
    [bytes, directory, vec![0; 4], values].concat()
}

fn read_bytes(name: &str, bytes: &[u8]) -> Result<(Header, Vec<u8>)> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    read_all(&path, &Limits::default())
}

fn read_tiff(big_endian: bool, entries: &[Entry], samples: &[u8]) -> Result<(Header, Vec<u8>)> {
    read_bytes("picture.tif", &tiff(big_endian, entries, samples))
}

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const INTERPRETATION: u16 = 262;
const STRIPS: u16 = 273;
const TURNED: u16 = 274;
const SAMPLES: u16 = 277;
const ROWS_PER_STRIP: u16 = 278;
const STRIP_BYTES: u16 = 279;
const PLANAR: u16 = 284;
const PREDICTOR: u16 = 317;
const COLOURS: u16 = 320;
const TILE_WIDTH: u16 = 322;
const TILE_HEIGHT: u16 = 323;
const TILES: u16 = 324;
const TILE_BYTES: u16 = 325;
const EXTRA: u16 = 338;
const PROFILE: u16 = 34675;
const KIND: u16 = 339;

#[test]
fn tiff_palettes_and_bits_are_expanded() {
    for big_endian in [false, true] {
        // Index i is (i, 16 + i, 32 + i), in the high bytes of 16 bits.
        let map: Vec<u32> = (0..48).map(|value| value << 8).collect();
        let entries: &[Entry] = &[(WIDTH, &[3]), (HEIGHT, &[2]), (BITS, &[4]), (INTERPRETATION, &[3]), (COLOURS, &map)];
        let (header, bytes) = read_tiff(big_endian, entries, &[0x12, 0x30, 0xf0, 0x70]).unwrap();
        assert_eq!((header.colour, header.depth), (Colour::Rgb, Depth::Eight));
        assert_eq!(bytes, [1, 2, 3, 15, 0, 7].into_iter().flat_map(|index| [index, 16 + index, 32 + index]).collect::<Vec<u8>>());

        let white_is_zero: &[Entry] = &[(WIDTH, &[10]), (HEIGHT, &[1]), (BITS, &[1]), (INTERPRETATION, &[0])];
        let (header, bytes) = read_tiff(big_endian, white_is_zero, &[0b1100_0101, 0b0100_0000]).unwrap();
        assert_eq!((header.colour, bytes), (Colour::Grey, vec![0, 0, 255, 255, 255, 0, 255, 0, 255, 0]));
    }
}

#[test]
fn tiff_tiles_and_planes_come_together() {
    // Three planes of 20×18 pixels in tiles of 16×16, each pixel saying where it is; whatever hangs over is 255.
    let value = |plane: usize, x: usize, y: usize| (plane * 80 + x + 3 * y) as u8;
    let mut samples = Vec::new();
    for (plane, top, left) in (0..12).map(|tile| (tile / 4, tile / 2 % 2 * 16, tile % 2 * 16)) {
        let pixels = (0..256).map(|at| (left + at % 16, top + at / 16));
        samples.extend(pixels.map(|(x, y)| if x < 20 && y < 18 { value(plane, x, y) } else { 255 }));
    }
    let places: Vec<u32> = (0..12).map(|tile| 8 + 256 * tile).collect();
    let (header, bytes) = read_tiff(
        true,
        &[
            (WIDTH, &[20]),
            (HEIGHT, &[18]),
            (BITS, &[8, 8, 8]),
            (INTERPRETATION, &[2]),
            (SAMPLES, &[3]),
            (PLANAR, &[2]),
            (TILE_WIDTH, &[16]),
            (TILE_HEIGHT, &[16]),
            (TILES, &places),
            (TILE_BYTES, &[256; 12]),
        ],
        &samples,
    )
    .unwrap();
    assert_eq!(header.size, Size { width: 20, height: 18 });
    let expected = (0..18).flat_map(|y| (0..20).flat_map(move |x| (0..3).map(move |plane| value(plane, x, y))));
    assert!(expected.eq(bytes));
}

#[test]
fn tiff_alpha_is_made_straight() {
    let entries = |kind: &'static [u32]| -> [Entry<'static>; 6] {
        [(WIDTH, &[2]), (HEIGHT, &[1]), (BITS, &[8, 8]), (INTERPRETATION, &[1]), (SAMPLES, &[2]), (EXTRA, kind)]
    };
    assert_eq!(read_tiff(false, &entries(&[2]), &[50, 100, 9, 0]).unwrap().1, [50, 100, 9, 0]);
    let (header, bytes) = read_tiff(false, &entries(&[1]), &[50, 100, 9, 0]).unwrap();
    assert_eq!((header.colour, bytes), (Colour::GreyAlpha, vec![128, 100, 9, 0]));
    // A channel that is no alpha is left out.
    let (header, bytes) = read_tiff(false, &entries(&[0]), &[50, 100, 9, 0]).unwrap();
    assert_eq!((header.colour, bytes), (Colour::Grey, vec![50, 9]));
}

#[test]
fn tiff_floats_must_be_numbers() {
    let entries: &[Entry] = &[(WIDTH, &[2]), (HEIGHT, &[1]), (BITS, &[32]), (INTERPRETATION, &[1]), (KIND, &[3])];
    let read = |values: [f32; 2]| read_tiff(false, entries, &values.map(f32::to_le_bytes).concat());
    let (header, bytes) = read([-0.5, 7.0]).unwrap();
    assert_eq!((header.depth, bytes), (Depth::Float, [-0.5_f32, 7.0].map(f32::to_ne_bytes).concat()));
    assert!(message(read([0.5, f32::NAN])).contains("row 0 holds values that are not numbers"));
}

#[test]
fn what_a_tiff_may_hold_and_we_cannot_read_is_named() {
    let base: [Entry; 3] = [(WIDTH, &[4]), (HEIGHT, &[4]), (INTERPRETATION, &[1])];
    let refused = |more: &[Entry], words: &str| {
        let entries: Vec<Entry> = base.iter().filter(|entry| more.iter().all(|other| other.0 != entry.0)).chain(more).copied().collect();
        let error = message(read_tiff(false, &entries, &[0; 64]));
        assert!(error.contains("picture.tif: ") && error.contains(words), "expected `{words}` in: {error}");
    };
    refused(&[(BITS, &[8]), (COMPRESSION, &[50000])], "found ZSTD (50000); convert it first");
    refused(&[(BITS, &[8]), (COMPRESSION, &[6])], "found JPEG (6)");
    refused(&[(BITS, &[8]), (COMPRESSION, &[34712])], "34712");
    refused(&[(BITS, &[32])], "found 32 bits of Uint");
    refused(&[(BITS, &[16]), (KIND, &[3])], "found 16 bits of IEEEFP");
    refused(&[(BITS, &[8]), (KIND, &[2])], "found 8 bits of Int");
    refused(&[(BITS, &[8, 8, 8]), (SAMPLES, &[3]), (INTERPRETATION, &[8])], "CIELab");
    refused(&[(BITS, &[8, 8, 8, 8]), (SAMPLES, &[4]), (INTERPRETATION, &[5])], "CMYK without a colour profile");
    refused(&[(BITS, &[8; 4]), (SAMPLES, &[4]), (INTERPRETATION, &[2]), (EXTRA, &[0]), (PREDICTOR, &[2])], "with a predictor");
    refused(&[(BITS, &[8]), (WIDTH, &[0])], "at least one pixel");
    refused(&[(BITS, &[8]), (WIDTH, &[u32::MAX]), (HEIGHT, &[u32::MAX])], "megapixels");
    refused(&[(BITS, &[8]), (HEIGHT, &[300_000_000]), (WIDTH, &[1]), (SAMPLES, &[60_000]), (PLANAR, &[2])], "at most 16 samples");
    refused(&[(BITS, &[8]), (HEIGHT, &[300_000_000]), (WIDTH, &[1]), (SAMPLES, &[15])], "too many");
    refused(&[(BITS, &[8]), (TILE_WIDTH, &[1 << 20]), (TILE_HEIGHT, &[16]), (TILES, &[8]), (TILE_BYTES, &[64])], "tiles of at most");
    refused(&[(BITS, &[8]), (ROWS_PER_STRIP, &[1]), (STRIPS, &[8]), (STRIP_BYTES, &[4])], "damaged TIFF");
    refused(&[(BITS, &[8]), (ROWS_PER_STRIP, &[0])], "damaged TIFF");
    refused(&[(BITS, &[8]), (STRIPS, &[8]), (STRIP_BYTES, &[u32::MAX]), (COMPRESSION, &[5])], "damaged TIFF");
    refused(&[(BITS, &[8]), (STRIPS, &[1 << 30]), (STRIP_BYTES, &[16])], "damaged TIFF");
    // One strip of more than may be decoded at once.
    refused(&[(BITS, &[16, 16, 16]), (SAMPLES, &[3]), (INTERPRETATION, &[2]), (WIDTH, &[20_000]), (HEIGHT, &[19_000])], "decoded whole");
    assert!(message(read_bytes("pages.tif", &two_pages())).contains("several pages"));
}

/// Two directories of the same picture.
fn two_pages() -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let mut encoder = ::tiff::encoder::TiffEncoder::new(&mut file).unwrap();
    for _ in 0..2 {
        encoder.write_image::<::tiff::encoder::colortype::Gray8>(2, 2, &[1, 2, 3, 4]).unwrap();
    }
    file.into_inner()
}

#[test]
fn directories_that_lead_in_circles_end() {
    // The directory begins at byte 9, and its last four bytes say where the next one is.
    let circle = |entries: &[Entry]| {
        let mut bytes = tiff(false, entries, &[7]);
        let next = bytes.len() - 4;
        bytes[next..].copy_from_slice(&9_u32.to_le_bytes());
        read_bytes("circle.tif", &bytes)
    };
    let page: [Entry; 4] = [(WIDTH, &[1]), (HEIGHT, &[1]), (BITS, &[8]), (INTERPRETATION, &[1])];
    assert!(message(circle(&page)).contains("several pages"));
    let reduced = [&page[..], &[(254, &[1])]].concat();
    assert!(message(circle(&reduced)).contains("cycle"));
}

/// A colour profile for inks that only make grey: cyan, magenta and yellow each darken by 60 of 255, black to 51 (lut16Type, ICC.1:2001-04, 6.5.7).
fn grey_inks() -> Vec<u8> {
    let four = |value: u32| value.to_be_bytes();
    let lightness = |corner: u8| if corner & 1 == 1 { 51 } else { 255 - 60 * (corner >> 1).count_ones() as u8 };
    let identity: Vec<u8> = (0..9).flat_map(|index| four(if index % 4 == 0 { 0x1_0000 } else { 0 })).collect();
    // Two entries in each curve, and 16 bits of which 0xff00 is L* of 100 and 0x8000 is a* and b* of 0.
    let entries = [0, 2, 0, 2];
    let ramp = [0, 0, 0xff, 0xff];
    // The last channel varies fastest, so black is bit 0 of a corner.
    let corners = (0..16).flat_map(|corner| [lightness(corner), 0, 0x80, 0, 0x80, 0]).collect();
    let table = [b"mft2\0\0\0\0\x04\x03\x02\0".to_vec(), identity, entries.to_vec(), ramp.repeat(4), corners, ramp.repeat(3)].concat();
    let length = 128 + 4 + 12 + table.len();
    let mut header = vec![0; 128];
    let fields: [(usize, &[u8]); 8] = [
        (0, &four(length as u32)),
        (8, &[2, 0x10, 0, 0]),
        (12, b"prtrCMYKLab "),
        (36, b"acsp"),
        (68, &four(0xf6d6)),
        (72, &four(0x1_0000)),
        (76, &four(0xd32d)),
        (64, &four(1)),
    ];
    fields.into_iter().for_each(|(at, field)| header[at..at + field.len()].copy_from_slice(field));
    [header, four(1).to_vec(), b"A2B0".to_vec(), four(144).to_vec(), four(table.len() as u32).to_vec(), table].concat()
}

/// Four pixels of these inks.
fn read_inks(inks: [u8; 16]) -> Result<Vec<u8>> {
    let profile: Vec<u32> = grey_inks().into_iter().map(u32::from).collect();
    let entries: &[Entry] = &[(WIDTH, &[2]), (HEIGHT, &[2]), (BITS, &[8; 4]), (INTERPRETATION, &[5]), (SAMPLES, &[4]), (PROFILE, &profile)];
    let (header, bytes) = read_tiff(false, entries, &inks)?;
    assert_eq!((header.colour, header.icc_profile), (Colour::Rgb, None));
    Ok(bytes)
}

#[test]
fn inks_become_the_colours_of_their_profile() {
    let found = read_inks([[0, 0, 0, 0], [0, 0, 0, 255], [255, 255, 255, 0], [0, 255, 0, 0]].concat().try_into().unwrap()).unwrap();
    // L* of 100, 20, 29.4 and 76.5, in sRGB (IEC 61966-2-1).
    for (found, expected) in found.iter().zip([255, 48, 69, 189].into_iter().flat_map(|level: u8| [level; 3])) {
        assert!(found.abs_diff(expected) <= 1, "{found} instead of {expected}");
    }
}

#[test]
fn jpegs_of_adobe_hold_inks_inverted_and_as_luma() {
    // All pixels are (55, 127, 127, 0), which is stored inverted, in a file marked by Adobe's segment.
    let jpeg = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/images/cmyk.jpg")).unwrap();
    let profile = grey_inks();
    let length = (profile.len() + 16) as u16;
    let segment = [b"\xff\xe2".to_vec(), length.to_be_bytes().to_vec(), b"ICC_PROFILE\0\x01\x01".to_vec(), profile].concat();
    let with_profile = [&jpeg[..2], &segment, &jpeg[2..]].concat();
    let same = |jpeg: &[u8], inks: [u8; 4]| {
        let (header, bytes) = read_bytes("inks.jpg", jpeg).unwrap();
        assert_eq!((header.colour, header.icc_profile), (Colour::Rgb, None));
        let expected = read_inks(inks.repeat(4).try_into().unwrap()).unwrap()[0];
        assert!(bytes.iter().all(|byte| byte.abs_diff(expected) <= 2), "{} instead of {expected}", bytes[0]);
    };
    same(&with_profile, [55, 127, 127, 0]);
    // The same codes as luma 200 without chroma: no red, green and blue ink but as much of each as luma says.
    let mut as_luma = with_profile;
    let adobe = as_luma.windows(5).position(|bytes| bytes == b"Adobe").unwrap();
    as_luma[adobe + 11] = 2;
    same(&as_luma, [200, 200, 200, 0]);
    assert!(message(read_bytes("inks.jpg", &jpeg)).contains("CMYK without a colour profile"));
}

#[test]
fn a_profile_is_kept_or_used() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("wide.tif");
    // Adobe RGB's green is beyond sRGB's, and its greys are sRGB's but for the curve.
    let profile = moxcms::ColorProfile::new_adobe_rgb().encode().unwrap();
    for depth in [Depth::Eight, Depth::Sixteen, Depth::Float] {
        let header = Header { icc_profile: Some(profile.clone()), ..header(2, 1, Colour::Rgba, depth) };
        let pixels = [0.0, 1.0, 0.0, 0.2, 0.6, 0.6, 0.6, 0.4].map(|value: f32| match depth {
            Depth::Eight => vec![(value * 255.0).round() as u8],
            Depth::Sixteen => ((value * 65_535.0).round() as u16).to_be_bytes().to_vec(),
            Depth::Float => value.to_ne_bytes().to_vec(),
        });
        write(&path, Format::Tiff, &header, &pixels.concat()).unwrap();
        assert_eq!(read_all(&path, &Limits::default()).unwrap(), (header.clone(), pixels.concat()));

        let mut reader = ImageReader::open(&path, &Limits::default()).unwrap().into_srgb().unwrap();
        assert_eq!(reader.header().icc_profile, None);
        let mut row = vec![0; header.row_bytes().unwrap()];
        reader.read_row(&mut row).unwrap();
        let found: Vec<f32> = row
            .chunks_exact(depth.bytes())
            .map(|sample| match *sample {
                [byte] => f32::from(byte) / 255.0,
                [high, low] => f32::from(u16::from_be_bytes([high, low])) / 65_535.0,
                _ => f32::from_ne_bytes(sample.try_into().unwrap()),
            })
            .collect();
        // 0.6^2.2 in linear light is 0.6057 in sRGB (IEC 61966-2-1).
        let expected = [0.0, 1.0, 0.0, 0.2, 0.6057, 0.6057, 0.6057, 0.4];
        assert!(found.iter().zip(expected).all(|(found, expected): (_, f32)| (found - expected).abs() < 0.004), "{depth:?}: {found:?}");
    }
    let wrong = Header { icc_profile: Some(grey_inks()), ..header(2, 1, Colour::Rgb, Depth::Eight) };
    write(&path, Format::Tiff, &wrong, &[0; 6]).unwrap();
    let error = message(ImageReader::open(&path, &Limits::default()).unwrap().into_srgb());
    assert!(error.contains("it is for Cmyk, and the picture is Rgb"), "{error}");
    let damaged = Header { icc_profile: Some(vec![1; 200]), ..wrong };
    write(&path, Format::Tiff, &damaged, &[0; 6]).unwrap();
    assert!(message(ImageReader::open(&path, &Limits::default()).unwrap().into_srgb()).contains("cannot be used"));
}

/// EXIF of nothing but an orientation.
fn exif(orientation: u8) -> Vec<u8> {
    [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", &[orientation, 0, 0, 0][..], &[0; 4]].concat()
}

#[test]
fn turned_pictures_are_turned_back() {
    // Stored as c f / b e / a d, and turned by 90° clockwise for viewing: a b c / d e f.
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

    // The same after the pixels.
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
            [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\x40\0\0\0WEBP", b"II*\0\x08\0\0\0", b"MM\0+\0\x08\0\0\0\0\0\0\0\0\0\x10"];
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &[starts[kind], &tail].concat()).unwrap();
        let _ = read_all(file.path(), &Limits::default());
    }
}
