//! Any chunks are a picture or give an error, in bounded memory. What is whole is read without a warning, and what is
//! damaged gives a warning or an error.
#![cfg_attr(fuzzing, no_main)]

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::Arbitrary;
#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_image::{ImageReader, Limits, RowSource};

#[derive(Arbitrary, Debug)]
struct Png {
    width: u8,
    height: u8,
    depth: u8,
    colour: u8,
    interlaced: bool,
    chunks: Vec<Chunk>,
    ends: bool,
}

#[derive(Arbitrary, Debug)]
struct Chunk {
    kind: u8,
    content: Vec<u8>,
    /// The content is wrapped into a zlib stream.
    compressed: bool,
    /// The checksum is this one instead of the right one.
    checksum: Option<u32>,
}

const KINDS: [&[u8; 4]; 19] = [
    b"IDAT", b"IDAT", b"IDAT", b"PLTE", b"tRNS", b"iCCP", b"eXIf", b"gAMA", b"sRGB", b"acTL", b"fcTL", b"fdAT",
    b"tEXt", b"zTXt", b"IEND", b"IHDR", b"cICP", b"cHRM", b"pHYs",
];

/// The depths and kinds of colours that a PNG may have. Of any bytes hardly any would be a picture.
const DEPTHS: [u8; 5] = [1, 2, 4, 8, 16];
const COLOURS: [u8; 5] = [0, 2, 3, 4, 6];

/// One of them, or now and then the number itself.
fn of(values: [u8; 5], number: u8) -> u8 {
    values.get(usize::from(number % 6)).copied().unwrap_or(number)
}

fuzz_target!(|png: Png| {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let size = [0, 0, 0, png.width, 0, 0, 0, png.height];
    let header = [&size[..], &[of(DEPTHS, png.depth), of(COLOURS, png.colour), 0, 0, png.interlaced.into()]];
    add(&mut bytes, b"IHDR", &header.concat(), None);
    for chunk in &png.chunks {
        let kind = KINDS[usize::from(chunk.kind) % KINDS.len()];
        let content = if chunk.compressed { zlib(&chunk.content) } else { chunk.content.clone() };
        let named = kind == b"iCCP" && chunk.compressed;
        let content = if named { [b"p\0\0", content.as_slice()].concat() } else { content };
        add(&mut bytes, kind, &content, chunk.checksum);
    }
    if png.ends {
        add(&mut bytes, b"IEND", &[], None);
    }
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&bytes).expect("a temporary file can be written");
    let limits = Limits { megapixels: 1, decoded_bytes: 16 << 20 };
    let strict = ImageReader::open(file.path(), &limits).ok().and_then(samples);
    let warnings = Arc::new(AtomicUsize::new(0));
    let heard = warnings.clone();
    let warn = move |_: &tileforge_image::Error| {
        heard.fetch_add(1, Ordering::SeqCst);
    };
    let tolerant = ImageReader::open_tolerant(file.path(), &limits, warn).ok().and_then(samples);
    // What the chunks say of colours gives sRGB or an error.
    let srgb = ImageReader::open(file.path(), &limits).and_then(ImageReader::into_srgb);
    if let Some(samples) = srgb.ok().and_then(samples) {
        assert_eq!(strict.as_ref().map(Vec::len), Some(samples.len()));
    }
    match strict {
        Some(_) => assert_eq!((strict, warnings.load(Ordering::SeqCst)), (tolerant, 0)),
        None => assert!(tolerant.is_none() || warnings.load(Ordering::SeqCst) > 0, "damage without a warning"),
    }
});

/// All samples, if the picture can be read to its end.
fn samples(mut reader: ImageReader) -> Option<Vec<u8>> {
    let header = reader.header().clone();
    let mut all = Vec::new();
    let mut row = vec![0; header.row_bytes()?];
    for _ in 0..header.size.height {
        reader.read_row(&mut row).ok()?;
        all.extend_from_slice(&row);
    }
    Some(all)
}

fn add(bytes: &mut Vec<u8>, kind: &[u8; 4], content: &[u8], checksum: Option<u32>) {
    bytes.extend((content.len() as u32).to_be_bytes());
    let start = bytes.len();
    bytes.extend(kind);
    bytes.extend(content);
    let sum = !bytes[start..].iter().fold(!0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    });
    bytes.extend(checksum.unwrap_or(sum).to_be_bytes());
}

/// A zlib stream of stored blocks. <https://www.rfc-editor.org/rfc/rfc1950>
fn zlib(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x78, 1];
    let blocks = content.chunks(0xffff).count().max(1);
    for (number, block) in content.chunks(0xffff).chain(content.is_empty().then_some(&[][..])).enumerate() {
        let length = block.len() as u16;
        bytes.push(u8::from(number + 1 == blocks));
        bytes.extend(length.to_le_bytes());
        bytes.extend((!length).to_le_bytes());
        bytes.extend(block);
    }
    let (a, b) = content.iter().fold((1_u32, 0_u32), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}
