//! Finding and loading the ONNX Runtime shared library, once in a process.

use std::env::consts::{DLL_EXTENSION, DLL_PREFIX};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;
use tileforge_contract::Provider;
use tileforge_files::{installation, owner};

use crate::error::{Error, Result};
use crate::native::{self, OnnxRuntimeApi};
use crate::openvino::{self, OpenVino};
use crate::system::libraries::{self, ONNXRUNTIME, TENSORRT_RTX_PLUGIN};

/// The number of the C API that this crate is compiled for (`ort`'s feature `api-24`). It is also the minor number of
/// the oldest release that has this API: 1.24.
pub const OLDEST_MINOR_VERSION: u32 = ort::MINOR_VERSION;

/// What to do about [`Error::RuntimeMissing`].
pub const INSTALL_CPP_RUNTIME: &str = "install it: `winget install Microsoft.VCRedist.2015+.x64`, or \
    https://aka.ms/vs/17/release/vc_redist.x64.exe";

/// The ONNX Runtime library of this process.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    /// Further folders to search for provider libraries that are not beside this library.
    folders: Vec<PathBuf>,
    /// Whether the user named the library's place. Otherwise, a library that another user can change is refused.
    named: bool,
    version: String,
    load_time: Duration,
    environment: Environment,
    /// The result of registering the plugin of TensorRT for RTX, which happens once.
    tensorrt_rtx: OnceLock<Result<(), String>>,
    /// OpenVINO, or why it cannot be loaded. Loading is tried once.
    openvino: OnceLock<Result<OpenVino, String>>,
}

