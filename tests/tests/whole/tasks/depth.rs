//! `runtime infer` with engines that give depth, against the reference's script (`tests/golden-depth`).

use end_to_end::{GoldenComponent, Outcome, THREADS, golden_systems, names_in, repository, run, small_engine, words};
use image::{ImageBuffer, Luma, Rgb};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tileforge_contract::DataType;
use tileforge_runtime::tensor_file::{Contents, Stored, read, write};

/// The reference's result for a picture.
struct Case {
    size: [u32; 2],
    picture: PathBuf,
    /// The depth map of the sensor in millimetres.
    map: Option<PathBuf>,
    depth: Vec<f32>,
    colours: Option<Vec<u8>>,
    component: GoldenComponent,
    input_size: String,
}

/// A case of `tests/golden-depth`, with its picture and its map as files in `work`.
fn case(work: &Path, name: &str) -> Case {
    let bytes = fs::read(repository(&format!("tests/golden-depth/{name}/golden.safetensors"))).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let data = |name: &str| tensors.tensor(name).ok().map(|tensor| tensor.data().to_vec());
    let shape = tensors.tensor("picture").unwrap().shape().to_vec();
    let [width, height] = [shape[1] as u32, shape[0] as u32];
    let picture = work.join(format!("{name}.png"));
    ImageBuffer::<Rgb<u8>, _>::from_raw(width, height, data("picture").unwrap()).unwrap().save(&picture).unwrap();
    let map = data("map").map(|bytes| {
        let path = work.join(format!("{name}-map.png"));
        let numbers = bytes.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()) as u16);
        let map = ImageBuffer::<Luma<u16>, _>::from_raw(width, height, numbers.collect::<Vec<_>>()).unwrap();
        map.save(&path).unwrap();
        path
    });
    let depth = data("depth").unwrap();
    let prefix = format!("{}-{}/", metadata["architecture"], metadata["preset"]);
    Case {
        size: [width, height],
        picture,
        map,
        depth: depth.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect(),
        colours: data("colours"),
        component: golden_systems(work).into_iter().find(|golden| golden.name.starts_with(&prefix)).unwrap(),
        input_size: metadata["input_size"].clone(),
    }
}

/// Builds `work/NAME`: an engine of a case's network for pictures of `height` and `width` in it.
fn engine(work: &Path, name: &str, case: &Case, [height, width]: [usize; 2]) -> PathBuf {
    let picture = format!("pixel_values:1x3x{height}x{width}");
    let map = if case.map.is_some() { format!(",inverse_depth:1x1x{height}x{width}") } else { String::new() };
    small_engine(work, name, &case.component, &format!("{picture}{map}").parse().unwrap(), &[])
}

fn infer(engine: &Path, input: &Path, output: &Path, more: &[&dyn AsRef<std::ffi::OsStr>]) -> Outcome {
    let line = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", line.into_iter().chain(words(more)))
}

fn npy(path: &Path) -> (Vec<usize>, Vec<f32>) {
    let Contents::Single(stored) = read(path).unwrap() else { panic!("names") };
    let values = stored.tensor().unwrap().into_f32().unwrap();
    (stored.shape, values.into_iter().collect())
}

/// The share of the pixels with depth that are within a millimetre and 0.01 % of the reference.
fn share_of_equal(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let valid: Vec<_> = found.iter().zip(expected).filter(|(_, expected)| **expected > 0.0).collect();
    let equal = valid.iter().filter(|(found, expected)| {
        let error = (*found - *expected).abs();
        error <= 1e-3 && error <= 1e-4 * *expected
    });
    equal.count() as f64 / valid.len() as f64
}

