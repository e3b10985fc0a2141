//! Colour profiles and inks.

use super::tiff::{BITS, Entry, HEIGHT, INTERPRETATION, PROFILE, SAMPLES, WIDTH, read_tiff};
use super::*;

/// A colour profile for inks that make only grey: cyan, magenta and yellow each darken by 60 of 255, black by 51
/// (lut16Type, ICC.1:2001-04, 6.5.7).
fn grey_inks() -> Vec<u8> {
    let four = |value: u32| value.to_be_bytes();
    let lightness = |corner: u8| if corner & 1 == 1 { 51 } else { 255 - 60 * (corner >> 1).count_ones() as u8 };
    let identity: Vec<u8> = (0..9).flat_map(|index| four(if index % 4 == 0 { 0x1_0000 } else { 0 })).collect();
    // Two entries in each curve. In 16 bits, 0xff00 is L* = 100 and 0x8000 is a* = 0 or b* = 0.
    let entries = [0, 2, 0, 2];
    let ramp = [0, 0, 0xff, 0xff];
    // The last channel varies fastest, so black is bit 0 of a corner.
    let corners = (0..16).flat_map(|corner| [lightness(corner), 0, 0x80, 0, 0x80, 0]).collect();
    let table =
        [b"mft2\0\0\0\0\x04\x03\x02\0".to_vec(), identity, entries.to_vec(), ramp.repeat(4), corners, ramp.repeat(3)]
            .concat();
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

/// Four pixels with these inks.
fn read_inks(inks: [u8; 16]) -> Result<Vec<u8>> {
    let profile: Vec<u32> = grey_inks().into_iter().map(u32::from).collect();
    let entries: &[Entry] =
        &[(WIDTH, &[2]), (HEIGHT, &[2]), (BITS, &[8; 4]), (INTERPRETATION, &[5]), (SAMPLES, &[4]), (PROFILE, &profile)];
    let (header, bytes) = read_tiff(false, entries, &inks)?;
    assert_eq!((header.colour, header.icc_profile), (Colour::Rgb, None));
    Ok(bytes)
}

#[test]
fn inks_become_the_colours_of_their_profile() {
    let found =
        read_inks([[0, 0, 0, 0], [0, 0, 0, 255], [255, 255, 255, 0], [0, 255, 0, 0]].concat().try_into().unwrap())
            .unwrap();
    // L* = 100, 20, 29.4 and 76.5, in sRGB (IEC 61966-2-1).
    for (found, expected) in found.iter().zip([255, 48, 69, 189].into_iter().flat_map(|level: u8| [level; 3])) {
        assert!(found.abs_diff(expected) <= 1, "{found} instead of {expected}");
    }
}

/// All pixels are (55, 127, 127, 0), stored inverted in a file with Adobe's segment.
fn inverted_jpeg() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/images/cmyk.jpg")).unwrap()
}

fn with_profile(jpeg: &[u8]) -> Vec<u8> {
    let profile = grey_inks();
    let length = (profile.len() + 16) as u16;
    let segment =
        [b"\xff\xe2".to_vec(), length.to_be_bytes().to_vec(), b"ICC_PROFILE\0\x01\x01".to_vec(), profile].concat();
    [&jpeg[..2], &segment, &jpeg[2..]].concat()
}

/// Makes Adobe's segment say that the inks are stored as luma, chroma and black.
fn as_luma(jpeg: &mut [u8]) {
    let adobe = jpeg.windows(5).position(|bytes| bytes == b"Adobe").unwrap();
    jpeg[adobe + 11] = 2;
}

