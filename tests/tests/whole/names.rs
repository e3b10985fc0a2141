//! The commands of a new user: models and engines by name, without options that the programs can find themselves.

use end_to_end::{Outcome, command, demo_engine, names_in, new_key, repository, run, words};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Runs a program in a folder, with a data folder of its own.
fn run_in(work: &Path, program: &str, arguments: &[&dyn AsRef<OsStr>]) -> Outcome {
    Outcome::of(command(program, words(arguments)).current_dir(work).env("XDG_DATA_HOME", work.join("data")))
}

/// A folder that contains engines with these names: links to the demo engine.
fn engines(names: &[&str]) -> TempDir {
    let work = tempfile::tempdir().unwrap();
    for name in names {
        let place = work.path().join(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(demo_engine(), place).unwrap();
    }
    work
}

#[test]
fn a_model_is_built_by_its_name_for_this_machine_and_used_by_its_name() {
    let work = tempfile::tempdir().unwrap();
    let built =
        run_in(work.path(), "engine-builder", &[&"build", &"compact-x4", &"--calibration-tiles", &"2"]).success();
    assert!(built.stderr.contains("profile cpu: no GPU here"), "{}", built.stderr);
    assert_eq!(built.stdout.trim(), "engines/cpu/compact-x4");
    assert_eq!(names_in(work.path()), ["engines"]);
    let photo = repository("tests/images/coffee.png");
    for arguments in [
        &[&"inspect" as &dyn AsRef<OsStr>, &"--engine", &"compact-x4"][..],
        &[&"inspect", &"--engine", &"cpu/compact-x4"],
        &[&"verify", &"--engine", &"compact-x4"],
        &[&"doctor", &"--engine", &"compact-x4"],
        &[&"warm", &"--engine", &"compact-x4"],
        &[&"infer", &"--engine", &"compact-x4", &"--input", &photo, &"--output", &"large.png"],
        &[&"bench", &"--engine", &"compact-x4", &"--size", &"32x32", &"--runs", &"1", &"--passes", &"1"],
    ] {
        let _ = run_in(work.path(), "runtime", arguments).success();
    }
    let [private, public] = new_key(work.path(), "release");
    let _ = run_in(work.path(), "engine-builder", &[&"sign", &"compact-x4", &"--key", &private]).success();
    for (program, arguments) in [
        ("engine-builder", &[&"verify" as &dyn AsRef<OsStr>, &"compact-x4", &"--require-signature", &public][..]),
        ("runtime", &[&"verify", &"--engine", &"compact-x4", &"--require-signature", &public]),
        ("engine-builder", &[&"diff", &"compact-x4", &"cpu/compact-x4"]),
        ("engine-builder", &[&"pack", &"compact-x4", &"-o", &"compact-x4.tar"]),
    ] {
        let _ = run_in(work.path(), program, arguments).success();
    }
    let line: &[&dyn AsRef<OsStr>] =
        &[&"build", &"compact-x4", &"--profile", &"cpu", &"--precision", &"fp32", &"--calibration-tiles", &"2"];
    assert_eq!(run_in(work.path(), "engine-builder", line).success().stdout.trim(), "engines/cpu/compact-x4-fp32");
    let _ = run_in(work.path(), "engine-builder", &[&"rebuild", &"compact-x4-fp32", &"-o", &"again"]).success();
}

#[test]
fn of_several_profiles_the_one_for_this_machine_is_taken() {
    let work = tempfile::tempdir().unwrap();
    let line: &[&dyn AsRef<OsStr>] = &[&"build", &"compact-x4", &"--profile", &"t4,cpu", &"--precision", &"fp32"];
    let _ = run_in(work.path(), "engine-builder", &[line, &[&"-o", &"engines/{profile}/x4"]].concat()).success();
    let inspected = run_in(work.path(), "runtime", &[&"inspect", &"--engine", &"x4"]).success();
    assert!(inspected.stderr.contains("x4: engines/cpu/x4, the best of 2"), "{}", inspected.stderr);
    assert!(inspected.stdout.contains("target           cpu"), "{}", inspected.stdout);
    let t4 = run_in(work.path(), "runtime", &[&"inspect", &"--engine", &"t4/x4"]).success();
    assert!(t4.stdout.contains("target           t4"), "{}", t4.stdout);
    // A command that changes one engine does not guess which.
    let key = new_key(work.path(), "release")[0].clone();
    let _ = run_in(work.path(), "engine-builder", &[&"sign", &"x4", &"--key", &key])
        .failure(2, &["several engines have this name: engines/cpu/x4, engines/t4/x4; give one of these"]);
    let package =
        run_in(work.path(), "engine-builder", &[&"pack", &"--format", &"model-package", &"x4", &"-o", &"all"]);
    assert!(package.success().stdout.contains("all"));
    // Only engines with the signature count; if there is none, the refusal states it.
    let _ = run_in(work.path(), "engine-builder", &[&"sign", &"t4/x4", &"--key", &key]).success();
    let signed = |engine: &str| {
        let public = work.path().join("release.pub");
        run_in(work.path(), "runtime", &[&"inspect", &"--engine", &engine, &"--require-signature", &public])
    };
    assert!(signed("x4").success().stdout.contains("target           t4"));
    let _ = signed("cpu/x4").failure(1, &["signature"]);
}

#[test]
fn a_path_wins_and_a_name_that_is_not_here_says_what_to_do() {
    let work = engines(&["engines/cpu/near", "data/tileforge/engines/far", "data/tileforge/engines/cpu/near"]);
    let inspect = |engine: &str| run_in(work.path(), "runtime", &[&"inspect", &"--engine", &engine]);
    for name in ["near", "far", "cpu/near", "engines/cpu/near", "./engines/cpu/near"] {
        let _ = inspect(name).success();
    }
    let told =
        ["no such engine in engines and ", "where known are cpu/near, far", "build one first with `engine-builder"];
    let _ = inspect("depth").failure(2, &["depth: "]).failure(2, &told);
    let _ = inspect("cpu/depth").failure(2, &["`engine-builder build depth --profile cpu`"]);
    let _ = run_in(work.path(), "engine-builder", &[&"lint", &"depth", &"--target", &"tensorrt-10"])
        .failure(2, &["depth: no such engine", "build one first with `engine-builder build depth`"]);
    for path in ["./near", "../near", "/near", "near/"] {
        let _ = inspect(path).failure(1, &["no such folder"]);
    }
    // A file with this name is a path, and takes precedence.
    fs::write(work.path().join("near"), "text").unwrap();
    let _ = inspect("near").failure(1, &["near: "]);
    fs::write(work.path().join("compact-x4"), "text").unwrap();
    let _ = run_in(work.path(), "engine-builder", &[&"build", &"compact-x4"]).failure(1, &["compact-x4: "]);
    let _ = run_in(work.path(), "engine-builder", &[&"build", &"compact-x5"])
        .failure(2, &["compact-x5: no such model; known are animesharp-v4-x2, "]);
    let _ = run_in(work.path(), "engine-builder", &[&"build", &"realesrgan-x4plus", &"--profile", &"rtx4080"])
        .failure(2, &["rtx4080: no such profile; rtx builds for every RTX GPU of the series 30, 40 and 50"]);
    let _ = run_in(work.path(), "engine-builder", &[&"build", &"..", &"--profile", &"cpu"]).failure(1, &[]);
    assert!(!work.path().join("engines/cpu/compact-x4").exists());
}

#[test]
fn help_says_what_a_program_has() {
    for (program, codes) in [
        ("exporter", &["0", "1", "2", "130"][..]),
        ("engine-builder", &["0", "1", "2", "3", "4", "130"]),
        ("runtime", &["0", "1", "2", "3", "4", "130"]),
    ] {
        let help = run(program, ["--help"]).success().stdout;
        let (_, listed) = help.split_once("Exit codes:\n").unwrap();
        let listed: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(listed, codes, "{program}");
    }
    let sections = |arguments: &[&str]| {
        let help = run(arguments[0], &arguments[1..]).success().stdout;
        assert!(!help.contains("EXTRA"), "{help}");
        let headings = help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' '));
        headings.map(|line| line.trim_end_matches(':').to_owned()).collect::<Vec<_>>()
    };
    for (arguments, expected) in [
        (
            &["engine-builder", "build", "--help"][..],
            &["Network", "Precision", "Pipelines", "Libraries", "Examples"][..],
        ),
        (&["runtime", "infer", "--help"], &["Engine", "Tiles", "Where it runs", "Depth", "Libraries", "Examples"]),
        (
            &["runtime", "bench", "--help"],
            &["Engine", "Measuring", "Results", "Where it runs", "Libraries", "Examples"],
        ),
        (&["runtime", "verify", "--help"], &["Engine", "Where it runs", "Libraries", "Examples"]),
    ] {
        let found = sections(arguments);
        for heading in expected {
            assert!(found.iter().any(|found| found == heading), "{arguments:?}: {heading} in {found:?}");
        }
    }
    // The same option has the same description everywhere.
    let words = "Refuse the engine unless it was signed with this key, before anything else of it is read";
    for (program, command) in [
        ("runtime", "infer"),
        ("runtime", "unpack"),
        ("runtime", "pull"),
        ("engine-builder", "unpack"),
        ("engine-builder", "verify"),
        ("engine-builder", "push"),
    ] {
        let mut help = end_to_end::command(program, [command, "--help"]);
        let help = Outcome::of(help.env("COLUMNS", "300")).success().stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("--require-signature <KEY>") && help.contains(words), "{program} {command}: {help}");
    }
}