#[test]
fn a_refined_map_is_that_of_the_references_script_in_every_format() {
    let work = tempfile::tempdir().unwrap();
    for (name, sides) in [("rgbd-wide", [56, 70]), ("rgbd-tall", [70, 42])] {
        let case = case(work.path(), name);
        let engine = engine(work.path(), &format!("{name}-engine"), &case, sides);
        let map = case.map.as_ref().unwrap();
        let out = |ending: &str| work.path().join(format!("{name}-out.{ending}"));
        for ending in ["npy", "exr", "tiff", "png"] {
            let _ = infer(&engine, &case.picture, &out(ending), &[&"--depth", map]).success();
        }
        let (shape, metres) = npy(&out("npy"));
        assert_eq!(shape, [case.size[1] as usize, case.size[0] as usize]);
        let share = share_of_equal(&metres, &case.depth);
        assert!(share >= 0.99, "{name}: {share}");
        // The result has no depth where the reference has none.
        let same = metres.iter().zip(&case.depth).filter(|(found, expected)| (**found == 0.0) == (**expected == 0.0));
        assert!(same.count() * 1000 >= metres.len() * 999, "{name}");

        let png = image::open(out("png")).unwrap();
        assert_eq!(png.color(), image::ColorType::L16);
        let millimetres: Vec<u16> = png.into_luma16().into_raw();
        assert!(millimetres.iter().zip(&metres).all(|(found, metres)| f32::from(*found) == (metres * 1000.0).round()));
        // EXR and TIFF files can be used as maps in metres: through the engine again, they give the same result as the
        // NPY map.
        let again = |ending: &str| {
            let output = work.path().join(format!("again-{ending}.npy"));
            let _ = infer(&engine, &case.picture, &output, &[&"--depth", &out(ending)]).success();
            npy(&output).1
        };
        let from_npy = again("npy");
        assert_eq!((again("exr"), again("tiff")), (from_npy.clone(), from_npy));

        let coloured = work.path().join("coloured.png");
        let _ = infer(&engine, &case.picture, &coloured, &[&"--depth", map, &"--colour-map", &"Spectral"]).success();
        let colours = image::open(&coloured).unwrap().into_rgb8().into_raw();
        let expected = case.colours.as_ref().unwrap();
        let pixels = colours.chunks(3).zip(expected.chunks(3)).zip(&case.depth).filter(|(_, depth)| **depth > 0.0);
        let (equal, all) = pixels
            .fold((0, 0), |(equal, all), ((found, expected), _)| (equal + usize::from(found == expected), all + 1));
        assert!(equal * 100 >= all * 99, "{name}: {equal} of {all} colours");

        // Another order of the channels gives another picture.
        let other = work.path().join("other.npy");
        let _ = infer(&engine, &case.picture, &other, &[&"--depth", map, &"--channel-order", &"rgb"]).success();
        assert!(share_of_equal(&npy(&other).1, &case.depth) < 0.9);
        let wrong = infer(&engine, &case.picture, &other, &[&"--depth", map, &"--input-size", &"70"]);
        let _ = wrong.failure(2, &["with an input size of 70", "leave out --input-size", "--size"]);
        let right = infer(&engine, &case.picture, &other, &[&"--depth", map, &"--input-size", &case.input_size]);
        let _ = right.success();
    }
}

#[test]
fn relative_depth_is_that_of_depth_anything() {
    let work = tempfile::tempdir().unwrap();
    for (name, sides) in [("picture-wide", [56, 70]), ("picture-enlarged", [70, 70])] {
        let case = case(work.path(), name);
        let engine = engine(work.path(), &format!("{name}-engine"), &case, sides);
        let (floats, levels) = (work.path().join("out.npy"), work.path().join("out.png"));
        let told = infer(&engine, &case.picture, &floats, &[]).success();
        assert!(told.stdout.contains("relative depth for") && told.stderr.is_empty(), "{told:?}");
        let (_, found) = npy(&floats);
        // Relative depth has no unit: errors are relative to the range.
        let (low, high) = case.depth.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let worst = found.iter().zip(&case.depth).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / (high - low);
        assert!(worst <= 2e-5, "{name}: {worst}");
        let _ = infer(&engine, &case.picture, &levels, &[]).success();
        let levels = image::open(&levels).unwrap().into_luma16().into_raw();
        let (nearest, farthest) = (levels.iter().max().unwrap(), levels.iter().min().unwrap());
        assert_eq!((*nearest, *farthest), (65_535, 0));
        let _ = infer(&engine, &case.picture, &floats, &[&"--depth", &case.picture])
            .failure(2, &["takes pictures alone", "leave out --depth"]);
    }
}

