//! Execution providers: which of them this machine can use, and why not others.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ort::ep::{ArbitrarilyConfigurableExecutionProvider, CUDA, ExecutionProvider, ExecutionProviderDispatch, TensorRT};
use ort::session::builder::SessionBuilder;
use serde::Serialize;
use tileforge_contract::Provider;

use crate::error::{Error, Result};
use crate::jetson::Jetson;
use crate::native::{self, CudaDriver};
use crate::onnxruntime::Library;
use crate::options::SessionOptions;
use crate::system::libraries::{self, CUDA_DRIVER as DRIVER, ONNXRUNTIME, TENSORRT_RTX_PLUGIN};
use crate::system::processors;

/// What [`probe`] found for one provider.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderStatus {
    /// The provider.
    pub provider: Provider,
    /// Whether the loaded ONNX Runtime library was built with it, or has its plugin beside it.
    pub compiled_in: bool,
    /// Whether everything that it needs is on this machine.
    pub usable: bool,
    /// Why, or why not: the first missing library, and the package that has it.
    pub reason: String,
}

/// An NVIDIA GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// The marketing name, from the driver.
    pub name: String,
    /// The compute capability, such as "8.9".
    pub compute_capability: String,
    /// Device memory in bytes.
    pub memory_bytes: u64,
}

impl Gpu {
    /// The compute capability as two numbers; 0.0 if it cannot be read.
    pub fn capability(&self) -> (u32, u32) {
        let parts = self.compute_capability.split_once('.');
        parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))).unwrap_or((0, 0))
    }
}

/// The result of [`probe`]; by default empty.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Probe {
    /// One entry for each of [`Provider::LADDER`], in that order.
    pub providers: Vec<ProviderStatus>,
    /// The highest CUDA version that the installed driver supports, such as "13.0".
    pub driver_cuda_version: Option<String>,
    /// Why the driver cannot be used; `None` if it can.
    pub driver_problem: Option<String>,
    /// The version of the TensorRT library, such as "10.14.1".
    pub tensorrt_version: Option<String>,
    /// The release of TensorRT for RTX, such as "1.7.1.116".
    pub tensorrt_rtx_version: Option<String>,
    /// The GPUs that the driver reports.
    pub gpus: Vec<Gpu>,
    /// The Jetson module that this machine is, if it is one.
    pub jetson: Option<Jetson>,
}

impl Probe {
    /// The entry of one provider.
    pub fn status(&self, provider: Provider) -> Option<&ProviderStatus> {
        self.providers.iter().find(|status| status.provider == provider)
    }

    /// Why a provider cannot be used; empty if it can.
    pub fn reason_against(&self, provider: Provider) -> String {
        let status = self.status(provider).filter(|status| !status.usable);
        status.map(|status| status.reason.clone()).unwrap_or_default()
    }
}

/// A shared library that a provider needs, and the package to install for it.
struct Needed {
    file: &'static str,
    from: &'static str,
}

/// What CUDA needs besides the driver, in the order of loading: libraries that others link to come first. ONNX
/// Runtime's GPU builds from 1.24 on need CUDA 13 and cuDNN 9.
const CUDA_LIBRARIES: [Needed; 5] = [
    Needed { file: libraries::CUDA_RUNTIME, from: "the CUDA 13 runtime (pip: nvidia-cuda-runtime)" },
    Needed { file: libraries::CUBLAS_LT, from: "cuBLAS of CUDA 13 (pip: nvidia-cublas)" },
    Needed { file: libraries::CUBLAS, from: "cuBLAS of CUDA 13 (pip: nvidia-cublas)" },
    Needed { file: libraries::CURAND, from: "cuRAND of CUDA 13 (pip: nvidia-curand)" },
    Needed { file: libraries::CUDNN, from: "cuDNN 9 for CUDA 13 (pip: nvidia-cudnn-cu13)" },
];

/// What TensorRT needs besides the libraries for CUDA.
const TENSORRT_LIBRARIES: [Needed; 2] = [
    Needed { file: libraries::TENSORRT, from: "TensorRT 10 (pip: tensorrt-cu13<11)" },
    Needed { file: libraries::TENSORRT_PARSER, from: "TensorRT 10 (pip: tensorrt-cu13<11)" },
];

/// What TensorRT for RTX needs. Its provider is a plugin, which links to these.
const TENSORRT_RTX_LIBRARIES: [Needed; 3] = [
    Needed { file: libraries::CUDA_RUNTIME, from: "the CUDA 13 runtime (pip: nvidia-cuda-runtime)" },
    Needed { file: libraries::TENSORRT_RTX, from: "TensorRT for RTX (pip: tensorrt-rtx-cu13-libs)" },
    Needed { file: libraries::TENSORRT_RTX_PARSER, from: "TensorRT for RTX (pip: tensorrt-rtx-cu13-libs)" },
];

