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

#[test]
fn jpegs_of_adobe_hold_inks_inverted_and_as_luma() {
    // All pixels are (55, 127, 127, 0), stored inverted in a file with Adobe's segment.
    let jpeg = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/images/cmyk.jpg")).unwrap();
    let profile = grey_inks();
    let length = (profile.len() + 16) as u16;
    let segment =
        [b"\xff\xe2".to_vec(), length.to_be_bytes().to_vec(), b"ICC_PROFILE\0\x01\x01".to_vec(), profile].concat();
    let with_profile = [&jpeg[..2], &segment, &jpeg[2..]].concat();
    let same = |jpeg: &[u8], inks: [u8; 4]| {
        let (header, bytes) = read_bytes("inks.jpg", jpeg).unwrap();
        assert_eq!((header.colour, header.icc_profile), (Colour::Rgb, None));
        let expected = read_inks(inks.repeat(4).try_into().unwrap()).unwrap()[0];
        assert!(bytes.iter().all(|byte| byte.abs_diff(expected) <= 2), "{} instead of {expected}", bytes[0]);
    };
    same(&with_profile, [55, 127, 127, 0]);
    // The same values read as luma 200 without chroma: equal amounts of red, green and blue ink, as luma says.
    let mut as_luma = with_profile;
    let adobe = as_luma.windows(5).position(|bytes| bytes == b"Adobe").unwrap();
    as_luma[adobe + 11] = 2;
    same(&as_luma, [200, 200, 200, 0]);
    // Without a profile: 255 − 55 and 255 − 127, and no black.
    let (header, bytes) = read_bytes("inks.jpg", &jpeg).unwrap();
    assert_eq!((header.colour, header.icc_profile), (Colour::Rgb, None));
    for pixel in bytes.as_chunks::<3>().0 {
        assert!(pixel.iter().zip([200_u8, 128, 128]).all(|(found, right)| found.abs_diff(right) <= 2), "{pixel:?}");
    }
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
