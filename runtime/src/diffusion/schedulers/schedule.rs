//! The evaluations of a run: their timesteps, and the share of the picture in the sample at each.

use std::fmt::Debug;

use super::noise_levels::NoiseLevels;
use super::prediction::Mixture;

/// The timesteps and noise levels of a run, known before it begins.
pub(super) trait Schedule: Debug + Send {
    /// The timesteps of all evaluations from pure noise to the end, descending (some methods take one twice).
    fn timesteps(&self) -> &[f64];

    /// The deviation of the noise that a run starts with: `init_noise_sigma` in diffusers.
    fn initial_deviation(&self) -> f64 {
        1.0
    }

    /// The divisor of the sample before it goes into the network in this evaluation.
    fn input_divisor(&self, _evaluation: usize) -> f64 {
        1.0
    }

    /// The factors of picture and noise in a sample at this evaluation.
    fn shares(&self, evaluation: usize) -> (f64, f64);
}

/// The schedule of methods whose samples keep variance 1.
#[derive(Debug)]
pub(super) struct MixtureSchedule {
    pub(super) timesteps: Vec<f64>,
    /// The noise level of each timestep; for some methods also the level after the last one.
    pub(super) mixtures: Vec<Mixture>,
}

impl MixtureSchedule {
    /// With the noise levels of these timesteps of the training.
    pub(super) fn of_levels(levels: &NoiseLevels, timesteps: Vec<f64>) -> Self {
        let mixture = |timestep: &f64| Mixture::of_alpha_bar(levels.alpha_bar(*timestep as usize));
        Self { mixtures: timesteps.iter().map(mixture).collect(), timesteps }
    }

    /// With these deviations of the noise, for pictures that keep their scale.
    pub(super) fn of_sigmas(sigmas: Vec<f64>, timesteps: Vec<f64>) -> Self {
        Self { mixtures: sigmas.into_iter().map(Mixture::of_sigma).collect(), timesteps }
    }
}

impl Schedule for MixtureSchedule {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn shares(&self, evaluation: usize) -> (f64, f64) {
        let Mixture { alpha, sigma } = self.mixtures[evaluation];
        (alpha, sigma)
    }
}
