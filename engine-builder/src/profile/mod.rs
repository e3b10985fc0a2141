//! Profiles: which engines to build for one kind of machine.

mod file;
mod find;
mod options;
mod quantity;
mod shapes;

pub use find::{Here, here, names, places};
pub use options::{ConvolutionSearch, CudaOptions, ProviderOptions, TensorRtOptions};
pub use quantity::{Bandwidth, Clock, ComputeCapability, Memory, Tile};
pub use shapes::{Batches, Shapes};

use crate::{Error, Result};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use shapes::shapes;
use std::fmt;
use std::path::Path;
use tileforge_contract::Precision;
use tileforge_contract::Provider;
use tileforge_contract::Task;
use tileforge_tensorrt::BuildOptions;

/// A profile: the keys of `profiles/NAME.yaml`, and missing keys from the families that it extends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// The name: the same as the file's.
    pub name: String,
    /// The families that it extends, nearest first.
    pub families: Vec<String>,
    /// What executes the engine.
    pub provider: Provider,
    /// The precision of the engine, unless the caller chooses another.
    pub precision: Precision,
    /// The GPU; `None` for a CPU, and for plans that run on several kinds of GPUs.
    pub device: Option<Device>,
    /// The compute capabilities that plans are built for, the oldest first; empty unless `provider` is
    /// [`Provider::TensorRtRtx`].
    pub plans_for: Vec<ComputeCapability>,
    /// The shapes for each task.
    pub tasks: Tasks,
    /// Sessions that run at the same time.
    pub streams: u32,
    /// Whether kernel launches are recorded as CUDA graphs and replayed.
    pub cuda_graphs: bool,
    /// How TensorRT builds and runs engines.
    pub tensorrt: TensorRtOptions,
    /// How ONNX Runtime's CUDA kernels run.
    pub cuda: CudaOptions,
    /// The least quality of an engine against its FP32 reference.
    pub floors: Floors,
}

/// A GPU. The sources of the figures are in docs/gpu-profiles.md.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Device {
    /// The product name.
    pub gpu: String,
    /// The names that the driver gives it.
    pub driver_names: Vec<String>,
    /// The architecture's name.
    pub architecture: String,
    /// Which features of CUDA it has.
    pub compute_capability: ComputeCapability,
    /// Device memory.
    pub memory: Memory,
    /// Bandwidth of the device memory.
    pub bandwidth: Bandwidth,
    /// The rates of its chip; known for GPUs that plans are built for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chip: Option<Chip>,
}

/// The chip of a GPU, from which the least time of a plan follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// Streaming multiprocessors.
    #[serde(deserialize_with = "multiprocessors")]
    pub multiprocessors: u32,
    /// The rated boost clock.
    pub boost_clock: Clock,
    /// The L2 cache.
    pub cache: Memory,
}

impl Device {
    /// The rates that limit a plan's time; `None` if nothing is known of the chip.
    pub fn limits(&self) -> Option<tileforge_tensorrt::Gpu> {
        self.chip.as_ref().map(|chip| tileforge_tensorrt::Gpu {
            multiprocessors: chip.multiprocessors,
            boost_hertz: chip.boost_clock.hertz,
            cache_bytes: chip.cache.bytes,
            bandwidth: self.bandwidth.gigabytes_per_second * 1e9,
        })
    }
}

/// Tile shapes and batches for each task. A profile need not serve every task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// Images to larger images, tile by tile; sizes in input pixels.
    #[serde(deserialize_with = "shapes::<_, 1>")]
    pub upscale: Option<Shapes>,
    /// Images to latent images; sizes in image pixels, with three halvings on the way.
    #[serde(deserialize_with = "shapes::<_, 8>")]
    pub vae_encoder: Option<Shapes>,
    /// Latent images to images; sizes in latent pixels.
    #[serde(deserialize_with = "shapes::<_, 1>")]
    pub vae_decoder: Option<Shapes>,
    /// Denoising of latent images; sizes in latent pixels, with three halvings within a UNet of four levels. A batch of
    /// 2 holds both halves of classifier-free guidance.
    #[serde(deserialize_with = "shapes::<_, 8>")]
    pub unet: Option<Shapes>,
    /// Pictures that are filled in where a mask is white; sizes in pixels, with three halvings on the way.
    #[serde(deserialize_with = "shapes::<_, 8>")]
    pub inpaint: Option<Shapes>,
    /// Depth of an image; sizes in input pixels, in patches of 14 of vision transformers.
    #[serde(deserialize_with = "shapes::<_, 14>")]
    pub depth: Option<Shapes>,
    /// Video frames to larger frames, a whole frame at once; sizes in input pixels, with four
    /// halvings within the network.
    #[serde(deserialize_with = "shapes::<_, 16>")]
    pub realtime: Option<Shapes>,
}

/// A number within bounds, checked while it is read.
fn within<'de, D: Deserializer<'de>, T: Deserialize<'de> + PartialOrd + fmt::Display>(
    deserializer: D,
    expected: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, D::Error> {
    let value = T::deserialize(deserializer)?;
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("expected {expected}, found {value}")))
    }
}

