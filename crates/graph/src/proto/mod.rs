//! ONNX's protobuf messages, generated from ONNX's own schema (`cargo xtask codegen` remakes `onnx.rs`).
#![allow(missing_docs, clippy::all, rustdoc::all)] // the generator's text, not ours

include!("onnx.rs");
