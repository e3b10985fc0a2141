//! Engines that restore films and pictures give the same results as the reference's pipeline.

mod refused;

use end_to_end::{
    names_in, repository, restoration_engine as engine, restoration_model as model, run, run_with_cache_in, words,
};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge::{
    Coding, Colour, Engine, ErrorKind, Latent, OpenOptions, Picture, PixelData, Pixels, Samples, Setup, Size, Terms,
    restoration,
};

/// The least PSNR in the tests: it allows for errors of 32-bit floats and of 16-bit samples.
const LEAST_DB: f64 = 90.0;
/// The same if pixels get colours by rank: two ranks that are equal up to rounding may be exchanged.
const LEAST_DB_OF_RANKS: f64 = 60.0;

fn golden(path: &str) -> PathBuf {
    repository("tests/golden-restoration").join(path)
}

/// A case of the reference: frames, the settings, and the result.
struct Case {
    name: String,
    facts: BTreeMap<String, String>,
    /// `[frames, height, width, 3]`, in 8 bits.
    frames: (Vec<usize>, Vec<u8>),
    /// The result in the same form, from 0 to 1.
    expected: (Vec<usize>, Vec<f32>),
    /// `[channels, frames, height, width]` of each batch.
    noise: (Vec<usize>, Vec<f32>),
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for name in names_in(&golden("")) {
        let path = golden(&name).join("restoration.golden.safetensors");
        let Ok(file) = fs::read(&path) else { continue };
        let (_, header) = SafeTensors::read_metadata(&file).unwrap();
        let facts = header.metadata().clone().unwrap().into_iter().collect();
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let tensor = |name: &str| {
            let tensor = tensors.tensor(name).unwrap();
            (tensor.shape().to_vec(), tensor.data().to_vec())
        };
        let of_floats = |name: &str| {
            let (shape, bytes) = tensor(name);
            (shape, floats(&bytes))
        };
        let (frames, expected, noise) =
            (tensor("input.frames"), of_floats("output.frames"), of_floats("input.noise.0"));
        cases.push(Case { name, facts, frames, expected, noise });
    }
    assert!(cases.len() >= 10, "only {} cases", cases.len());
    cases
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

/// The peak signal-to-noise ratio, in dB, of samples of 16 bits.
fn psnr_db(found: &[u8], expected: &[f32]) -> f64 {
    let found = found.as_chunks::<2>().0.iter().map(|value| f64::from(u16::from_le_bytes(*value)) / 65535.0);
    let squares = found.zip(expected).map(|(found, expected)| (found - f64::from(*expected)).powi(2));
    10.0 * (expected.len() as f64 / squares.sum::<f64>()).log10()
}

impl Case {
    fn fact(&self, name: &str) -> &str {
        &self.facts[name]
    }

    /// Restores the frames in 16 bits, and returns the result.
    fn restored(&self, work: &Path, engine: &Path, more: &[&str]) -> Vec<u8> {
        let ([_, height, width, 3], samples) = (self.frames.0.as_slice(), &self.frames.1) else { unreachable!("RGB") };
        let [input, output] = ["frames.rgb", "restored.rgb"].map(|name| work.join(name));
        // 8-bit samples, exactly represented in 16 bits.
        fs::write(&input, samples.iter().flat_map(|sample| [*sample; 2]).collect::<Vec<u8>>()).unwrap();
        let raw = format!("rgb48le:{width}x{height}");
        let colour = self.fact("color_correction").replace('_', "-");
        let line = words(&[
            &"infer",
            &"--engine",
            &engine,
            &"--raw",
            &raw,
            &"--input",
            &input,
            &"--output",
            &output,
            &"--size",
            &self.fact("resolution"),
            &"--frame-overlap",
            &self.fact("temporal_overlap"),
            &"--colour",
            &colour,
        ]);
        let _ = run("runtime", line.iter().cloned().chain(more.iter().map(Into::into))).success();
        fs::read(&output).unwrap()
    }

