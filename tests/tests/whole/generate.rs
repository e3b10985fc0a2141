//! `runtime generate` against diffusers (`tests/golden-pipelines`).

use end_to_end::{GoldenPipelines, GoldenRun, Outcome, command, copy_folder, list_again, names_in, run, words};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Instant;

/// The least likeness of a picture and diffusers', which computes its steps in float32.
const PSNR_DB: f64 = 50.0;

/// The folder in which engines are built, once for all tests.
fn engine(name: &str) -> PathBuf {
    static WORK: OnceLock<Mutex<tempfile::TempDir>> = OnceLock::new();
    let work = WORK.get_or_init(|| Mutex::new(tempfile::tempdir().unwrap())).lock().unwrap_or_else(|e| e.into_inner());
    GoldenPipelines::read().engine(work.path(), name)
}

fn generate(engine: &Path, output: &Path, options: &[String]) -> Outcome {
    let line = words(&[&"generate", &"--engine", &engine, &"--output", &output]);
    run("runtime", line.into_iter().chain(options.iter().map(OsString::from)))
}

fn with(run: &GoldenRun, made: &Path) -> Vec<String> {
    let inputs = GoldenPipelines::inputs();
    let place = |option: &String| {
        option.replace("{inputs}", inputs.to_str().unwrap()).replace("{made}", made.to_str().unwrap())
    };
    run.options.iter().map(place).collect()
}

fn samples(path: &Path) -> Vec<f64> {
    let picture = image::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into_rgb8();
    picture.into_raw().into_iter().map(f64::from).collect()
}

fn psnr_db(one: &[f64], other: &[f64]) -> f64 {
    assert_eq!(one.len(), other.len());
    let squares: f64 = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum();
    if squares == 0.0 { f64::INFINITY } else { 10.0 * (255.0 * 255.0 * one.len() as f64 / squares).log10() }
}

/// Makes the pictures of a run and compares them with the reference's.
fn check(golden: &GoldenRun, made: &Path) {
    let ending = if golden.latent.is_some() { "safetensors" } else { "png" };
    let output = made.join(format!("{}.{ending}", golden.name));
    let outcome = generate(&engine(&golden.pipeline), &output, &with(golden, made));
    assert_eq!(outcome.code, 0, "{}: {}", golden.name, outcome.stderr);
    if let Some(latent) = &golden.latent {
        let error = latent_error(&output, &GoldenPipelines::pictures().join(latent));
        assert!(error < 1e-3, "{}: {error}", golden.name);
    }
    for name in &golden.pictures {
        let found = psnr_db(&samples(&made.join(name)), &samples(&GoldenPipelines::pictures().join(name)));
        assert!(found >= PSNR_DB, "{name}: {found:.1} dB");
    }
}

