//! Damaged pictures are refused, or read on request with a warning.

use std::sync::{Arc, Mutex};

use super::*;

fn written(format: Format, colour: Colour) -> (Header, Vec<u8>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("whole");
    let header = header(80, 60, colour, Depth::Eight);
    // Smooth, with some noise: a flat picture has hardly any data.
    let row = header.row_bytes().unwrap();
    let samples: Vec<u8> = (0..row * 60).map(|at| (at % row / 2 + at / row + (at * at) % 11) as u8).collect();
    write(&path, format, &header, &samples).unwrap();
    (header, fs::read(path).unwrap())
}

fn test_picture(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../tests/images/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Reads a picture in spite of damage; the warnings, and its samples.
fn tolerated(bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    io::Write::write_all(&mut file, bytes).unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = warnings.clone();
    let warn = move |error: &Error| heard.lock().unwrap().push(error.to_string());
    let mut reader = ImageReader::open_tolerant(file.path(), &Limits::default(), warn).unwrap();
    let mut row = vec![0; reader.header().row_bytes().unwrap()];
    let mut samples = Vec::new();
    for _ in 0..reader.header().size.height {
        reader.read_row(&mut row).unwrap();
        samples.extend_from_slice(&row);
    }
    drop(reader);
    (Arc::into_inner(warnings).unwrap().into_inner().unwrap(), samples)
}

/// Checks that the file is refused, and that it is read with exactly one warning if damage is tolerated.
fn is_damaged(bytes: &[u8], what: &str) {
    let refused = message(read_bytes("picture", bytes));
    assert!(refused.contains("a truncated or damaged"), "{what}: {refused:?}");
    let (warnings, _) = tolerated(bytes);
    assert_eq!(warnings.len(), 1, "{what}: {warnings:?}");
    assert!(warnings[0].contains("a truncated or damaged"), "{what}: {warnings:?}");
}

/// Start and end of the content of each chunk of a PNG with this name.
fn chunks_of(png: &[u8], wanted: &[u8; 4]) -> Vec<(usize, usize)> {
    let (mut found, mut at) = (Vec::new(), 8);
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        if &png[at + 4..at + 8] == wanted {
            found.push((at + 8, at + 8 + length));
        }
        at += length + 12;
    }
    found
}

#[test]
fn every_flipped_bit_of_the_pixels_of_a_png_is_noticed() {
    let (_, png) = written(Format::Png, Colour::Rgb);
    for (start, end) in chunks_of(&png, b"IDAT") {
        // The checksum is part of it.
        for at in (start..end + 4).step_by(37).chain(end - 8..end + 4) {
            let mut flipped = png.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(message(read_bytes("flipped.png", &flipped)).contains("flipped.png: "), "byte {at}");
        }
        // A zeroed half, with what follows intact.
        let mut zeroed = png.clone();
        zeroed[(start + end) / 2..end].fill(0);
        is_damaged(&zeroed, "zeroed half");
    }
}

#[test]
fn the_end_of_a_png_is_read() {
    let (_, png) = written(Format::Png, Colour::Rgb);
    assert!(read_bytes("whole.png", &png).is_ok());
    for length in png.len() - 16..png.len() {
        is_damaged(&png[..length], "cut in the last chunk");
    }
    // The checksum of the data within the chunk, with a chunk that is right in itself.
    let (_, end) = chunks_of(&png, b"IDAT")[0];
    let mut wrong = png.clone();
    wrong[end - 1] ^= 1;
    let sum = crc32(&wrong[end - (end - chunks_of(&png, b"IDAT")[0].0) - 4..end]);
    wrong[end..end + 4].copy_from_slice(&sum.to_be_bytes());
    is_damaged(&wrong, "Adler-32");
    // The rows before the damage are there.
    let (_, samples) = read_bytes("whole.png", &png).unwrap();
    let (_, found) = tolerated(&png[..png.len() - 20]);
    assert_eq!(found[..samples.len() / 2], samples[..samples.len() / 2]);
}

/// CRC-32, <https://www.w3.org/TR/png-3/#D-CRCAppendix>
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}

