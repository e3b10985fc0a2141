//! A host on this machine.

use std::path::PathBuf;

use tileforge_runtime::host::{Host, HostOptions};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

use crate::error::Result;

/// How a [`Host`] is made. By default it finds ONNX Runtime around the executable, keeps nothing on disk, and takes as
/// much memory as the system gives.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The library of ONNX Runtime: `libonnxruntime.so`. `None`: it is looked for beside the executable and in the
    /// folders of a release around it.
    pub onnxruntime: Option<PathBuf>,
    /// Where things are kept that can be made again: graphs that were compiled for a GPU, engines out of archives and
    /// registries. `None`: nothing is kept.
    pub cache: Option<PathBuf>,
    /// How much memory sessions may take.
    pub memory: HostOptions,
    /// Large blocks of memory go back to the system when they are freed: a setting of the process's allocator, for
    /// programs that are the process.
    pub returns_large_blocks: bool,
}

impl Setup {
    /// Loads ONNX Runtime, which a process does once, and makes a host.
    ///
    /// # Errors
    /// The library is not found, or another one is loaded.
    pub fn host(self) -> Result<Host> {
        let search = match self.onnxruntime {
            Some(path) => Search::first_named([("Setup::onnxruntime", Some(path))]),
            None => Search::AroundExecutable,
        };
        let mut environment = Environment::new(onnxruntime::load(&search)?).with_cache(self.cache);
        if self.returns_large_blocks {
            environment = environment.returning_large_blocks();
        }
        Ok(Host::new(&environment, self.memory))
    }
}
