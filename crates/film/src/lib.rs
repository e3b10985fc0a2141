//! Films through the programs of ffmpeg.
//!
//! ffmpeg handles containers and codecs. [`Film`] inspects a film and decodes its picture. [`Plan`] defines how a new
//! film is written, and writes it: the picture from frames, and all other tracks unchanged from the source film.
//! Frames go through pipes in the [`nut`] format, each with its time.
//!
//! ```no_run
//! use tileforge_film::{Colours, Encoding, Film, Plan, Programs, Reading};
//! use tileforge_image::Limits;
//! use tileforge_image::frames::FrameWriter;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let programs = Programs::find()?;
//! let film = Film::open(programs, "in.mkv".as_ref(), Reading::default())?;
//! let to = "out.mkv".as_ref();
//! let plan = Plan::new(programs, to, &Encoding::default(), Some(&film), Colours::Kept, film.size())?;
//! plan.check(film.size())?;
//! let frames = film.decode(0, &Limits::default())?;
//! let target = plan.write(frames.track)?;
//! let writer = FrameWriter::to_container(target, to, plan.layout(), plan.layout().header(film.size()))?;
//! # Ok(())
//! # }
//! ```

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod child;
mod colour;
mod container;
mod decode;
mod encoder;
mod error;
mod film;
pub mod nut;
mod parts;
mod pixel_format;
mod plan;
mod probe;
mod process;
mod programs;
mod write;

pub use container::{Container, WRITTEN, is_film};
pub use decode::Frames;
pub use encoder::Encoding;
pub use error::{Error, Result};
pub use film::{Film, Reading};
pub use parts::Parts;
pub use plan::{Colours, Plan};
pub use probe::Probe;
pub use programs::Programs;