fn decibels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, "a number of decibels", f64::MIN..=f64::MAX)
}

fn cosine<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, "a number from -1 to 1", -1.0..=1.0)
}

fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, "a factor of at least 0", 0.0..=f64::MAX)
}

fn multiprocessors<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    within(deserializer, "1 to 1000 multiprocessors", 1..=1000)
}

/// Least quality of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// Peak signal-to-noise ratio against the FP32 reference, in dB; the peak is the reference's range.
    #[serde(deserialize_with = "decibels")]
    pub psnr_db: f64,
    /// Cosine similarity with the FP32 reference, at most 1.
    #[serde(deserialize_with = "cosine")]
    pub cosine: f64,
    /// The least speed of an INT8 engine as a multiple of the speed in FP32 and in FP16, and of a BF16 engine as a
    /// multiple of the speed in FP32. It is measured on processors only. Where plans are built: the least ratio
    /// between the least times of an FP16 plan and of an 8-bit plan.
    #[serde(default = "not_slower", deserialize_with = "factor")]
    pub speed: f64,
}

fn not_slower() -> f64 {
    1.0
}

impl Floors {
    /// The floors that an engine of a precision reaches unless something is wrong. docs/benchmarks.md has measured
    /// figures.
    pub fn expected_of(precision: Precision) -> Self {
        let (psnr_db, cosine) = match precision {
            // The same arithmetic in another order.
            Precision::Fp32 => (100.0, 0.999_999),
            // 11 bits: below half a level of 10-bit pixels. The cosine is the lowest value that 60 dB of noise gives
            // for any kind of output.
            Precision::Fp16 | Precision::Fp16Weights => (60.0, 0.99995),
            // 8 bits of precision, and 8-bit values: about one level of 8-bit pixels.
            Precision::Bf16 => (40.0, 0.999),
            Precision::Int8 | Precision::Fp8 | Precision::Int8Weights => (35.0, 0.99),
        };
        Floors { psnr_db, cosine, speed: not_slower() }
    }
}

/// Sessions at the same time. Each holds its own activations.
const MOST_STREAMS: u32 = 16;