/// Where the plugin's package is from.
const TENSORRT_RTX_PACKAGE: &str = "onnxruntime-ep-nv-tensorrt-rtx-cu13";

/// Finds out what this machine has for each provider.
///
/// ONNX Runtime calls a provider "available" if it is compiled in, even without a device, and falls back silently. So
/// this function queries the libraries and the driver directly.
pub fn probe(library: &Library) -> Probe {
    let driver = native::cuda_driver(DRIVER);
    let folder = library.path().parent().unwrap_or(Path::new(""));
    let status = |provider: Provider| {
        let compiled_in = match provider {
            Provider::TensorRtRtx => folder.join(TENSORRT_RTX_PLUGIN).is_file(),
            Provider::TensorRt => TensorRT::is_available().unwrap_or(false),
            Provider::Cuda => CUDA::is_available().unwrap_or(false),
            Provider::OpenVino => matches!(library.openvino_file(), Ok(Some(_))),
            Provider::Cpu => true,
        };
        let obstacle = match provider {
            Provider::Cpu => None,
            Provider::OpenVino => match library.openvino_file() {
                Ok(Some(_)) => None,
                Ok(None) => Some(format!(
                    "{} is not beside {ONNXRUNTIME}: install OpenVINO (pip: openvino)",
                    libraries::OPENVINO
                )),
                Err(untrusted) => Some(untrusted),
            },
            Provider::TensorRtRtx if !compiled_in => Some(format!(
                "{TENSORRT_RTX_PLUGIN} is not beside {ONNXRUNTIME}: install the provider (pip: {TENSORRT_RTX_PACKAGE})"
            )),
            _ if !compiled_in => Some(format!(
                "this ONNX Runtime ({}) was built without {provider}; use the library of the \
                 onnxruntime-gpu package",
                library.version()
            )),
            gpu => missing_library(gpu, library).or_else(|| driver_obstacle(&driver)),
        };
        let there = match provider {
            Provider::Cpu => "always there",
            Provider::OpenVino => "its library is there",
            _ => "library, driver and GPU are there",
        };
        ProviderStatus {
            provider,
            compiled_in,
            usable: obstacle.is_none(),
            reason: obstacle.unwrap_or_else(|| there.into()),
        }
    };
    let providers = Provider::LADDER.iter().copied().map(status).collect();
    let (driver_cuda_version, driver_problem, gpus) = match driver {
        Ok(driver) => (Some(version_text(driver.version)), None, gpus_of(&driver)),
        Err(problem) => (None, Some(problem), Vec::new()),
    };
    let tensorrt_version =
        located(TENSORRT_LIBRARIES[0].file, library).ok().and_then(|file| native::tensorrt_version(&file).ok());
    let tensorrt_rtx_version =
        located(libraries::TENSORRT_RTX, library).ok().and_then(|file| native::tensorrt_rtx_version(&file).ok());
    let jetson = Jetson::read(Path::new("/"));
    Probe { providers, driver_cuda_version, driver_problem, tensorrt_version, tensorrt_rtx_version, gpus, jetson }
}

/// Loads the libraries of a provider for the rest of the process.
///
/// ONNX Runtime itself searches only the system's folders, but it uses libraries that are already loaded.
pub(crate) fn load_libraries(library: &Library, provider: Provider) -> Result<()> {
    let needed = needed_by(provider).filter_map(|needed| located(needed.file, library).ok());
    let load = |file: PathBuf| {
        native::load_for_good(&file)
            .map_err(|reason| Error::Library { path: file, problem: format!("cannot be loaded: {reason}") })
    };
    needed.into_iter().try_for_each(load)
}

/// The providers of a session, in the order in which nodes are offered to them. ONNX Runtime adds the CPU at the end.
///
/// # Errors
/// An option contains a NUL.
pub(crate) fn dispatch(options: &SessionOptions) -> Result<Vec<ExecutionProviderDispatch>, String> {
    let device = options.device.to_string();
    let given = options.provider_options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let given: Vec<(&str, &str)> = given.chain([("device_id", device.as_str())]).collect();
    let cuda = |options: &[(&str, &str)]| {
        Ok::<_, String>(with_options(CUDA::default(), options.iter().copied())?.build().error_on_failure())
    };
    Ok(match options.provider {
        // A plugin is added with its devices: see `with_plugin`.
        Provider::Cpu | Provider::OpenVino | Provider::TensorRtRtx => Vec::new(),
        Provider::Cuda => vec![cuda(&given)?],
        Provider::TensorRt => {
            let tensorrt = with_options(TensorRT::default(), given.into_iter())?.build().error_on_failure();
            if options.strict { vec![tensorrt] } else { vec![tensorrt, cuda(&[("device_id", device.as_str())])?] }
        }
    })
}

