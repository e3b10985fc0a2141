//! The library's errors describe its domain. The command line adds what to type.
#![allow(clippy::unwrap_used)] // a test's way to fail

use safetensors::SafeTensors;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tileforge_exporter::arch::registry;
use tileforge_exporter::synthesise;
use tileforge_graph::DataType;

/// Writes the checkpoint of a preset, without notes on its hyperparameters unless they are `noted`.
fn checkpoint(folder: &Path, architecture: &str, preset: &str, noted: bool) -> PathBuf {
    let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == preset).unwrap();
    let path = folder.join(format!("{architecture}-{preset}.safetensors"));
    synthesise(network.as_ref(), DataType::F32, 1, &path).unwrap();
    if !noted {
        let bytes = fs::read(&path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        fs::write(&path, safetensors::serialize(tensors.tensors(), None).unwrap()).unwrap();
    }
    path
}

#[track_caller]
fn assert_fails(arguments: &[&str], path: &Path, code: i32, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_exporter"));
    let command = command.arg("export").arg(path).arg("-o").arg(folder.path().join("model.onnx")).args(arguments);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    for expected in expected {
        assert!(error.contains(expected), "expected `{expected}` in: {error}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "a failed export leaves a file");
}

#[test]
fn the_command_line_names_the_flag_that_helps() {
    let folder = tempfile::tempdir().unwrap();
    let write = |architecture, preset, noted| checkpoint(folder.path(), architecture, preset, noted);
    let compact = write("SRVGGNetCompact", "tiny", true);
    let relu = write("SRVGGNetCompact", "tiny-x2-relu", false);
    let drct = write("DRCT", "tiny", true);
    let rolled = write("DRCT", "tiny-bare-x3", false);
    let sparse = write("PLKSR", "tiny-sparse", false);
    let depth = write("DepthAnything", "tiny", false);
    let text = write("CLIPText", "tiny", true);
    for (path, arguments, code, expected) in [
        (&compact, &["--shapes", "image:1x3x64"][..], 2, &["expected BATCHx3xHEIGHTxWIDTH", "`--shapes image:…`"][..]),
        (&compact, &["--shapes", "picture:1x3x64x64"], 2, &["no input `picture`", "--shapes NAME:SIZExSIZE…"]),
        (&compact, &["--shapes", "image=1"], 2, &["image:1x3x256x256", "'--shapes <NAME:SHAPE>'"]),
        (&compact, &["--set", "depth=3"], 2, &["no hyperparameter `depth`", "`--set depth=…`"]),
        (&compact, &["--component", "picture"], 2, &["--component: "]),
        (&compact, &["--component", "upscale", "--component", "depth"], 2, &["give --component once"]),
        (&relu, &[], 1, &["do not tell ReLU from LeakyReLU", "--set activation=relu` or `--set activation=leakyrelu"]),
        (&drct, &[], 2, &["of one size", "--shapes image:1x3x256x256"]),
        (&drct, &["--shapes", "image:1x3x1x8"], 2, &["1 is too small to be extended to 4 by reflection", "--shapes"]),
        (&rolled, &[], 1, &["relative_position_index", "--set rolled=true"]),
        (&sparse, &[], 1, &["dilations of the 4 sparse kernels", "--set sparse_dilations=1,2,3,4"]),
        (&depth, &[], 1, &["tokens of width 16", "--set heads=2"]),
        (&depth, &["--set", "heads=2"], 1, &["no published network has 4 blocks", "--set taps=2,5,8,11"]),
        (&text, &["--shapes", "input_ids:1x8"], 2, &["expected at most 7 tokens, found 8"]),
    ] {
        assert_fails(arguments, path, code, expected);
    }
}

#[test]
fn the_weights_of_a_folder_are_chosen_by_their_variant() {
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint(folder.path(), "SRVGGNetCompact", "tiny", true);
    fs::rename(path, folder.path().join("model.fp16.safetensors")).unwrap();
    let expected = ["expected weights named", "found model.fp16.safetensors", "`--variant fp16`"];
    assert_fails(&[], folder.path(), 1, &expected);
}

/// The sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    folders.iter().flat_map(|folder| sources(folder)).chain(files).collect()
}

#[test]
fn the_libraries_name_no_flags() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in ["../src", "../../crates/graph/src"].iter().flat_map(|folder| sources(&here.join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        let flag = text.lines().find(|line| {
            line.split("--").skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()))
        });
        assert_eq!(flag, None, "{}", path.display());
    }
}
