//! Engines to pixels: everything that a deployed box needs.
//!
//! | module | holds |
//! |---|---|
//! | [`engine`] | the engine directory: manifest, validation, digests, self-test |
//! | [`onnxruntime`] | finding and loading the ONNX Runtime library, once a process |
//! | [`provider`] | what could run the engine on this box, and why not |
//! | [`fit`] | whether an engine fits this box, before anything is loaded |
//! | [`compiled`] | what TensorRT compiled for this GPU, kept for the next time |
//! | [`ladder`] | sessions on the best provider that takes the engine |
//! | [`session`] | a loaded graph and its tensors |
//! | [`throughput`] | what was measured of an engine's tiles here |
//! | [`tile`] | where the tiles of an image lie, and how they are blended again |
//! | [`image`] | row-wise reading and writing of PNG, TIFF, JPEG, WebP and streams of frames; comparing; shrinking |
//! | [`pipeline`] | decode → tile → run → blend → encode, in bounded memory |
//!
//! ```no_run
//! use tileforge_runtime::engine::Engine;
//! use tileforge_runtime::image::{Format, ImageReader, ImageWriter, Limits, RowSource};
//! use tileforge_runtime::pipeline::{Cancel, Options, Upscaler};
//! # fn main() -> tileforge_runtime::Result<()> {
//! let engine = Engine::open("engines/compact-x4".as_ref())?;
//! let mut upscaler = Upscaler::new(&engine, Options::default())?;
//!
//! let reader = ImageReader::open("photo.png".as_ref(), &Limits::default())?;
//! let output = upscaler.output_of(reader.header())?;
//! let writer = ImageWriter::create("large.png".as_ref(), Format::Png, output)?;
//! let statistics = upscaler.upscale(reader, writer, |_| (), &Cancel::new())?;
//! println!("{} in {:.1} s", statistics.size, statistics.seconds.total);
//! # Ok(()) }
//! ```

pub mod compiled;
pub mod digest;
pub mod engine;
pub mod error;
mod file_map;
pub mod fit;
pub mod image;
pub mod ladder;
mod lock;
mod native;
pub mod onnxruntime;
pub mod pipeline;
pub mod provider;
pub mod session;
pub mod throughput;
pub mod tile;

pub use error::{Error, Result};
