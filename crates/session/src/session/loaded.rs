//! What a session shares with the tensors that are bound to it.

use std::path::PathBuf;
use std::sync::Arc;

use tileforge_engine::Engine;

use super::backend::Backend;

/// A graph that stays loaded as long as anything uses it. Clones share it.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) backend: Arc<dyn Backend>,
    /// Holds the weights, which the library may use in place. Dropped after the backend.
    pub(super) _engine: Option<Engine>,
    /// The graph's file, for errors.
    pub(super) path: PathBuf,
}
