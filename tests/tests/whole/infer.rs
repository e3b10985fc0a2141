//! Tiled pictures give the same pixels as the whole picture in one run.

use end_to_end::{Graph, demo_engine, engine_of, names_in, repository, run, words};
use image::{DynamicImage, ImageBuffer, Luma, Rgb, Rgba};
use ndarray::{Array4, ArrayView4, s};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use tileforge_exporter::{Checkpoint, Shapes, export};
use tileforge_graph::{WeightStorage, save};
use tileforge_image::Size;
use tileforge_image::{Colour, Depth, Format, Header, ImageReader, ImageWriter, Limits, RowSink, RowSource};
use tileforge_session::SessionOptions;

/// The receptive field of compact-x4, in input pixels.
const RADIUS: usize = 18;
const SCALE: usize = 4;
/// Largest difference between tiles and whole image, of a range of 1: two levels of 16 bits.
const TOLERANCE: f32 = 3e-5;

/// Runs the network on a picture of any size in one piece, `[1, 3, height, width]`.
fn whole(image: ArrayView4<'_, f32>) -> Array4<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.onnx");
    let checkpoint = Checkpoint::open(repository("models/compact-x4.safetensors")).unwrap();
    save(&export(&checkpoint, &Shapes::default(), &BTreeMap::new()).unwrap().model, &path, WeightStorage::Copy)
        .unwrap();
    let mut session = Graph::open(&path, &SessionOptions::default()).unwrap();
    let output = session.run(&[("image", image.into_dyn())]).unwrap().remove(0).1;
    output.into_dimensionality().unwrap()
}

/// A part of the photo as 16-bit RGB, and as `[1, 3, height, width]` in 0 … 1.
fn photo(width: u32, height: u32) -> (ImageBuffer<Rgb<u16>, Vec<u16>>, Array4<f32>) {
    let photo =
        image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, width, height).into_rgb16();
    let tensor = Array4::from_shape_fn((1, 3, height as usize, width as usize), |(_, c, y, x)| {
        f32::from(photo.get_pixel(x as u32, y as u32).0[c]) / 65535.0
    });
    (photo, tensor)
}

fn infer(engine: &Path, input: &Path, output: &Path, more: &[&str]) -> serde_json::Value {
    let arguments = words(&[&"infer", &"--json", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", arguments.into_iter().chain(more.iter().map(OsString::from))).success().json()
}

fn upscaled(image: &DynamicImage, more: &[&str]) -> (DynamicImage, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.png"), folder.path().join("out.png"));
    image.save(&input).unwrap();
    let report = infer(demo_engine(), &input, &output, more);
    assert_eq!(names_in(folder.path()), ["in.png", "out.png"]);
    (image::open(&output).unwrap(), report)
}

/// Largest difference of channel `c`, at least `away` input pixels from the borders on the padded axes.
fn difference(found: impl Fn(u32, u32, usize) -> f32, expected: &Array4<f32>, away: (usize, usize)) -> f32 {
    let (_, channels, height, width) = expected.dim();
    let mut largest = 0.0_f32;
    for y in away.0 * SCALE..height - away.0 * SCALE {
        for x in away.1 * SCALE..width - away.1 * SCALE {
            for c in 0..channels {
                let expected = expected[[0, c, y, x]].clamp(0.0, 1.0);
                largest = largest.max((found(x as u32, y as u32, c) - expected).abs());
            }
        }
    }
    largest
}

#[test]
fn tiles_equal_the_whole_image() {
    // Many tiles; one row of tiles; an odd size just above one tile. All are at least one tile long, so nothing is
    // padded.
    for (width, height) in [(301, 217), (230, 96), (97, 193)] {
        let (image, tensor) = photo(width, height);
        let (found, report) = upscaled(&image.into(), &["--overlap", "52"]);
        assert_eq!(report["files"][0]["exact"], true);
        let found = found.into_rgb16();
        assert_eq!(found.dimensions(), (width * 4, height * 4));
        let largest =
            difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0, &whole(tensor.view()), (0, 0));
        assert!(largest <= TOLERANCE, "{width}×{height}: {largest}");
    }
}

#[test]
fn the_profile_of_the_cpu_is_exact_by_default() {
    let (_folder, engine) = engine_of(&repository("models/compact-x4.safetensors"), "profiles/cpu.yaml");
    let work = tempfile::tempdir().unwrap();
    let (image, tensor) = photo(300, 270);
    let (input, output) = (work.path().join("in.png"), work.path().join("out.png"));
    image.save(&input).unwrap();
    let expected = whole(tensor.view());
    for (more, tiles) in [(&[][..], 1), (&["--tile", "256x256"], 2), (&["--tile", "150x150"], 6)] {
        let report = infer(&engine, &input, &output, more);
        assert_eq!((&report["files"][0]["exact"], &report["files"][0]["tiles"]), (&true.into(), &tiles.into()));
        let found = image::open(&output).unwrap().into_rgb16();
        let largest = difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0, &expected, (0, 0));
        assert!(largest <= TOLERANCE, "{more:?}: {largest}");
    }
}