    /// Writes the noise to a file.
    fn noise_file(&self, work: &Path) -> PathBuf {
        let path = work.join("noise.safetensors");
        let shape = [&[1], self.noise.0.as_slice()].concat();
        let bytes: Vec<u8> = self.noise.1.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, &bytes).unwrap();
        safetensors::serialize_to_file([("noise", view)], None, &path).unwrap();
        path
    }
}

#[test]
fn films_and_pictures_are_those_of_the_reference() {
    let mut groups: BTreeMap<(String, usize), Vec<Case>> = BTreeMap::new();
    for case in cases() {
        groups.entry((case.fact("transformer").to_owned(), case.noise.0[1])).or_default().push(case);
    }
    let mut table = String::new();
    for ((transformer, frames), cases) in groups {
        let mut tiles: Vec<[usize; 2]> = cases.iter().map(|case| [case.noise.0[2], case.noise.0[3]]).collect();
        tiles.sort_unstable();
        tiles.dedup();
        let work = tempfile::tempdir().unwrap();
        let engine = engine(work.path(), &transformer, frames, &tiles);
        // During the build, its parts restored a picture together.
        let manifest: Value = serde_json::from_slice(&fs::read(engine.join("manifest.json")).unwrap()).unwrap();
        let gates = manifest["gates"].as_array().unwrap();
        let figure = |name: &str| gates.iter().find(|gate| gate["name"] == name).unwrap()["value"].as_f64().unwrap();
        assert!(gates.len() == 2 && gates.iter().all(|gate| gate["graph"] == "picture"), "{gates:?}");
        assert!(figure("finite") == 1.0 && figure("psnr_db") >= LEAST_DB, "{gates:?}");
        for case in cases {
            let made = case.restored(work.path(), &engine, &["--seed", case.fact("seed")]);
            assert_eq!(made.len(), 2 * case.expected.1.len(), "{}", case.name);
            let db = psnr_db(&made, &case.expected.1);
            writeln!(table, "{:<18} {:?} {db:.1} dB", case.name, case.expected.0).unwrap();
            let noise = case.noise_file(work.path());
            let given = case.restored(work.path(), &engine, &["--noise", noise.to_str().unwrap()]);
            assert!(made == given, "{}: the noise of the seed is that of the reference", case.name);
            let other = psnr_db(&case.restored(work.path(), &engine, &["--seed", "99"]), &case.expected.1);
            assert!(other < 45.0, "{}: {other} dB with other noise", case.name);
            let by_ranks = case.fact("color_correction") == "lab";
            let least = if by_ranks { LEAST_DB_OF_RANKS } else { LEAST_DB };
            assert!(db >= least, "{}: {db} dB\n{table}", case.name);
        }
    }
    println!("{table}");
}

