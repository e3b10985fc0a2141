//! Formats that are only read.

use ::image::codecs::bmp::BmpEncoder;
use ::image::{ExtendedColorType, ImageEncoder};

use super::*;

fn bmp(width: u32, height: u32, samples: &[u8], colour: ExtendedColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    BmpEncoder::new(&mut bytes).write_image(samples, width, height, colour).unwrap();
    bytes
}

/// A GIF of so many frames, each of one colour of the palette.
fn gif(width: u16, height: u16, frames: &[(u16, u16, u16, u16, u8)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = ::gif::Encoder::new(&mut bytes, width, height, &[1, 2, 3, 200, 100, 50]).unwrap();
    for &(left, top, width, height, index) in frames {
        let buffer = vec![index; usize::from(width) * usize::from(height)].into();
        let frame = ::gif::Frame { left, top, width, height, buffer, ..::gif::Frame::default() };
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    bytes
}

#[test]
fn a_bmp_is_read_with_and_without_alpha() {
    let header = header(5, 3, Colour::Rgb, Depth::Eight);
    let found = read_bytes("a.bmp", &bmp(5, 3, &samples(&header), ExtendedColorType::Rgb8)).unwrap();
    assert_eq!(found, (header.clone(), samples(&header)));
    let rgba = Header { colour: Colour::Rgba, ..header };
    let found = read_bytes("a.bmp", &bmp(5, 3, &samples(&rgba), ExtendedColorType::Rgba8)).unwrap();
    assert_eq!(found, (rgba.clone(), samples(&rgba)));
}

/// A BMP of one pixel whose header of the fifth version says where its profile is, with these bytes at its end.
fn bmp_with_profile(start: u32, bytes: u32, end: &[u8]) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    let numbers = [142 + end.len() as u32, 0, 138, 124, 1, 1, 1 | 24 << 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x4D42_4544];
    file.extend(numbers.into_iter().chain([0; 12]).chain([4, start, bytes, 0]).flat_map(u32::to_le_bytes));
    assert_eq!(file.len(), 138);
    file.extend([3, 2, 1, 0]);
    file.extend(end);
    file
}

#[test]
fn the_profile_in_a_bmp_is_kept() {
    let profile = |file: &[u8]| {
        let (header, samples) = read_bytes("a.bmp", file).unwrap();
        assert_eq!(samples, [1, 2, 3]);
        header.icc_profile
    };
    assert_eq!(profile(&bmp_with_profile(128, 4, b"icc!")), Some(b"icc!".to_vec()));
    // A profile that is incomplete, missing or too large is left out; the picture is read.
    for (start, bytes) in [(128, 5), (128, 0), (u32::MAX, 4), (129, 4), (0, u32::MAX)] {
        assert_eq!(profile(&bmp_with_profile(start, bytes, b"icc!")), None, "{bytes} from {start}");
    }
    // Only the fifth version has one, and only for this colour space.
    for (at, value) in [(14, 108_u32), (70, 0x4C49_4E4B)] {
        let mut file = bmp_with_profile(128, 4, b"icc!");
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert_eq!(profile(&file), None, "{at}");
    }
}

#[test]
fn the_first_frame_of_a_gif_is_read() {
    let (header, bytes) = read_bytes("a.gif", &gif(4, 2, &[(0, 0, 4, 2, 1)])).unwrap();
    assert_eq!((header.colour, bytes), (Colour::Rgb, [200, 100, 50].repeat(8)));
    // A frame that does not cover the screen lies on transparency.
    let (header, bytes) = read_bytes("a.gif", &gif(3, 2, &[(1, 1, 2, 1, 0), (0, 0, 3, 2, 1)])).unwrap();
    assert_eq!(header.colour, Colour::Rgba);
    let (nothing, pixel) = ([0; 4], [1, 2, 3, 255]);
    assert_eq!(bytes, [nothing, nothing, nothing, nothing, pixel, pixel].concat());
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("moving.gif");
    let notes = |frames: &[_]| {
        fs::write(&path, gif(3, 2, frames)).unwrap();
        ImageReader::open(&path, &Limits::default()).unwrap().notes().to_vec()
    };
    assert_eq!(notes(&[(0, 0, 3, 2, 1)]), [""; 0]);
    assert_eq!(notes(&[(0, 0, 3, 2, 1), (0, 0, 3, 2, 0)]), ["it is an animation, of which the first frame is read"]);
}

#[test]
fn what_is_cut_is_an_error_and_what_is_large_is_refused() {
    let rgb = header(40, 30, Colour::Rgb, Depth::Eight);
    let whole = bmp(40, 30, &samples(&rgb), ExtendedColorType::Rgb8);
    for length in (0..whole.len()).step_by(97) {
        assert!(message(read_bytes("cut.bmp", &whole[..length])).contains("cut.bmp: "), "{length}");
    }
    let whole = gif(40, 30, &[(0, 0, 40, 30, 1)]);
    // Only the end of the file follows the frame.
    for length in 0..whole.len() - 2 {
        assert!(message(read_bytes("cut.gif", &whole[..length])).contains("cut.gif: "), "{length}");
    }
    let mut huge = bmp(4, 4, &[7; 48], ExtendedColorType::Rgb8);
    huge[18..26].copy_from_slice(&[0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]);
    assert!(message(read_bytes("huge.bmp", &huge)).contains("megapixels"));
    // Hardly anything of the screen is covered.
    let error = message(read_bytes("blank.gif", &gif(10_000, 10_000, &[(0, 0, 8, 8, 1)])));
    assert!(error.contains("there is data for 0.0 % of its 10000×10000 pixels"), "{error}");
    let outside = [&gif(4, 4, &[(0, 0, 4, 4, 1)])[..]].concat();
    let mut moved = outside;
    let descriptor = moved.iter().position(|&byte| byte == 0x2c).unwrap();
    moved[descriptor + 1] = 3;
    assert!(message(read_bytes("outside.gif", &moved)).contains("damaged GIF"));
}

#[test]
fn what_is_not_read_is_named_and_what_is_only_read_is_not_written() {
    let error = message(read_bytes("a.avif", b"\0\0\0\x1cftypavif\0\0\0\0mif1"));
    assert!(error.contains("AVIF is not read; convert it to PNG first"), "{error}");
    let error = message(read_bytes("a.heic", b"\0\0\0\x1cftypheic\0\0\0\0mif1"));
    assert!(error.contains("HEIC, AVIF or a film is not read"), "{error}");
    for (name, format) in [("x.bmp", Format::Bmp), ("x.gif", Format::Gif)] {
        assert!(
            message(ImageWriter::create(Path::new(name), format, header(1, 1, Colour::Rgb, Depth::Eight)))
                .contains("is read, and not written")
        );
        assert_eq!(Format::read_under(Path::new(name)), Some(format));
        assert!(Format::of_name(Path::new(name)).is_err());
    }
    assert!(Format::is_not_read(Path::new("IMG.HEIC")) && !Format::is_not_read(Path::new("notes.txt")));
}
