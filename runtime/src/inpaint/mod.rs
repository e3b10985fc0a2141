//! Pictures, filled in where a mask is white.
//!
//! | module | holds |
//! |---|---|
//! | `inpainter` | [`Inpainter`], the task of a [`Service`](crate::host::Service) |
//! | `place` | which part of a picture the network sees, and in which size |
//! | `picture` | the picture as its file has it, with other pixels in the hole |
//!
//! All pixels outside the mask stay as in the file: the network's pixels go only into the hole.

mod inpainter;
mod picture;
mod place;

pub use inpainter::{InpaintInput, InpaintOptions, InpaintRequest, InpaintStatistics, Inpainter};

use tileforge_contract::{Contract, Task};

/// Whether an engine with this contract fills in what a mask covers.
pub fn is_inpainter(contract: &Contract) -> bool {
    contract.task == Task::Inpaint
}
