//! Files as other decoders read them.

use super::*;
use crate::{Format, ImageWriter, RowSink, Size};
use std::fs;

/// Rows of smooth and noisy places, in the file's byte order.
fn samples(header: &Header) -> Vec<u8> {
    let channels = header.row_bytes().unwrap() / header.size.width as usize;
    let mut noise = 1_u32;
    let mut made = Vec::new();
    for y in 0..header.size.height {
        for x in 0..header.size.width {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let level = (x / 3 + y / 2) as u8;
            let is_noisy = (x / 64 + y / 64) % 3 == 0;
            made.extend((0..channels).map(|channel| {
                if is_noisy {
                    (noise >> 24) as u8 ^ channel as u8
                } else {
                    level.wrapping_add((channel as u8).wrapping_mul(40))
                }
            }));
        }
    }
    made
}

fn written(header: &Header, rows: &[u8], compression: PngCompression, threads: usize, at_once: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.png");
    let writer = ImageWriter::create(&path, Format::Png, header.clone()).unwrap();
    let mut writer = writer.with_png_compression(compression, Some(threads));
    for rows in rows.chunks(at_once * header.row_bytes().unwrap()) {
        writer.write_rows(rows).unwrap();
    }
    Box::new(writer).finish().unwrap();
    fs::read(path).unwrap()
}

fn header(width: u32, height: u32, colour: Colour, depth: Depth) -> Header {
    Header::new(Size { width, height }, colour, depth)
}

/// The samples as `image` decodes them, in the file's byte order.
fn decoded(file: &[u8]) -> Vec<u8> {
    let mut reader = ::png::Decoder::new(io::Cursor::new(file)).read_info().unwrap();
    let mut samples = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut samples).unwrap();
    reader.finish().unwrap();
    // Another decoder agrees.
    let picture = ::image::load_from_memory(file).unwrap();
    let bytes = picture.as_bytes();
    let same = match picture.color().bytes_per_pixel() / picture.color().channel_count() {
        2 => bytes
            .chunks_exact(2)
            .map(|pair| u16::from_ne_bytes([pair[0], pair[1]]))
            .flat_map(u16::to_be_bytes)
            .collect(),
        _ => bytes.to_vec(),
    };
    assert!(same == samples);
    samples
}

#[test]
fn any_number_of_threads_gives_the_same_file_and_every_decoder_reads_it() {
    for colour in [Colour::Grey, Colour::GreyAlpha, Colour::Rgb, Colour::Rgba] {
        for depth in [Depth::Eight, Depth::Sixteen] {
            // Three bands, the last of which is not full.
            let row_bytes = header(300, 1, colour, depth).row_bytes().unwrap();
            let header = header(300, (BAND_BYTES * 5 / 2 / row_bytes) as u32, colour, depth);
            let rows = samples(&header);
            let one = written(&header, &rows, PngCompression::Default, 1, usize::MAX / row_bytes);
            assert!(decoded(&one) == rows, "{colour:?} {depth:?}");
            for (threads, at_once) in [(2, 64), (5, 333)] {
                let same = written(&header, &rows, PngCompression::Default, threads, at_once);
                assert!(one == same, "{colour:?} {depth:?} {threads}");
            }
        }
    }
}

#[test]
fn pictures_of_any_size_are_whole() {
    for (width, height) in [(1, 1), (1, 3000), (3, 7), (100_000, 9), (683, 512)] {
        let header = header(width, height, Colour::Rgb, Depth::Eight);
        let rows = samples(&header);
        for compression in PngCompression::ALL {
            let file = written(&header, &rows, compression, 3, 100);
            assert!(decoded(&file) == rows, "{width}×{height} {compression:?}");
        }
    }
}

#[test]
fn harder_compression_gives_smaller_files() {
    let header = header(600, 400, Colour::Rgb, Depth::Eight);
    let rows = samples(&header);
    let [fast, default, best] = PngCompression::ALL.map(|choice| written(&header, &rows, choice, 2, 50).len());
    assert!(fast > default && default >= best, "{fast} {default} {best}");
    assert_eq!("best".parse(), Ok(PngCompression::Best));
    assert!("6".parse::<PngCompression>().unwrap_err().contains("fast, default, best"));
}
