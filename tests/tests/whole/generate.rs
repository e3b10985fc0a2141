//! `runtime generate` against diffusers (`tests/golden-pipelines`).

use end_to_end::{
    GoldenPipelines, GoldenRun, Outcome, THREADS, command, copy_folder, edit_manifest, names_in, run, with_manifest,
    words,
};
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

/// The least PSNR against diffusers' picture. Diffusers computes its steps in float32.
const PSNR_DB: f64 = 50.0;

/// The folder of the engines, which are built once for all tests.
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

/// Makes the pictures of a run and compares them with the reference's pictures.
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

/// The largest difference over the largest value of the latents.
fn latent_error(one: &Path, other: &Path) -> f32 {
    let (one, other) = (latent(one), latent(other));
    assert_eq!(one.len(), other.len());
    let largest = other.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

/// Checks every run whose name begins with `prefix`, and that there are `count` of them.
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

/// The least options for the golden pipelines, with a seed if none is given.
fn fox(more: &[&str]) -> Vec<String> {
    let least = ["--prompt", "a red fox", "--steps", "2"];
    let seed = if more.contains(&"--seed") { &[][..] } else { &["--seed", "0"] };
    least.iter().chain(seed).chain(more).map(|option| (*option).to_owned()).collect()
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
    // Its first step takes two evaluations.
    let said = generate(&engine, &two, &fox(&["--scheduler", "PNDMScheduler"])).success();
    assert!(said.stdout.contains("2 steps of PNDMScheduler (3 evaluations)"), "{}", said.stdout);
    let _ = generate(&engine, &two, &options[..options.len() - 1]).success();
    assert_eq!(bytes(&one), bytes(&two));
    for threads in THREADS {
        let _ =
            generate(&engine, &two, &[&options[..], &["--threads".to_owned(), threads.to_string()]].concat()).success();
        assert!(bytes(&one) == bytes(&two), "{threads} threads");
    }
    // First with the settings of the picture, then with others.
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
    // Another generator gives other random numbers.
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

/// A PNG with another PNG's settings, changed.
fn with_settings(from: &Path, to: &Path, change: impl FnOnce(&mut Value)) {
    let reader = png::Decoder::new(BufReader::new(fs::File::open(from).unwrap())).read_info().unwrap();
    let text = reader.info().utf8_text.iter().find(|text| text.keyword == "tileforge").unwrap();
    let mut record: Value = serde_json::from_str(&text.get_text().unwrap()).unwrap();
    change(&mut record);
    let mut encoder = png::Encoder::new(fs::File::create(to).unwrap(), 1, 1);
    encoder.add_itxt_chunk("tileforge".into(), record.to_string()).unwrap();
    encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
}

#[test]
fn settings_of_an_attackers_picture_are_refused_before_memory_is_used() {
    let work = tempfile::tempdir().unwrap();
    let [made, hostile, output] = ["made.png", "hostile.png", "out.png"].map(|name| work.path().join(name));
    let engine = engine("sd");
    let _ = generate(&engine, &made, &fox(&[])).success();
    let repeat = ["--from-image", hostile.to_str().unwrap()].map(ToOwned::to_owned);
    let refused = |key: &'static str, value: Value, code: i32, expected: &[&str]| {
        with_settings(&made, &hostile, |record| record["settings"][key] = value);
        let _ = generate(&engine, &output, &repeat).failure(code, expected);
        assert_eq!(names_in(work.path()), ["hostile.png", "made.png"]);
    };
    for count in [1025_u64, 1_000_000_000, 1 << 63, u64::MAX] {
        refused("count", json!(count), 2, &["count is", "from 1 to 1024"]);
    }
    refused("count", json!(0), 2, &["count is 0"]);
    refused("count", json!(-1), 2, &["its settings cannot be read"]);
    for steps in [0, 1_000_000_000, u64::MAX] {
        refused("steps", json!(steps), 2, &["cannot run", "steps"]);
    }
    refused("size", json!({ "width": u32::MAX, "height": u32::MAX }), 2, &["multiples of 8"]);
    refused("size", json!({ "width": 0, "height": 0 }), 2, &["0×0"]);
    refused("size", json!({ "width": 4_294_967_288_u32, "height": 8 }), 2, &["only of 64×64"]);
    refused("guidance", json!(1e300), 2, &["guidance is"]);
    refused("strength", json!(-1e300), 2, &["strength is"]);
    refused("prompt", json!("((fox)) ".repeat(100_000)), 1, &["800000 bytes", "at most 262144"]);
    refused("scheduler", json!("x".repeat(1000)), 2, &["unknown sampler"]);
}

#[test]
fn a_seed_is_drawn_unless_one_is_given_and_repeats_the_picture() {
    let work = tempfile::tempdir().unwrap();
    let [one, two, again, repeated] = ["1.png", "2.png", "3.png", "4.png"].map(|name| work.path().join(name));
    let engine = engine("sd");
    let without = ["--prompt", "a red fox", "--steps", "2"].map(ToOwned::to_owned);
    let said = generate(&engine, &one, &without).success().stdout;
    let report = generate(&engine, &two, &[&without[..], &["--json".to_owned()]].concat()).success().json();
    let seed = said.split("seed ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert_ne!(report["settings"]["seed"], json!(seed.parse::<u64>().unwrap()));
    assert_ne!(bytes(&one), bytes(&two));
    let _ = generate(&engine, &again, &fox(&["--seed", &seed])).success();
    let _ = generate(&engine, &repeated, &["--from-image", one.to_str().unwrap()].map(ToOwned::to_owned)).success();
    assert_eq!((bytes(&again), bytes(&repeated)), (bytes(&one), bytes(&one)));
}

#[test]
fn brackets_are_weights_unless_they_are_read_literally() {
    let work = tempfile::tempdir().unwrap();
    let sample = |name: &str, engine: &str, options: &[&str]| {
        let output = work.path().join(format!("{name}.png"));
        let least = ["--steps", "2", "--seed", "5", "--guidance", "4"];
        let options: Vec<String> = least.iter().chain(options).map(|option| (*option).to_owned()).collect();
        let _ = generate(&self::engine(engine), &output, &options).success();
        output
    };
    for engine in ["sd", "xl"] {
        let plain = samples(&sample("plain", engine, &["--prompt", "a red fox"]));
        let same = |options: &[&str]| samples(&sample("other", engine, options)) == plain;
        // Weights of 1 and empty brackets change nothing, nor do brackets that cancel each other.
        assert!(same(&["--prompt", "a red fox", "--literal-prompt"]), "{engine}");
        assert!(same(&["--prompt", "(a red fox:1)"]) && same(&["--prompt", "a red fox()"]), "{engine}");
        let [heavier, lighter, literal, escaped] = [
            &["--prompt", "a (red:1.4) fox"][..],
            &["--prompt", "a [red] fox"],
            &["--prompt", "a (red:1.4) fox", "--literal-prompt"],
            &["--prompt", r"a \(red:1.4\) fox"],
        ]
        .map(|options| samples(&sample("other", engine, options)));
        for (one, other) in [(&heavier, &plain), (&lighter, &plain), (&heavier, &lighter), (&heavier, &literal)] {
            assert!(one != other, "{engine}");
        }
        assert!(escaped == literal, "{engine}");
        assert!(!same(&["--prompt", "a red fox", "--negative-prompt", "(blurry:1.3)"]), "{engine}");
    }
    // A picture is repeated with the prompt syntax that it was made with; a picture of a release without weights is
    // literal.
    let made = sample("literal", "sd", &["--prompt", "a (red) fox", "--literal-prompt"]);
    let [older, again] = ["older.png", "again.png"].map(|name| work.path().join(name));
    with_settings(&made, &older, |record| {
        let settings = record["settings"].as_object_mut().unwrap();
        assert_eq!(settings.remove("literal_prompt"), Some(json!(true)));
        assert_eq!(settings.remove("version"), Some(json!(1)));
        settings.remove("fit").unwrap();
    });
    for from in [&made, &older] {
        let options = ["--from-image", from.to_str().unwrap()].map(ToOwned::to_owned);
        let _ = generate(&engine("sd"), &again, &options).success();
        assert_eq!(samples(&again), samples(&made));
    }
}

#[test]
fn samplers_of_other_programs_are_classes_with_values() {
    let work = tempfile::tempdir().unwrap();
    let [one, other] = ["1.png", "2.png"].map(|name| work.path().join(name));
    let engine = engine("sd");
    for (name, class) in [
        ("euler_a", "EulerAncestralDiscreteScheduler"),
        ("Euler a", "EulerAncestralDiscreteScheduler"),
        ("ddim", "DDIMScheduler"),
    ] {
        let said = generate(&engine, &one, &fox(&["--scheduler", name])).success().stdout;
        assert!(said.contains(&format!("2 steps of {class}")), "{said}");
        let _ = generate(&engine, &other, &fox(&["--scheduler", class])).success();
        assert_eq!(samples(&one), samples(&other), "{name}");
    }
    let six = |name: &str| -> Vec<String> {
        ["--prompt", "a fox", "--steps", "6", "--seed", "1", "--scheduler", name].map(ToOwned::to_owned).into()
    };
    let report =
        generate(&engine, &one, &[&six("DPM++ 2M Karras")[..], &["--json".to_owned()]].concat()).success().json();
    assert_eq!(report["scheduler"], "DPMSolverMultistepScheduler");
    assert_eq!(report["settings"]["scheduler"], "DPM++ 2M Karras");
    let _ = generate(&engine, &other, &six("dpmpp_2m_karras")).success();
    assert_eq!(samples(&one), samples(&other));
    let _ = generate(&engine, &other, &six("dpmpp_2m")).success();
    assert_ne!(samples(&one), samples(&other));
    // The name is in the picture.
    let again = work.path().join("again.png");
    let _ = generate(&engine, &again, &["--from-image", one.to_str().unwrap()].map(ToOwned::to_owned)).success();
    assert_eq!(bytes(&again), bytes(&one));
}

#[test]
fn a_picture_of_another_size_gets_one_that_the_engine_has() {
    let work = tempfile::tempdir().unwrap();
    let [made, cropped, stretched] = ["1.png", "2.png", "3.png"].map(|name| work.path().join(name));
    let (engine, large) = (engine("sd"), input("large.png"));
    let options = ["--image", large.as_str(), "--strength", "0.5"];
    let said = generate(&engine, &made, &fox(&options)).success();
    let told = "the engine makes no pictures of 81×70: the picture is resized to 64×64";
    assert!(said.stderr.contains(told) && said.stderr.contains("cropped"), "{}", said.stderr);
    let with = |output: &Path, more: &[&str]| generate(&engine, output, &fox(&[&options[..], more].concat())).success();
    let report = with(&cropped, &["--size", "64x64", "--fit", "crop", "--json"]).json();
    assert_eq!(report["resized"], json!({ "from": { "width": 81, "height": 70 }, "fit": "crop", "asked_for": true }));
    let _ = with(&stretched, &["--fit", "stretch"]);
    assert_eq!(samples(&made), samples(&cropped));
    assert_ne!(samples(&made), samples(&stretched));
    // Without --fit, a requested size stretches the picture, as in diffusers, without a message.
    let said = with(&cropped, &["--size", "64x64"]);
    assert_eq!(samples(&cropped), samples(&stretched));
    assert!(!said.stderr.contains("resized"), "{}", said.stderr);
}

#[test]
fn what_of_a_prompt_has_no_effect_is_said_before_the_steps() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let long = format!("{}, a harbour at night", "fox ".repeat(75));
    let said = generate(&engine("sd"), &output, &fox(&["--negative-prompt", &long])).success().stderr;
    assert!(
        said.contains("the negative prompt is too long for the text encoder") && said.contains("harbour"),
        "{said}"
    );
    assert!(said.contains("--long-prompt"), "{said}");
    // Without guidance, it has no effect.
    let said =
        generate(&engine("sd"), &output, &fox(&["--negative-prompt", &long, "--guidance", "1"])).success().stderr;
    assert!(!said.contains("too long"), "{said}");
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
    // The network's view of the picture in the first step is similar to it.
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
    // Time is not tested: one threshold accepts any speed, the other accepts none.
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

    let _ = bench(&sd, &[&"2", &"--size", &"128x128"]).failure(2, &["only of 64×64"]);
    let _ = bench(&sd, &[&"2", &"--tile", &"64x64"]).failure(2, &["--tile is for upscalers"]);
    let _ = bench(&sd, &[&"2", &"--sweep"]).failure(2, &["--sweep"]);
    let _ = bench(&sd.join("unet"), &[&"2"]).failure(2, &["expected the engine of a diffusion pipeline"]);
}

/// Each case has the words that the message must contain. Nothing is written.
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
    refused(&sd, &["--size", "60x64"], 2, &["60×64", "multiples of 8"]);
    refused(&sd, &["--size", "128x128"], 2, &["128×128", "only of 64×64", "--size"]);
    refused(&sd, &["--image", &large, "--mask", &mask], 1, &["a mask of the picture's size 81×70, found 64×64"]);
    refused(&sd, &["--image", &picture, "--strength", "1.5"], 2, &["'1.5' for '--strength", "from 0 to 1"]);
    refused(&sd, &["--image", &picture, "--strength=-0.5"], 2, &["'-0.5' for '--strength"]);
    let euler = ["--scheduler", "EulerDiscreteScheduler"];
    let little = ["--image", &picture, "--strength", "0.1"];
    refused(&sd, &[&little[..], &euler].concat(), 2, &["no step is left of 2"]);
    refused(&sd, &["--scheduler", "FastScheduler"], 1, &["FastScheduler", "PNDMScheduler", "--scheduler"]);
    refused(&sd, &["--scheduler", "DPM++ SDE"], 2, &["unknown sampler \"DPM++ SDE\"", "DPM++ 2M", "--scheduler"]);
    refused(&sd, &["--scheduler", "euler_a_karras"], 2, &["\"Euler a\" cannot be combined with Karras"]);
    let lora = ["--negative-prompt", "blurry <lora:snow:0.8>"];
    refused(&sd, &lora, 2, &["\"<lora:snow:0.8>\" names weights", "`engine-builder build PIPELINE --lora"]);
    refused(&sd, &["--negative-prompt", "[a:b:0.5]"], 2, &["changes between the steps", "--literal-prompt"]);
    refused(&sd, &["--negative-prompt", "(a:1000)"], 2, &["no number from −100 to 100", "\\("]);
    refused(&sd, &["--negative-prompt", &"(".repeat(100_000)], 2, &["more than 64 open brackets"]);
    refused(&sd, &["--fit", "crop"], 2, &["--image"]);
    refused(&sd, &["--guidance", "nan"], 2, &["'nan' for '--guidance", "from 0 to 1000"]);
    refused(&sd, &["--eta", "2"], 2, &["'2' for '--eta", "from 0 to 1"]);
    refused(&sd, &["--mask", &mask], 2, &["--image"]);
    refused(&sd, &["--image", &picture, "--latents", &input("noise.safetensors")], 2, &["--latents"]);
    refused(&sd, &["--latents", &input("noise.safetensors"), "--count", "2"], 2, &["one picture"]);
    refused(&sd, &["--image", &mask.replace("mask.png", "missing.png")], 1, &["missing.png"]);
    refused(&sd, &["--long-prompt", "--negative-prompt", &"the sea ".repeat(80)], 2, &["231 tokens", "only 77"]);
    refused(&engine("sd-inpainting"), &[], 2, &["expected a picture and a mask"]);
    refused(&engine("sd-inpainting"), &["--image", &picture], 2, &["expected a picture and a mask"]);
    let latent = work.path().join("latent.safetensors");
    let _ = generate(&sd, &latent, &fox(&[])).success();
    refused(&sd, &["--image", latent.to_str().unwrap(), "--mask", &mask], 2, &["a mask needs a picture"]);
    fs::remove_file(latent).unwrap();

    // A command line cannot hold so much text, but a file can.
    let text = work.path().join("prompt.txt");
    let options = ["--prompt-file", text.to_str().unwrap()].map(ToOwned::to_owned);
    for prompt in ["a red fox ", "((red)) fx", "[[[[[[[[[[", r"\(\[\\\]\)"] {
        fs::write(&text, prompt.repeat(1_000_000 / prompt.len())).unwrap();
        let _ = generate(&sd, &output, &options).failure(1, &["1000000 bytes", "at most 262144"]);
    }
    assert_eq!(names_in(work.path()), ["prompt.txt"]);
}

