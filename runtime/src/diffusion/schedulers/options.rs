//! What a run is asked for.

/// What a run is asked for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SchedulerOptions {
    /// Steps from pure noise to the picture: 1 and more.
    pub steps: usize,
    /// The share of the steps that a run from a picture makes, 0 to 1: `steps · strength`, rounded down. 1 starts from
    /// pure noise.
    pub strength: f64,
    /// Whether all steps are made, independent of the strength. LCM and TCD then choose them from the part of their
    /// distillation timesteps that the strength leaves, as diffusers' pipelines of latent consistency models do. Has
    /// no effect on other classes.
    pub all_steps: bool,
    /// Noise that is added in each step, 0 to 1, for DDIM (η of its paper) and TCD (γ of its paper). The default of
    /// diffusers' pipelines is 0.
    pub eta: f64,
    /// Where this run ends and another network continues, 0 to 1, as a share of the training timesteps
    /// (`denoising_end` of SDXL's base). 1 is the end.
    pub end: f64,
    /// Where this run continues the run of another network, 0 to 1 (`denoising_start` of SDXL's refiner). `strength`
    /// then has no effect.
    pub start: Option<f64>,
}

impl SchedulerOptions {
    /// All of these steps, from pure noise to the end, with η = 0.
    pub fn new(steps: usize) -> Self {
        Self { steps, strength: 1.0, all_steps: false, eta: 0.0, end: 1.0, start: None }
    }
}
