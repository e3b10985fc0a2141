//! Engines to pixels.
//!
//! | module | holds |
//! |---|---|
//! | [`upscale`] | pictures through an engine: decode → tile → run → blend → encode, in bounded memory |
//! | [`throughput`] | what was measured of an engine's tiles on this box |
//!
//! ```no_run
//! use tileforge_engine::Engine;
//! use tileforge_image::{Format, ImageReader, ImageWriter, Limits, RowSource};
//! use tileforge_runtime::upscale::{Cancel, Options, Upscaler};
//! use tileforge_session::{Environment, onnxruntime};
//! # fn main() -> tileforge_runtime::Result<()> {
//! let environment = Environment::new(onnxruntime::load(&onnxruntime::Search::AroundExecutable)?);
//! let engine = Engine::open("engines/compact-x4".as_ref())?;
//! let mut upscaler = Upscaler::new(&environment, &engine, Options::default())?;
//!
//! let reader = ImageReader::open("photo.png".as_ref(), &Limits::default())?;
//! let output = upscaler.output_of(reader.header())?;
//! let writer = ImageWriter::create("large.png".as_ref(), Format::Png, output)?;
//! let statistics = upscaler.upscale(reader, writer, |_| (), &Cancel::new())?;
//! println!("{} in {:.1} s", statistics.size, statistics.seconds.total);
//! # Ok(()) }
//! ```

mod error;
pub mod throughput;
pub mod upscale;

pub use error::{Error, Result};
