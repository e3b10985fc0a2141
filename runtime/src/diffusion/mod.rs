//! Image diffusion: pictures from texts.
//!
//! | module | holds |
//! |---|---|
//! | [`schedulers`] | from noise to a picture in steps, as diffusers does it |
//! | [`prompt`] | prompt weights: how much each part of a text counts |
//! | [`tokenizer`] | texts to tokens, as transformers does it |
//! | `generator` | [`Generator`], the task of a [`Service`](crate::host::Service) |
//! | `settings`, `request` | a request's settings, and its result |
//! | `accepted` | a validated request with open files |
//! | `source` | the start of a request: noise, a latent, a picture, or a picture with a mask |
//! | `texts`, `embedded` | texts to states of the text encoders |
//! | `conditions` | the values of the network's conditions: these states, and numbers about the picture |
//! | `networks` | the networks of a pipeline |
//! | `start` | what the first step starts from: latents and noise |
//! | `interface` | the roles of the network's tensors |
//! | `denoiser` | the network in one step |
//! | `guidance` | combines the predictions with and without the text |
//! | `quote` | quotes texts of files and users in messages |

mod accepted;
mod conditions;
mod denoiser;
mod embedded;
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
