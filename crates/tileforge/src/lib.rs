//! Trained image models on this machine's devices: open an engine, give it a picture, get a picture.
//!
//! ```no_run
//! use tileforge::{Engine, OpenOptions, Picture, Setup, Upscale};
//!
//! # fn main() -> tileforge::Result<()> {
//! let host = Setup::default().host()?;
//! let engine = Engine::open(&host, "engines/cpu/compact-x4", &OpenOptions::default())?;
//! let upscaler = engine.upscaler(Upscale::default())?;
//! let large = upscaler.upscale(Picture::open("photo.jpg")?)?;
//! large.write("photo-x4.png")?;
//! # Ok(()) }
//! ```
//!
//! A program makes one [`Host`], which holds the devices with their memory. Any number of engines run on it, each for
//! any number of callers. An engine opens as its own kind:
//!
//! | opens as | takes | gives |
//! |---|---|---|
//! | [`Upscaler`] | a [`Picture`] | a larger one |
//! | [`Inpainter`] | a picture, and a mask of what is to be filled in | the picture, filled in |
//! | [`DepthEstimator`] | a picture, and a rough map for networks that refine one | the depth of each pixel |
//! | [`Generator`] | [`Settings`](diffusion::Settings) with a text | pictures |
//! | [`Player`] | frames, one after the other | frames |
//! | [`Restorer`] | frames of a film, or a picture, with [`restoration::Settings`] | what they looked like |
//! | [`Encoder`], [`Decoder`] | a picture or a clip; a latent | a latent; a picture or a clip |
//! | [`Tensors`] | tensors by name | tensors by name |
//!
//! Each has a method that waits, and `submit`, which returns a [`Request`]: wait for it, await it as a future, read
//! its progress, or cancel it. Errors have a [kind](Error::kind).
//!
//! The only global state of the process that this crate changes is one environment variable, set before ONNX Runtime
//! is loaded: it disables ONNX Runtime's telemetry.

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod autoencoder;
mod depth;
mod engine;
mod error;
mod generator;
mod inpainter;
mod picture;
mod player;
mod request;
mod restorer;
mod setup;
mod stream;
mod tensors;
mod upscaler;

pub use autoencoder::{Coding, Decoder, Encoder};
pub use depth::{DepthEstimator, encode_depth};
pub use engine::{Engine, OpenOptions};
pub use error::{Error, ErrorKind, Result};
pub use generator::{Generate, Generated, Generation, Generator};
pub use inpainter::Inpainter;
pub use picture::{Picture, PixelData, Pixels, Samples};
pub use player::Player;
pub use request::Request;
pub use restorer::Restorer;
pub use setup::Setup;
pub use stream::Stream;
pub use tensors::Tensors;
pub use upscaler::{Upscale, Upscaler};

pub use tileforge_contract::{DataType, Provider, Task};
pub use tileforge_engine::PublicKey;
pub use tileforge_image::{Alpha, Colour, Depth, Format, Limits, Size};
pub use tileforge_registry::{Authorities, Credentials};
pub use tileforge_runtime::autoencoder::Latent;
pub use tileforge_runtime::depth::{ColourMap, DepthFormat, DepthKind, DepthMap, Estimate};
pub use tileforge_runtime::diffusion;
pub use tileforge_runtime::host::{Cancel, Host, HostOptions, Metrics, Priority, Progress, Terms};
pub use tileforge_runtime::realtime::{Late, Pace, RealtimeOptions, StreamStatistics};
pub use tileforge_runtime::restoration;
pub use tileforge_session::{Fit, Placement, SessionOptions, Tensor, TensorInfo, Verdict};
