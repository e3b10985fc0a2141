//! The builder's two shared libraries.

use crate::release::{BUILDER, LibraryVersion, PARSER};
use crate::{BuildOptions, ComputeCapability, Error, Plan, Progress, Result, Validity};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The loaded builder. A process has one: loading it again from the same folder returns the same one.
#[derive(Debug, Clone)]
pub struct Library {
    folder: PathBuf,
    version: LibraryVersion,
}

#[cfg_attr(not(feature = "rtx"), allow(clippy::missing_const_for_fn))]
impl Library {
    /// The files that are loaded.
    pub const FILES: [&str; 2] = [BUILDER, PARSER];

    /// Loads the builder and its parser from `folder`. Neither needs a GPU or a driver.
    ///
    /// # Errors
    /// [`Error::NotCompiledIn`], [`Error::LibraryMissing`], [`Error::LibraryUnusable`], [`Error::LibraryVersion`], or
    /// [`Error::AnotherLibrary`].
    pub fn load(folder: &Path) -> Result<Self> {
        #[cfg(feature = "rtx")]
        {
            let version = crate::native::load(folder)?;
            Ok(Library { folder: folder.to_owned(), version })
        }
        #[cfg(not(feature = "rtx"))]
        {
            let _ = folder;
            Err(Error::NotCompiledIn)
        }
    }

    /// The release of the library in `folder`, if it can be loaded: what [`Library::load`] checks, without keeping it.
    ///
    /// # Errors
    /// As [`Library::load`].
    pub fn release_in(folder: &Path) -> Result<LibraryVersion> {
        #[cfg(feature = "rtx")]
        return crate::native::release_in(folder);
        #[cfg(not(feature = "rtx"))]
        {
            let _ = folder;
            Err(Error::NotCompiledIn)
        }
    }

    /// The folder that it was loaded from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its release.
    pub fn version(&self) -> LibraryVersion {
        self.version
    }

    /// Builds a plan of the graph in the ONNX file `graph` for the given capabilities: one plan that holds code for
    /// all of them. Weights in files beside the graph are read from there.
    ///
    /// The same graph, capabilities and options give the same bytes, with one exception: where several outputs can be
    /// finished in any order, release 1.7.1 lists them in the order of their addresses in memory. Such plans, of the
    /// same length, differ in that order alone, and are equal when each is built in a process of its own without
    /// address space randomisation (`setarch -R`).
    ///
    /// `progress` is called in this thread for each step and ends the build by returning [`ControlFlow::Break`]; the
    /// builder then stops at the end of the steps under way.
    ///
    /// A process builds one plan at a time: a second call waits, and a call within `progress` waits for ever. To build
    /// several at once, start several processes.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Refused`] or [`Error::Precision`] for the graph, [`Error::Options`] for the options,
    /// [`Error::Cancelled`], [`Error::Failed`].
    pub fn build(
        &self,
        graph: &Path,
        capabilities: &[ComputeCapability],
        options: &BuildOptions,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Plan> {
        if capabilities.is_empty() {
            return Err(Error::Options("expected at least one compute capability to build for, found none".into()));
        }
        if options.optimisation_level.is_some_and(|level| level > 5) {
            return Err(Error::Options("expected an optimisation level from 0 to 5".into()));
        }
        if options.without_weights && options.refit == crate::Refit::Never {
            return Err(Error::Options("a plan without weights must allow a refit: nothing else gives it any".into()));
        }
        #[cfg(feature = "rtx")]
        return crate::native::build(graph, capabilities, options, progress);
        #[cfg(not(feature = "rtx"))]
        {
            let _ = (graph, progress);
            Err(Error::NotCompiledIn)
        }
    }

    /// Whether this library could run a plan on this machine's first GPU, from the plan's header alone.
    ///
    /// # Errors
    /// [`Error::NotAPlan`] for too few bytes, [`Error::Failed`].
    pub fn validity(&self, plan: &[u8]) -> Result<Validity> {
        #[cfg(feature = "rtx")]
        return crate::native::validity(plan);
        #[cfg(not(feature = "rtx"))]
        {
            let _ = plan;
            Err(Error::NotCompiledIn)
        }
    }
}
