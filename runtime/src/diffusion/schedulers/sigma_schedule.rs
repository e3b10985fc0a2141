//! Timesteps and σ of the schedulers of Karras and others 2022 (<https://arxiv.org/abs/2206.00364>): Euler, Heun, LMS.

use super::config::Config;
use super::error::Result;
use super::noise_levels::{NoiseLevels, linspace};
use super::schedule::Schedule;
use super::spacing::{Spacing, Spread, Timesteps, interpolate, timestep_of};

/// Timesteps with their σ, and the σ after the last.
#[derive(Clone, Debug)]
pub(super) struct SigmaSchedule {
    pub(super) timesteps: Vec<f64>,
    /// One more than timesteps.
    pub(super) sigmas: Vec<f64>,
    spacing: Spacing,
}

impl SigmaSchedule {
    /// `bounds` are the largest and the smallest σ of the configuration, for spreads other than the timesteps'.
    pub(super) fn new(
        levels: &NoiseLevels,
        timesteps: &Timesteps,
        spread: Spread,
        bounds: (Option<f64>, Option<f64>),
        last: f64,
    ) -> Result<Self> {
        let all = levels.sigmas();
        let fractions = timesteps.fractions();
        let chosen = interpolate(&fractions, &all);
        let largest = bounds.0.unwrap_or(chosen.first().copied().unwrap_or_default());
        let smallest = bounds.1.unwrap_or(chosen.last().copied().unwrap_or_default());
        let (fractions, mut sigmas) = match spread.sigmas(largest, smallest, fractions.len()) {
            Some(sigmas) => (sigmas.iter().map(|sigma| timestep_of(*sigma, &all)).collect(), sigmas),
            None => (fractions, chosen),
        };
        if sigmas.windows(2).any(|pair| pair[0] <= pair[1]) {
            return Err(timesteps.misfit());
        }
        sigmas.push(last);
        Ok(Self { timesteps: fractions, sigmas, spacing: timesteps.spacing })
    }

    /// Euler's `interpolation_type: log_linear`: equal steps of the logarithm over all of the training. The σ of the
    /// training's first timestep comes before the last.
    pub(super) fn log_linear(levels: &NoiseLevels, timesteps: &Timesteps, last: f64) -> Self {
        let all = levels.sigmas();
        let (smallest, largest) = (all.first().copied().unwrap_or_default(), all.last().copied().unwrap_or_default());
        let fractions = timesteps.fractions();
        let mut sigmas = linspace(largest.ln(), smallest.ln(), fractions.len() + 1);
        sigmas.iter_mut().for_each(|sigma| *sigma = sigma.exp());
        sigmas.push(last);
        Self { timesteps: fractions, sigmas, spacing: timesteps.spacing }
    }
}

impl Schedule for SigmaSchedule {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn initial_deviation(&self) -> f64 {
        let largest = self.sigmas.iter().copied().fold(0.0, f64::max);
        match self.spacing {
            Spacing::Leading => (largest * largest + 1.0).sqrt(),
            Spacing::Linspace | Spacing::Trailing => largest,
        }
    }

    fn input_divisor(&self, evaluation: usize) -> f64 {
        (self.sigmas[evaluation] * self.sigmas[evaluation] + 1.0).sqrt()
    }

    fn shares(&self, evaluation: usize) -> (f64, f64) {
        (1.0, self.sigmas[evaluation])
    }
}

/// `sigma_max` and `sigma_min`.
pub(super) fn bounds(config: &Config) -> Result<(Option<f64>, Option<f64>)> {
    let (largest, smallest) = (config.positive("sigma_max")?, config.positive("sigma_min")?);
    match (largest, smallest) {
        (Some(largest), Some(smallest)) if largest <= smallest => {
            Err(config.conflict("sigma_max has to be larger than sigma_min"))
        }
        bounds => Ok(bounds),
    }
}
