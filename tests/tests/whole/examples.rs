//! The examples of the runtime's library work. Their files are compiled into this test.

#[path = "../../../runtime/examples/tiles.rs"]
mod tiles;
#[path = "../../../runtime/examples/upscale.rs"]
mod upscale;

use end_to_end::{binaries, demo_engine, names_in, repository, run, words};
use std::path::Path;
use std::process::Command;
use tileforge_image::{Limits, Picture};
use tileforge_runtime::Error;
use tileforge_runtime::host::Cancel;

#[test]
fn upscale_makes_what_the_command_makes() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, 150, 120).save(at("in.png")).unwrap();
    let arguments =
        words(&[&"infer", &"--engine", &demo_engine(), &"--input", &at("in.png"), &"--output", &at("command.png")]);
    let _ = run("runtime", arguments).success();
    let statistics = upscale::upscale(demo_engine(), &at("in.png"), &at("example.png"), &Cancel::new()).unwrap();
    assert_eq!((statistics.size.width, statistics.size.height), (600, 480));
    assert!(std::fs::read(at("example.png")).unwrap() == std::fs::read(at("command.png")).unwrap());

    let cancel = Cancel::new();
    cancel.cancel();
    let stopped = upscale::upscale(demo_engine(), &at("in.png"), &at("stopped.png"), &cancel);
    assert!(matches!(stopped, Err(Error::Cancelled)));
    assert_eq!(names_in(work.path()), ["command.png", "example.png", "in.png"]);
}

#[test]
fn tiles_make_what_the_whole_picture_makes() {
    let work = tempfile::tempdir().unwrap();
    let photo = image::open(repository("tests/images/coffee.png")).unwrap();
    let (input, output) = (work.path().join("in.png"), work.path().join("out.png"));
    // A picture of many tiles, and one that is smaller than a tile.
    for (width, height, count) in [(301, 217, 9), (40, 30, 1)] {
        photo.crop_imm(100, 50, width, height).into_rgb8().save(&input).unwrap();
        let plan = tiles::enlarge(&input, &output).unwrap();
        assert_eq!((plan.count(), plan.is_exact()), (count, true));
        let [whole, tiled] = [&input, &output].map(|path| Picture::read(path, &Limits::default()).unwrap());
        assert_eq!(whole.resized(tiled.size()).unwrap().difference(&tiled, 0).unwrap().maximum, 0);
    }
}

/// A crate outside this source tree, with the document's lines and the example as its program.
#[test]
fn a_program_of_its_own_takes_the_library_as_the_document_says() {
    let document = std::fs::read_to_string(repository("docs/runtime.md")).unwrap();
    let (_, lines) = document.split_once("```toml\n[dependencies]\n").unwrap();
    let (lines, _) = lines.split_once("```").unwrap();
    let root = repository("").canonicalize().unwrap();
    let tag = format!("tag = \"v{}\"", env!("CARGO_PKG_VERSION"));
    let from_here = |line: &str| {
        let Some(name) = line.split(" = ").next().and_then(|name| name.strip_prefix("tileforge-")) else {
            return line.to_owned();
        };
        assert!(line.contains("git = \"URL\"") && line.contains(&tag), "{line}: expected {tag}");
        let folder = if name == "runtime" { name.to_owned() } else { format!("crates/{name}") };
        format!("tileforge-{name} = {{ path = \"{}\" }}", root.join(folder).display())
    };
    let lines = lines.lines().map(from_here).collect::<Vec<_>>().join("\n");
    let package = "[workspace]\n[package]\nname = \"outside\"\nversion = \"1.0.0\"\nedition = \"2024\"\n";
    // Always the same folder, so that Cargo keeps only one build.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    // With this workspace's settings, Cargo reuses the compiled dependencies in the target folder.
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let settings = workspace.split("\n\n").filter(|section| section.contains("[profile.release"));
    let settings = settings.collect::<Vec<_>>().join("\n");
    assert!(settings.contains("[profile.release]\n"), "{settings}");
    let manifest = format!("{package}[dependencies]\n{lines}\n{settings}\n");
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // The same versions as in this workspace: nothing is downloaded.
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    std::fs::copy(root.join("runtime/examples/upscale.rs"), folder.join("src/main.rs")).unwrap();
    let mut check = Command::new(env!("CARGO"));
    let target = binaries().parent().unwrap().to_owned();
    check.args(["check", "--release", "--offline", "--quiet"]).current_dir(&folder).env("CARGO_TARGET_DIR", target);
    let output = check.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