#[test]
fn programs_of_others_restore_frames_one_after_the_other() {
    let case = case("overlap-1");
    let work = tempfile::tempdir().unwrap();
    let engine = engine(work.path(), case.fact("transformer"), 2, &[[4, 6]]);
    let host = Setup::default().host().unwrap();
    let engine = Engine::open(&host, engine, &OpenOptions::default()).unwrap();
    let restorer = engine.restorer(Coding::default()).unwrap();
    let [_, height, width, _] = *case.frames.0 else { unreachable!("frames") };
    let size = Size { width: width as u32, height: height as u32 };
    let frame = |samples: &[u8]| {
        // 16 bits in, 16 bits out.
        let samples: Vec<u16> = samples.iter().map(|sample| u16::from(*sample) * 257).collect();
        let data = PixelData::Sixteen(&samples);
        Picture::from_pixels(Pixels { size, colour: Colour::Rgb, data, stride: None }).unwrap()
    };
    let frames: Vec<Picture> = case.frames.1.chunks_exact(height * width * 3).map(frame).collect();
    let settings = restoration::Settings {
        wanted: restoration::Wanted::ShorterSide(case.fact("resolution").parse().unwrap()),
        frame_overlap: 1,
        noise: restoration::NoiseOf::Seed(case.fact("seed").parse().unwrap()),
        ..restoration::Settings::default()
    };
    let mut stream = restorer.play(frames.clone(), settings.clone(), Terms::default()).unwrap();
    let made: Vec<u8> = stream.by_ref().flat_map(|frame| samples(frame.unwrap())).collect();
    let took = stream.finish().unwrap();
    assert_eq!((took.frames, took.batches), (9, 2));
    let db = psnr_db(&made, &case.expected.1);
    assert!(db >= LEAST_DB_OF_RANKS, "{db} dB");
    // A single picture is a film of one frame.
    let alone = restorer.restore(frames[0].clone(), settings.clone()).unwrap();
    assert_eq!(alone.size(), Size { width: case.expected.0[2] as u32, height: case.expected.0[1] as u32 });
    // Noise with fewer values than its shape has elements is refused.
    let [channels, count, rows, columns] = *case.noise.0 else { unreachable!("noise") };
    let noise = Latent {
        channels,
        frames: Some(count),
        size: Size { width: columns as u32, height: rows as u32 },
        values: case.noise.1[1..].to_vec(),
        pixels: None,
        clip_frames: None,
    };
    let short = restoration::Settings { noise: restoration::NoiseOf::Latent(noise), ..settings.clone() };
    let refused = restorer.restore(frames[0].clone(), short).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let expected = "noise: expected 192 values for 4 channels of 6×4 and 2 frames, found 191";
    assert_eq!(refused.to_string(), expected);
    // A caller that takes no more results ends the film, and the next film starts.
    let many: Vec<Picture> = frames.iter().cycle().take(90).cloned().collect();
    drop(restorer.play(many, settings.clone(), Terms::default()).unwrap());
    assert_eq!(restorer.play(frames, settings, Terms::default()).unwrap().count(), 9);
}

/// 16-bit samples in the form of a raw stream.
fn samples(picture: Picture) -> Vec<u8> {
    match picture.into_samples() {
        Samples::Sixteen(samples) => samples.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
        _ => panic!("16 bits are kept"),
    }
}

/// A later batch is blended with the last frames of the film, even if these belong to several batches. Batches of 5
/// frames that share 3 or 4 of them give the same result as separate batches that are blended one after the other.
#[test]
fn batches_may_share_most_of_their_frames() {
    let case = case("uncorrected");
    let work = tempfile::tempdir().unwrap();
    let engine = engine(work.path(), "transformer-3b.safetensors", 2, &[[4, 6]]);
    let (count, size) = (11, 48 * 32 * 3);
    assert_eq!(case.frames.0[1..], [32, 48, 3]);
    let restored = |frames: &[u8], overlap: usize| -> Vec<f64> {
        let [input, output] = ["frames.rgb", "restored.rgb"].map(|name| work.path().join(name));
        fs::write(&input, frames.iter().flat_map(|sample| [*sample; 2]).collect::<Vec<u8>>()).unwrap();
        let overlap = overlap.to_string();
        let line = words(&[
            &"infer",
            &"--engine",
            &engine,
            &"--raw",
            &"rgb48le:48x32",
            &"--input",
            &input,
            &"--output",
            &output,
            &"--colour",
            &"none",
            &"--frame-overlap",
            &overlap,
        ]);
        let _ = run("runtime", line).success();
        let made = fs::read(&output).unwrap();
        made.as_chunks::<2>().0.iter().map(|value| f64::from(u16::from_le_bytes(*value)) / 65535.0).collect()
    };
    for overlap in [3, 4] {
        let mut expected: Vec<f64> = Vec::new();
        let mut start = 0;
        while start == 0 || count - start > overlap {
            let end = (start + 5).min(count);
            // Values that were clipped at black or white are not known before blending.
            let alone = restored(&case.frames.1[start * size..end * size], 0);
            let alone = alone.into_iter().map(|value| if value > 0.0 && value < 1.0 { value } else { f64::NAN });
            let alone: Vec<f64> = alone.collect();
            let shared = if start == 0 { 0 } else { overlap };
            let from = expected.len() - shared * size;
            for (at, value) in alone[..shared * size].iter().enumerate() {
                // 3: the earlier batch, both, the later batch; 4: two frames of each.
                let weight = if overlap == 3 { [1.0, 0.5, 0.0][at / size] } else { [1.0, 1.0, 0.0, 0.0][at / size] };
                expected[from + at] = expected[from + at] * weight + value * (1.0 - weight);
            }
            expected.extend(&alone[shared * size..]);
            start += 5 - overlap;
        }
        let found = restored(&case.frames.1[..count * size], overlap);
        assert_eq!(found.len(), expected.len());
        let known = found.iter().zip(&expected).filter(|(_, expected)| expected.is_finite());
        let errors: Vec<f64> = known.map(|(found, expected)| (found - expected).abs()).collect();
        assert!(errors.len() > expected.len() / 2, "{} of {}", errors.len(), expected.len());
        let largest = errors.into_iter().fold(0.0, f64::max);
        assert!(largest < 3.0 / 65535.0, "{overlap}: {largest}");
    }
}