/// A manifest without the roles of parts, as older releases wrote it: the parts' names determine them.
fn without_roles(manifest: &mut Value) {
    assert!(manifest["diffusion"].as_object_mut().unwrap().remove("roles").is_some());
}

#[test]
fn parts_may_have_any_names() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let xl = engine("xl");
    let _ = generate(&xl, &at("named.png"), &fox(&["--seed", "3"])).success();
    let copies = ["oldest", "older", "renamed"].map(&at);
    copies.iter().for_each(|copy| copy_folder(&xl, copy));
    let [oldest, older, renamed] = copies;
    with_manifest(&oldest, without_roles);
    with_manifest(&older, |manifest| {
        let roles = manifest["diffusion"]["roles"].as_object_mut().unwrap();
        assert!(roles.remove("conditions").is_some());
    });
    // The first encoder's new name sorts after the second encoder's name: the order must follow the roles.
    let names =
        [("unet", "predictor"), ("vae_decoder", "pictures"), ("text_encoder", "words"), ("tokenizer", "pieces")];
    for (from, to) in names {
        fs::rename(renamed.join(from), renamed.join(to)).unwrap();
        let folder = renamed.join(to);
        if folder.join("manifest.json").exists() {
            edit_manifest(&folder, |manifest| manifest["name"] = to.into());
        }
    }
    with_manifest(&renamed, |manifest| {
        let renamed = |listed: &Value| -> Value {
            let name = |name: &str| {
                let (first, rest) = name.split_once('/').map_or((name, None), |(first, rest)| (first, Some(rest)));
                let first = names.iter().find(|(from, _)| *from == first).map_or(first, |(_, to)| to);
                rest.map_or_else(|| first.to_owned(), |rest| format!("{first}/{rest}"))
            };
            listed.as_object().unwrap().iter().map(|(old, digest)| (name(old), digest.clone())).collect()
        };
        (manifest["parts"], manifest["files"]) = (renamed(&manifest["parts"]), renamed(&manifest["files"]));
        let roles = &mut manifest["diffusion"]["roles"];
        (roles["denoiser"], roles["decoder"]) = (json!("predictor"), json!("pictures"));
        roles["texts"][0] = json!({ "part": "words", "tokenizer": "pieces" });
        roles["conditions"]["encoder_hidden_states"][0]["part"] = json!("words");
    });
    for engine in [&oldest, &older, &renamed] {
        let output = engine.with_extension("png");
        let _ = generate(engine, &output, &fox(&["--seed", "3"])).success();
        assert_eq!(samples(&output), samples(&at("named.png")), "{}", engine.display());
    }
    with_manifest(&renamed, |manifest| manifest["diffusion"]["roles"]["encoder"] = json!("gone"));
    let expected = ["diffusion.roles: expected a part, found \"gone\""];
    let _ = generate(&renamed, &at("refused.png"), &fox(&[])).failure(1, &expected);
    assert!(!at("refused.png").exists());
}

