//! Metadata, and the meaning of a PNG's samples.

use super::*;
use crate::exif::Found;
use crate::{CodePoints, Density, DensityUnit, Metadata};

/// EXIF with a maker, an orientation, a resolution, an exposure, a width and a date of GPS.
fn camera() -> Vec<u8> {
    let entry = |tag: u16, kind: u16, count: u32, value: u32| {
        [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    let primary = [entry(0x010f, 2, 10, 62), entry(0x0112, 3, 1, 6), entry(0x8769, 4, 1, 72), entry(0x8825, 4, 1, 110)];
    let inner = [entry(0x829a, 5, 1, 102), entry(0xa002, 3, 1, 2)];
    [
        b"II*\0\x08\0\0\0\x04\0".to_vec(),
        primary.concat(),
        // A thumbnail would follow; there is none at this place.
        200_u32.to_le_bytes().to_vec(),
        b"Camera 11\0".to_vec(),
        b"\x02\0".to_vec(),
        inner.concat(),
        vec![0; 4],
        [1_u32.to_le_bytes(), 250_u32.to_le_bytes()].concat(),
        b"\x01\0".to_vec(),
        entry(0x001d, 2, 3, u32::from_le_bytes(*b"20\0\0")),
        vec![0; 4],
    ]
    .concat()
}

fn metadata() -> Metadata {
    let found = Found::of_chunk(&camera());
    assert!(!found.is_partial);
    let exif = found.exif.unwrap();
    assert_eq!((exif.primary.len(), exif.camera.len(), exif.position.len()), (1, 2, 1));
    Metadata { exif: Some(exif), density: Density::whole(300, 200, DensityUnit::Inch) }
}

#[test]
fn every_format_keeps_exif_and_density() {
    let folder = TempDir::new().unwrap();
    let size = Size { width: 70, height: 50 };
    let expected = metadata().exif.unwrap().with_size(size).in_native_order();
    for (name, format) in Format::WRITTEN {
        let path = folder.path().join(format!("a.{name}"));
        let header = Header { metadata: metadata(), ..Header::new(size, Colour::Rgb, Depth::Eight) };
        write(&path, format, &header, &samples(&header)).unwrap();
        let reader = ImageReader::open(&path, &Limits::default()).unwrap();
        assert_eq!(reader.notes(), [""; 0]);
        let found = reader.header().metadata.clone();
        assert_eq!(found.exif.unwrap().in_native_order(), expected, "{name}");
        let inches = found.density.unwrap().as_fractions();
        assert_eq!(inches, header.metadata.density.unwrap().as_fractions(), "{name}");
        let bare = reader.without_metadata();
        assert_eq!(bare.header().metadata, Metadata::default());
        // Windows does not replace a file that is open.
        drop(bare);
        // A density alone, and nothing at all.
        for density in [header.metadata.density, None] {
            let alone = Header { metadata: Metadata { exif: None, density }, ..header.clone() };
            write(&path, format, &alone, &samples(&alone)).unwrap();
            let found = ImageReader::open(&path, &Limits::default()).unwrap().header().metadata.clone();
            assert_eq!(found.exif, None, "{name}");
            assert_eq!(found.density.map(Density::as_fractions), density.map(Density::as_fractions), "{name}");
        }
    }
}

#[test]
fn a_turned_picture_is_upright_in_every_respect() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("turned.png");
    let mut info = ::png::Info::with_size(2, 3);
    info.color_type = ::png::ColorType::Grayscale;
    info.bit_depth = ::png::BitDepth::Eight;
    info.exif_metadata = Some(camera().into());
    info.pixel_dims = Some(::png::PixelDimensions { xppu: 11_811, yppu: 5906, unit: ::png::Unit::Meter });
    let encoder = ::png::Encoder::with_info(File::create(&path).unwrap(), info).unwrap();
    encoder.write_header().unwrap().write_image_data(&[1, 2, 3, 4, 5, 6]).unwrap();
    let (header, rows) = read_all(&path, &Limits::default()).unwrap();
    assert_eq!(header.size, Size { width: 3, height: 2 });
    let density = header.metadata.density.unwrap();
    assert_eq!(density.in_metres(), Some((DensityUnit::Metre, [5906, 11_811])));
    let again = folder.path().join("again.jpg");
    write(&again, Format::Jpeg, &header, &rows).unwrap();
    let reader = ImageReader::open(&again, &Limits::default()).unwrap();
    assert_eq!(reader.header().size, header.size, "it is not turned twice");
    let bytes = fs::read(&again).unwrap();
    assert!(!bytes.windows(4).any(|four| four == [0x12, 1, 3, 0] && four == [6, 0, 0, 0]));
}

#[test]
fn samples_in_srgb_say_so() {
    let mut exif = metadata().exif.unwrap();
    exif.camera.push(exif::Entry { tag: 0xa001, kind: 3, bytes: vec![2, 0] });
    exif.camera.push(exif::Entry { tag: 0xa500, kind: 5, bytes: vec![1; 8] });
    let srgb = exif.in_srgb();
    let entry = |tag| srgb.camera.iter().find(|entry| entry.tag == tag).map(|entry| entry.bytes.clone());
    assert_eq!((entry(0xa001), entry(0xa500)), (Some(vec![1, 0]), None));
}

/// A PNG of one grey or red pixel with these chunks.
fn with_chunks(chunks: &[Chunk<'_>]) -> PathBuf {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut encoder = ::png::Encoder::new(file.reopen().unwrap(), 1, 1);
    encoder.set_color(::png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    for (kind, content) in chunks {
        writer.write_chunk(::png::chunk::ChunkType(**kind), content).unwrap();
    }
    writer.write_image_data(&[128; 3]).unwrap();
    writer.finish().unwrap();
    file.into_temp_path().keep().unwrap()
}

fn srgb_of(path: &Path) -> Result<[u8; 3]> {
    let mut row = [0; 3];
    ImageReader::open(path, &Limits::default())?.into_srgb()?.read_row(&mut row)?;
    Ok(row)
}

/// A compressed profile under a name.
fn profile_chunk(profile: &moxcms::ColorProfile) -> Vec<u8> {
    let mut compressed = flate2::write::ZlibEncoder::new(b"p\0\0".to_vec(), flate2::Compression::fast());
    io::Write::write_all(&mut compressed, &profile.encode().unwrap()).unwrap();
    compressed.finish().unwrap()
}

/// A chunk of a PNG: its name and its data.
type Chunk<'c> = (&'c [u8; 4], &'c [u8]);

#[test]
fn colours_of_a_png_follow_the_order_of_its_specification() {
    const LINEAR: Chunk<'static> = (b"gAMA", &100_000_u32.to_be_bytes());
    const OLD: Chunk<'static> = (b"gAMA", &55_556_u32.to_be_bytes());
    const SRGB: Chunk<'static> = (b"sRGB", &[0]);
    let adobe = profile_chunk(&moxcms::ColorProfile::new_adobe_rgb());
    let iccp: Chunk<'_> = (b"iCCP", &adobe);
    // BT.709's primaries with linear light, and with sRGB's curve.
    let (linear, plain): (Chunk<'_>, Chunk<'_>) = ((b"cICP", &[1, 8, 0, 1]), (b"cICP", &[1, 13, 0, 1]));
    for (chunks, expected) in [
        (&[][..], 128),
        (&[LINEAR][..], 188),
        (&[OLD], 147),
        (&[SRGB, LINEAR], 128),
        (&[iccp, LINEAR], 129),
        (&[linear], 188),
        (&[linear, iccp, OLD], 188),
        (&[plain, iccp, LINEAR], 128),
        // Unspecified: what follows counts.
        (&[(b"cICP", &[2, 2, 0, 1]), OLD], 147),
    ] {
        let path = with_chunks(chunks);
        let found = srgb_of(&path).unwrap();
        assert!(found.iter().all(|level| level.abs_diff(expected) <= 1), "{found:?} instead of {expected}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn hdr_is_kept_in_a_png_and_is_no_srgb() {
    let folder = TempDir::new().unwrap();
    for (chunk, word) in [([9, 16, 0, 1], "HDR (PQ)"), ([9, 18, 0, 1], "HDR (HLG)"), ([1, 13, 0, 0], "limited range")] {
        let path = with_chunks(&[(b"cICP", &chunk)]);
        let error = message(srgb_of(&path));
        assert!(error.contains(word), "{error}");
        let (header, rows) = read_all(&path, &Limits::default()).unwrap();
        let expected = CodePoints { primaries: chunk[0], transfer: chunk[1], full_range: chunk[3] == 1 };
        assert_eq!((header.code_points, &header.icc_profile), (Some(expected), &None));
        assert_eq!((expected.lost_in(Format::Png), expected.lost_in(Format::Jpeg)), (None, Some(word)));
        let again = folder.path().join("again.png");
        write(&again, Format::Png, &header, &rows).unwrap();
        assert_eq!(read_all(&again, &Limits::default()).unwrap().0.code_points, Some(expected));
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn impossible_numbers_of_a_png_are_ignored_and_told() {
    let path = with_chunks(&[(b"cHRM", &[0; 32])]);
    let reader = ImageReader::open(&path, &Limits::default()).unwrap();
    assert_eq!(reader.header().icc_profile, None);
    assert!(reader.notes()[0].contains("(gAMA, cHRM) are impossible"), "{:?}", reader.notes());
    fs::remove_file(path).unwrap();
}

/// Whatever a file says of itself, the picture is read.
#[test]
fn damaged_exif_is_left_out_and_the_picture_is_read() {
    let whole = camera();
    for length in [0, 3, 8, 20, 60, 75, 105] {
        let path = with_chunks(&[(b"eXIf", &whole[..length])]);
        let reader = ImageReader::open(&path, &Limits::default()).unwrap();
        assert_eq!(reader.notes(), ["a part of its EXIF is damaged or too large, and is left out"], "{length}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn exif_is_native_in_a_tiff_whatever_it_was() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.tif");
    let mut swapped = metadata().exif.unwrap();
    // The other byte order than this machine's: as a big-endian blob that says the same.
    let bytes = metadata().exif_chunk(Size { width: 9, height: 9 }).unwrap();
    assert_eq!(Found::of_chunk(&bytes).exif.unwrap().primary, swapped.primary);
    swapped = swapped.in_native_order();
    let header =
        Header { metadata: metadata(), ..Header::new(Size { width: 9, height: 9 }, Colour::Grey, Depth::Eight) };
    write(&path, Format::Tiff, &header, &[3; 81]).unwrap();
    let found = read_all(&path, &Limits::default()).unwrap().0.metadata.exif.unwrap();
    assert_eq!(found.position, swapped.position);
}