#[test]
fn folders_have_a_map_for_each_picture_and_go_on() {
    let work = tempfile::tempdir().unwrap();
    let case = case(work.path(), "rgbd-wide");
    let engine = engine(work.path(), "engine", &case, [56, 70]);
    let [pictures, maps, output] = ["pictures", "maps", "out"].map(|name| work.path().join(name));
    fs::create_dir(&pictures).unwrap();
    fs::create_dir(&maps).unwrap();
    for name in ["a", "b", "c"] {
        fs::copy(&case.picture, pictures.join(format!("{name}.png"))).unwrap();
        fs::copy(case.map.as_ref().unwrap(), maps.join(format!("{name}.png"))).unwrap();
    }
    fs::remove_file(maps.join("b.png")).unwrap();
    let partly = infer(&engine, &pictures, &output, &[&"--depth", &maps, &"--depth-format", &"npy"]);
    let _ = partly.failure(1, &["b.png", "expected a depth map for", "1 of 3 pictures failed"]);
    assert_eq!(names_in(&output), ["a.npy", "c.npy"]);
    fs::copy(case.map.as_ref().unwrap(), maps.join("b.png")).unwrap();
    let more: [&dyn AsRef<std::ffi::OsStr>; 6] = [&"--depth", &maps, &"--depth-format", &"npy", &"--resume", &"--json"];
    let json = infer(&engine, &pictures, &output, &more).success().json();
    assert_eq!((&json["skipped"], json["files"].as_array().unwrap().len()), (&2.into(), 1), "{json}");
    assert_eq!(json["files"][0]["network_size"], serde_json::json!({ "width": 70, "height": 56 }));
    assert!(fs::read(output.join("a.npy")).unwrap() == fs::read(output.join("b.npy")).unwrap());
    let again = work.path().join("again.npy");
    for threads in THREADS.map(|threads| threads.to_string()) {
        let map = maps.join("a.png");
        let more: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"--depth", &map, &"--threads", &threads];
        let _ = infer(&engine, &pictures.join("a.png"), &again, &more).success();
        assert!(fs::read(&again).unwrap() == fs::read(output.join("a.npy")).unwrap(), "{threads} threads");
    }
}

#[test]
fn no_map_is_written_over() {
    let work = tempfile::tempdir().unwrap();
    let case = case(work.path(), "rgbd-wide");
    let engine = engine(work.path(), "engine", &case, [56, 70]);
    let map = case.map.as_ref().unwrap();
    let original = fs::read(map).unwrap();
    let link = work.path().join("link.png");
    fs::hard_link(map, &link).unwrap();
    for output in [map, &link] {
        let _ = infer(&engine, &case.picture, output, &[&"--depth", map]).failure(2, &["this output is", "input"]);
    }
    // In folders, the results have the pictures' names, and so have the maps.
    let [pictures, maps] = ["pictures", "maps"].map(|name| work.path().join(name));
    for folder in [&pictures, &maps] {
        fs::create_dir(folder).unwrap();
    }
    fs::copy(&case.picture, pictures.join("one.png")).unwrap();
    fs::copy(map, maps.join("one.png")).unwrap();
    let _ = infer(&engine, &pictures, &maps, &[&"--depth", &maps]).failure(2, &["one.png", "this output is"]);
    assert_eq!(fs::read(map).unwrap(), original);
    assert_eq!(fs::read(maps.join("one.png")).unwrap(), original);
    assert_eq!(names_in(&maps), ["one.png"]);
}

