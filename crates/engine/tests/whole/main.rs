//! Engine directories through everything that is public, with nothing but this crate.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod archive;
mod directory;
mod pipeline;
mod signature;
mod small_engine;
