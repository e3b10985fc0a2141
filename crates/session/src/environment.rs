//! What is passed to everything that runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tileforge_contract::Provider;

use crate::error::{Error, Result};
use crate::onnxruntime::Library;
use crate::provider::{self, Probe};

/// What sessions need of the box: the library, the devices, and a folder for what can be made again, or none.
///
/// Nothing below it reads environment variables or home folders. Several environments live in one process; they share ONNX Runtime's
/// library, which a process has once. Clones share everything.
#[derive(Clone, Debug)]
pub struct Environment {
    library: &'static Library,
    probe: Arc<OnceLock<Probe>>,
    cache: Option<Arc<Path>>,
}

impl Environment {
    /// An environment that keeps nothing, and looks at this box's devices when they are first asked for.
    pub fn new(library: &'static Library) -> Self {
        Self { library, probe: Arc::default(), cache: None }
    }

    /// The same with a folder for what can be made again: compiled graphs, measurements, calibration.
    #[must_use]
    pub fn with_cache(self, folder: impl Into<PathBuf>) -> Self {
        Self { cache: Some(folder.into().into()), ..self }
    }

    /// The same with other devices than those of this box.
    #[must_use]
    pub fn with_probe(self, probe: Probe) -> Self {
        Self { probe: Arc::new(OnceLock::from(probe)), ..self }
    }

    /// ONNX Runtime.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// The devices. NVIDIA's libraries are large, so that this box is looked at only when somebody asks.
    pub fn probe(&self) -> &Probe {
        self.probe.get_or_init(|| provider::probe(self.library))
    }

    /// Where to keep what can be made again; `None`: nowhere.
    pub fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// That a provider can be used on this box; its libraries are loaded then, for the rest of the process.
    ///
    /// # Errors
    /// [`Error::ProviderUnusable`] with what is missing; [`Error::Library`]: one of its libraries cannot be loaded.
    pub fn require(&self, provider: Provider) -> Result<()> {
        let reason = self.probe().reason_against(provider);
        if !reason.is_empty() {
            return Err(Error::ProviderUnusable { provider, reason });
        }
        provider::load_libraries(self.library, provider)
    }
}
