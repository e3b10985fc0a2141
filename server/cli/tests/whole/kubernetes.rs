//! The manifests for Kubernetes.

use std::process::Command;

use crate::harness::{program, repository};

#[test]
fn manifests_follow_their_schemas_and_name_options_that_exist() {
    let files: Vec<_> =
        repository("packaging/kubernetes").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4);
    let mut commands = Vec::new();
    for version in ["1.30", "1.37"] {
        let mut check = Command::new(repository("target/server-venv/bin/python"));
        check.arg(repository("tests/clients/kubernetes_manifests.py")).arg(version).args(&files);
        let output = check.output().unwrap();
        assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
        commands = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    }
    assert_eq!(commands.len(), 4);
    for line in commands {
        let words: Vec<String> = serde_json::from_str(&line).unwrap();
        if words[0] != "tileforge-server" {
            continue;
        }
        let mut command = Command::new(program("tileforge-server"));
        command.args(&words[1..]).env("TILEFORGE_BROKER", "nats://127.0.0.1:1").env("AWS_REGION", "us-east-1");
        if !words.iter().any(|word| word.starts_with("--engines")) {
            command.arg("--engines=/nowhere/at/all");
        }
        // It is understood, and ends because nothing of it is here.
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains("expected a folder of engines"), "{words:?}: {text}");
    }
}