/// Kernels of clips round differently on other numbers of threads, but equally on the same number.
#[test]
fn a_command_gives_the_same_bytes_again() {
    let case = case("overlap-1");
    let work = tempfile::tempdir().unwrap();
    let engine = engine(work.path(), case.fact("transformer"), 2, &[[4, 6]]);
    for threads in ["1", "2", "4", "8"] {
        let made = || case.restored(work.path(), &engine, &["--seed", case.fact("seed"), "--threads", threads]);
        let first = made();
        assert!(first == made(), "{threads} threads");
        let db = psnr_db(&first, &case.expected.1);
        assert!(db >= LEAST_DB_OF_RANKS, "{threads} threads: {db} dB");
    }
}

/// Frames of a film, and pictures: 45 × 61 pixels.
fn picture(path: &Path, colour: &str) {
    let source = format!("testsrc2=size=61x45:duration=1:rate=1,format={colour}");
    let made = std::process::Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", &source, "-frames:v", "1"])
        .arg(path)
        .status();
    assert!(made.unwrap().success());
}

#[test]
fn pictures_have_names_sizes_and_records_of_their_own() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let engine = engine(work.path(), "transformer-3b.safetensors", 1, &[[4, 6], [6, 4]]);
    let photos = at("photos");
    fs::create_dir(&photos).unwrap();
    for (name, colour) in [("a.png", "rgb24"), ("grey.png", "gray"), ("glass.png", "rgba")] {
        picture(&photos.join(name), colour);
    }
    let line = |more: &[&str]| {
        let line = words(&[&"infer", &"--engine", &engine, &"--input", &photos, &"--output", &at("out"), &"--json"]);
        run("runtime", line.into_iter().chain(more.iter().map(Into::into))).success().json()
    };
    let told = line(&["--resume"]);
    assert_eq!(told["files"].as_array().unwrap().len(), 3, "{told}");
    // The largest size with these proportions, without an odd row or column.
    assert_eq!(told["files"][0]["size"], json!({ "width": 42, "height": 32 }), "{told}");
    assert_eq!(names_in(&at("out")), ["a.png", "glass.png", "grey.png"]);
    let channels = |name: &str| image::open(at("out").join(name)).unwrap().color().channel_count();
    assert_eq!(["a.png", "glass.png", "grey.png"].map(channels), [3, 3, 1]);
    let again = line(&["--resume"]);
    assert_eq!((&again["skipped"], &again["files"]), (&json!(3), &json!([])), "{again}");
    // Another seed gives other results.
    let again = line(&["--resume", "--seed", "7"]);
    assert_eq!(again["skipped"], 0, "{again}");
    let alone = run("runtime", words(&[&"infer", &photos.join("a.png"), &"--engine", &engine])).success();
    assert!(alone.stdout.contains("1 frame of 42×32 in 1 batch, computed at 48×32"), "{}", alone.stdout);
    assert!(photos.join("a-restored.png").is_file());
    // A picture goes to standard output, and the report about it to standard error.
    let line = words(&[&"infer", &photos.join("a.png"), &"--engine", &engine, &"-o", &"-", &"--json"]);
    let mut piped = end_to_end::command("runtime", line);
    let piped = piped.output().unwrap();
    assert!(image::load_from_memory(&piped.stdout).is_ok() && piped.stdout.ends_with(b"IEND\xaeB`\x82"));
    assert!(String::from_utf8(piped.stderr).unwrap().contains("\"frames\": 1"));
    let shown = run("runtime", words(&[&"inspect", &"--engine", &engine])).success().stdout;
    assert!(shown.contains("pipeline         restoration, text in text.safetensors"), "{shown}");
}

