//! `runtime infer` with an engine that fills in the masked part of a picture.

use end_to_end::{GoldenComponent, Outcome, golden_retouches, inpainting_engine, run, small_engine, words};
use image::{DynamicImage, GrayImage, ImageBuffer, Luma, Rgb, Rgba};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tileforge_image::{Depth, Format, ImageReader, ImageWriter, Limits, Size};
use tileforge_runtime::pixels::Pixels;

/// Writes a TIFF of floats, red, green and blue for each pixel.
pub(super) fn write_floats(path: &Path, [width, height]: [u32; 2], samples: &[f32]) {
    let pixels = Pixels { size: Size { width, height }, channels: 3, samples: samples.to_vec() };
    let writer = ImageWriter::create(path, Format::Tiff, pixels.header(Depth::Float)).unwrap();
    pixels.write(Box::new(writer)).unwrap();
}

pub(super) fn read_floats(path: &Path) -> Vec<f32> {
    let limits = Limits::default();
    Pixels::read(&mut ImageReader::open(path, &limits).unwrap(), &limits).unwrap().samples
}

fn golden(name: &str) -> GoldenComponent {
    golden_retouches().into_iter().find(|golden| golden.name == name).unwrap()
}

fn engine() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let work = tempfile::tempdir().unwrap();
        let engine = inpainting_engine(work.path());
        (work, engine)
    };
    &ENGINE.get_or_init(build).1
}

fn infer(engine: &Path, input: &Path, output: &Path, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    let line = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", line.into_iter().chain(words(more)))
}

/// A mask that is white in the given columns and rows.
fn mask(path: &Path, [width, height]: [u32; 2], [columns, rows]: [std::ops::Range<u32>; 2]) -> PathBuf {
    let white = |x: u32, y: u32| columns.contains(&x) && rows.contains(&y);
    GrayImage::from_fn(width, height, |x, y| Luma([if white(x, y) { 255 } else { 0 }])).save(path).unwrap();
    path.to_owned()
}

fn pattern(x: u32, y: u32, channel: u32) -> u32 {
    (x * 7919 + y * 104_729 + channel * 15_485_863 + x * y * 31) % 65_521
}

#[test]
fn what_is_filled_in_is_that_of_the_reference() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden("lama/inpaint.2.golden.safetensors");
    let engine = small_engine(work.path(), "lama", &golden, &golden.shapes(), &[]);
    let samples = |values: &ndarray::ArrayD<f32>| {
        let first = values.index_axis(ndarray::Axis(0), 0);
        first.permuted_axes(ndarray::IxDyn(&[1, 2, 0])).iter().copied().collect::<Vec<f32>>()
    };
    let [image, white, expected] =
        [&golden.inputs["image"], &golden.inputs["mask"], &golden.outputs["inpainted"]].map(samples);
    let (input, masked, output) =
        (work.path().join("in.tif"), work.path().join("mask.png"), work.path().join("out.tif"));
    write_floats(&input, [40, 24], &image);
    let level = |value: &f32| if *value > 0.5 { 255 } else { 0 };
    GrayImage::from_raw(40, 24, white.iter().map(level).collect()).unwrap().save(&masked).unwrap();
    let _ = infer(&engine, &input, &output, &[&"--mask", &masked]).success();
    let found = read_floats(&output);
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if white[at / 3] > 0.5 {
            assert!((found - expected).abs() <= 2e-5, "{at}: {found} instead of {expected}");
        } else {
            assert_eq!(*found, image[at], "{at}");
        }
    }
}

/// Odd sizes, sizes below and above those of the graphs, alpha and 16 bits.
#[test]
fn pixels_outside_the_mask_are_those_of_the_file() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    for (size, [columns, rows], shown) in [
        ([47, 31], [5..20, 3..9], [47, 31]),
        ([1, 1], [0..1, 0..1], [1, 1]),
        ([63, 5], [60..63, 0..5], [63, 5]),
        // Larger than all graphs: a part of the picture is used, and one case shows the part at a smaller size.
        ([301, 203], [150..160, 100..105], [64, 64]),
        ([301, 203], [0..301, 0..203], [95, 64]),
    ] {
        let white = mask(&path("mask.png"), size, [columns.clone(), rows.clone()]);
        let [width, height] = size;
        let eight = ImageBuffer::from_fn(width, height, |x, y| {
            Rgb([0, 1, 2].map(|channel| (pattern(x, y, channel) % 256) as u8))
        });
        let sixteen =
            ImageBuffer::from_fn(width, height, |x, y| Rgba([0, 1, 2, 3].map(|channel| pattern(x, y, channel) as u16)));
        let grey = GrayImage::from_fn(width, height, |x, y| Luma([(pattern(x, y, 0) % 256) as u8]));
        for picture in
            [DynamicImage::ImageRgb8(eight), DynamicImage::ImageRgba16(sixteen), DynamicImage::ImageLuma8(grey)]
        {
            picture.save(path("in.png")).unwrap();
            let told =
                infer(engine(), &path("in.png"), &path("out.png"), &[&"--mask", &white, &"--json"]).success().json();
            let file = &told["files"][0];
            assert_eq!(file["filled"], columns.len() * rows.len(), "{told}");
            if size[0] > 100 {
                // If no graph holds the picture, the part has the size of a graph.
                assert!(file["shown_size"]["width"].as_u64().unwrap() <= 96, "{told}");
            } else {
                assert_eq!(file["shown_size"], serde_json::json!({ "width": shown[0], "height": shown[1] }), "{told}");
            }
            let made = image::open(path("out.png")).unwrap();
            assert_eq!((made.color(), made.width(), made.height()), (picture.color(), width, height));
            let (before, after) = (picture.to_rgba16(), made.to_rgba16());
            let mut changed = 0;
            for (x, y, pixel) in after.enumerate_pixels() {
                let old = before.get_pixel(x, y);
                assert_eq!(pixel[3], old[3], "alpha at {x}, {y}");
                if columns.contains(&x) && rows.contains(&y) {
                    changed += usize::from(pixel != old);
                } else {
                    assert_eq!(pixel, old, "{x}, {y} of {size:?}");
                }
            }
            assert!(changed * 2 > columns.len() * rows.len(), "{changed} of {size:?}");
        }
    }
}