#[test]
fn the_network_is_conditioned_on_the_outputs_that_the_manifest_states() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let conditioned = |name: &str, input: &str, outputs: Value| {
        copy_folder(&engine("sd"), &at(name));
        with_manifest(&at(name), |manifest| manifest["diffusion"]["roles"]["conditions"][input] = outputs);
        at(name)
    };
    let of = |output: &str| json!([{ "part": "text_encoder", "output": output }]);
    // The last state is the state after the last layer, normalised; a state of another layer gives another picture.
    let same = conditioned("same", "encoder_hidden_states", of("last_hidden_state"));
    let other = conditioned("other", "encoder_hidden_states", of("hidden_states.1"));
    for (engine, output) in [(&engine("sd"), "sd.png"), (&same, "same.png"), (&other, "other.png")] {
        let _ = generate(engine, &at(output), &fox(&["--seed", "3"])).success();
    }
    assert_eq!(samples(&at("same.png")), samples(&at("sd.png")));
    assert_ne!(samples(&at("other.png")), samples(&at("sd.png")));
    for (name, outputs, expected) in [
        ("gone", of("gone"), "text_encoder: expected an output `gone`, found none"),
        ("vector", of("pooler_output"), "text_encoder: expected an encoder with states, found none"),
        ("twice", json!([of("hidden_states.1")[0], of("hidden_states.2")[0]]), "states of width 16, found 32"),
        ("none", json!([]), "conditions.encoder_hidden_states: expected outputs of text encoders, found none"),
    ] {
        let engine = conditioned(name, "encoder_hidden_states", outputs);
        let _ = generate(&engine, &at("refused.png"), &fox(&[])).failure(1, &[expected]);
        assert!(!at("refused.png").exists());
    }
    let engine = conditioned("mistyped", "encoder_hidden_staets", of("last_hidden_state"));
    let expected = "unet: expected an input `encoder_hidden_staets` that takes a text, found none";
    let _ = generate(&engine, &at("refused.png"), &fox(&[])).failure(1, &[expected]);
}

