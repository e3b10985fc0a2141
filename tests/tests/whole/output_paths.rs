//! Output paths: never over an input, never over files that are not ours, and never incomplete.

use end_to_end::{Outcome, command, copied_engine, demo_engine, names_in, repository, run, words};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder's files with their content.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in names_in(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            files.extend(content(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            files.insert(name, fs::read(path).unwrap());
        }
    }
    files
}

/// A copy of the demo's checkpoint.
fn checkpoint(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    fs::copy(repository("models/compact-x4.safetensors"), &path).unwrap();
    path
}

fn export(from: &Path, to: &Path, weights: &str) -> Outcome {
    run("exporter", words(&[&"export", &from, &"-o", &to, &"--weights", &weights]))
}

fn build(model: &Path, engine: &Path) -> Outcome {
    let profile = repository("tests/profiles/small-tiles.yaml");
    run("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]))
}

fn infer(input: &Path, output: &Path, more: &[&str]) -> Outcome {
    let line = words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]);
    run("runtime", line.into_iter().chain(more.iter().map(Into::into)))
}

#[test]
fn a_folder_that_is_no_engine_is_never_replaced() {
    let work = tempfile::tempdir().unwrap();
    let (app, archive) = (work.path().join("app"), work.path().join("engine.tar"));
    let _ = run("engine-builder", words(&[&"pack", &demo_engine(), &"-o", &archive])).success();
    let unpack = |program: &str| run(program, words(&[&"unpack", &archive, &"-o", &app]));
    // A web application that contains an engine among other files.
    fs::create_dir_all(app.join("icons")).unwrap();
    fs::write(app.join("manifest.json"), r#"{ "name": "my app", "icons": [] }"#).unwrap();
    fs::write(app.join("icons/one.svg"), "x").unwrap();
    let foreign = work.path().join(".building-notes");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "x").unwrap();
    let before = content(work.path());
    let refused = |words: &[&str]| {
        let _ = build(&repository("models/compact-x4.safetensors"), &app).failure(1, words);
        let _ = unpack("engine-builder").failure(1, words);
        let _ = unpack("runtime").failure(1, words);
    };
    refused(&["is not the manifest of an engine"]);
    assert!(content(work.path()) == before);

    fs::remove_dir_all(&app).unwrap();
    let _ = unpack("runtime").success();
    fs::write(app.join("thesis.txt"), "x").unwrap();
    let before = content(work.path());
    refused(&["`thesis.txt`, which the engine's manifest does not list"]);
    assert!(content(work.path()) == before);
    fs::remove_file(app.join("thesis.txt")).unwrap();
    let _ = unpack("runtime").success();
    assert!(foreign.join("thesis.txt").exists());
}

#[test]
fn a_graph_is_never_written_over_what_it_is_made_of() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    let given = checkpoint(work.path(), "c.safetensors");
    fs::hard_link(&given, path("again.onnx")).unwrap();
    // A checkpoint with the name of a weight file.
    checkpoint(work.path(), "z.weights");
    let before = content(work.path());
    for weights in ["link", "copy", "inline"] {
        let _ = export(&given, &given, weights).failure(1, &["c.safetensors: this output is the input"]);
        let _ = export(&given, &path("again.onnx"), weights).failure(1, &["again.onnx: this output is the input"]);
    }
    let _ = export(&given, &path("x.weights"), "copy").failure(2, &["x.weights: a graph comes out"]);
    let _ = export(&path("z.weights"), &path("z.onnx"), "copy").failure(1, &["z.weights: this output is the input"]);
    assert!(content(work.path()) == before);

    let graph = path("g.onnx");
    let _ = export(&given, &graph, "copy").success();
    let before = content(work.path());
    for output in ["g.weights", "g.onnx"] {
        let line = words(&[&"convert", &graph, &"--precision", &"fp16", &"-o", &path(output)]);
        let _ = run("engine-builder", line).failure(1, &[output, "this output is the input"]);
    }
    assert!(content(work.path()) == before);
}

