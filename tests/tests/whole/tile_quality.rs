//! Tiles of networks that see the whole picture: never worse than tiles of 256×256 with an overlap of 32.

use end_to_end::{manifest_in, repository, run, run_with_cache_in, words};
use image::{ImageBuffer, Rgb};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_image::{ImageReader, Limits, RowSource, Size};

/// Width and height of pictures: sizes that small tiles would cover with the least computation, sizes smaller than a
/// tile, and sizes that are no multiples of the network's windows.
const PICTURES: [[u32; 2]; 9] =
    [[304, 200], [64, 64], [100, 700], [257, 256], [63, 61], [100, 100], [320, 64], [523, 301], [40, 24]];

/// Builds `work/NAME` from a checkpoint.
fn build(work: &Path, name: &str, checkpoint: &Path, more: &[String]) -> PathBuf {
    let engine = work.join(name);
    let line = words(&[&"build", &checkpoint, &"--profile", &repository("profiles/cpu.yaml"), &"-o", &engine]);
    let _ =
        run_with_cache_in(work, "engine-builder", line.into_iter().chain(more.iter().map(OsString::from))).success();
    engine
}

/// A picture with details of every size.
fn photo(path: &Path, [width, height]: [u32; 2]) {
    let photo = image::open(repository("tests/images/coffee.png")).unwrap().into_rgb8();
    let [columns, rows] = [photo.width(), photo.height()];
    // The photo is mirrored where the picture is larger.
    let at =
        |at: u32, length: u32| if (at / length).is_multiple_of(2) { at % length } else { length - 1 - at % length };
    let picture =
        ImageBuffer::<Rgb<u8>, _>::from_fn(width, height, |x, y| *photo.get_pixel(at(x, columns), at(y, rows)));
    picture.save(path).unwrap();
}

/// An engine's result for a picture, and the report.
fn made(engine: &Path, input: &Path, more: &[&str]) -> (Vec<f32>, serde_json::Value) {
    let output = input.with_extension("out.tif");
    let line = words(&[&"infer", &"--json", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    let depth = ["--bit-depth", "32"].map(OsString::from);
    let report = run("runtime", line.into_iter().chain(depth).chain(more.iter().map(OsString::from))).success().json();
    let mut reader = ImageReader::open(&output, &Limits::default()).unwrap();
    let Size { width, height } = reader.header().size;
    let mut row = vec![0; width as usize * 3 * size_of::<f32>()];
    let mut values = Vec::new();
    for _ in 0..height {
        reader.read_row(&mut row).unwrap();
        values.extend(row.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)));
    }
    fs::remove_file(&output).unwrap();
    (values, report["files"][0].clone())
}

/// PSNR in dB; the peak is the range of the expected values.
fn psnr_db(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let (low, high) = expected.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let squares = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    10.0 * (f64::from(high - low).powi(2) * found.len() as f64 / squares).log10()
}

#[test]
fn no_picture_is_further_from_the_whole_than_with_large_tiles() {
    let work = tempfile::tempdir().unwrap();
    for preset in ["tiny", "tiny-nearest-x8"] {
        let checkpoint = work.path().join(format!("{preset}.safetensors"));
        let _ = run("xtask", words(&[&"synth", &"SwinIR", &"--preset", &preset, &"-o", &checkpoint])).success();
        let engine = build(work.path(), "engine", &checkpoint, &[]);
        let tiling = manifest_in(work.path())["tiling"].take();
        let floor = tiling["floor_db"].as_f64().unwrap();
        let tile = &tiling["tiles"][0];
        assert!(floor > 20.0 && (&tile["width"], &tile["height"]) == (&64.into(), &64.into()), "{tiling}");
        // The whole of each picture is a tile of another engine: the network extends pictures to multiples of 4.
        let whole = PICTURES.map(|sides| sides.map(|side: u32| side.next_multiple_of(4)));
        let sizes: Vec<String> = whole.iter().flat_map(|[w, h]| ["--size".into(), format!("{w}x{h}")]).collect();
        let all = build(work.path(), "all", &checkpoint, &sizes);
        for (picture, [width, height]) in PICTURES.iter().zip(whole) {
            let input = work.path().join("in.png");
            photo(&input, *picture);
            let (expected, _) = made(&all, &input, &["--tile", &format!("{width}x{height}")]);
            let (found, report) = made(&engine, &input, &[]);
            let (large, _) = made(&engine, &input, &["--tile", "256x256", "--overlap", "32"]);
            let [found, large] = [found, large].map(|values| psnr_db(&values, &expected));
            println!("{preset} {picture:?}: {found:.1} dB in tiles of {}, {large:.1} dB in 256×256", report["tile"]);
            assert!(found >= large, "{preset} {picture:?}: {found} dB, and {large} dB in 256×256: {report}");
        }
    }
}

#[test]
fn engines_without_figures_take_small_tiles_for_whole_pictures_alone() {
    let work = tempfile::tempdir().unwrap();
    let checkpoint = work.path().join("swinir.safetensors");
    let _ = run("xtask", words(&[&"synth", &"SwinIR", &"-o", &checkpoint])).success();
    let engine = build(work.path(), "engine", &checkpoint, &[]);
    let mut manifest = manifest_in(work.path());
    manifest.as_object_mut().unwrap().remove("tiling").unwrap();
    fs::write(engine.join("manifest.json"), manifest.to_string()).unwrap();
    let input = work.path().join("in.png");
    for (picture, tile) in [([304, 200], 256), ([64, 64], 64), ([62, 61], 64), ([65, 64], 256), ([40, 24], 256)] {
        photo(&input, picture);
        let (_, report) = made(&engine, &input, &[]);
        assert_eq!(report["tile"], serde_json::json!({ "width": tile, "height": tile }), "{picture:?}");
        assert_eq!(report["tiling_psnr_db"], serde_json::Value::Null);
    }
}

/// The network turns blocks of pixels into channels, so a tile that begins within a block would give another picture.
#[test]
fn tiles_begin_where_blocks_of_pixels_do() {
    let work = tempfile::tempdir().unwrap();
    for preset in ["tiny-unshuffle-x2", "tiny-unshuffle-x1"] {
        let checkpoint = work.path().join(format!("{preset}.safetensors"));
        let _ = run("xtask", words(&[&"synth", &"RRDBNet", &"--preset", &preset, &"-o", &checkpoint])).success();
        let engine = build(work.path(), "engine", &checkpoint, &[]);
        let radius = manifest_in(work.path())["contract"]["receptive_field"]["radius"].as_u64().unwrap();
        let input = work.path().join("in.png");
        for picture in [[701, 97], [97, 703]] {
            photo(&input, picture);
            let (whole, report) = made(&engine, &input, &[]);
            assert_eq!((&report["tiles"], &report["exact"]), (&1.into(), &true.into()), "{report}");
            let (tiles, report) = made(&engine, &input, &["--tile", "192x192", "--overlap", &(2 * radius).to_string()]);
            assert!(report["tiles"].as_u64().unwrap() > 1 && report["exact"] == true, "{report}");
            let psnr_db = psnr_db(&tiles, &whole);
            assert!(psnr_db > 100.0, "{preset} {picture:?}: {psnr_db} dB, {report}");
        }
    }
}
