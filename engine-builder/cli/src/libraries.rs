//! The libraries that a build needs.

use std::env;
use std::path::PathBuf;

use tileforge_engine_builder::Error;
use tileforge_engine_builder::rtx::PlanProgram;
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};
use tileforge_terminal::cache_folder;

use super::advice::RTX_LIB;
use super::failure::Failure;

/// The places of the libraries that a build needs, if the user names them.
pub(crate) struct Libraries {
    onnxruntime: Option<PathBuf>,
    tensorrt_rtx: Option<PathBuf>,
}

impl Libraries {
    /// The places from the arguments, else from the environment variables.
    pub(crate) fn new(ort_lib: Option<PathBuf>, rtx_lib: Option<PathBuf>) -> Self {
        let variable = env::var_os(RTX_LIB).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
        Self { onnxruntime: ort_lib, tensorrt_rtx: rtx_lib.or(variable) }
    }

    /// The environment in which this process builds engines.
    pub(crate) fn environment(&self) -> Result<Environment, Failure> {
        let variable = env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
        let search = Search::first_named([("--ort-lib", self.onnxruntime.clone()), ("ORT_DYLIB_PATH", variable)]);
        Ok(Environment::new(onnxruntime::load(&search)?).with_cache(cache_folder()).returning_large_blocks())
    }

    /// The command line and library with which this program starts itself to build one plan.
    pub(crate) fn plan_program(&self) -> Result<PlanProgram, Failure> {
        let program = env::current_exe().map_err(|source| Error::File {
            path: "engine-builder".into(),
            action: "find the program itself",
            source,
        })?;
        Ok(PlanProgram { program, arguments: vec!["build-plan".into()], library: self.tensorrt_rtx.clone() })
    }
}
