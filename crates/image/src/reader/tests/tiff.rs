//! TIFF files made by hand, entry by entry.

use super::*;

/// A TIFF entry: tag and numbers, in 16 bits if they fit.
pub(super) type Entry<'e> = (u16, &'e [u32]);

/// A file with one directory, after its samples. Unless `entries` says otherwise, the samples are one strip.
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

pub(super) fn read_tiff(big_endian: bool, entries: &[Entry], samples: &[u8]) -> Result<(Header, Vec<u8>)> {
    read_bytes("picture.tif", &tiff(big_endian, entries, samples))
}

pub(super) const WIDTH: u16 = 256;
pub(super) const HEIGHT: u16 = 257;
pub(super) const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
pub(super) const INTERPRETATION: u16 = 262;
const STRIPS: u16 = 273;
pub(super) const TURNED: u16 = 274;
pub(super) const SAMPLES: u16 = 277;
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
pub(super) const PROFILE: u16 = 34675;
const KIND: u16 = 339;

#[test]
fn tiff_palettes_and_bits_are_expanded() {
    for big_endian in [false, true] {
        // Palette entry i is (i, 16 + i, 32 + i), in the high bytes of 16 bits.
        let map: Vec<u32> = (0..48).map(|value| value << 8).collect();
        let entries: &[Entry] = &[(WIDTH, &[3]), (HEIGHT, &[2]), (BITS, &[4]), (INTERPRETATION, &[3]), (COLOURS, &map)];
        let (header, bytes) = read_tiff(big_endian, entries, &[0x12, 0x30, 0xf0, 0x70]).unwrap();
        assert_eq!((header.colour, header.depth), (Colour::Rgb, Depth::Eight));
        assert_eq!(
            bytes,
            [1, 2, 3, 15, 0, 7].into_iter().flat_map(|index| [index, 16 + index, 32 + index]).collect::<Vec<u8>>()
        );

        let white_is_zero: &[Entry] = &[(WIDTH, &[10]), (HEIGHT, &[1]), (BITS, &[1]), (INTERPRETATION, &[0])];
        let (header, bytes) = read_tiff(big_endian, white_is_zero, &[0b1100_0101, 0b0100_0000]).unwrap();
        assert_eq!((header.colour, bytes), (Colour::Grey, vec![0, 0, 255, 255, 255, 0, 255, 0, 255, 0]));
    }
}

#[test]
fn tiff_tiles_and_planes_come_together() {
    // Three planes of 20×18 pixels in tiles of 16×16. Each pixel has its position as value; the parts outside of the
    // picture are 255.
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
    // A channel that is not alpha is left out.
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
        let entries: Vec<Entry> =
            base.iter().filter(|entry| more.iter().all(|other| other.0 != entry.0)).chain(more).copied().collect();
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
    refused(
        &[(BITS, &[8; 4]), (SAMPLES, &[4]), (INTERPRETATION, &[2]), (EXTRA, &[0]), (PREDICTOR, &[2])],
        "with a predictor",
    );
    refused(&[(BITS, &[8]), (WIDTH, &[0])], "at least one pixel");
    refused(&[(BITS, &[8]), (WIDTH, &[u32::MAX]), (HEIGHT, &[u32::MAX])], "megapixels");
    refused(
        &[(BITS, &[8]), (HEIGHT, &[300_000_000]), (WIDTH, &[1]), (SAMPLES, &[60_000]), (PLANAR, &[2])],
        "at most 16 samples",
    );
    refused(&[(BITS, &[8]), (HEIGHT, &[300_000_000]), (WIDTH, &[1]), (SAMPLES, &[15])], "too many");
    refused(
        &[(BITS, &[8]), (TILE_WIDTH, &[1 << 20]), (TILE_HEIGHT, &[16]), (TILES, &[8]), (TILE_BYTES, &[64])],
        "tiles of at most",
    );
    refused(&[(BITS, &[8]), (ROWS_PER_STRIP, &[1]), (STRIPS, &[8]), (STRIP_BYTES, &[4])], "damaged TIFF");
    refused(&[(BITS, &[8]), (ROWS_PER_STRIP, &[0])], "damaged TIFF");
    refused(&[(BITS, &[8]), (STRIPS, &[8]), (STRIP_BYTES, &[u32::MAX]), (COMPRESSION, &[5])], "damaged TIFF");
    refused(&[(BITS, &[8]), (STRIPS, &[1 << 30]), (STRIP_BYTES, &[16])], "damaged TIFF");
    // One strip that is larger than may be decoded at once.
    refused(
        &[(BITS, &[16, 16, 16]), (SAMPLES, &[3]), (INTERPRETATION, &[2]), (WIDTH, &[20_000]), (HEIGHT, &[19_000])],
        "decoded whole",
    );
    assert!(message(read_bytes("pages.tif", &two_pages())).contains("several pages"));
}

/// Two directories of the same picture.
fn two_pages() -> Vec<u8> {
    let mut file = io::Cursor::new(Vec::new());
    let mut encoder = ::tiff::encoder::TiffEncoder::new(&mut file).unwrap();
    for _ in 0..2 {
        encoder.write_image::<::tiff::encoder::colortype::Gray8>(2, 2, &[1, 2, 3, 4]).unwrap();
    }
    file.into_inner()
}

#[test]
fn directories_that_lead_in_circles_end() {
    // The directory begins at byte 9. Its last four bytes are the position of the next directory.
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
