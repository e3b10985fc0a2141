//! Frames through a network that takes its previous output: the output stays on the device as an input of the next
//! run.
//!
//! | module | holds |
//! |---|---|
//! | `player` | [`Player`], the task of a [`Service`](crate::host::Service): one request is one stream |
//! | `statistics` | what a stream took |
//! | `stages` | reading, running and writing, each on its thread |
//! | `pace` | when frames are due, and which are dropped |
//! | `interface` | which tensors of the contract are what |

mod interface;
mod pace;
mod player;
mod stages;
mod statistics;

pub use interface::is_realtime;
pub use pace::{Late, Pace};
pub use player::{Player, RealtimeOptions, RealtimeRequest};
pub use statistics::StreamStatistics;
