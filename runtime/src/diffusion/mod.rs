//! Image diffusion: pictures from texts.
//!
//! | module | holds |
//! |---|---|
//! | [`random`] | PyTorch's normal numbers on the CPU and on CUDA |
//! | [`schedulers`] | from noise to a picture in steps, as diffusers does it |
//! | [`tokenizer`] | texts to tokens, as transformers does it |
//! | `generator` | [`Generator`], the task of an [`Executor`](crate::executor::Executor) |
//! | `settings`, `request` | what is asked, and what it becomes |
//! | `texts` | texts to states of the text encoders |
//! | `conditions` | these states, and what else the network is conditioned on |
//! | `open` | the sessions that are open |
//! | `start` | what the steps start from |
//! | `network` | the network in one step, bound on its device |
//! | `guidance` | the predictions with and without the text become one |

mod conditions;
mod error;
mod generator;
mod guidance;
mod network;
mod open;
pub mod random;
mod request;
pub mod schedulers;
mod settings;
mod start;
mod texts;
pub mod tokenizer;

pub use error::Error;
pub use generator::{Generator, Options};
pub use request::{Generated, Request, Seconds, Start, Statistics};
pub use settings::{Kind, RandomNumbers, Settings};