#[test]
fn a_network_that_takes_the_guidance_scale_has_no_negative_prompt() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let lcm = engine("lcm");
    let line = |options: &[&str]| {
        let least = ["--prompt", "a red fox", "--seed", "3", "--json"];
        least.iter().chain(options).map(|option| (*option).to_owned()).collect::<Vec<String>>()
    };
    let made = |name: &str, options: &[&str]| {
        let outcome = generate(&lcm, &at(name), &line(options)).success();
        (outcome.json(), outcome.stderr)
    };
    let (plain, talk) = made("plain.png", &[]);
    assert!(!talk.contains("negative prompt"), "{talk}");
    // The default of diffusers' pipeline for such networks: 4 steps.
    assert_eq!(plain["seconds"]["evaluations"].as_array().unwrap().len(), 4, "{plain}");
    let (_, talk) = made("negative.png", &["--negative-prompt", "blur"]);
    assert!(talk.contains("the negative prompt has no effect"), "{talk}");
    assert_eq!(samples(&at("plain.png")), samples(&at("negative.png")));
    let (_, _) = made("guided.png", &["--guidance", "8.5"]);
    assert_eq!(samples(&at("plain.png")), samples(&at("guided.png")));
    let (_, _) = made("weak.png", &["--guidance", "1.5"]);
    assert_ne!(samples(&at("plain.png")), samples(&at("weak.png")));
    let options = ["--image", &input("picture.png"), "--strength", "0.05"];
    let expected = "cannot run 4 steps with a strength of 0.05; expected 1 to 2";
    let _ = generate(&lcm, &at("refused.png"), &line(&options)).failure(2, &[expected]);
}

#[test]
fn an_engine_whose_parts_do_not_fit_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let refused = |spoil: &dyn Fn(&Path), expected: &[&str]| {
        let copy = work.path().join("engine");
        copy_folder(&engine("xl"), &copy);
        spoil(&copy);
        with_manifest(&copy, without_roles);
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
            edit_manifest(&engine.join(to), |manifest| manifest["name"] = to.into());
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
    refused(&scheduler("no JSON"), &["is not a JSON object"]);
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
    // Without a signal, this would take minutes.
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
        // Fractions of the run by the golden ratio: all different, and the same in every run of the test.
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