#[test]
fn other_proportions_are_stretched_and_said() {
    let work = tempfile::tempdir().unwrap();
    let case = case(work.path(), "picture-wide");
    let engine = engine(work.path(), "engine", &case, [56, 56]);
    let output = work.path().join("out.npy");
    let told = infer(&engine, &case.picture, &output, &[]).success();
    assert!(told.stderr.contains("is stretched to 56×56") && told.stdout.contains("stretched"), "{told:?}");
    assert!(told.stderr.contains("`engine-builder build MODEL --size 686x518`"), "{told:?}");
    assert_eq!(npy(&output).0, [72, 96]);
}

/// Photos of cameras and phones, with the profile that the programs include.
#[test]
fn photos_of_usual_proportions_are_not_stretched() {
    let work = tempfile::tempdir().unwrap();
    let (checkpoint, engine) = (work.path().join("depth.safetensors"), work.path().join("engine"));
    let _ = run("xtask", words(&[&"synth", &"DepthAnything", &"-o", &checkpoint])).success();
    let line = words(&[&"build", &checkpoint, &"--profile", &repository("profiles/cpu.yaml"), &"-o", &engine]);
    let _ = run("engine-builder", line).success();
    let (input, output) = (work.path().join("photo.png"), work.path().join("out.npy"));
    for [width, height] in [[400, 400], [400, 300], [600, 400], [640, 360], [403, 302], [4032, 3024], [1921, 1080]] {
        for size in [[width, height], [height, width]] {
            ImageBuffer::<Rgb<u8>, _>::from_pixel(size[0], size[1], Rgb([90, 120, 30])).save(&input).unwrap();
            let told = infer(&engine, &input, &output, &[&"--json"]).success();
            assert_eq!((&told.json()["files"][0]["stretched"], told.stderr.as_str()), (&false.into(), ""), "{size:?}");
        }
    }
}

#[test]
fn what_is_no_map_is_refused_and_nothing_is_written() {
    let work = tempfile::tempdir().unwrap();
    let case = case(work.path(), "rgbd-wide");
    let engine = engine(work.path(), "engine", &case, [56, 70]);
    let output = work.path().join("out.png");
    let refused = |map: &Path, expected: &[&str]| {
        let _ = infer(&engine, &case.picture, &output, &[&"--depth", &map]).failure(1, expected);
    };
    let _ = infer(&engine, &case.picture, &output, &[]).failure(2, &["expected one with --depth"]);
    refused(&work.path().join("none.png"), &["none.png: cannot open"]);
    let eight = work.path().join("eight.png");
    image::open(case.map.as_ref().unwrap()).unwrap().into_luma8().save(&eight).unwrap();
    refused(&eight, &["eight.png: expected distances of 16 bits or floats, found 8 bits"]);
    refused(&case.picture, &["expected a map of one channel, found 3"]);
    let small = work.path().join("small.png");
    image::open(case.map.as_ref().unwrap()).unwrap().crop_imm(0, 0, 48, 72).save(&small).unwrap();
    refused(&small, &["expected a depth map of the picture's size 96×72, found 48×72"]);
    let floats = |name: &str, value: f32| {
        let path = work.path().join(name);
        let mut values = vec![1.0_f32; 96 * 72];
        values[96 * 3 + 5] = value;
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let stored = Stored { data_type: DataType::F32, shape: vec![72, 96], bytes };
        write(&path, &[("depth".into(), stored)], &BTreeMap::new()).unwrap();
        path
    };
    refused(&floats("nan.npy", f32::NAN), &["nan.npy: NaN at column 5 of row 3"]);
    let exr = work.path().join("nan.exr");
    write_exr(&exr, |x, y| if (x, y) == (5, 3) { f32::NAN } else { 1.0 });
    refused(&exr, &["nan.exr: NaN at column 5 of row 3"]);
    let bytes = fs::read(&exr).unwrap();
    fs::write(&exr, &bytes[..bytes.len() / 2]).unwrap();
    refused(&exr, &["nan.exr: not an EXR file, or a damaged one"]);
    for (name, more, expected) in [
        ("out.exr", &[&"--colour-map" as &dyn AsRef<std::ffi::OsStr>, &"Spectral"][..], "--colour-map colours a .png"),
        ("out.png", &[&"--colour-map", &"jet"], "expected one of Spectral"),
        ("out.png", &[&"--tile", &"64x64"], "--tile does not go with"),
        ("out.y4m", &[], ".y4m"),
    ] {
        let line: Vec<&dyn AsRef<std::ffi::OsStr>> =
            [&"--depth" as &dyn AsRef<std::ffi::OsStr>, case.map.as_ref().unwrap()]
                .into_iter()
                .chain(more.iter().copied())
                .collect();
        let outcome = infer(&engine, &case.picture, &work.path().join(name), &line);
        assert!(outcome.code == 2 || name == "out.y4m", "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{outcome:?}");
    }
    assert!(!names_in(work.path()).iter().any(|name| name.starts_with("out") || name.contains("partial")));
}

