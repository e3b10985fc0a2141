//! What a run is asked for.

/// What a run is asked for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SchedulerOptions {
    /// Steps from pure noise to the picture: 1 and more.
    pub steps: usize,
    /// How much of the way a run from a picture goes, 0 to 1: `steps · strength` steps, rounded down, are made. 1
    /// starts from pure noise.
    pub strength: f64,
    /// Whether all steps are made, whatever the strength: LCM and TCD then choose them from the part of their
    /// timesteps of distillation that the strength leaves, as diffusers' pipelines of latent consistency models do. Of
    /// no effect on other classes.
    pub all_steps: bool,
    /// Noise that is added in each step, 0 to 1, for DDIM (η of its paper) and TCD (γ of its paper). diffusers'
    /// pipelines take 0 where they are told nothing.
    pub eta: f64,
    /// Where a run ends that another network goes on with, 0 to 1, as a share of the training's timesteps
    /// (`denoising_end` of SDXL's base). 1 is the end.
    pub end: f64,
    /// Where a run starts that another network began, 0 to 1 (`denoising_start` of SDXL's refiner). `strength` has no
    /// effect then.
    pub start: Option<f64>,
}

impl SchedulerOptions {
    /// All of these steps, from pure noise to the end, with η = 0.
    pub fn new(steps: usize) -> Self {
        Self { steps, strength: 1.0, all_steps: false, eta: 0.0, end: 1.0, start: None }
    }
}