fn jpegs() -> [(&'static str, Vec<u8>); 5] {
    [
        ("colour", written(Format::Jpeg, Colour::Rgb).1),
        ("grey", written(Format::Jpeg, Colour::Grey).1),
        ("progressive", test_picture("progressive.jpg")),
        ("restarts", test_picture("restarts.jpg")),
        ("cmyk", test_picture("cmyk.jpg")),
    ]
}

#[test]
fn a_jpeg_that_was_cut_and_closed_is_noticed() {
    for (name, jpeg) in jpegs().into_iter().filter(|(name, _)| *name != "cmyk") {
        assert!(read_bytes("whole.jpg", &jpeg).is_ok(), "{name}");
        let scan = jpeg.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        for length in (scan + 14..jpeg.len() - 6).step_by(29) {
            // A marker must not be cut in two.
            let length = if jpeg[length - 1] == 0xff { length - 1 } else { length };
            let closed = [&jpeg[..length], b"\xff\xd9"].concat();
            assert!(
                message(read_bytes("closed.jpg", &closed)).contains("a truncated or damaged JPEG file"),
                "{name} closed at {length} of {}",
                jpeg.len()
            );
        }
        is_damaged(&[&jpeg[..jpeg.len() * 3 / 4], b"\xff\xd9"].concat(), name);
    }
}

#[test]
fn a_jpeg_that_claims_a_larger_picture_is_noticed() {
    for (name, mut jpeg) in jpegs().into_iter().filter(|(name, _)| *name != "cmyk") {
        let header = jpeg.windows(2).position(|pair| pair[0] == 0xff && matches!(pair[1], 0xc0 | 0xc2)).unwrap();
        for axis in [5, 7] {
            let side = u16::from_be_bytes([jpeg[header + axis], jpeg[header + axis + 1]]);
            jpeg[header + axis..header + axis + 2].copy_from_slice(&(side * 2).to_be_bytes());
            let error = message(read_bytes("large.jpg", &jpeg));
            assert!(error.contains("a truncated or damaged JPEG file"), "{name}: {error}");
            jpeg[header + axis..header + axis + 2].copy_from_slice(&side.to_be_bytes());
        }
    }
}

#[test]
fn whole_jpegs_pass() {
    for (name, jpeg) in jpegs().into_iter().filter(|(name, _)| *name != "cmyk") {
        let (warnings, samples) = tolerated(&jpeg);
        assert_eq!(warnings, [""; 0], "{name}");
        assert_eq!(samples, read_bytes("whole.jpg", &jpeg).unwrap().1, "{name}");
    }
    assert!(read_bytes("whole.jpg", &test_picture("cmyk.jpg")).is_ok());
}

#[test]
fn a_webp_with_a_zeroed_tail_is_noticed() {
    let lossless = [Colour::Rgb, Colour::Rgba].map(|colour| written(Format::WebP, colour).1);
    for (number, webp) in lossless.into_iter().chain([test_picture("lossy.webp")]).enumerate() {
        assert_eq!(tolerated(&webp).0, [""; 0], "{number}");
        for part in [2, 3, 5, 10] {
            let mut zeroed = webp.clone();
            let from = zeroed.len() - zeroed.len() / part;
            zeroed[from..].fill(0);
            let error = message(read_bytes("zeroed.webp", &zeroed));
            assert!(error.contains("a truncated or damaged WebP file"), "{number}, 1/{part}: {error:?}");
        }
    }
    let mut zeroed = test_picture("lossy.webp");
    let from = zeroed.len() - 100;
    zeroed[from..].fill(0);
    is_damaged(&zeroed, "lossy");
}

/// The error of reading a picture in spite of damage.
fn not_tolerated(name: &str, bytes: &[u8]) -> String {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    message(ImageReader::open_tolerant(&path, &Limits::default(), |_| {}).and_then(|mut reader| {
        let mut row = vec![0; reader.header().row_bytes().unwrap()];
        (0..reader.header().size.height).try_for_each(|_| reader.read_row(&mut row))
    }))
}

/// The start of a PNG of 18,000 × 18,000 grey pixels, with as many of its bytes as there are.
fn large_png(interlaced: bool, bytes: usize) -> Vec<u8> {
    let mut info = ::png::Info::with_size(18_000, 18_000);
    (info.bit_depth, info.interlaced) = (::png::BitDepth::Eight, interlaced);
    let mut file = Vec::new();
    drop(::png::Encoder::with_info(&mut file, info).unwrap().write_header().unwrap());
    // Without the end.
    file.truncate(33);
    let mut zeros = flate2::Compress::new(flate2::Compression::best(), true);
    let mut data = Vec::with_capacity(1 << 20);
    let rows = vec![0; 18_001 * bytes];
    zeros.compress_vec(&rows, &mut data, flate2::FlushCompress::Sync).unwrap();
    file.extend((data.len() as u32).to_be_bytes());
    let chunk = [b"IDAT".to_vec(), data].concat();
    file.extend(&chunk);
    file.extend(crc32(&chunk).to_be_bytes());
    file
}

#[test]
fn hardly_more_is_made_up_than_is_there() {
    // 60 rows of 18,000, in a few hundred bytes.
    let png = large_png(false, 60);
    assert!(png.len() < 3000, "{}", png.len());
    let error = not_tolerated("large.png", &png);
    assert!(error.contains("of its 18000 rows can be read; a damaged picture is read from 10 % of them on"), "{error}");
    let error = not_tolerated("interlaced.png", &large_png(true, 60));
    assert!(error.contains("there is data for 0.") && error.contains("18000×18000"), "{error}");
    // A JPEG whose header claims 400 times as many pixels.
    let (_, mut jpeg) = written(Format::Jpeg, Colour::Grey);
    let header = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[header + 5..header + 9].copy_from_slice(&[0x40, 0, 0x40, 0]);
    let error = not_tolerated("large.jpg", &jpeg);
    assert!(error.contains("there is data for 0.0 % of its 16384×16384 pixels"), "{error}");
    let mut webp = test_picture("lossy.webp");
    let header = webp.windows(3).position(|three| three == [0x9d, 1, 0x2a]).unwrap();
    webp[header + 3..header + 7].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let length = webp.len();
    webp[length - 200..].fill(0);
    let error = not_tolerated("large.webp", &webp);
    assert!(error.contains("large.webp: "), "{error}");
    // A TIFF of 20,000 rows, of which the first strips are there.
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("whole.tif");
    let large = super::header(3000, 5000, Colour::Grey, Depth::Eight);
    write(&path, Format::Tiff, &large, &samples(&large)).unwrap();
    let mut tiff = fs::read(&path).unwrap();
    let strips = tiff.len() * 9 / 10;
    tiff[5000..strips].fill(0);
    let error = not_tolerated("large.tif", &tiff);
    assert!(error.contains("0 of its 5000 rows can be read"), "{error}");
    // A tenth is enough, and small pictures need nothing.
    let (_, png) = written(Format::Png, Colour::Rgb);
    assert_eq!(not_tolerated("small.png", &png[..60]), "");
}
