//! Generates Rust code from protocol buffers, without `protoc`.

use std::fs;
use std::path::{Path, PathBuf};

/// The source and the target of generated code.
struct Schema {
    /// The folder in the repository.
    folder: &'static str,
    /// The schema in it.
    file: &'static str,
    /// The name of its package.
    package: &'static str,
    /// The file in the repository.
    target: &'static str,
    /// Whether it has services.
    services: bool,
}

const SCHEMAS: [Schema; 2] = [
    Schema {
        folder: "crates/graph/proto",
        file: "onnx-ml.proto",
        package: "onnx",
        target: "crates/graph/src/proto/onnx.rs",
        services: false,
    },
    Schema {
        folder: "server/proto",
        file: "open_inference.proto",
        package: "inference",
        target: "server/src/grpc/proto.rs",
        services: true,
    },
];

/// Writes the checked-in protobuf code.
pub(crate) fn run() -> Result<(), String> {
    for schema in SCHEMAS {
        let made = generate(&schema)?;
        fs::write(in_repository(schema.target), made).map_err(|e| format!("{}: {e}", schema.target))?;
    }
    Ok(())
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn generate(Schema { folder, file, package, services, .. }: &Schema) -> Result<String, String> {
    let descriptors = protox::compile([file], [in_repository(folder)]).map_err(|e| format!("{e}"))?;
    let out = tempfile::tempdir().map_err(|e| format!("temporary folder: {e}"))?;
    // Bytes stay slices of the decoded buffer, without a copy.
    let made = if *services {
        let builder = tonic_prost_build::configure().build_client(false).build_transport(false);
        builder.bytes(".").out_dir(out.path()).compile_fds(descriptors)
    } else {
        prost_build::Config::new().bytes(["."]).out_dir(out.path()).compile_fds(descriptors)
    };
    made.map_err(|e| format!("{file}: {e}"))?;
    let name = format!("{package}.rs");
    let made = fs::read_to_string(out.path().join(&name)).map_err(|e| format!("generated {name}: {e}"))?;
    Ok(format!("// Made by `cargo xtask codegen` from {folder}/{file}. Do not edit.\n{made}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_code_is_what_the_schemas_make() {
        for schema in SCHEMAS {
            let found = fs::read_to_string(in_repository(schema.target)).unwrap();
            assert!(found == generate(&schema).unwrap(), "{}: run `cargo xtask codegen`", schema.target);
        }
    }
}