impl Profile {
    /// SHA-256 of the profile with everything that it inherits.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn sha256(&self) -> Result<String> {
        let text = serde_json::to_vec(self).map_err(|error| Error::input(Path::new(&self.name), error.to_string()))?;
        Ok(tileforge_engine::digest::sha256(&text))
    }

    /// Sets another precision, with the floors that are expected of it.
    ///
    /// # Errors
    /// [`Error::Precision`] if the profile's machine does not compute in this precision.
    pub fn set_precision(&mut self, precision: Precision) -> Result<()> {
        if precision != self.precision {
            self.check_precision(precision).map_err(|reason| {
                let possible = Precision::ALL.iter().copied().filter(|other| self.check_precision(*other).is_ok());
                Error::Precision { profile: self.name.clone(), precision, reason, possible: possible.collect() }
            })?;
            self.precision = precision;
            self.floors = Floors { speed: self.floors.speed, ..Floors::expected_of(precision) };
        }
        Ok(())
    }

    /// The shapes for a task; `None` if the profile does not serve the task.
    pub fn shapes_for(&self, task: Task) -> Option<&Shapes> {
        match task {
            Task::Upscale => &self.tasks.upscale,
            Task::Unet => &self.tasks.unet,
            Task::VaeEncoder => &self.tasks.vae_encoder,
            Task::VaeDecoder => &self.tasks.vae_decoder,
            Task::Inpaint => &self.tasks.inpaint,
            Task::Depth => &self.tasks.depth,
            Task::Realtime => &self.tasks.realtime,
            // The input is tokens, has no meaning to a profile, or is a clip whose size the whole pipeline determines.
            Task::TextEncoder | Task::Tensors | Task::Transformer => &None,
        }
        .as_ref()
    }

    /// The options for ONNX Runtime's TensorRT-RTX provider.
    pub fn tensorrt_rtx_options(&self) -> ProviderOptions {
        options::tensorrt_rtx_options(self.cuda_graphs)
    }

    /// Whether sums in FP32 may be computed in TF32: not where the gates were passed in FP32.
    fn tf32(&self) -> bool {
        self.cuda.tf32 && self.precision != Precision::Fp32 && !self.precision.is_of_weights_alone()
    }

    /// How a plan for RTX GPUs is built.
    pub fn plan_options(&self) -> BuildOptions {
        self.tensorrt.plan_options(self.tf32())
    }

    /// The compute capabilities in [`Profile::plans_for`], in the plan builder's type.
    pub(crate) fn plan_capabilities(&self) -> Vec<tileforge_tensorrt::ComputeCapability> {
        let of =
            |found: &ComputeCapability| tileforge_tensorrt::ComputeCapability::from_version(found.major, found.minor);
        self.plans_for.iter().filter_map(of).collect()
    }

    /// The options for ONNX Runtime's TensorRT provider.
    pub fn tensorrt_options(&self) -> ProviderOptions {
        self.tensorrt.provider_options(self.cuda_graphs)
    }

    /// The options for ONNX Runtime's CUDA provider.
    ///
    /// Graphs with quantised weights keep their layout: ONNX Runtime 1.31 moves the channels of such a convolution's
    /// input, but not those of its kernel.
    pub fn cuda_options(&self) -> ProviderOptions {
        let nhwc = self.cuda.nhwc && matches!(self.precision, Precision::Fp32 | Precision::Fp16 | Precision::Bf16);
        CudaOptions { tf32: self.tf32(), nhwc, ..self.cuda.clone() }.provider_options(self.cuda_graphs)
    }

    /// Rules that involve several keys.
    fn check(&self) -> Result<(), String> {
        if self.tasks == Tasks::default() {
            return Err("`tasks`: expected the shapes of at least one task".into());
        }
        self.check_plans_for()?;
        self.check_largest_tiles()?;
        match (&self.device, self.provider) {
            // This provider's GPUs are known only by their compute capabilities.
            (None, Provider::TensorRtRtx) => {}
            (None, on_processor) if on_processor.is_on_processor() => {
                if self.cuda_graphs {
                    return Err("`cuda_graphs`: expected false on a CPU".into());
                }
            }
            (None, provider) => {
                return Err(format!(
                    "`provider: {provider}`: expected `gpu`, `compute_capability` and the rest of a GPU's keys"
                ));
            }
            (Some(_), on_processor) if on_processor.is_on_processor() => {
                return Err(format!(
                    "`provider: {on_processor}`: expected tensorrt-rtx, tensorrt or cuda in the profile of a GPU"
                ));
            }
            (Some(device), _) if self.cuda.tf32 => {
                needs(ComputeCapability { major: 8, minor: 0 }, device)
                    .map_err(|reason| format!("`cuda: tf32`: {reason}"))?;
            }
            (Some(_), _) => {}
        }
        self.check_precision(self.precision).map_err(|reason| format!("`precision: {}`: {reason}", self.precision))
    }

    /// Checks that graphs of any size are for pictures, and for a provider that runs such graphs without loss.
    fn check_largest_tiles(&self) -> Result<(), String> {
        let has = |task: &&Task| self.shapes_for(**task).is_some_and(|shapes| shapes.largest_tile.is_some());
        match Task::ALL.iter().find(has) {
            Some(Task::Upscale) if self.provider.is_on_processor() => Ok(()),
            Some(task) => Err(format!(
                "`tasks: {task}: largest_tile`: expected it for task upscale with `provider: cpu` or `openvino` only, found \
                 `provider: {}`",
                self.provider
            )),
            None => Ok(()),
        }
    }

    /// Checks that plans can be built and run for the GPUs of the profile.
    fn check_plans_for(&self) -> Result<(), String> {
        if self.provider != Provider::TensorRtRtx {
            let unused = self.plans_for.is_empty();
            let wrong = || format!("`compute_capabilities`: expected none with `provider: {}`", self.provider);
            return unused.then_some(()).ok_or_else(wrong);
        }
        if self.plans_for.is_empty() {
            return Err("`provider: tensorrt-rtx`: expected `gpu` and its keys, or `compute_capabilities`".into());
        }
        let has_plans = |found: &&ComputeCapability| {
            tileforge_tensorrt::ComputeCapability::from_version(found.major, found.minor)
                .is_some_and(tileforge_tensorrt::ComputeCapability::has_provider)
        };
        match self.plans_for.iter().find(|found| !has_plans(found)) {
            Some(found) => Err(format!(
                "`provider: tensorrt-rtx`: expected compute capability 8.6, 8.9, 12.0 or 12.1, found {found}; use \
                 tensorrt"
            )),
            None => Ok(()),
        }
    }

    /// Checks that the profile's machine computes in a precision.
    fn check_precision(&self, precision: Precision) -> Result<(), String> {
        if precision.is_of_weights_alone() && !self.provider.is_on_processor() {
            return Err("weights alone in fewer bits are for processors".into());
        }
        let (major, minor) = precision.least_capability();
        match &self.device {
            Some(device) => needs(ComputeCapability { major, minor }, device),
            None if self.provider == Provider::TensorRtRtx => {
                let least = ComputeCapability { major, minor };
                match self.plans_for.iter().find(|found| **found < least) {
                    Some(found) => Err(format!("needs compute capability {least}, and its plans are also for {found}")),
                    None => Ok(()),
                }
            }
            None if precision.runs_on_cpu() => Ok(()),
            None if self.provider == Provider::OpenVino && precision == Precision::Bf16 => Ok(()),
            None if self.provider == Provider::OpenVino => Err("OpenVINO does not compute in it".into()),
            None => Err("ONNX Runtime's CPU kernels do not compute in it".into()),
        }
    }
}

fn needs(least: ComputeCapability, device: &Device) -> Result<(), String> {
    let found = device.compute_capability;
    if found >= least { Ok(()) } else { Err(format!("needs compute capability {least}, found {found}")) }
}

#[cfg(test)]
mod tests;
