//! The engine directory: what `engine-builder` writes and `runtime` runs.
//!
//! | module | holds |
//! |---|---|
//! | [`Engine`] | an engine directory whose files are those of its manifest |
//! | [`manifest`] | the types of `manifest.json`, and their rules |
//! | [`signature`] | who made an engine: Ed25519 signatures of the manifest |
//! | [`archive`] | an engine as one `.tar` file, and back |
//! | [`exchange`] | how a finished folder gets its place at one moment |
//! | [`share`] | the same file in several engines, stored once |
//! | [`diff`] | how two engines differ |
//! | [`store`] | graphs that were compiled for one GPU, found by everything that they depend on |
//! | [`digest`] | SHA-256 of files and bytes |

pub mod archive;
pub mod diff;
pub mod digest;
mod directory;
mod error;
pub mod exchange;
mod file_map;
pub mod manifest;
pub mod share;
pub mod signature;
pub mod store;
mod validate;

pub use directory::{Engine, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, WEIGHTS_FILE};
pub use error::{Error, Result};
pub use manifest::{Graph, Manifest};
pub use signature::PublicKey;