/// An EXR file of 96 × 72 floats.
fn write_exr(path: &Path, value: impl Fn(usize, usize) -> f32 + Sync) {
    use exr::prelude::*;
    let channels =
        SpecificChannels::build().with_channel("Z").with_pixel_fn(|place: Vec2<usize>| (value(place.0, place.1),));
    Image::from_channels((96, 72), channels).write().to_file(path).unwrap();
}

#[test]
fn options_of_depth_are_for_depth() {
    let work = tempfile::tempdir().unwrap();
    let (picture, output) = (repository("tests/images/coffee.png"), work.path().join("out.png"));
    let _ = infer(end_to_end::demo_engine(), &picture, &output, &[&"--depth", &picture])
        .failure(2, &["--depth is for engines that give depth", "upscale"]);
    assert!(!output.exists());
}

/// A film of three frames and its sound, through a depth engine.
#[test]
fn films_become_films_of_grey_or_colours() {
    let work = tempfile::tempdir().unwrap();
    let case = case(work.path(), "picture-wide");
    let engine = engine(work.path(), "engine", &case, [56, 56]);
    let film = work.path().join("in.mkv");
    let mut command = Command::new("ffmpeg");
    command.args(["-loglevel", "error", "-loop", "1", "-t", "0.12", "-i"]).arg(&case.picture);
    command.args(["-f", "lavfi", "-i", "sine=duration=0.12", "-pix_fmt", "gbrp", "-c:v", "ffv1", "-c:a", "flac"]);
    assert!(command.arg(&film).status().unwrap().success());
    for (map, more) in [("gray", &[][..]), ("Spectral", &["--colour-map", "Spectral"])] {
        let (output, expected) = (work.path().join(format!("{map}.mkv")), work.path().join("expected.png"));
        let more: Vec<&dyn AsRef<std::ffi::OsStr>> = more.iter().map(|word| word as _).collect();
        let all: Vec<&dyn AsRef<std::ffi::OsStr>> = [&more[..], &[&"--lossless", &"--json"]].concat();
        let told = infer(&engine, &film, &output, &all).success();
        assert_eq!(told.json()["files"][0]["frames"], 3, "{told:?}");
        assert!(told.stderr.contains("may flicker"), "{told:?}");
        let _ = infer(&engine, &case.picture, &expected, &[&"--colour-map", &map]).success();
        let frame = work.path().join("frame.png");
        let mut command = Command::new("ffmpeg");
        command.args(["-loglevel", "error", "-y", "-i"]).arg(&output).args(["-frames:v", "1"]).arg(&frame);
        assert!(command.status().unwrap().success());
        let [found, expected] = [frame, expected].map(|path| image::open(path).unwrap().into_rgb8().into_raw());
        let largest = found.iter().zip(&expected).map(|(one, other)| one.abs_diff(*other)).max().unwrap();
        assert!(found.len() == expected.len() && largest <= 1, "{map}: {largest}");
    }
    let refused = infer(&engine, &film, &work.path().join("out.png"), &[]);
    let _ = refused.failure(2, &["a film becomes a film"]);
}