#[test]
fn a_link_to_a_checkpoint_replaces_no_other_file() {
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("out");
    fs::create_dir(&out).unwrap();
    let given = checkpoint(work.path(), "c.safetensors");
    fs::write(out.join("x.c.safetensors"), "somebody else's").unwrap();
    let before = content(&out);
    let _ = export(&given, &out.join("x.onnx"), "link")
        .failure(1, &["x.c.safetensors", "another file of this name is there"]);
    assert!(content(&out) == before);
    // An earlier copy of the same checkpoint is as good as a link.
    fs::copy(&given, out.join("x.c.safetensors")).unwrap();
    let _ = export(&given, &out.join("x.onnx"), "link").success();
    let _ = export(&given, &out.join("x.onnx"), "link").success();
    assert_eq!(names_in(&out), ["x.c.safetensors", "x.onnx"]);
    // The graph is replaced together with its own checkpoint.
    let newer = work.path().join("newer");
    let mut bytes = fs::read(&given).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&newer, &bytes).unwrap();
    fs::rename(&newer, &given).unwrap();
    let _ = export(&given, &out.join("x.onnx"), "link").success();
    assert!(fs::read(out.join("x.c.safetensors")).unwrap() == bytes);
}

#[test]
fn a_weight_file_replaces_only_that_of_an_older_graph() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    let given = checkpoint(work.path(), "c.safetensors");
    let (graph, half) = (path("g.onnx"), path("half.onnx"));
    let convert = || run("engine-builder", words(&[&"convert", &graph, &"--precision", &"fp16", &"-o", &half]));
    let _ = export(&given, &graph, "copy").success();
    let _ = export(&given, &graph, "copy").success();
    let _ = export(&given, &half, "inline").success();
    for name in ["x.weights", "half.weights"] {
        fs::write(path(name), "somebody else's").unwrap();
    }
    let before = content(work.path());
    let expected = "another file of this name is there";
    let _ = export(&given, &path("x.onnx"), "copy").failure(1, &["x.weights", expected]);
    let _ = convert().failure(1, &["half.weights", expected]);
    assert!(content(work.path()) == before);
    fs::remove_file(path("half.weights")).unwrap();
    let _ = convert().success();
    let _ = convert().success();
}

#[test]
fn an_engine_and_its_archive_replace_nothing_that_they_are_made_of() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let graph = engine.join("model-1x3x24x24.onnx");
    let source = checkpoint(&engine, "src.safetensors");
    let before = content(&engine);
    for model in [&source, &graph] {
        let _ = build(model, &engine).failure(1, &["engine: this output would replace the input"]);
    }
    for output in ["model.weights", "new.tar"] {
        let _ = run("engine-builder", words(&[&"pack", &engine, &"-o", &engine.join(output)]))
            .failure(1, &[output, "this output is in the input"]);
    }
    let archive = engine.join("model.weights");
    let _ = run("runtime", words(&[&"unpack", &archive, &"-o", &engine]))
        .failure(1, &["this output would replace the input"]);
    assert!(content(&engine) == before);
}

#[test]
fn pictures_and_figures_go_neither_over_inputs_nor_into_engines() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let photo = work.path().join("photo.png");
    fs::copy(repository("tests/images/coffee.png"), &photo).unwrap();
    fs::hard_link(&photo, work.path().join("again.png")).unwrap();
    let before = content(work.path());
    let with_engine = |command: &str, more: &[&dyn AsRef<std::ffi::OsStr>]| {
        run("runtime", words(&[&command, &"--engine", &engine]).into_iter().chain(words(more)))
    };
    for output in [&photo, &work.path().join("again.png"), &engine.join("model.weights")] {
        let _ = with_engine("infer", &[&"--input", &photo, &"--output", output]).failure(2, &["this output is"]);
        let _ = with_engine("evaluate", &[&"--input", &photo, &"--output", output]).failure(2, &["this output is"]);
    }
    let _ = with_engine("bench", &[&"--save", &engine.join("manifest.json")]).failure(2, &["this output is in"]);
    let _ = with_engine("bench", &[&"--sweep", &"--report", &engine]).failure(2, &["this output is in"]);
    assert!(content(work.path()) == before);
}

