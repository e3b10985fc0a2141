//! Everything that `cargo xtask architectures` lists can be synthesised and exported. `make gpu-check` starts with
//! these steps.
#![allow(clippy::unwrap_used)] // a test's way to fail

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tileforge_exporter::arch::registry;

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");

fn stdout_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_architecture_is_listed_with_its_presets() {
    let listed: Vec<Value> =
        serde_json::from_str(&stdout_of(Command::new(XTASK).args(["architectures", "--json"]))).unwrap();
    assert_eq!(listed.len(), registry().len());
    for (listed, entry) in listed.iter().zip(registry()) {
        assert_eq!((&listed["name"], &listed["task"]), (&entry.name.into(), &entry.task.to_string().into()));
        let presets = listed["presets"].as_array().unwrap();
        assert_eq!(presets.len(), entry.presets().len());
        for (listed, (name, network)) in presets.iter().zip(entry.presets()) {
            assert_eq!(
                (&listed["name"], &listed["shapes"]),
                (&name.into(), &network.example_shapes().to_string().into())
            );
        }
    }
    let drct = listed.iter().find(|listed| listed["name"] == "DRCT").unwrap();
    assert!(drct["presets"][0]["shapes"].as_str().unwrap().starts_with("image:1x3x"));
    let text = stdout_of(Command::new(XTASK).arg("architectures"));
    assert!(registry().iter().all(|entry| text.contains(&format!("{} ({})\n", entry.name, entry.task))), "{text}");
}

#[test]
fn the_gpu_check_writes_a_graph_of_every_architecture() {
    let binaries = Path::new(XTASK).parent().unwrap();
    assert!(binaries.join("exporter").exists(), "exporter is not in {}; run `make test`", binaries.display());
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu_check.py");
    let mut command = Command::new("python3");
    let _ = stdout_of(command.arg(script).arg("--binaries").arg(binaries).arg("--only-graphs").arg(folder.path()));
    for entry in registry() {
        let path = folder.path().join(format!("{}.onnx", entry.name));
        let model = tileforge_graph::load(&path).unwrap();
        assert_eq!(model.metadata["tileforge.architecture"], entry.name);
    }
}
