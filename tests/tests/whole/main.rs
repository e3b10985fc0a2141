//! All end-to-end tests are one program: it is linked once, and runs as many tests at the same time as the machine has
//! processors. `cargo test --release -p end-to-end infer::` runs the tests of one file.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

mod advice;
mod any_size;
mod bad_input;
mod batches;
mod bundle;
mod ci;
mod circles;
mod compare;
mod components;
mod conditions;
mod contributing;
mod convert;
mod crates;
mod cuda;
mod digests;
mod engines;
mod examples;
mod facade;
mod films;
mod fleet;
mod foreign;
mod frames;
mod fusions;
mod generate;
mod hostile;
mod infer;
mod intrusion;
mod many;
mod model_package;
mod models;
mod names;
mod neighbours;
mod openvino;
mod output_paths;
mod pairs;
mod parity;
mod pictures;
mod pipeline_engines;
mod pipeline_sources;
mod pipelines;
mod precision;
mod processors;
mod random_networks;
mod rebuild;
mod registry;
mod restoration;
mod retouch;
#[cfg(feature = "rtx")]
mod rtx_engines;
#[cfg(feature = "rtx")]
mod rtx_plans;
mod setup;
mod shape_inference;
mod stopped;
mod systems;
mod tasks;
mod telemetry;
mod tensorrt_lint;
mod tensors;
mod tile_quality;
mod together;
mod torch_files;
mod video_transformer;
mod video_vae;