impl Library {
    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library's own version, such as "1.31.1".
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How long it took to open the library and create its environment.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// The library of this name in the folder of this library, or in one of the further folders; `None` if there is
    /// none.
    ///
    /// # Errors
    /// Another user could change it, and the caller did not name the place.
    pub fn beside(&self, file: &str) -> Result<Option<PathBuf>, String> {
        let Some(path) = self.all_folders().map(|folder| folder.join(file)).find(|path| path.is_file()) else {
            return Ok(None);
        };
        if !self.named {
            let checked = owner::check(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            checked.map_err(|untrusted| format!("it is not loaded: {untrusted}"))?;
        }
        Ok(Some(path))
    }

    /// Registers the provider of TensorRT for RTX, the plugin beside this library, once in a process.
    ///
    /// # Errors
    /// Another user could change the plugin; or ONNX Runtime's message, if the plugin or a library that it links to
    /// cannot be loaded.
    pub fn register_tensorrt_rtx(&self) -> Result<(), String> {
        self.tensorrt_rtx
            .get_or_init(|| {
                let name = Provider::TensorRtRtx.onnxruntime_name();
                let missing = || format!("{TENSORRT_RTX_PLUGIN} is not beside {ONNXRUNTIME}");
                let plugin = self.beside(TENSORRT_RTX_PLUGIN)?.ok_or_else(missing)?;
                self.environment.register_ep_library(name, &plugin).map_err(|error| error.to_string())
            })
            .clone()
    }

    /// The folders to search for provider libraries: this library's own folder first.
    fn all_folders(&self) -> impl Iterator<Item = &Path> {
        self.path.parent().into_iter().chain(self.folders.iter().map(PathBuf::as_path))
    }

    /// OpenVINO's library, beside this library or in one of the further folders; `None` if there is none.
    ///
    /// # Errors
    /// Another user could change it, and the caller did not name the place.
    pub(crate) fn openvino_file(&self) -> Result<Option<PathBuf>, String> {
        self.all_folders().find_map(openvino::file_in).map_or(Ok(None), |name| self.beside(&name))
    }

    /// OpenVINO, loaded for the rest of the process.
    ///
    /// # Errors
    /// It is not here, or cannot be loaded.
    pub(crate) fn openvino(&self) -> Result<&OpenVino, String> {
        let load = || {
            let missing = || format!("its library is not beside {ONNXRUNTIME}: install it with `make setup`");
            OpenVino::load(&self.openvino_file()?.ok_or_else(missing)?)
        };
        self.openvino.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The release of OpenVINO, such as "2026.4.1".
    ///
    /// # Errors
    /// It is not here, or cannot be loaded.
    pub fn openvino_release(&self) -> Result<&str, String> {
        self.openvino().map(OpenVino::release)
    }

    /// Whether OpenVINO can compute in BF16 on this processor.
    ///
    /// # Errors
    /// OpenVINO is not here, or cannot be loaded.
    pub fn computes_bf16(&self) -> Result<bool, String> {
        self.openvino().map(OpenVino::computes_bf16)
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }
}

/// Where to look for the library.
#[derive(Clone, Debug)]
pub enum Search {
    /// The library's file, or a folder that holds it. `by` names the option or variable in error messages.
    Named {
        /// The file or folder.
        place: PathBuf,
        /// An option or an environment variable.
        by: &'static str,
    },
    /// The executable's folder, `../lib/tileforge` from there, where releases have it, `../lib`, and
    /// `.onnxruntime/lib` of the source tree that this crate was compiled in, where `make setup` puts it; a release
    /// has no such tree. No other place is searched, because loading a library executes it.
    AroundExecutable,
}

impl Search {
    /// At the first of these places that is not empty, each with the option or variable that names it; if there is
    /// none, around the executable.
    pub fn first_named(places: impl IntoIterator<Item = (&'static str, Option<PathBuf>)>) -> Self {
        let named = |(by, place): (_, Option<PathBuf>)| {
            Some(Self::Named { place: place.filter(|place| !place.as_os_str().is_empty())?, by })
        };
        places.into_iter().find_map(named).unwrap_or(Self::AroundExecutable)
    }
}

/// Loads the library, or returns the loaded one. A process loads only one.
///
/// # Errors
/// [`Error::NoLibraryAt`] or [`Error::LibraryNotFound`] if there is none; [`Error::Library`] if the file is not ONNX
/// Runtime, or is older than 1.[`OLDEST_MINOR_VERSION`]; [`Error::RuntimeMissing`] if it needs Microsoft's Visual C++
/// runtime, which is not installed; [`Error::LibraryLoaded`] if another library is already loaded than the named one.
pub fn load(search: &Search) -> Result<&'static Library> {
    load_with(search, &[])
}

/// As [`load`]. If this call loads the library, its provider libraries are also searched for in these folders, which
/// the caller trusts. Python packages, for example, keep each library in a folder of its own.
///
/// # Errors
/// As [`load`].
pub fn load_with(search: &Search, folders: &[PathBuf]) -> Result<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock();
    let Some(library) = LIBRARY.get() else {
        let library = open(find(search)?, folders, matches!(search, Search::Named { .. }))?;
        return Ok(LIBRARY.get_or_init(|| library));
    };
    if let Search::Named { .. } = search {
        let wanted = find(search)?;
        let wanted = tileforge_files::real_path(&wanted).map_err(|source| Error::file(&wanted, "find", source))?;
        if wanted != library.path {
            return Err(Error::LibraryLoaded { loaded: library.path.clone(), wanted });
        }
    }
    Ok(library)
}

fn find(search: &Search) -> Result<PathBuf> {
    match search {
        // A place that the user named is used or refused. Falling back to other places would be a surprise.
        Search::Named { place, by } => {
            let file = if place.is_dir() { place.join(file_name()) } else { place.clone() };
            if file.is_file() { Ok(file) } else { Err(Error::NoLibraryAt { by, path: file }) }
        }
        Search::AroundExecutable => {
            let places = places_around_executable();
            let Some(found) = places.iter().find(|place| place.is_file()).cloned() else {
                return Err(Error::LibraryNotFound { places });
            };
            match owner::check(&found).map_err(|source| Error::file(&found, "inspect", source))? {
                Ok(()) => Ok(found),
                Err(untrusted) => Err(Error::Library { path: found, problem: format!("is not loaded: {untrusted}") }),
            }
        }
    }
}

/// The folders of [`Search::AroundExecutable`], in search order.
pub fn folders_around_executable() -> Vec<PathBuf> {
    let folder = installation::executable_folder();
    let beside = [folder.clone(), folder.join("../lib/tileforge"), folder.join("../lib")];
    let source_tree = installation::built_in().map(|tree| tree.join(".onnxruntime/lib"));
    beside.into_iter().chain(source_tree).collect()
}

fn places_around_executable() -> Vec<PathBuf> {
    folders_around_executable().into_iter().map(|folder| folder.join(file_name())).collect()
}

fn file_name() -> String {
    format!("{DLL_PREFIX}onnxruntime.{DLL_EXTENSION}")
}

fn open(path: PathBuf, folders: &[PathBuf], named: bool) -> Result<Library> {
    let started = Instant::now();
    // With an absolute path, the system's loader and `ort` search nowhere else.
    let path = tileforge_files::real_path(&path).map_err(|source| Error::file(&path, "find", source))?;
    for folder in path.parent().into_iter().chain(folders.iter().map(PathBuf::as_path)) {
        libraries::search_in(folder).map_err(|source| Error::file(folder, "look for libraries in", source))?;
    }
    let refused = |problem: String| Error::Library { path: path.clone(), problem };
    native::disable_telemetry();
    let version = match native::onnxruntime_api(path.as_os_str(), OLDEST_MINOR_VERSION) {
        Ok(OnnxRuntimeApi::Usable(version)) => version,
        Ok(OnnxRuntimeApi::TooOld(version)) => {
            return Err(refused(format!("is version {version}, and 1.{OLDEST_MINOR_VERSION} or newer is needed")));
        }
        Ok(OnnxRuntimeApi::Foreign) => {
            return Err(refused("is a library, but not ONNX Runtime (no OrtGetApiBase)".into()));
        }
        Err(reason) => return Err(not_loaded(&path, &reason, libraries::missing_cpp_runtime())),
    };
    let environment = ort::init_from(&path)
        .map_err(|error| refused(format!("cannot be loaded: {error}")))?
        .with_name("tileforge")
        .with_telemetry(false)
        .with_logger(Arc::new(forward_log))
        .build()
        .map_err(|error| refused(format!("cannot create its environment: {error}")))?;
    // At a lower level, ONNX Runtime would format a message for each node of each graph, which we would drop.
    environment.set_log_level(LogLevel::Warning);
    Ok(Library {
        path,
        folders: folders.to_vec(),
        named,
        version,
        load_time: started.elapsed(),
        environment,
        tensorrt_rtx: OnceLock::new(),
        openvino: OnceLock::new(),
    })
}

/// Why the loader refused the library: its own reason, unless system libraries are missing, because the loader does
/// not name these.
fn not_loaded(path: &Path, reason: &str, missing: Vec<&'static str>) -> Error {
    if missing.is_empty() {
        Error::Library { path: path.to_owned(), problem: format!("cannot be loaded: {reason}") }
    } else {
        Error::RuntimeMissing { path: path.to_owned(), missing }
    }
}

/// Sends ONNX Runtime's log to our log.
fn forward_log(level: LogLevel, _category: &str, _id: &str, location: &str, message: &str) {
    match level {
        LogLevel::Verbose => tracing::trace!(target: "onnxruntime", location, "{message}"),
        LogLevel::Info => tracing::debug!(target: "onnxruntime", location, "{message}"),
        LogLevel::Warning => tracing::warn!(target: "onnxruntime", "{message}"),
        LogLevel::Error | LogLevel::Fatal => tracing::error!(target: "onnxruntime", "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_place_without_the_library_is_refused_by_name() {
        let search = Search::Named { place: "/nowhere/at/all".into(), by: "an option" };
        let error = find(&search).unwrap_err().to_string();
        assert!(error.contains("an option names /nowhere/at/all"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = open(file.path().to_owned(), &[], true).unwrap_err().to_string();
        assert!(error.contains("cannot be loaded"), "{error}");
    }

    #[test]
    fn missing_libraries_of_the_system_are_named_instead_of_the_loaders_reason() {
        let error = |missing| not_loaded(Path::new("onnxruntime.dll"), "module not found", missing).to_string();
        let missing = error(vec!["msvcp140.dll", "vcruntime140.dll"]);
        assert!(missing.contains("is missing: expected msvcp140.dll, vcruntime140.dll"), "{missing}");
        assert!(!missing.contains("module not found"), "{missing}");
        assert_eq!(error(Vec::new()), "ONNX Runtime: onnxruntime.dll cannot be loaded: module not found");
    }

    #[test]
    fn it_is_searched_beside_the_executable_and_in_the_source_tree_alone() {
        let places = places_around_executable();
        let executable = std::env::current_exe().unwrap().canonicalize().unwrap();
        let folder = executable.parent().unwrap();
        let tree = installation::built_in().map(|tree| tree.join(".onnxruntime/lib"));
        let expected = [folder.to_owned(), folder.join("../lib/tileforge"), folder.join("../lib")];
        let expected: Vec<_> = expected.into_iter().chain(tree).map(|folder| folder.join(file_name())).collect();
        assert_eq!(places, expected);
    }
}