/// The session of a provider that is a plugin: the provider's device with this number, and the options.
///
/// The plugin lists the GPUs that it supports. By its source, they are in the driver's order; this is not yet tested
/// on a GPU.
///
/// # Errors
/// The plugin cannot be registered, or does not list this device.
pub(crate) fn with_plugin(
    library: &Library,
    builder: SessionBuilder,
    options: &SessionOptions,
) -> Result<SessionBuilder, String> {
    if options.provider != Provider::TensorRtRtx {
        return Ok(builder);
    }
    library.register_tensorrt_rtx()?;
    let name = options.provider.onnxruntime_name();
    let mut devices = library.environment().devices().filter(|device| device.ep().is_ok_and(|found| found == name));
    let device = devices.nth(options.device as usize);
    let device = device.ok_or_else(|| format!("{name} lists no GPU with number {}", options.device))?;
    let given = options.provider_options.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone()));
    builder.with_devices([device], Some(&given.collect::<Vec<_>>())).map_err(|error| error.to_string())
}

/// Passes options to a provider's own parser, by the provider's names. No session is made.
///
/// The provider's libraries stay loaded, and bad libraries can end the process: use a separate process. The parser
/// checks every name and the form of every value, but few ranges.
///
/// # Errors
/// [`Error::ProviderOptions`] with the parser's message, or why the provider cannot be loaded.
pub fn check_options<'o>(
    library: &Library,
    provider: Provider,
    options: impl IntoIterator<Item = (&'o str, &'o str)>,
) -> Result<()> {
    let mut options = options.into_iter().inspect(|(name, value)| tracing::debug!("{provider}: {name} = {value}"));
    let refused = |reason: &dyn fmt::Display| Error::ProviderOptions { provider, reason: reason.to_string() };
    let dispatch = match provider {
        Provider::TensorRt => with_options(TensorRT::default(), options).map(|ready| ready.build()),
        Provider::Cuda => with_options(CUDA::default(), options).map(|ready| ready.build()),
        Provider::TensorRtRtx => return Err(refused(&"its parser is asked with a device only")),
        Provider::OpenVino => return Err(refused(&"its parser is asked with a graph only")),
        Provider::Cpu => {
            return options.next().map_or(Ok(()), |(name, _)| Err(refused(&format!("it has none, found {name}"))));
        }
    };
    let dispatch = dispatch.map_err(|reason| refused(&reason))?.error_on_failure();
    let builder = ort::session::Session::builder(library.environment()).map_err(|error| refused(&error))?;
    builder.with_execution_providers([dispatch]).map_err(|error| refused(&error))?;
    Ok(())
}

fn with_options<'o, P: ArbitrarilyConfigurableExecutionProvider>(
    mut provider: P,
    options: impl Iterator<Item = (&'o str, &'o str)>,
) -> Result<P, String> {
    for (name, value) in options {
        // C strings end at a NUL, so options must not contain one.
        if name.contains('\0') || value.contains('\0') {
            return Err(format!("{}: expected text without NUL", name.escape_debug()));
        }
        provider = provider.with_arbitrary_config(name, value);
    }
    Ok(provider)
}

/// The libraries that a GPU provider needs, besides ONNX Runtime's own.
fn needed_by(provider: Provider) -> impl Iterator<Item = &'static Needed> {
    let (cuda, tensorrt): (&[Needed], &[Needed]) = match provider {
        Provider::TensorRt => (&CUDA_LIBRARIES, &TENSORRT_LIBRARIES),
        Provider::Cuda => (&CUDA_LIBRARIES, &[]),
        Provider::TensorRtRtx => (&[], &TENSORRT_RTX_LIBRARIES),
        Provider::OpenVino | Provider::Cpu => (&[], &[]),
    };
    cuda.iter().chain(tensorrt)
}

/// The path of a library: beside ONNX Runtime's library, where `make setup GPU=1` puts it, or its name for the system's
/// search.
fn located(file: &str, library: &Library) -> Result<PathBuf, String> {
    let found = library.beside(file)?.unwrap_or_else(|| file.into());
    native::opens(&found).map(|()| found)
}