#[test]
fn images_below_one_tile_equal_the_whole_image_away_from_the_padding() {
    for (width, height) in [(80, 70), (95, 60), (130, 61)] {
        let (image, tensor) = photo(width, height);
        let (found, _) = upscaled(&image.into(), &["--overlap", "52"]);
        let found = found.into_rgb16();
        let largest = difference(
            |x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0,
            &whole(tensor.view()),
            (RADIUS, RADIUS),
        );
        assert!(largest <= TOLERANCE, "{width}×{height}: {largest}");
    }
}

/// The position after mirroring at the last pixel, which is not repeated, as often as needed.
fn reflect(position: usize, length: usize) -> usize {
    if length == 1 {
        return 0;
    }
    let position = position % (2 * length - 2);
    if position < length { position } else { 2 * length - 2 - position }
}

#[test]
fn tiny_images_are_reflected_into_a_tile() {
    for (width, height) in [(1, 1), (1, 20), (23, 1), (2, 3), (24, 24), (1, 40)] {
        let (image, tensor) = photo(width, height);
        let (found, report) = upscaled(&image.into(), &[]);
        let found = found.into_rgb16();
        assert_eq!(found.dimensions(), (width * 4, height * 4));
        let tile = report["files"][0]["tile"]["width"].as_u64().unwrap() as usize;
        assert_eq!(tile, if width.max(height) <= 24 { 24 } else { 96 });
        let (h, w) = (height as usize, width as usize);
        let padded =
            Array4::from_shape_fn((1, 3, tile, tile), |(_, c, y, x)| tensor[[0, c, reflect(y, h), reflect(x, w)]]);
        let expected = whole(padded.view()).slice(s![.., .., ..h * SCALE, ..w * SCALE]).to_owned();
        let largest = difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0, &expected, (0, 0));
        assert!(largest <= TOLERANCE, "{width}×{height}: {largest}");
    }
}

#[test]
fn grey_stays_grey() {
    let (image, _) = photo(150, 120);
    let grey: ImageBuffer<Luma<u16>, Vec<u16>> = DynamicImage::from(image).into_luma16();
    let tensor = Array4::from_shape_fn((1, 3, 120, 150), |(_, _, y, x)| {
        f32::from(grey.get_pixel(x as u32, y as u32).0[0]) / 65535.0
    });
    let (found, _) = upscaled(&grey.into(), &["--overlap", "52"]);
    let DynamicImage::ImageLuma16(found) = found else { panic!("expected 16-bit grey, found {:?}", found.color()) };
    let expected = whole(tensor.view())
        .mapv(|v| v.clamp(0.0, 1.0))
        .mean_axis(ndarray::Axis(1))
        .unwrap()
        .insert_axis(ndarray::Axis(1));
    let largest = difference(|x, y, _| f32::from(found.get_pixel(x, y).0[0]) / 65535.0, &expected, (0, 0));
    assert!(largest <= TOLERANCE, "{largest}");
}

#[test]
fn alpha_is_kept() {
    let (image, tensor) = photo(150, 120);
    // A gradient: bicubic interpolation continues it.
    let with_alpha = ImageBuffer::from_fn(150, 120, |x, y| {
        let Rgb([r, g, b]) = *image.get_pixel(x, y);
        Rgba([r, g, b, (400 * x) as u16])
    });
    let (found, _) = upscaled(&DynamicImage::ImageRgba16(with_alpha), &["--overlap", "52"]);
    let DynamicImage::ImageRgba16(found) = found else { panic!("expected 16-bit RGBA, found {:?}", found.color()) };
    let largest = difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0, &whole(tensor.view()), (0, 0));
    assert!(largest <= TOLERANCE, "{largest}");
    for (x, _, pixel) in found.enumerate_pixels().filter(|(x, ..)| (16..584).contains(x)) {
        let expected = 400.0 * ((f64::from(x) + 0.5) / 4.0 - 0.5);
        assert!(
            (f64::from(pixel.0[3]) - expected).abs() < 4.0,
            "alpha at column {x}: {} instead of {expected}",
            pixel.0[3]
        );
    }
}