/// The network does not see the pixels under the mask.
#[test]
fn what_is_covered_has_no_effect() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    for (size, hole) in [([48, 40], [10..30, 8..20]), ([500, 400], [100..420, 30..390])] {
        let white = mask(&path("mask.png"), size, hole.clone());
        let made = [0, 200].map(|level: u8| {
            let covered = |x: u32, y: u32| hole[0].contains(&x) && hole[1].contains(&y);
            let pixel = |x, y| [0, 1, 2].map(|c| if covered(x, y) { level } else { (pattern(x, y, c) % 256) as u8 });
            let picture = ImageBuffer::from_fn(size[0], size[1], |x, y| Rgb(pixel(x, y)));
            picture.save(path("in.png")).unwrap();
            let _ = infer(engine(), &path("in.png"), &path("out.png"), &[&"--mask", &white]).success();
            image::open(path("out.png")).unwrap()
        });
        assert!(made[0] == made[1], "{size:?}");
    }
}

#[test]
fn a_mask_that_covers_nothing_changes_nothing() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    let picture =
        ImageBuffer::from_fn(70, 50, |x, y| Rgb([0, 1, 2].map(|channel| (pattern(x, y, channel) % 256) as u8)));
    picture.save(path("in.png")).unwrap();
    let black = mask(&path("mask.png"), [70, 50], [0..0, 0..0]);
    let told = infer(engine(), &path("in.png"), &path("out.png"), &[&"--mask", &black]).success();
    assert!(told.stdout.contains("the mask covers nothing"), "{}", told.stdout);
    assert_eq!(image::open(path("out.png")).unwrap().into_rgb8(), picture);
}

#[test]
fn masks_and_options_that_do_not_fit_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    GrayImage::new(40, 30).save(path("in.png")).unwrap();
    let (input, output) = (path("in.png"), path("out.png"));
    let fails = |engine: &Path, code: i32, more: &[&dyn AsRef<OsStr>], texts: &[&str]| {
        let _ = infer(engine, &input, &output, more).failure(code, texts);
        assert!(!output.exists());
    };
    fails(engine(), 2, &[], &["expected one with --mask"]);
    let other = mask(&path("other.png"), [30, 40], [0..3, 0..3]);
    fails(engine(), 1, &[&"--mask", &other], &["expected a mask of the picture's size 40×30, found 30×40"]);
    fails(engine(), 1, &[&"--mask", &path("none.png")], &["none.png"]);
    fs::write(path("text.png"), "no picture").unwrap();
    fails(engine(), 1, &[&"--mask", &path("text.png")], &["text.png"]);
    let own = mask(&path("mask.png"), [40, 30], [0..3, 0..3]);
    fails(engine(), 2, &[&"--mask", &own, &"--tile", &"64x64"], &["--tile does not go with"]);
    fails(engine(), 2, &[&"--mask", &own, &"--outscale", &"2"], &["--outscale does not go with"]);
    fails(end_to_end::demo_engine(), 2, &[&"--mask", &own], &["--mask is for engines that fill in pictures"]);
    // The mask is not overwritten.
    let before = fs::read(&own).unwrap();
    let _ = infer(engine(), &input, &own, &[&"--mask", &own]).failure(2, &["mask.png"]);
    assert_eq!(fs::read(&own).unwrap(), before);
}

#[test]
fn several_pictures_have_a_folder_of_masks() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    for folder in ["photos", "masks"] {
        fs::create_dir(path(folder)).unwrap();
    }
    for name in ["a", "b", "c"] {
        let picture =
            ImageBuffer::from_fn(30, 20, |x, y| Rgb([0, 1, 2].map(|channel| (pattern(x, y, channel) % 256) as u8)));
        picture.save(path(&format!("photos/{name}.png"))).unwrap();
    }
    let _ = mask(&path("masks/a.png"), [30, 20], [0..9, 0..9]);
    let _ = mask(&path("masks/b.bmp"), [30, 20], [20..30, 0..20]);
    let both = infer(engine(), &path("photos"), &path("out"), &[&"--mask", &path("masks")]);
    let _ = both.failure(1, &["expected a mask for", "c.png, found none of this name"]);
    assert!(path("out/a.png").exists() && path("out/b.png").exists() && !path("out/c.png").exists());
    let one = infer(engine(), &path("photos"), &path("out"), &[&"--mask", &path("masks/a.png")]);
    let _ = one.failure(2, &["expected a folder with a mask for each picture"]);
}
