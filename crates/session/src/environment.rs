//! The environment that is passed to everything that runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tileforge_contract::Provider;

use crate::error::{Error, Result};
use crate::native::LargeBlocksReturn;
use crate::onnxruntime::Library;
use crate::provider::{self, Probe};

/// What sessions need from the machine: the library, the devices, and an optional cache folder.
///
/// Code that takes an environment reads no environment variables and no home folder. A process can have several
/// environments. They share ONNX Runtime's library, which a process loads once. Clones share everything.
#[derive(Clone, Debug)]
pub struct Environment {
    library: &'static Library,
    probe: Arc<OnceLock<Probe>>,
    cache: Option<Arc<Path>>,
    returns_large_blocks: bool,
}

impl Environment {
    /// An environment without a cache, which probes this machine's devices on first use.
    pub fn new(library: &'static Library) -> Self {
        Self { library, probe: Arc::default(), cache: None, returns_large_blocks: false }
    }

    /// The same environment with a cache folder, or without one. The cache holds what can be made again: compiled
    /// graphs, measurements, calibration.
    #[must_use]
    pub fn with_cache(self, folder: impl Into<Option<PathBuf>>) -> Self {
        Self { cache: folder.into().map(Into::into), ..self }
    }

    /// The same environment, which also returns memory that ONNX Runtime frees to the system at once while a session
    /// is opened. Opening then takes little more memory than the weights.
    ///
    /// With glibc this changes settings of the whole process's allocator (`mallopt`), so only a program should ask for
    /// it, not a library.
    #[must_use]
    pub fn returning_large_blocks(self) -> Self {
        Self { returns_large_blocks: true, ..self }
    }

    /// Applies [`Environment::returning_large_blocks`] as long as the value lives.
    pub(crate) fn large_blocks_return(&self) -> Option<LargeBlocksReturn> {
        self.returns_large_blocks.then(LargeBlocksReturn::new)
    }

    /// The same environment with these devices instead of this machine's.
    #[must_use]
    pub fn with_probe(self, probe: Probe) -> Self {
        Self { probe: Arc::new(OnceLock::from(probe)), ..self }
    }

    /// The ONNX Runtime library.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// The devices. This machine is probed on first use, not earlier, because NVIDIA's libraries are large.
    pub fn probe(&self) -> &Probe {
        self.probe.get_or_init(|| provider::probe(self.library))
    }

    /// The cache folder; `None`: nothing is kept.
    pub fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// Checks that a provider can be used on this machine, and loads its libraries for the rest of the process.
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
