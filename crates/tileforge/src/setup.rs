//! A host on this machine.

use std::path::PathBuf;

use tileforge_runtime::host::{Host, HostOptions};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

use crate::error::Result;

/// How a [`Host`] is made. By default, it looks for ONNX Runtime around the executable, stores nothing on disk, and
/// takes as much memory as the system gives.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The library of ONNX Runtime: `libonnxruntime.so`. `None`: searched beside the executable and in the folders of
    /// a release around it.
    pub onnxruntime: Option<PathBuf>,
    /// Folders with provider libraries that are not beside ONNX Runtime's, such as OpenVINO's. Used only with
    /// [`Setup::onnxruntime`], and only if this call loads ONNX Runtime.
    pub library_folders: Vec<PathBuf>,
    /// The folder for data that can be recreated: graphs compiled for a GPU, engines from archives and registries.
    /// `None`: nothing is stored.
    pub cache: Option<PathBuf>,
    /// How much memory sessions may take.
    pub memory: HostOptions,
    /// Returns large blocks of memory to the system when they are freed. This sets the allocator of the whole process,
    /// so only the program itself should enable it, not a library.
    pub returns_large_blocks: bool,
}

impl Setup {
    /// Loads ONNX Runtime, which a process does once, and makes a host.
    ///
    /// # Errors
    /// The library is not found, or another one is loaded.
    pub fn host(self) -> Result<Host> {
        let library = match self.onnxruntime {
            Some(path) => {
                let search = Search::first_named([("Setup::onnxruntime", Some(path))]);
                onnxruntime::load_with(&search, &self.library_folders)?
            }
            None => onnxruntime::load(&Search::AroundExecutable)?,
        };
        let mut environment = Environment::new(library).with_cache(self.cache);
        if self.returns_large_blocks {
            environment = environment.returning_large_blocks();
        }
        Ok(Host::new(&environment, self.memory))
    }
}
