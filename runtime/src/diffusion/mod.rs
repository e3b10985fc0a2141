//! Image diffusion: pictures from texts.
//!
//! | module | holds |
//! |---|---|
//! | [`schedulers`] | from noise to a picture in steps, as diffusers does it |
//! | [`prompt`] | how much each part of a text counts, as users write it |
//! | [`tokenizer`] | texts to tokens, as transformers does it |
//! | `generator` | [`Generator`], the task of a [`Service`](crate::host::Service) |
//! | `settings`, `request` | what is asked, and what it becomes |
//! | `accepted` | a request whose files are open, and of which nothing can be refused any more before it runs |
//! | `source` | what a request gives to start from: noise, a latent, a picture, a picture with a mask |
//! | `texts` | texts to states of the text encoders |
//! | `conditions` | the values of these states, and of what else the network is conditioned on |
//! | `networks` | the networks of a pipeline |
//! | `start` | what the first step starts from: latents and noise |
//! | `interface` | which of the network's tensors is what |
//! | `denoiser` | the network in one step |
//! | `guidance` | the predictions with and without the text become one |
//! | `quote` | texts of files and people in messages |

mod accepted;
mod conditions;
mod denoiser;
mod error;
mod generator;
mod guidance;
mod interface;
mod networks;
pub mod prompt;
mod quote;
mod request;
pub mod schedulers;
mod settings;
mod source;
mod start;
mod texts;
pub mod tokenizer;

pub use error::Error;
pub use generator::{Generator, GeneratorOptions};
pub use request::{CutOff, GenerateRequest, GenerateStatistics, Generated, Resized, Seconds, Start, Text};
pub use settings::{Family, Fit, GenerateKind, RandomNumbers, Settings, SettingsVersion};
