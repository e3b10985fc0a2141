//! Pictures through an engine: decode → tile → run → blend → encode.
//!
//! Each stage has its thread, and the run stage one for each stream; bounded channels between them carry buffers that
//! are made once and go around. Memory depends on tile, batch, streams and the pictures' width, never on their height.
//! Tiles of consecutive pictures share batches; what comes out is blended in the order in which it went in, so that
//! neither batches nor streams change a picture.
//!
//! | module | holds |
//! |---|---|
//! | `upscaler` | [`Upscaler`], the task of an [`Executor`](crate::executor::Executor), and its threads |
//! | `request`, `options` | what a caller asks for |
//! | `models`, `model`, `variant`, `shape`, `tiles`, `tensors`, `limits` | the sessions of an engine, and what memory allows |
//! | `floor` | which tiles join well enough to be chosen |
//! | `batch`, `order` | what goes from stage to stage |
//! | `decoding`, `streams`, `blending`, `encoding` | the stages |
//! | `routing`, `cut`, `join`, `clock` | channels and tiles of a picture, and its time |

mod batch;
mod blending;
mod clock;
mod cut;
mod decoding;
mod encoding;
mod floor;
mod join;
mod limits;
mod model;
mod models;
mod options;
mod order;
mod outscale;
mod parts;
mod request;
mod routing;
mod shape;
mod streams;
mod tensors;
mod tiles;
mod upscaler;
mod variant;

pub use clock::Seconds;
pub use limits::Used;
pub use options::Options;
pub use outscale::{Outscale, outscaled};
pub use request::{Open, OutputOf, Request, Statistics};
pub use shape::TileShape;
pub use upscaler::Upscaler;