#[test]
fn alpha_goes_through_the_model_or_is_dropped_where_that_is_asked_for() {
    let (image, tensor) = photo(150, 120);
    let with_alpha = ImageBuffer::from_fn(150, 120, |x, y| {
        let Rgb([r, g, b]) = *image.get_pixel(x, y);
        Rgba([r, g, b, g])
    });
    let with_alpha = DynamicImage::ImageRgba16(with_alpha);
    let (found, _) = upscaled(&with_alpha, &["--overlap", "52", "--alpha", "model"]);
    let DynamicImage::ImageRgba16(found) = found else { panic!("expected 16-bit RGBA, found {:?}", found.color()) };
    let alpha = Array4::from_shape_fn(tensor.dim(), |(_, _, y, x)| tensor[[0, 1, y, x]]);
    let expected = whole(alpha.view())
        .mapv(|v| v.clamp(0.0, 1.0))
        .mean_axis(ndarray::Axis(1))
        .unwrap()
        .insert_axis(ndarray::Axis(1));
    let largest = difference(|x, y, _| f32::from(found.get_pixel(x, y).0[3]) / 65535.0, &expected, (0, 0));
    assert!(largest <= TOLERANCE, "{largest}");
    let colours = difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0, &whole(tensor.view()), (0, 0));
    assert!(colours <= TOLERANCE, "{colours}");

    let (dropped, _) = upscaled(&with_alpha, &["--overlap", "52", "--alpha", "drop"]);
    assert_eq!(dropped.as_rgb16().unwrap(), &upscaled(&image.into(), &["--overlap", "52"]).0.into_rgb16());
}

#[test]
fn eight_bits_are_those_of_sixteen_rounded() {
    let (image, tensor) = photo(150, 120);
    let eight = DynamicImage::from(image).into_rgb8();
    let tensor =
        Array4::from_shape_fn(tensor.dim(), |(_, c, y, x)| f32::from(eight.get_pixel(x as u32, y as u32).0[c]) / 255.0);
    let (found, _) = upscaled(&eight.into(), &["--overlap", "52"]);
    let DynamicImage::ImageRgb8(found) = found else { panic!("expected 8-bit RGB, found {:?}", found.color()) };
    let largest = difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 255.0, &whole(tensor.view()), (0, 0));
    assert!(largest <= 0.5 / 255.0 + TOLERANCE, "{largest}");
}

#[test]
fn tiff_holds_what_png_holds_and_floats() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let (image, tensor) = photo(150, 120);
    let header = |depth| Header {
        icc_profile: Some(vec![7; 200]),
        ..Header::new(Size { width: 150, height: 120 }, Colour::Rgb, depth)
    };
    let write = |name: &str, depth, samples: &[u8]| {
        let mut writer = ImageWriter::create(&at(name), Format::Tiff, header(depth)).unwrap();
        writer.write_rows(samples).unwrap();
        Box::new(writer).finish().unwrap();
    };
    let read = |name: &str| {
        let mut reader = ImageReader::open(&at(name), &Limits::default()).unwrap();
        let header = reader.header().clone();
        let mut bytes = vec![0; header.row_bytes().unwrap() * header.size.height as usize];
        bytes.chunks_exact_mut(header.row_bytes().unwrap()).for_each(|row| reader.read_row(row).unwrap());
        (header, bytes)
    };
    write(
        "sixteen.tif",
        Depth::Sixteen,
        &image.as_raw().iter().flat_map(|sample| sample.to_be_bytes()).collect::<Vec<_>>(),
    );
    let _ = infer(demo_engine(), &at("sixteen.tif"), &at("sixteen-x4.tif"), &["--overlap", "52"]);
    let (found, samples) = read("sixteen-x4.tif");
    assert_eq!(found, Header { size: Size { width: 600, height: 480 }, ..header(Depth::Sixteen) });
    let (expected, _) = upscaled(&image.clone().into(), &["--overlap", "52"]);
    assert!(samples == expected.into_rgb16().iter().flat_map(|sample| sample.to_be_bytes()).collect::<Vec<_>>());

    // Values outside the model's range are clamped.
    let floats: Vec<f32> = image.as_raw().iter().map(|&sample| f32::from(sample) / 65535.0).collect();
    let brighter: Vec<u8> =
        floats.iter().flat_map(|value| (if *value > 0.6 { value + 3.0 } else { *value }).to_ne_bytes()).collect();
    write("float.tif", Depth::Float, &brighter);
    let _ = infer(demo_engine(), &at("float.tif"), &at("float-x4.tif"), &["--overlap", "52"]);
    let (found, samples) = read("float-x4.tif");
    assert_eq!(found.depth, Depth::Float);
    let value = |x: u32, y: u32, c: usize| {
        f32::from_ne_bytes(samples[((y * 600 + x) as usize * 3 + c) * 4..][..4].try_into().unwrap())
    };
    let expected = whole(tensor.mapv(|value| if value > 0.6 { 1.0 } else { value }).view());
    let largest = difference(value, &expected, (0, 0));
    assert!(largest <= TOLERANCE, "{largest}");
}

