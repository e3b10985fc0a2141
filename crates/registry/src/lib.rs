//! Engines in OCI registries.
//!
//! An engine is one CNCF ModelPack manifest, with a layer for each of its files. A tag names an index of engines of
//! one model for several machines. The index's annotations state what each engine needs. The signature of an engine
//! refers to the engine's manifest.
//!
//! | item | does |
//! |---|---|
//! | [`Reference`] | where engines are: `oci://HOST/NAME:TAG` |
//! | [`Registry`] | the connection: HTTP, credentials, tokens |
//! | [`Authorities`] | the authorities that the connection to a registry trusts, besides the system's |
//! | [`push`] | sends engines, and only the files that the registry lacks |
//! | [`Offer`] | what a reference names: the variants, and what each one needs |
//! | [`pull`] | pulls one variant: resumed, checked, and moved to its directory in one step |
//! | [`pull_to_cache`] | the same for a [`Cache`]: engines that were pulled for one run, kept by their digest |
//! | [`annotations`] | the annotations of an engine in an index, derived from the engine's manifest |
//! | [`document`] | the manifests and indexes of the OCI image specification |
//! | [`http`] | the HTTP client of the programs |
//! | [`download`] | a file that is downloaded, whatever server it comes from |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod annotations;
mod authorities;
mod blob;
mod cache;
mod client;
mod credentials;
pub mod document;
pub mod download;
mod error;
pub mod http;
mod offer;
mod pull;
mod push;
mod reason;
mod reference;
mod signatures;
mod system;

pub use authorities::Authorities;
pub use cache::Cache;
pub use client::{Purpose, Registry};
pub use credentials::Credentials;
pub use document::Digest;
pub use error::{Error, Result};
pub use offer::{Offer, Variant};
pub use pull::{Pulled, pull, pull_to_cache};
pub use push::{Pushed, PushedEngine, push};
pub use reference::{Reference, Version};