#[test]
fn films_keep_their_sound_and_their_times() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let engine = engine(work.path(), "transformer-3b.safetensors", 2, &[[4, 6]]);
    let film = at("film.mkv");
    let made = std::process::Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=60x40:duration=0.7:rate=10"])
        .args(["-f", "lavfi", "-i", "sine=duration=0.7", "-c:v", "libx264", "-c:a", "flac"])
        .arg(&film)
        .status();
    assert!(made.unwrap().success());
    let output = at("restored.mkv");
    let line = words(&[&"infer", &"--engine", &engine, &"--input", &film, &"--output", &output, &"--json"]);
    let told = run("runtime", line.into_iter().chain(["--frame-overlap", "1"].map(Into::into))).success().json();
    let file = &told["files"][0];
    assert_eq!((&file["frames"], &file["batches"]), (&json!(7), &json!(2)), "{told}");
    let probe = |film: &Path, entries: &str| {
        let mut probe = std::process::Command::new("ffprobe");
        probe.args(["-v", "error", "-of", "csv=p=0", "-show_entries", entries]).arg(film);
        String::from_utf8(probe.output().unwrap().stdout).unwrap()
    };
    assert_eq!(probe(&output, "stream=codec_type,width,height"), "video,48,32\naudio\n");
    let times = |film: &Path| probe(film, "packet=codec_type,pts_time");
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(times(&output)), sorted(times(&film)));
}

/// Requested sizes are the film's, for every network.
#[test]
fn sizes_and_frames_of_a_film_reach_every_network() {
    let work = tempfile::tempdir().unwrap();
    let path = model(work.path(), "transformer-3b.safetensors", 2, &[[4, 6]]);
    let (profile, engine) = (repository("tests/profiles/small-tiles.yaml"), work.path().join("engine"));
    let line =
        words(&[&"build", &path, &"--profile", &profile, &"-o", &engine, &"--size", &"32x48", &"--frames", &"9"]);
    let _ = run_with_cache_in(work.path(), "engine-builder", line).success();
    let shown = run("runtime", words(&[&"inspect", &"--engine", &engine, &"--json"])).success().json();
    let shape = |part: &str, tensor: &str| shown["parts"][part]["graphs"][0]["inputs"][tensor].clone();
    assert_eq!(shape("transformer", "sample"), json!([1, 9, 3, 6, 4]), "{shown}");
    assert_eq!(shape("transformer", "encoder_hidden_states"), json!([1, 7, 20]));
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).success();
    // The engine can be packed as any engine.
    let archive = work.path().join("engine.tfpack");
    let _ = run("engine-builder", words(&[&"pack", &engine, &"-o", &archive])).success();
    let _ = run("runtime", words(&[&"unpack", &archive, &"-o", &work.path().join("unpacked")])).success();
}
