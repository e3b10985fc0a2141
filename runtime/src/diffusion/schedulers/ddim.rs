//! DDIM (Song and others 2021, <https://arxiv.org/abs/2010.02502>).

use super::config::Config;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::{Prediction, clip};
use super::schedule::{MixtureSchedule, Schedule};
use super::solver::Solver;
use super::spacing::{Spacing, Timesteps};
use crate::random::Noise;

#[derive(Debug)]
struct Ddim {
    levels: NoiseLevels,
    schedule: MixtureSchedule,
    /// The number of training timesteps of one step, independent of the next timestep.
    stride: usize,
    final_alpha_bar: f64,
    prediction: Prediction,
    clip: f64,
    eta: f64,
}

pub(super) fn ddim(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    config.refuse(&["thresholding"])?;
    let prediction = Prediction::new(config)?;
    let clip = clip(config, true)?;
    let levels = NoiseLevels::new(config, Betas::Ddpm)?;
    let timesteps = Timesteps::new(config, Spacing::Leading, options.steps)?.whole()?;
    refuse_noise_of_nothing(config, prediction, &levels, &timesteps)?;
    let final_alpha_bar = final_alpha_bar(config, &levels, true)?;
    let stride = levels.count() / options.steps;
    let schedule = MixtureSchedule::of_levels(&levels, timesteps);
    Ok(Box::new(Ddim { levels, schedule, stride, final_alpha_bar, prediction, clip, eta: options.eta }))
}

/// `set_alpha_to_one`: ᾱ after the last step.
pub(super) fn final_alpha_bar(config: &Config, levels: &NoiseLevels, default: bool) -> Result<f64> {
    Ok(if config.flag("set_alpha_to_one", default)? { 1.0 } else { levels.alpha_bar(0) })
}

/// Refuses ᾱ = 0 with noise prediction: a sample of pure noise then does not determine the picture.
pub(super) fn refuse_noise_of_nothing(
    config: &Config,
    prediction: Prediction,
    levels: &NoiseLevels,
    timesteps: &[f64],
) -> Result<()> {
    let zero = timesteps.iter().any(|timestep| levels.alpha_bar(*timestep as usize) == 0.0);
    if zero && prediction == Prediction::Epsilon {
        return Err(config.conflict(
            "rescale_betas_zero_snr needs prediction_type v_prediction or sample where the first step starts at the \
             training's last timestep",
        ));
    }
    Ok(())
}

impl Solver for Ddim {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], noise: &mut dyn Noise) {
        let timestep = self.schedule.timesteps[evaluation] as usize;
        let from = self.levels.alpha_bar(timestep);
        let to = timestep.checked_sub(self.stride).map_or(self.final_alpha_bar, |to| self.levels.alpha_bar(to));
        let variance = (1.0 - to) / (1.0 - from) * (1.0 - from / to);
        let deviation = self.eta * variance.max(0.0).sqrt();
        let mixture = self.schedule.mixtures[evaluation];
        let direction = (1.0 - to - deviation * deviation).max(0.0).sqrt();
        for (value, output) in sample.iter_mut().zip(output) {
            let picture = self.prediction.picture(*value, f64::from(*output), mixture).clamp(-self.clip, self.clip);
            let noise = self.prediction.noise(*value, f64::from(*output), mixture);
            *value = to.sqrt() * picture + direction * noise;
        }
        if self.eta > 0.0 {
            for (value, noise) in sample.iter_mut().zip(noise.normal(output.len())) {
                *value += deviation * f64::from(noise);
            }
        }
    }
}
