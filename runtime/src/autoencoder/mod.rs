//! Autoencoders: pictures and clips to latents, and back.
//!
//! | module | holds |
//! |---|---|
//! | `encoder`, `decoder` | [`Encoder`] and [`Decoder`], the tasks of a [`Service`](crate::host::Service) |
//! | `part` | [`AutoencoderPart`]: which parts of an engine are an encoder or a decoder |
//! | `coder` | what both share: sessions, tiles in space, chunks in time |
//! | `chunks` | how a clip is cut in time; exact, because the network keeps what it needs of the frames before |
//! | `latent` | [`Latent`] and its files |
//! | `interface` | which tensors of the contract are what |

mod chunks;
mod coder;
mod decoder;
mod encoder;
mod interface;
mod latent;
mod part;

pub use coder::{CodingOptions, CodingStatistics};
pub(crate) use coder::{Watch, pixels_of};
pub use decoder::{DecodeRequest, Decoder};
pub use encoder::{EncodeRequest, Encoder, Frames, Posterior};
pub(crate) use interface::factor_of;
pub use interface::{Clips, Direction, direction_of, is_clip};
pub use latent::Latent;
pub use part::AutoencoderPart;
