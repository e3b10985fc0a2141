//! Engine directories through the public interface of this crate alone.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod archive;
mod directory;
mod pipeline;
mod signature;
mod small_engine;