#[test]
fn figures_are_replaced_as_a_whole() {
    let work = tempfile::tempdir().unwrap();
    let [saved, kept] = ["saved.json", "kept.json"].map(|name| work.path().join(name));
    fs::write(&saved, "the figures of last year").unwrap();
    // A second name of the same file shows whether the file is truncated.
    fs::hard_link(&saved, &kept).unwrap();
    let line = words(&[&"bench", &"--engine", &demo_engine(), &"--size", &"24x24", &"--runs", &"1", &"--save", &saved]);
    let _ = run("runtime", line).success();
    assert_eq!(fs::read_to_string(&kept).unwrap(), "the figures of last year");
    assert!(fs::read_to_string(&saved).unwrap().contains("images_per_second"));
}

#[test]
fn an_empty_picture_is_not_finished() {
    let work = tempfile::tempdir().unwrap();
    let [photo, output] = ["photo.png", "large.png"].map(|name| work.path().join(name));
    fs::copy(repository("tests/images/coffee.png"), &photo).unwrap();
    fs::write(&output, "").unwrap();
    let _ = infer(&photo, &output, &["--resume"]).success();
    let made = fs::read(&output).unwrap();
    assert!(made.starts_with(b"\x89PNG"));
    let outcome = infer(&photo, &output, &["--resume"]).success();
    assert!(outcome.stderr.contains("1 is finished"), "{}", outcome.stderr);
    fs::write(&output, "another one").unwrap();
    let outcome = infer(&photo, &output, &["--resume"]).success();
    assert!(outcome.stderr.contains("made again: it has changed since it was made"), "{}", outcome.stderr);
    assert!(fs::read(&output).unwrap() == made);
}

#[test]
fn what_killed_programs_left_goes_with_the_next_run() {
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("out");
    let litter = || {
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(out.join(".tileforge-AbCdEf123456.partial/pipeline")).unwrap();
        fs::write(out.join(".tileforge-Bbbbbb123456.partial"), "half a picture").unwrap();
        fs::write(out.join(".tileforge-is-mine"), "x").unwrap();
    };
    litter();
    let _ = infer(&repository("tests/images/coffee.png"), &out.join("large.png"), &[]).success();
    assert_eq!(names_in(&out), [".tileforge-is-mine", "large.png"]);
    litter();
    let _ = export(&repository("models/compact-x4.safetensors"), &out.join("x.onnx"), "copy").success();
    assert_eq!(names_in(&out), [".tileforge-is-mine", "x.onnx", "x.weights"]);
    litter();
    let _ = build(&repository("models/compact-x4.safetensors"), &out.join("engine")).success();
    assert_eq!(names_in(&out), [".tileforge-is-mine", "engine"]);
}

#[test]
fn a_graph_notices_that_its_checkpoint_was_overwritten() {
    let work = tempfile::tempdir().unwrap();
    let given = checkpoint(work.path(), "c.safetensors");
    let out = work.path().join("out");
    fs::create_dir(&out).unwrap();
    let [graph, quick] = ["x.onnx", "quick.onnx"].map(|name| out.join(name));
    let _ = export(&given, &graph, "link").success();
    let _ = run("exporter", words(&[&"export", &given, &"-o", &quick, &"--no-digest"])).success();
    let verify = |graph: &Path| run("engine-builder", words(&[&"verify", &graph]));
    assert!(verify(&graph).success().stdout.contains("x.c.safetensors: unchanged since the export"));
    assert!(verify(&quick).success().stdout.contains("it was not digested"));

    // In place, like `cp new.safetensors c.safetensors`: the link is the same file.
    let mut bytes = fs::read(&given).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&given, &bytes).unwrap();
    let changed = ["x.c.safetensors", "was exported with another file of this name: expected SHA-256"];
    let _ = verify(&graph).failure(1, &changed);
    let _ = build(&graph, &work.path().join("engine")).failure(1, &changed);
    let converted = work.path().join("half.onnx");
    let line = words(&[&"convert", &graph, &"--precision", &"fp16", &"-o", &converted]);
    let _ = run("engine-builder", line).failure(1, &changed);
    assert!(verify(&quick).success().stdout.contains("it was not digested"));
    // Without a digest, the size still shows it.
    bytes.push(0);
    fs::write(&given, &bytes).unwrap();
    let _ = verify(&quick).failure(1, &["expected", "bytes, found"]);
}