#[test]
fn every_blend_gives_the_whole_image_where_the_overlap_covers_the_receptive_field() {
    let (image, tensor) = photo(200, 100);
    let expected = whole(tensor.view());
    for blend in ["hann", "cosine", "linear", "none"] {
        let (found, _) = upscaled(&image.clone().into(), &["--overlap", "44", "--blend", blend]);
        let found = found.into_rgb16();
        let largest = difference(|x, y, c| f32::from(found.get_pixel(x, y).0[c]) / 65535.0, &expected, (0, 0));
        assert!(largest <= TOLERANCE, "{blend}: {largest}");
    }
}

#[test]
fn a_folder_is_upscaled_file_by_file() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join("in"), work.path().join("out"));
    std::fs::create_dir(&input).unwrap();
    let (image, _) = photo(30, 20);
    let image = DynamicImage::from(image);
    image.save(input.join("a.png")).unwrap();
    image.to_rgb8().save(input.join("b.jpg")).unwrap();
    image.to_rgb8().save(input.join("c.webp")).unwrap();
    let report = infer(demo_engine(), &input, &output, &[]);
    assert_eq!(names_in(&output), ["a.png", "b.jpg", "c.webp"]);
    assert_eq!(report["files"].as_array().unwrap().len(), 3);
    for name in names_in(&output) {
        let image = image::open(output.join(name)).unwrap();
        assert_eq!((image.width(), image.height()), (120, 80));
    }
}

#[test]
fn the_report_says_what_ran() {
    let (image, _) = photo(120, 100);
    let (_, report) = upscaled(&image.into(), &["--tile", "96x96"]);
    assert_eq!(report["provider"], "cpu");
    let file = &report["files"][0];
    assert_eq!(file["tiles"], 4);
    assert_eq!(file["assigned"][0]["provider"], "CPUExecutionProvider");
    for stage in ["decode", "run", "blend", "encode", "total"] {
        assert!(file["seconds"][stage].as_f64().unwrap() > 0.0, "{stage}: {file}");
    }
    assert!(report["peak_memory_bytes"].as_u64().unwrap() > 10_000_000);
}

#[test]
fn png_compression_changes_the_size_of_a_file_and_no_pixel() {
    let work = tempfile::tempdir().unwrap();
    let input = work.path().join("in.png");
    // The input has 8 bits: noise in the lower half of 16 bits cannot be compressed.
    DynamicImage::from(photo(120, 100).0).to_rgb8().save(&input).unwrap();
    // The second byte of a zlib stream states the level: the first data of a PNG begins with it.
    let written = ["fast", "default", "best"].map(|how| {
        let output = work.path().join(format!("{how}.png"));
        infer(demo_engine(), &input, &output, &["--png-compression", how]);
        let bytes = std::fs::read(&output).unwrap();
        let data = bytes.windows(4).position(|word| word == b"IDAT").unwrap() + 4;
        (bytes[data + 1], bytes.len(), image::open(&output).unwrap().into_rgb8())
    });
    assert_eq!(written.each_ref().map(|(level, ..)| *level), [0x01, 0x9c, 0xda]);
    let [fast, default, best] = written.each_ref().map(|(_, bytes, _)| *bytes);
    assert!(best <= default && default < fast, "{best} {default} {fast}");
    assert!(written.iter().all(|(.., pixels)| *pixels == written[0].2));
    let plain = work.path().join("plain.png");
    infer(demo_engine(), &input, &plain, &[]);
    assert!(std::fs::read(&plain).unwrap() == std::fs::read(work.path().join("default.png")).unwrap());

    let output = work.path().join("refused.png");
    let line = words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]);
    let wrong = run("runtime", line.into_iter().chain(["--png-compression".into(), "most".into()]));
    let _ = wrong.failure(2, &["--png-compression", "fast", "best"]);
    assert!(!output.exists());
}