#[test]
fn jpegs_of_adobe_hold_inks_inverted_and_as_luma() {
    let with_profile = with_profile(&inverted_jpeg());
    let same = |jpeg: &[u8], inks: [u8; 4]| {
        let (header, bytes) = read_bytes("inks.jpg", jpeg).unwrap();
        assert_eq!((header.colour, header.icc_profile), (Colour::Rgb, None));
        let expected = read_inks(inks.repeat(4).try_into().unwrap()).unwrap()[0];
        assert!(bytes.iter().all(|byte| byte.abs_diff(expected) <= 2), "{} instead of {expected}", bytes[0]);
    };
    same(&with_profile, [55, 127, 127, 0]);
    // The same values read as luma 200 without chroma: equal amounts of red, green and blue ink, as luma says.
    let mut jpeg = with_profile;
    as_luma(&mut jpeg);
    same(&jpeg, [200, 200, 200, 0]);
}

/// Levels of 255 that a channel of the table may differ from the profile, at the inks below.
const TABLE_TOLERANCE: u8 = 3;

/// Amounts of inks, and their colours by a profile of FOGRA39L, from `scripts/cmyk_table.py`: in 8 bits those of
/// Little CMS (relative colorimetric, with black point compensation), in 16 bits those computed from the profile's
/// L*a*b*.
const COATED: [([u8; 4], [u8; 3], [u16; 3]); 13] = [
    ([255, 0, 0, 0], [0, 159, 227], [0, 40_885, 58_433]),
    ([0, 255, 0, 0], [230, 0, 126], [59_062, 0, 32_323]),
    ([0, 0, 255, 0], [255, 237, 0], [65_535, 60_973, 0]),
    ([0, 0, 0, 255], [31, 31, 29], [7_965, 7_844, 7_531]),
    ([0, 255, 255, 0], [228, 9, 22], [58_506, 2_237, 5_581]),
    ([255, 0, 255, 0], [0, 150, 65], [0, 38_609, 16_767]),
    ([255, 255, 0, 0], [48, 41, 131], [12_373, 10_432, 33_769]),
    ([255, 255, 255, 255], [3, 1, 0], [872, 256, 0]),
    ([0, 0, 0, 128], [157, 157, 157], [40_317, 40_365, 40_344]),
    ([55, 127, 127, 0], [206, 144, 124], [52_939, 36_968, 31_954]),
    ([128, 102, 102, 26], [135, 136, 136], [34_767, 35_005, 35_007]),
    ([20, 90, 110, 10], [228, 175, 144], [58_574, 45_056, 36_916]),
    ([200, 150, 60, 40], [72, 92, 133], [18_429, 23_708, 34_239]),
];

/// One row of pixels of four inks, in 8 or 16 bits, without a profile.
fn read_bare_inks(inks: &[u8], bits: u32) -> Vec<u8> {
    let (width, bits) = ([inks.len() as u32 / (bits / 2)], [bits; 4]);
    let entries: &[Entry] = &[(WIDTH, &width), (HEIGHT, &[1]), (BITS, &bits), (SAMPLES, &[4]), (INTERPRETATION, &[5])];
    let (header, bytes) = read_tiff(false, entries, inks).unwrap();
    let depth = if bits[0] == 8 { Depth::Eight } else { Depth::Sixteen };
    assert_eq!((header.colour, header.depth, header.icc_profile), (Colour::Rgb, depth, None));
    bytes
}

#[test]
fn inks_without_a_profile_are_print_on_coated_paper() {
    let inks: Vec<u8> = COATED.iter().flat_map(|row| row.0).collect();
    let found = read_bare_inks(&inks, 8);
    for (found, (inks, expected, _)) in found.as_chunks::<3>().0.iter().zip(COATED) {
        let near = found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= TABLE_TOLERANCE);
        assert!(near, "{inks:?}: {found:?} instead of {expected:?}");
    }
    let inks: Vec<u8> = inks.iter().flat_map(|&ink| (u16::from(ink) * 257).to_le_bytes()).collect();
    let found = read_bare_inks(&inks, 16);
    for (found, (inks, _, expected)) in found.as_chunks::<6>().0.iter().zip(COATED) {
        let tolerance = u16::from(TABLE_TOLERANCE) * 257;
        let near = found
            .as_chunks()
            .0
            .iter()
            .zip(expected)
            .all(|(&found, expected)| u16::from_be_bytes(found).abs_diff(expected) <= tolerance);
        assert!(near, "{inks:?}: {found:?} instead of {expected:?}");
    }
    // Paper without ink is white to the bit.
    assert_eq!(read_bare_inks(&[0; 4], 8), [255; 3]);
    assert_eq!(read_bare_inks(&[0; 8], 16), [255; 6]);
}

