//! Engines to pixels.
//!
//! | module | holds |
//! |---|---|
//! | [`host`] | devices with their memory, for any number of engines and callers: submit a request, get a handle |
//! | [`upscale`] | pictures through an engine: decode → tile → run → blend → encode, in bounded memory |
//! | [`autoencoder`] | pictures and clips to latents, and back |
//! | [`restoration`] | pictures and films through a diffusion transformer that restores latent videos |
//! | [`depth`] | the depth of pictures, from them alone or with a sensor's map |
//! | [`inpaint`] | pictures, filled in where a mask is white |
//! | [`frames`] | streams of frames, and where their results go |
//! | [`pixels`] | pictures and frames in memory, and as values of tensors |
//! | [`random`] | PyTorch's normal numbers on the CPU and on CUDA |
//! | [`realtime`] | frames through a network that takes its previous output |
//! | [`run`] | tensors through any engine |
//! | [`percentiles`] | of measurements |
//! | [`tensor_file`] | safetensors, `.npz` and `.npy` |
//! | [`diffusion`] | pictures from texts: pipelines, their random numbers, schedulers and tokenizers |
//! | [`throughput`] | measured times of an engine's tiles on this machine |
//! | [`tiling`] | pictures that are held whole, cut into tiles and blended |
//!
//! ```no_run
//! use tileforge_engine::Engine;
//! use tileforge_image::{Format, ImageReader, ImageWriter, Limits, RowSource};
//! use tileforge_runtime::host::{Cancel, Host, HostOptions, Service};
//! use tileforge_runtime::upscale::{UpscaleOptions, UpscaleRequest, Upscaler};
//! use tileforge_session::{Environment, onnxruntime};
//! # fn main() -> tileforge_runtime::Result<()> {
//! let environment = Environment::new(onnxruntime::load(&onnxruntime::Search::AroundExecutable)?);
//! let engine = Engine::open("engines/compact-x4".as_ref())?;
//! let host = Host::new(&environment, HostOptions::default());
//! let upscaler = Service::new(&host, Upscaler::new(&host, &engine, UpscaleOptions::default())?, 4);
//!
//! let reader = ImageReader::open("photo.png".as_ref(), &Limits::default())?;
//! let output = upscaler.task().output_of(reader.header())?;
//! let writer = ImageWriter::create("large.png".as_ref(), Format::Png, output)?;
//! let handle = upscaler.submit(UpscaleRequest::opened(reader, writer), &Cancel::new())?;
//! let statistics = handle.wait()?;
//! println!("{} in {:.1} s", statistics.size, statistics.seconds.total);
//! # Ok(()) }
//! ```

pub mod autoencoder;
pub mod depth;
pub mod diffusion;
mod error;
pub mod frames;
pub mod host;
pub mod inpaint;
mod output_file;
pub mod percentiles;
pub mod pixels;
pub mod random;
pub mod realtime;
pub mod restoration;
pub mod run;
pub mod tensor_file;
pub mod throughput;
pub mod tiling;
mod timed;
pub mod upscale;

pub use error::{Error, Result};