fn latent(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor("latent").unwrap().data().to_vec();
    data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// The largest difference over the largest value.
fn latent_error(one: &Path, other: &Path) -> f32 {
    let (one, other) = (latent(one), latent(other));
    assert_eq!(one.len(), other.len());
    let largest = other.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

/// Checks every run whose name begins so, and that there are so many.
fn check_all(prefix: &str, count: usize) {
    let made = tempfile::tempdir().unwrap();
    let golden: Vec<_> =
        GoldenPipelines::read().runs().into_iter().filter(|run| run.name.starts_with(prefix)).collect();
    assert_eq!(golden.len(), count, "{prefix}");
    for run in &golden {
        check(run, made.path());
    }
}

#[test]
fn a_text_becomes_the_picture_of_diffusers_with_every_scheduler() {
    check_all("text-", 20);
}

#[test]
fn a_picture_is_changed_as_by_diffusers_with_every_scheduler() {
    check_all("image-", 22);
}

#[test]
fn a_masked_part_is_filled_as_by_diffusers_with_every_scheduler() {
    check_all("mask-", 22);
}

#[test]
fn other_settings_give_the_pictures_of_diffusers() {
    let made = tempfile::tempdir().unwrap();
    let done = ["text-", "image-", "mask-"];
    let golden = GoldenPipelines::read().runs();
    let rest: Vec<_> = golden.iter().filter(|run| done.iter().all(|prefix| !run.name.starts_with(prefix))).collect();
    assert!(rest.len() >= 16);
    for run in rest {
        check(run, made.path());
    }
}

/// The least options, for the golden pipelines.
fn fox(more: &[&str]) -> Vec<String> {
    let least = ["--prompt", "a red fox", "--steps", "2"];
    least.iter().chain(more).map(|option| (*option).to_owned()).collect()
}

fn input(name: &str) -> String {
    GoldenPipelines::inputs().join(name).to_str().unwrap().to_owned()
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn the_same_settings_give_the_same_bytes_and_a_picture_repeats_itself() {
    let work = tempfile::tempdir().unwrap();
    let [one, two, again, other] = ["1.png", "2.png", "3.png", "4.png"].map(|name| work.path().join(name));
    let engine = engine("sd");
    let options = fox(&["--seed", "3", "--eta", "0.5", "--scheduler", "DDIMScheduler", "--low-memory"]);
    let said = generate(&engine, &one, &options).success();
    assert!(said.stdout.contains("64×64, 2 steps of DDIMScheduler, seed 3"), "{}", said.stdout);
    // Its first step is made of two evaluations.
    let said = generate(&engine, &two, &fox(&["--scheduler", "PNDMScheduler"])).success();
    assert!(said.stdout.contains("2 steps of PNDMScheduler (3 evaluations)"), "{}", said.stdout);
    let _ = generate(&engine, &two, &options[..options.len() - 1]).success();
    assert_eq!(bytes(&one), bytes(&two));
    // The settings of the picture, and then some others.
    let repeat = ["--from-image", one.to_str().unwrap()].map(ToOwned::to_owned);
    let report = generate(&engine, &again, &[&repeat[..], &["--json".to_owned()]].concat()).success().json();
    assert_eq!(bytes(&again), bytes(&one));
    assert_eq!((&report["settings"]["seed"], &report["settings"]["eta"]), (&json!(3), &json!(0.5)));
    assert_eq!(report["seconds"]["evaluations"].as_array().unwrap().len(), 2);
    for number in ["peak_memory_bytes", "session_seconds", "total_seconds"] {
        assert!(report[number].as_f64().unwrap() > 0.0, "{number}");
    }
    let _ = generate(&engine, &other, &[&repeat[..], &["--seed".to_owned(), "4".to_owned()]].concat()).success();
    assert!(psnr_db(&samples(&other), &samples(&one)) < 40.0);
    // Numbers of another generator are other numbers.
    let philox = fox(&["--seed", "3", "--eta", "0.5", "--scheduler", "DDIMScheduler", "--rng", "philox"]);
    let _ = generate(&engine, &other, &philox).success();
    assert!(psnr_db(&samples(&other), &samples(&one)) < 40.0);
}

#[test]
fn a_picture_that_was_made_from_another_one_asks_for_it_again() {
    let work = tempfile::tempdir().unwrap();
    let [one, two] = ["1.png", "2.png"].map(|name| work.path().join(name));
    let engine = engine("sd");
    let _ = generate(&engine, &one, &fox(&["--image", &input("picture.png"), "--strength", "0.5"])).success();
    let repeat = ["--from-image", one.to_str().unwrap()].map(ToOwned::to_owned);
    let _ = generate(&engine, &two, &repeat).failure(2, &["made with --image"]);
    let with = |image: &str| [&repeat[..], &["--image".to_owned(), input(image)]].concat();
    let _ = generate(&engine, &two, &with("picture.png")).success();
    assert_eq!(bytes(&one), bytes(&two));
    let size = ["--size".to_owned(), "64x64".to_owned()];
    let outcome = generate(&engine, &two, &[&with("large.png")[..], &size].concat()).success();
    assert!(outcome.stderr.contains("not as the picture was made: the picture to start from"), "{}", outcome.stderr);
    let _ = generate(&engine, &two, &["--from-image".to_owned(), input("picture.png")])
        .failure(2, &["found one without settings"]);
}

#[test]
fn pixels_outside_of_the_mask_can_be_kept() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let masked = ["--image", &input("picture.png"), "--mask", &input("mask.png")];
    let _ = generate(&engine("sd-inpainting"), &output, &fox(&[&masked[..], &["--keep-unmasked"]].concat())).success();
    let read = |path: &Path| image::open(path).unwrap().into_rgb8();
    let (found, picture) = (read(&output), read(input("picture.png").as_ref()));
    let mask = image::open(input("mask.png")).unwrap().into_luma8();
    let mut changed = 0;
    for (x, y, pixel) in mask.enumerate_pixels() {
        if pixel[0] < 128 {
            assert_eq!(found.get_pixel(x, y), picture.get_pixel(x, y));
        } else {
            changed += usize::from(found.get_pixel(x, y) != picture.get_pixel(x, y));
        }
    }
    assert!(changed > 500, "{changed}");
}

#[test]
fn the_picture_can_be_seen_on_its_way() {
    let work = tempfile::tempdir().unwrap();
    let [output, preview] = ["out.png", "preview.png"].map(|name| work.path().join(name));
    let options = ["--preview", preview.to_str().unwrap(), "--preview-every", "1", "--scheduler"];
    let _ = generate(&engine("sd"), &output, &fox(&[&options[..], &["EulerDiscreteScheduler"]].concat())).success();
    assert_eq!(names_in(work.path()), ["out.png", "preview.png"]);
    // What the network sees of the picture in the first step is much like it.
    let likeness = psnr_db(&samples(&preview), &samples(&output));
    assert!((10.0..1000.0).contains(&likeness), "{likeness}");
    let without = work.path().join("without.png");
    let _ = generate(&engine("sd"), &without, &fox(&["--scheduler", "EulerDiscreteScheduler"])).success();
    assert_eq!(samples(&without), samples(&output));
}

#[test]
fn a_picture_above_the_autoencoders_size_is_coded_in_tiles() {
    let work = tempfile::tempdir().unwrap();
    let [from_text, from_picture] = ["1.png", "2.png"].map(|name| work.path().join(name));
    let large = engine("sd-large");
    let said = generate(&large, &from_text, &fox(&[])).success().stdout;
    assert!(said.contains("128×128") && said.contains("decoded in 9 tiles"), "{said}");
    let picture = input("picture.png");
    let options = ["--image", &picture, "--size", "128x128", "--strength", "0.5"];
    let _ = generate(&large, &from_picture, &fox(&options)).success();
    assert_eq!(samples(&from_picture).len(), 128 * 128 * 3);
    assert!(psnr_db(&samples(&from_text), &samples(&from_picture)) < 40.0);
}

#[test]
fn pictures_of_several_numbers_of_steps_are_measured() {
    let work = tempfile::tempdir().unwrap();
    let bench = |engine: &Path, more: &[&dyn AsRef<OsStr>]| {
        let line = words(&[&"bench", &"--engine", &engine, &"--runs", &"1", &"--warm-up", &"1", &"--steps"]);
        run("runtime", line.into_iter().chain(words(more)))
    };
    let (sd, base) = (engine("sd"), work.path().join("base.json"));
    let told = bench(&sd, &[&"2,3", &"--save", &base]).success().stdout;
    let lines: Vec<&str> = told.lines().skip_while(|line| !line.starts_with("| steps")).collect();
    assert!(lines.len() == 4 && lines[2].starts_with("| 2 | 1 |") && lines[3].starts_with("| 3 | 1 |"), "{told}");
    assert!(told.contains("fp32 on cpu") && told.contains("64×64, PNDMScheduler, guidance 7.5"), "{told}");
    // Time is not tested: one threshold accepts any speed, the other none.
    let _ = bench(&sd, &[&"2,3", &"--compare", &base, &"--threshold", &"0"]).success();
    let _ = bench(&sd, &[&"2,3", &"--compare", &base, &"--threshold", &"100"]).failure(4, &["expected a speed"]);
    let _ = bench(&sd, &[&"2", &"--compare", &base]).failure(2, &["of another setting"]);
    let report = work.path().join("report");
    let _ = bench(&sd, &[&"2,3", &"--report", &report]).success();
    assert_eq!(names_in(&report), ["steps.json", "steps.md", "steps.svg"]);
    assert!(fs::read_to_string(report.join("steps.md")).unwrap().contains("| 3 | 1 |"));
    let chart = fs::read_to_string(report.join("steps.svg")).unwrap();
    assert!(chart.contains("3 steps, 1 picture"), "{chart}");
    let _ = bench(&sd, &[&"2", &"--passes", &"2"]).failure(2, &["--passes"]);

    let inpainting = engine("sd-inpainting");
    let measured = bench(&inpainting, &[&"2", &"--count", &"1,2", &"--json"]).success().json();
    let rows = measured["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["pictures"]).collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    let stages = ["text_seconds", "encode_seconds", "step_seconds", "denoise_seconds", "decode_seconds"];
    for row in rows {
        assert!(stages.iter().all(|stage| row[stage].as_f64().unwrap() > 0.0), "{row}");
    }
    for figure in ["pictures_per_second", "step_ms", "session_seconds", "peak_memory_bytes"] {
        assert!(measured[figure].as_f64().unwrap() > 0.0, "{figure}: {measured}");
    }

    let _ = bench(&sd, &[&"2", &"--size", &"128x128"]).failure(1, &["only of 64×64"]);
    let _ = bench(&sd, &[&"2", &"--tile", &"64x64"]).failure(2, &["--tile is for upscalers"]);
    let _ = bench(&sd, &[&"2", &"--sweep"]).failure(2, &["--sweep"]);
    let _ = bench(&sd.join("unet"), &[&"2"]).failure(2, &["expected the engine of a diffusion pipeline"]);
}

/// Each with what the message has to say. Nothing is written.
#[test]
fn what_cannot_be_made_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let refused = |engine: &Path, options: &[&str], code: i32, expected: &[&str]| {
        let _ = generate(engine, &output, &fox(options)).failure(code, expected);
        assert!(!output.exists());
    };
    let sd = engine("sd");
    let (picture, large, mask) = (input("picture.png"), input("large.png"), input("mask.png"));
    refused(&sd, &["--size", "60x64"], 1, &["60×64", "multiples of 8"]);
    refused(&sd, &["--size", "128x128"], 1, &["128×128", "only of 64×64", "--size"]);
    refused(&sd, &["--image", &large], 1, &["80×64", "only of 64×64"]);
    refused(&sd, &["--image", &large, "--mask", &mask], 1, &["a mask of the picture's size 81×70, found 64×64"]);
    refused(&sd, &["--image", &picture, "--strength", "1.5"], 1, &["strength is 1.5", "from 0 to 1"]);
    refused(&sd, &["--image", &picture, "--strength=-0.5"], 1, &["strength is -0.5"]);
    let euler = ["--scheduler", "EulerDiscreteScheduler"];
    let little = ["--image", &picture, "--strength", "0.1"];
    refused(&sd, &[&little[..], &euler].concat(), 1, &["no step is left of 2"]);
    refused(&sd, &["--scheduler", "FastScheduler"], 1, &["FastScheduler", "PNDMScheduler", "--scheduler"]);
    refused(&sd, &["--guidance", "nan"], 1, &["guidance is NaN"]);
    refused(&sd, &["--eta", "2"], 1, &["eta is 2"]);
    refused(&sd, &["--mask", &mask], 2, &["--image"]);
    refused(&sd, &["--image", &picture, "--latents", &input("noise.safetensors")], 2, &["--latents"]);
    refused(&sd, &["--latents", &input("noise.safetensors"), "--count", "2"], 1, &["one picture"]);
    refused(&sd, &["--image", &mask.replace("mask.png", "missing.png")], 1, &["missing.png"]);
    refused(&sd, &["--long-prompt", "--negative-prompt", &"the sea ".repeat(80)], 1, &["231 tokens", "only 77"]);
    refused(&engine("sd-inpainting"), &[], 1, &["expected a picture and a mask"]);
    refused(&engine("sd-inpainting"), &["--image", &picture], 1, &["expected a picture and a mask"]);
    let latent = work.path().join("latent.safetensors");
    let _ = generate(&sd, &latent, &fox(&[])).success();
    refused(&sd, &["--image", latent.to_str().unwrap(), "--mask", &mask], 1, &["a mask needs a picture"]);
    fs::remove_file(latent).unwrap();

    // A line of a shell cannot hold so much, but a file can.
    let text = work.path().join("prompt.txt");
    fs::write(&text, "a red fox ".repeat(100_000)).unwrap();
    let options = ["--prompt-file", text.to_str().unwrap()].map(ToOwned::to_owned);
    let _ = generate(&sd, &output, &options).failure(1, &["1000000 bytes", "at most 262144"]);
    assert_eq!(names_in(work.path()), ["prompt.txt"]);
}

#[test]
fn an_engine_whose_parts_do_not_fit_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let refused = |spoil: &dyn Fn(&Path), expected: &[&str]| {
        let copy = work.path().join("engine");
        copy_folder(&engine("xl"), &copy);
        spoil(&copy);
        list_again(&copy);
        let _ = generate(&copy, &output, &fox(&[])).failure(1, expected);
        fs::remove_dir_all(copy).unwrap();
    };
    let remove = |name: &'static str| move |engine: &Path| fs::remove_dir_all(engine.join(name)).unwrap();
    refused(&remove("unet"), &["lacks the part `unet`"]);
    refused(&remove("vae_decoder"), &["lacks the part `vae_decoder`"]);
    refused(&remove("text_encoder"), &["states of width 32, found 16", "another pipeline"]);
    refused(&remove("tokenizer_2"), &["tokenizer_2", "no vocabulary"]);
    refused(&remove("scheduler"), &["lacks the file scheduler/scheduler_config.json"]);
    let other = engine("sd");
    let swap = |from: &'static str, to: &'static str| {
        let other = other.clone();
        move |engine: &Path| {
            fs::remove_dir_all(engine.join(to)).unwrap();
            copy_folder(&other.join(from), &engine.join(to));
            let path = engine.join(to).join("manifest.json");
            let mut manifest: Value = serde_json::from_slice(&bytes(&path)).unwrap();
            manifest["name"] = to.into();
            fs::write(path, manifest.to_string()).unwrap();
        }
    };
    refused(&swap("vae_decoder", "unet"), &["unet: expected a network that takes a noisy latent"]);
    refused(&swap("unet", "text_encoder"), &["text_encoder: expected a text encoder"]);
    refused(&swap("unet", "unet"), &["width 16, found 32"]);
    let vocabulary = |engine: &Path| {
        let path = engine.join("tokenizer/vocab.json");
        let mut tokens: Value = serde_json::from_slice(&bytes(&path)).unwrap();
        tokens["fox-token"] = json!(756);
        fs::write(path, tokens.to_string()).unwrap();
    };
    refused(&vocabulary, &["tokenizer: expected a vocabulary of 756 tokens, found 757"]);
    let scheduler = |text: &'static str| {
        move |engine: &Path| fs::write(engine.join("scheduler/scheduler_config.json"), text).unwrap()
    };
    refused(&scheduler(r#"{"_class_name": "VQDiffusionScheduler"}"#), &["VQDiffusionScheduler", "expected one of"]);
    refused(&scheduler("no JSON"), &["no JSON object"]);
    // An engine of one network.
    let _ = generate(&engine("xl").join("unet"), &output, &fox(&[]))
        .failure(2, &["expected the engine of a diffusion pipeline"]);
    assert!(names_in(work.path()).is_empty());
}

#[test]
fn a_signal_stops_it_between_steps_with_nothing_half_made() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let line = words(&[&"generate", &"--engine", &engine("sd"), &"--output", &output, &"--prompt", &"a fox"]);
    // This would take minutes if it were not stopped.
    let mut command = command("runtime", line.into_iter().chain(words(&[&"--steps", &"999", &"--count", &"8"])));
    command.env("RUST_LOG", "tileforge_runtime=debug").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    talk.find(|line| line.as_ref().is_ok_and(|line| line.contains("made step 3 of"))).unwrap().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = talk.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("stopped before the end")), "{rest:?}");
    assert!(names_in(work.path()).is_empty());
}

#[test]
fn whatever_kills_it_leaves_nothing_or_the_whole_picture() {
    let work = tempfile::tempdir().unwrap();
    let [expected, output] = ["expected.png", "out.png"].map(|name| work.path().join(name));
    let engine = engine("sd");
    let options = fox(&["--count", "2"]);
    let started = Instant::now();
    let _ = generate(&engine, &expected, &options).success();
    let whole = started.elapsed();
    for run in 0..20_u32 {
        // Fractions of the run by the golden ratio: all different, and the same in every test.
        let moment = whole.mul_f64(f64::from(run) * 0.618_034 % 1.0);
        let line = words(&[&"generate", &"--engine", &engine, &"--output", &output]);
        let line = line.into_iter().chain(options.iter().map(OsString::from));
        let mut child = command("runtime", line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
        for number in [1, 2] {
            let made = work.path().join(format!("out-{number}.png"));
            if made.exists() {
                assert_eq!(
                    bytes(&made),
                    bytes(&work.path().join(format!("expected-{number}.png"))),
                    "after {moment:?}"
                );
                fs::remove_file(made).unwrap();
            }
        }
    }
}
