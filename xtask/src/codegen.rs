//! Generates Rust code from ONNX's schema, without `protoc`.

use std::fs;
use std::path::Path;

const HEADER: &str = "// Made by `cargo xtask codegen` from crates/graph/proto/onnx-ml.proto. Do not edit.\n";

/// Writes the checked-in protobuf code. With `check`, compares it instead.
pub(crate) fn run(check: bool) -> Result<(), String> {
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/graph");
    let target = graph.join("src/proto/onnx.rs");
    let made = generate(&graph.join("proto"))?;
    if check {
        let found = fs::read_to_string(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        if found != made {
            return Err(format!(
                "{} is not what crates/graph/proto/onnx-ml.proto makes; run `cargo xtask codegen`",
                target.display()
            ));
        }
        return Ok(());
    }
    fs::write(&target, made).map_err(|e| format!("{}: {e}", target.display()))
}

fn generate(folder: &Path) -> Result<String, String> {
    let descriptors = protox::compile(["onnx-ml.proto"], [folder]).map_err(|e| format!("{e}"))?;
    let out = tempfile::tempdir().map_err(|e| format!("temporary folder: {e}"))?;
    prost_build::Config::new()
        .out_dir(out.path())
        // Raw tensor data stays a slice of the decoded buffer, without a copy.
        .bytes(["."])
        .compile_fds(descriptors)
        .map_err(|e| format!("prost-build: {e}"))?;
    let made = fs::read_to_string(out.path().join("onnx.rs")).map_err(|e| format!("generated onnx.rs: {e}"))?;
    Ok(format!("{HEADER}{made}"))
}