/// The first library of a GPU provider that cannot be opened.
fn missing_library(provider: Provider, library: &Library) -> Option<String> {
    let missing = needed_by(provider).find_map(|needed| {
        let reason = located(needed.file, library).err()?;
        Some(format!("{} is missing: install {} ({reason})", needed.file, needed.from))
    });
    missing.or_else(|| {
        if provider == Provider::TensorRtRtx {
            return None;
        }
        // These are only looked for, not opened: they link against symbols of the loaded ONNX Runtime.
        ["shared", provider.name()].into_iter().find_map(|part| {
            let file = libraries::provider(part);
            let missing = !library.path().with_file_name(&file).is_file();
            missing.then(|| format!("{file} is not beside {ONNXRUNTIME}: copy it from onnxruntime-gpu"))
        })
    })
}

fn driver_obstacle(driver: &Result<CudaDriver, String>) -> Option<String> {
    match driver {
        Err(reason) => Some(format!("the NVIDIA driver ({DRIVER}) cannot be used: {reason}")),
        Ok(driver) if driver.devices.is_empty() => Some("the NVIDIA driver sees no GPU".into()),
        Ok(driver) if driver.version < 13_000 => Some(format!(
            "the NVIDIA driver supports CUDA {}, and 13.0 is needed: install driver 580 or newer",
            version_text(driver.version)
        )),
        Ok(_) => None,
    }
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The GPUs that the NVIDIA driver reports, in its order. This needs no ONNX Runtime.
///
/// # Errors
/// Why there is no driver, or why it cannot be used.
pub fn gpus() -> Result<Vec<Gpu>, String> {
    native::cuda_driver(DRIVER).map(|driver| gpus_of(&driver))
}

/// The memory of one GPU, from NVML.
pub struct GpuMemory(native::GpuMemory);

impl GpuMemory {
    /// Opens the GPU that has this number in the CUDA driver.
    ///
    /// # Errors
    /// Why NVML cannot be used.
    pub fn open(device: u32) -> Result<Self, String> {
        native::GpuMemory::open(libraries::NVML, DRIVER, device).map(Self)
    }

    /// Bytes in use now, by all processes.
    ///
    /// # Errors
    /// Why NVML does not answer.
    pub fn used(&self) -> Result<u64, String> {
        self.0.used()
    }

    /// Bytes that no process uses now.
    ///
    /// # Errors
    /// Why NVML does not answer.
    pub fn free(&self) -> Result<u64, String> {
        self.0.free()
    }
}

impl Probe {
    /// The device that a provider computes on: the processor's model, or name and compute capability of the GPU that
    /// has this number in the driver. "unknown" if the system does not report it.
    pub fn device_name(&self, provider: Provider, device: u32) -> String {
        if provider.is_on_processor() {
            return processor();
        }
        let gpu = self.gpus.get(device as usize);
        gpu.map_or("unknown".into(), |gpu| format!("{}, compute {}", gpu.name, gpu.compute_capability))
    }
}

/// The processor's model; "unknown" if the system does not report it.
pub fn processor() -> String {
    static MODEL: OnceLock<String> = OnceLock::new();
    MODEL.get_or_init(|| processors::model().unwrap_or_else(|| "unknown".into())).clone()
}

fn gpus_of(driver: &CudaDriver) -> Vec<Gpu> {
    let gpu = |device: &native::CudaDevice| Gpu {
        name: device.name.clone(),
        compute_capability: format!("{}.{}", device.compute_capability.0, device.compute_capability.1),
        memory_bytes: device.memory_bytes,
    };
    driver.devices.iter().map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_must_have_a_gpu_and_be_new_enough() {
        let device = || native::CudaDevice { name: "a GPU".into(), compute_capability: (8, 9), memory_bytes: 1 };
        let of = |version, devices| driver_obstacle(&Ok(CudaDriver { version, devices }));
        assert_eq!(of(13_000, vec![device()]), None);
        let old = of(12_080, vec![device()]).unwrap();
        assert!(old.contains("supports CUDA 12.8, and 13.0 is needed"), "{old}");
        assert!(of(13_000, vec![]).unwrap().contains("sees no GPU"));
        let none = driver_obstacle(&Err("no such file".into())).unwrap();
        assert!(none.contains("cannot be used: no such file"), "{none}");
    }

    #[test]
    fn devices_are_told_by_name() {
        let gpus = vec![Gpu { name: "a GPU".into(), compute_capability: "8.9".into(), memory_bytes: 1 }];
        let probe = Probe { gpus, ..Probe::default() };
        assert_eq!(probe.device_name(Provider::Cuda, 0), "a GPU, compute 8.9");
        assert_eq!(probe.device_name(Provider::Cuda, 1), "unknown");
        assert_eq!(probe.device_name(Provider::Cpu, 0), processor());
        assert!(!processor().is_empty());
    }
}