#[test]
fn more_of_an_ink_makes_no_jumps() {
    for ink in 0..4 {
        let inks: Vec<u8> =
            (0..=255).flat_map(|amount| [0, 1, 2, 3].map(|at| if at == ink { amount } else { 0 })).collect();
        let found = read_bare_inks(&inks, 8);
        let (pixels, _) = found.as_chunks::<3>();
        for (step, pair) in pixels.windows(2).enumerate() {
            let smooth = pair[0]
                .iter()
                .zip(pair[1])
                .all(|(&before, after)| (0..=3).contains(&(i16::from(before) - i16::from(after))));
            assert!(smooth, "ink {ink}, amount {step}: {pair:?}");
        }
    }
}

#[test]
fn jpegs_without_a_profile_are_print_on_coated_paper() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("inks.jpg");
    let near = |jpeg: &[u8], expected: [u8; 3]| {
        fs::write(&path, jpeg).unwrap();
        let (header, bytes) = read_all(&path, &Limits::default()).unwrap();
        assert_eq!((header.colour, header.depth, header.icc_profile), (Colour::Rgb, Depth::Eight, None));
        for pixel in bytes.as_chunks::<3>().0 {
            // The JPEG may be off by one amount of each ink.
            let near = pixel.iter().zip(expected).all(|(found, right)| found.abs_diff(right) <= TABLE_TOLERANCE + 1);
            assert!(near, "{pixel:?} instead of {expected:?}");
        }
        ImageReader::open(&path, &Limits::default()).unwrap().notes().to_vec()
    };
    // Inverted inks (55, 127, 127, 0), and the same values as luma: (200, 200, 200, 0). By Little CMS, as above.
    let mut jpeg = inverted_jpeg();
    let notes = near(&jpeg, [206, 144, 124]);
    assert!(
        matches!(&notes[..], [note] if note.contains("(FOGRA39)") && note.contains("embed the profile")),
        "{notes:?}"
    );
    as_luma(&mut jpeg);
    near(&jpeg, [92, 74, 72]);
    // A picture that has its profile is not told about another.
    fs::write(&path, with_profile(&inverted_jpeg())).unwrap();
    assert_eq!(ImageReader::open(&path, &Limits::default()).unwrap().notes(), [""; 0]);
}

#[test]
fn a_profile_is_kept_or_used() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("wide.tif");
    // Adobe RGB's green is outside of sRGB. Its greys differ from those of sRGB only by the curve.
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
        assert!(
            found.iter().zip(expected).all(|(found, expected): (_, f32)| (found - expected).abs() < 0.004),
            "{depth:?}: {found:?}"
        );
    }
    let wrong = Header { icc_profile: Some(grey_inks()), ..header(2, 1, Colour::Rgb, Depth::Eight) };
    write(&path, Format::Tiff, &wrong, &[0; 6]).unwrap();
    let error = message(ImageReader::open(&path, &Limits::default()).unwrap().into_srgb());
    assert!(error.contains("it is for Cmyk, and the picture is Rgb"), "{error}");
    let damaged = Header { icc_profile: Some(vec![1; 200]), ..wrong };
    write(&path, Format::Tiff, &damaged, &[0; 6]).unwrap();
    assert!(message(ImageReader::open(&path, &Limits::default()).unwrap().into_srgb()).contains("cannot be used"));
}
