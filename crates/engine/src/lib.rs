//! The engine directory: what `engine-builder` writes and `runtime` runs.
//!
//! | module | holds |
//! |---|---|
//! | [`Engine`] | an engine directory whose files match its manifest |
//! | [`manifest`] | the types of `manifest.json`, and their rules |
//! | [`signature`] | Ed25519 signatures of the manifest: who made an engine |
//! | [`archive`] | an engine as one `.tar` file, and back |
//! | [`exchange`] | how a finished folder is put at its place in one step |
//! | [`extend`] | an engine with more files |
//! | [`share`] | the same file in several engines, stored once |
//! | [`diff`] | how two engines differ |
//! | [`store`] | graphs compiled for one GPU, found by everything that they depend on |
//! | [`digest`] | SHA-256 of files and bytes |

pub mod archive;
pub mod diff;
pub mod digest;
mod directory;
mod error;
pub mod exchange;
mod extend;
mod file_map;
pub mod manifest;
pub mod share;
pub mod signature;
pub mod store;
mod validate;

pub use directory::{Engine, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, WEIGHTS_FILE};
pub use error::{Error, Result};
pub use extend::extend;
pub use manifest::{Graph, Manifest};
pub use signature::PublicKey;
pub use validate::engine_name;
