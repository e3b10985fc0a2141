//! The engine directory: what `engine-builder` writes and `runtime` runs.
//!
//! | module | holds |
//! |---|---|
//! | [`Engine`] | an engine directory whose files match its manifest |
//! | [`Pipeline`] | an engine of several networks: a directory with an engine directory for each |
//! | [`Bundle`] | an engine of either kind: what is signed, packed and compared |
//! | [`Contents`], [`EngineSource`] | what an engine consists of, to be sent or received file by file |
//! | [`NamedEngines`] | which directories a name stands for |
//! | [`Requirements`] | what an engine needs of a machine |
//! | [`manifest`] | the types of `manifest.json`, and their rules |
//! | [`rebuild`] | what the manifest of an older engine says about how to make it again |
//! | [`signature`] | Ed25519 signatures of the manifest: who made an engine |
//! | [`archive`] | an engine as one `.tar` file, and back |
//! | [`folder`] | the files of a folder and its subfolders |
//! | [`exchange`] | how a finished folder is put at its place in one step |
//! | [`extend`] | an engine with more files |
//! | [`share`] | the same file in several engines, stored once |
//! | [`diff`] | how two engines differ |
//! | [`store`] | graphs compiled for one GPU, found by everything that they depend on |
//! | [`digest`] | SHA-256 of files and bytes |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod archive;
mod bundle;
mod bundle_manifest;
mod contents;
pub mod diff;
pub mod digest;
mod directory;
mod error;
pub mod exchange;
mod extend;
mod file_map;
pub mod folder;
mod free_sizes;
mod hexadecimal;
mod listing;
pub mod manifest;
mod named;
mod opened;
mod pipeline;
mod pipeline_manifest;
pub mod rebuild;
mod recipe;
mod requirements;
mod roles;
pub mod share;
pub mod signature;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tiling;
mod validate;

pub use bundle::Bundle;
pub use bundle_manifest::BundleManifest;
pub use contents::{Contents, EngineSource, manifest_of};
pub use directory::{Engine, WEIGHTS_FILE};
pub use error::{Error, Result};
pub use extend::extend;
pub use free_sizes::scaled_bytes;
pub use manifest::{Graph, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, Manifest};
pub use named::NamedEngines;
pub use pipeline::Pipeline;
pub use pipeline_manifest::{Diffusion, PipelineManifest, Restoration};
pub use requirements::Requirements;
pub use roles::{Roles, TextOutput, TextRole};
pub use signature::PublicKey;
pub use validate::engine_name;
