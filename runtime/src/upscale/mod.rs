//! Pictures through an engine: decode → tile → run → blend → encode.
//!
//! A picture has three threads: one decodes and cuts, one blends, one encodes. Its tiles wait in the host's queue, a
//! few at a time, and run with tiles of other pictures. Outputs are blended in the order of the inputs, so that
//! batches, streams and other pictures do not change a picture. Memory depends on tile, batch, streams and the
//! picture's width, never on its height.
//!
//! | module | holds |
//! |---|---|
//! | `upscaler` | [`Upscaler`], the task of a [`Service`](crate::host::Service) |
//! | `request`, `options` | what a caller asks for |
//! | `picture` | one picture on its way, and its threads |
//! | `models`, `tiled`, `variant`, `shape`, `tiles` | the graphs of an engine, what runs tiles of one size, and what memory allows |
//! | `floor` | which tiles join well enough to be chosen |
//! | `routing`, `cut`, `join`, `clock`, `outscale` | channels and tiles of a picture, its time, and other scales |

mod clock;
mod cut;
mod floor;
mod join;
mod models;
mod options;
mod outscale;
mod picture;
mod request;
mod routing;
mod shape;
mod tiled;
mod tiles;
mod upscaler;
mod variant;

pub use crate::host::Used;
pub use clock::Seconds;
pub use options::UpscaleOptions;
pub use outscale::{Outscale, outscaled};
pub use request::{OpenedPicture, OutputOf, UpscaleRequest, UpscaleStatistics};
pub use shape::TileShape;
pub use upscaler::Upscaler;
