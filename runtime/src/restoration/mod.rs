//! Pictures and films restored in one step, by a diffusion transformer between the encoder and the decoder of an
//! autoencoder of clips.
//!
//! | module | holds |
//! |---|---|
//! | `restorer` | [`Restorer`], the task of a [`Service`](crate::host::Service): one request is a film or a picture |
//! | `request` | [`RestoreRequest`], its [`Settings`], and what it took |
//! | `fitting` | [`Fitting`]: the size of what comes out, and the graph that it goes through |
//! | `batches` | frames that go through the networks together, and how batches blend |
//! | `transformer` | the transformer with the text that it always gets |
//! | `interface` | which tensors of the contract are what |
//! | `colour` | [`ColourCorrection`]: the result gets the colours of what it was made of |
//!
//! The order of the steps and the constants come from <https://github.com/naxci1/ComfyUI-SeedVR2.5>
//! (`src/core/generation_phases.py`), in 32-bit floats: the reference rounds to BF16 between its steps.

mod batches;
mod colour;
mod fitting;
mod interface;
mod request;
mod restorer;
#[cfg(test)]
mod tests;
mod transformer;

pub use colour::ColourCorrection;
pub use fitting::{Fitting, Wanted};
pub use interface::Widths;
pub use request::{NoiseOf, RestoreRequest, RestoreStatistics, Seconds, Settings};
pub use restorer::Restorer;
pub use transformer::text_states;