#[test]
fn an_older_graph_does_not_take_the_weights_of_a_newer_export() {
    let work = tempfile::tempdir().unwrap();
    let given = checkpoint(work.path(), "c.safetensors");
    let graph = work.path().join("x.onnx");
    let _ = export(&given, &graph, "copy").success();
    let older = fs::read(&graph).unwrap();
    let verify = || run("engine-builder", words(&[&"verify", &graph]));
    assert!(verify().success().stdout.contains("x.weights: unchanged since the export"));
    // The same checkpoint gives the same bytes.
    let _ = export(&given, &graph, "copy").success();
    assert!(fs::read(&graph).unwrap() == older);
    // Another checkpoint of the same network, and a program that was killed between its two renames.
    let mut bytes = fs::read(&given).unwrap();
    // The tensor in the middle is large enough for the weight file.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&given, &bytes).unwrap();
    let _ = export(&given, &graph, "copy").success();
    let newer = fs::read(&graph).unwrap();
    assert!(newer.len() == older.len() && newer != older);
    fs::write(&graph, &older).unwrap();
    let changed = ["x.weights", "was exported with another file of this name: expected SHA-256"];
    let _ = verify().failure(1, &changed);
    let _ = build(&graph, &work.path().join("engine")).failure(1, &changed);
    let converted = work.path().join("half.onnx");
    let line = words(&[&"convert", &graph, &"--precision", &"fp16", &"-o", &converted]);
    let _ = run("engine-builder", line).failure(1, &changed);
    assert!(!converted.exists());
    fs::write(&graph, &newer).unwrap();
    let _ = verify().success();
    // A graph with its weights inside has no other file.
    let _ = export(&given, &work.path().join("inline.onnx"), "inline").success();
    let inline = run("engine-builder", words(&[&"verify", &work.path().join("inline.onnx")])).success();
    assert!(inline.stdout.contains("states no digest"), "{}", inline.stdout);
}

/// Runs a program that may write files of at most 100 KB, as if the disk were full.
fn on_a_full_disk(program: &str, arguments: Vec<OsString>) -> Outcome {
    let program = command(program, arguments);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$@\"", "sh"]);
    Outcome::of(
        limited
            .arg(program.get_program())
            .args(program.get_args())
            .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?)))),
    )
}

#[test]
fn a_message_names_the_place_of_a_file_that_is_written_elsewhere_first() {
    let work = tempfile::tempdir().unwrap();
    let [engine, archive, graph] = ["engine", "engine.tar", "x.onnx"].map(|name| work.path().join(name));
    let _ = run("engine-builder", words(&[&"pack", &demo_engine(), &"-o", &archive])).success();
    let model = repository("models/compact-x4.safetensors");
    let profile = repository("tests/profiles/small-tiles.yaml");
    let checkpoint = repository("models/compact-x4.safetensors");
    let (photo, large) = (repository("tests/images/coffee.png"), work.path().join("large.png"));
    let lines = [
        ("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]), "engine/model.weights"),
        ("engine-builder", words(&[&"unpack", &archive, &"-o", &engine]), "engine/model.weights"),
        ("runtime", words(&[&"unpack", &archive, &"-o", &engine]), "engine/model.weights"),
        ("exporter", words(&[&"export", &checkpoint, &"-o", &graph, &"--weights", &"copy"]), "x.weights"),
        (
            "runtime",
            words(&[&"infer", &"--engine", &demo_engine(), &"--input", &photo, &"--output", &large]),
            "large.png",
        ),
    ];
    for (program, line, expected) in lines {
        let refused = on_a_full_disk(program, line).failure(1, &[expected, "File too large"]);
        assert!(!refused.stderr.contains(".tileforge-"), "{}", refused.stderr);
        assert_eq!(names_in(work.path()), ["engine.tar"]);
    }
}
