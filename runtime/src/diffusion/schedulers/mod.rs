//! Schedulers: from noise to a picture in steps.
//!
//! A [`Config`] is diffusers' `scheduler_config.json`. It makes a [`Scheduler`] for one run. Everything is computed in
//! f64, from the betas to the sample.
//!
//! ```
//! use tileforge_runtime::random::{Noise, TorchCpu};
//! use tileforge_runtime::diffusion::schedulers::{Config, SchedulerOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let network = |input: &[f32], timestep: f32| -> Vec<f32> { input.iter().map(|x| x * timestep / 1e3).collect() };
//! let config = Config::parse(r#"{"_class_name": "EulerDiscreteScheduler", "beta_schedule": "scaled_linear"}"#)?;
//! let mut scheduler = config.scheduler(&SchedulerOptions::new(20))?;
//! let mut noise = TorchCpu::new(42);
//!
//! let deviation = scheduler.initial_deviation();
//! let mut sample: Vec<f64> = noise.normal(4 * 64 * 64).iter().map(|value| f64::from(*value) * deviation).collect();
//! while let Some(timestep) = scheduler.timestep() {
//!     let output = network(&scheduler.model_input(&sample)?, timestep as f32);
//!     scheduler.step(&output, &mut sample, &mut noise)?;
//! }
//! # Ok(()) }
//! ```

#[cfg(test)]
mod any_config;
mod class;
mod config;
mod ddim;
mod dpm_solver;
mod error;
mod euler;
mod heun;
mod keys;
mod latent_consistency;
mod lms;
mod noise_levels;
mod options;
mod pndm;
mod prediction;
mod registry;
mod samplers;
mod schedule;
mod scheduler;
mod sigma_schedule;
mod solver;
mod spacing;
#[cfg(test)]
mod tests;
mod trial;
mod unipc;

pub use config::Config;
pub use error::{Error, Result};
pub use options::SchedulerOptions;
pub use samplers::{sampler_names, spread_names};
pub use scheduler::Scheduler;
