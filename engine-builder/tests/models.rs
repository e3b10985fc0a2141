//! The model files of this source tree.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use tileforge_engine_builder::{GraphFile, ModelFile, Origin};
use tileforge_exporter::arch::registry;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../models"))
}

/// Whether `found` has everything that `expected` has.
fn contains(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| found.get(key).is_some_and(|found| contains(found, value)))
        }
        _ => found == expected,
    }
}

/// The exporter's presets that a graph describes. The demo model is not one of them.
fn presets(graph: &GraphFile) -> Vec<&'static str> {
    let entry = registry().iter().find(|entry| entry.name == graph.architecture && entry.task == graph.task).unwrap();
    let expected = Value::Object(graph.hyperparameters.clone().into_iter().collect());
    let fits = |(name, network): (&'static str, Box<dyn tileforge_exporter::arch::Network>)| {
        contains(&network.hyperparameters().unwrap(), &expected).then_some(name)
    };
    entry.presets().into_iter().filter_map(fits).collect()
}

#[test]
fn every_graph_of_a_model_file_is_a_published_network() {
    let names = ModelFile::names(&[folder()]);
    let expected = [
        "animesharp-v4-x2",
        "aniscale2-ditn-x2",
        "aniscale2-omnisr-x2",
        "bsrgan-x4",
        "compact-x4",
        "depth-anything-v2-small",
        "drct-l-x4",
        "gfpgan-v1.4",
        "hat-l-x4",
        "lsd-unet",
        "nomoswebphoto-atd-x4",
        "nomoswebphoto-realplksr-x4",
        "purephoto-span-x4",
        "realesr-animevideov3",
        "realesr-general-x4v3",
        "realesrgan-x2plus",
        "realesrgan-x4plus",
        "realesrgan-x4plus-anime",
        "realwebphoto-v2-rgt-s-x4",
        "remacri-x4",
        "rgbd-depth-vitl",
        "sd15",
        "sdxl-base",
        "sdxl-inpainting",
        "sdxl-vae",
        "seedvr2-3b",
        "seedvr2-7b",
        "seedvr2-vae",
        "swinir-real-x4",
        "ultrasharp-v2-x4",
    ];
    assert_eq!(names, expected);
    for name in names.iter().filter(|name| *name != "compact-x4") {
        let model = ModelFile::find(name, &[folder()]).unwrap();
        assert!(model.source.is_some() && !model.licence.is_empty() && !model.provenance.is_empty(), "{name}");
        for (graph, facts) in &model.graphs {
            let presets = presets(facts);
            assert!(!facts.hyperparameters.is_empty(), "{name}/{graph}");
            assert!(presets.iter().any(|preset| !preset.starts_with("tiny")), "{name}/{graph}: {presets:?}");
            assert!(presets.iter().all(|preset| !preset.starts_with("tiny")), "{name}/{graph}: {presets:?}");
        }
        // A file that can be downloaded but has no published digest is recorded on first use; a web page needs no
        // size.
        if let Some(Origin::Folder(address)) = &model.source {
            assert!(
                address.starts_with("https://") && model.files.values().all(|facts| facts.sha256.is_some()),
                "{name}"
            );
        }
    }
}

/// The documentation's table has a row for each model, with the licence and the source of its file.
#[test]
fn the_documentation_names_licence_and_source_of_every_model() {
    let documentation = std::fs::read_to_string(folder().join("../docs/models.md")).unwrap();
    for name in ModelFile::names(&[folder()]) {
        let model = ModelFile::find(&name, &[folder()]).unwrap();
        let row = documentation.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let cells: Vec<&str> = row.unwrap_or_else(|| panic!("no row of {name}")).split('|').map(str::trim).collect();
        // The file's remark may be longer than the table's.
        assert!(cells[3].split(')').next().is_some_and(|licence| model.licence.starts_with(licence)), "{cells:?}");
        let source = match &model.source {
            None => "this repository".to_owned(),
            Some(Origin::Hub { repository, .. }) => format!("hub: {repository}"),
            Some(Origin::Folder(address)) => {
                let (repository, release) = address.split_once("/releases/download/").unwrap();
                format!("{}, release {release}", repository.trim_start_matches("https://github.com/"))
            }
            Some(Origin::Page(page)) if name != "lsd-unet" => {
                format!("by hand: {}", page.trim_start_matches("https://"))
            }
            Some(Origin::Page(_)) => "none: `cargo xtask synth".to_owned(),
        };
        assert!(cells[4].starts_with(&source), "expected `{source}` in {cells:?}");
    }
}

#[test]
fn a_model_file_says_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(self::folder().join("realesrgan-x4plus.yaml")).unwrap();
    let path = folder.path().join("realesrgan-x4plus.yaml");
    for (from, to, expected) in [
        ("name: real", "name: other", "expected the model to have its file's name"),
        ("sha256: 4fa0", "sha256: 4fa", "expected 64 hexadecimal digits"),
        ("  RealESRGAN_x4plus.pth:", "  ../RealESRGAN_x4plus.pth:", "expected names of files below the model's folder"),
        ("checkpoint: Real", "checkpoint: Fake", "is not among its `files`"),
        ("task: upscale\n", "", "expected either `graphs`, or `task`"),
        ("calibration: { tiles", "calibration: { tilse", "did you mean `tiles`?"),
        ("folder: https", "flolder: https", "did you mean `folder`?"),
        ("task: up", "sizes: { tiles: [] }\ntask: up", "`sizes`: `tiles`: expected at least one"),
        ("task: up", "sizes: { tiles: [8x8], batch: 0 }\ntask: up", "`batch`: expected 1 to"),
        ("task: up", "sizes: { tiles: [8x8], frames: 0 }\ntask: up", "`frames`: expected at least 1"),
        ("task: up", "sizes: { tiles: [8x8], tokens: 0 }\ntask: up", "`tokens`: expected at least 1"),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(&path, good.replace(from, to)).unwrap();
        let error = ModelFile::read(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "expected `{expected}` in: {error}");
    }
    // Keys of a single graph would have no effect beside several.
    let several = std::fs::read_to_string(self::folder().join("sdxl-vae.yaml")).unwrap();
    let path = folder.path().join("sdxl-vae.yaml");
    std::fs::write(&path, several + "\nset: { chunk: first }\nprecision: { cpu: fp32 }\n").unwrap();
    let error = ModelFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("expected set, precision in each of its `graphs`, found beside them"), "{error}");
    let error = ModelFile::find("realesrgan", &[self::folder()]).unwrap_err().to_string();
    assert!(error.contains("known are animesharp-v4-x2, aniscale2"), "{error}");
    // A name stays a name: no path leads out of the folders.
    let folders = [self::folder()];
    for name in ["../models/compact-x4", "models/compact-x4", "/compact-x4", "", ".", "compact-x4/"] {
        let error = ModelFile::path_of(Path::new(name), &folders).map(drop);
        assert!(error.is_err() || name == "compact-x4/", "{name}");
    }
    let nowhere = ModelFile::find("compact-x4", &["/nowhere/models".into()]).unwrap_err().to_string();
    assert!(nowhere.contains("none were found in /nowhere/models; give the path of a .yaml file"), "{nowhere}");
}

#[test]
fn one_of_several_graphs_is_chosen_by_its_name() {
    let of = |name: &str| ModelFile::find(name, &[folder()]).unwrap();
    assert!(of("compact-x4").graph(None).is_ok());
    let error = of("sdxl-vae").graph(None).unwrap_err().to_string();
    assert!(error.contains("the model has the graphs decoder, encoder"), "{error}");
    assert!(of("sdxl-vae").graph(Some("decoder")).is_ok());
}
