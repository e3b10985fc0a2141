//! Schedulers of distilled networks with few steps: latent consistency models (Luo and others 2023,
//! <https://arxiv.org/abs/2310.04378>) and trajectory consistency distillation (Zheng and others 2024,
//! <https://arxiv.org/abs/2402.19159>).

use super::config::Config;
use super::ddim::{final_alpha_bar, refuse_noise_of_nothing};
use super::error::{Error, Result};
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::{Mixture, Prediction, clip};
use super::schedule::{MixtureSchedule, Schedule};
use super::solver::Solver;
use super::spacing::Spacing;
use crate::random::Noise;

/// The deviation of pictures in the boundary condition.
const DATA_DEVIATION: f64 = 0.5;

#[derive(Debug)]
struct Consistency {
    levels: NoiseLevels,
    schedule: MixtureSchedule,
    prediction: Prediction,
    method: Method,
    is_shortened: bool,
}

#[derive(Clone, Copy, Debug)]
enum Method {
    /// Latent consistency.
    Latent { clip: f64, timestep_scaling: f64 },
    /// Trajectory consistency, with γ of the paper.
    Trajectory { gamma: f64 },
}

pub(super) fn lcm(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    let timestep_scaling = config.positive("timestep_scaling")?.unwrap_or(10.0);
    consistency(config, options, Method::Latent { clip: clip(config, false)?, timestep_scaling })
}

pub(super) fn tcd(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    consistency(config, options, Method::Trajectory { gamma: options.eta })
}

fn consistency(config: &Config, options: &SchedulerOptions, method: Method) -> Result<Box<dyn Solver>> {
    config.refuse(&["thresholding"])?;
    // Neither has an effect, as in diffusers; wrong values are refused anyway.
    Spacing::new(config, Spacing::Leading)?;
    let levels = NoiseLevels::new(config, Betas::LatentConsistency)?;
    final_alpha_bar(config, &levels, true)?;

    let prediction = Prediction::new(config)?;
    let distilled = config.count("original_inference_steps", 50, 1, levels.count())?;
    let stride = levels.count() / distilled;
    // For a run from a picture, the noisiest timesteps are left out.
    let is_shortened = options.all_steps && options.start.is_none();
    let left = if is_shortened { (distilled as f64 * options.strength) as usize } else { distilled };
    if !(1..=distilled).contains(&options.steps) {
        return Err(Error::Steps { class: config.class().into(), steps: options.steps, most: distilled });
    }
    if options.steps > left {
        let (class, steps, strength) = (config.class().into(), options.steps, options.strength);
        return Err(Error::StepsOfStrength { class, steps, strength, most: left });
    }
    // Some of the timesteps of the distillation, from the last one downwards.
    let skipped = left as f64 / options.steps as f64;
    let timestep = |step: usize| ((left - (step as f64 * skipped) as usize) * stride - 1) as f64;
    let timesteps: Vec<f64> = (0..options.steps).map(timestep).collect();
    refuse_noise_of_nothing(config, prediction, &levels, &timesteps)?;
    let schedule = MixtureSchedule::of_levels(&levels, timesteps);
    Ok(Box::new(Consistency { levels, schedule, prediction, method, is_shortened }))
}

impl Solver for Consistency {
    fn is_shortened(&self) -> bool {
        self.is_shortened
    }

    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], noise: &mut dyn Noise) {
        let timestep = self.schedule.timesteps[evaluation];
        let from = self.schedule.mixtures[evaluation];
        let pairs = sample.iter_mut().zip(output);
        // The factors of the new sample and of noise.
        let (kept, added) = match self.method {
            Method::Latent { clip, timestep_scaling } => {
                // The boundary condition of consistency models: at timestep 0 the picture is the sample.
                let scaled = timestep * timestep_scaling;
                let total = scaled * scaled + DATA_DEVIATION * DATA_DEVIATION;
                let (skip, out) = (DATA_DEVIATION * DATA_DEVIATION / total, scaled / total.sqrt());
                for (value, output) in pairs {
                    let picture = self.prediction.picture(*value, f64::from(*output), from).clamp(-clip, clip);
                    *value = out * picture + skip * *value;
                }
                self.schedule.mixtures.get(evaluation + 1).map_or((1.0, 0.0), |next| (next.alpha, next.sigma))
            }
            Method::Trajectory { gamma } => {
                let next = self.schedule.timesteps.get(evaluation + 1).copied().unwrap_or(0.0);
                let middle = self.levels.alpha_bar(middle(gamma, next));
                let to = Mixture::of_alpha_bar(middle);
                for (value, output) in pairs {
                    let picture = self.prediction.picture(*value, f64::from(*output), from);
                    let noise = self.prediction.noise(*value, f64::from(*output), from);
                    *value = to.alpha * picture + to.sigma * noise;
                }
                let ratio = self.levels.alpha_bar(next as usize) / middle;
                (ratio.sqrt(), (1.0 - ratio).max(0.0).sqrt())
            }
        };
        let noisy = match self.method {
            Method::Latent { .. } => true,
            Method::Trajectory { gamma } => gamma > 0.0,
        };
        if noisy && evaluation + 1 < self.schedule.timesteps.len() {
            for (value, noise) in sample.iter_mut().zip(noise.normal(output.len())) {
                *value = kept * *value + added * f64::from(noise);
            }
        }
    }
}

/// The timestep that a step of TCD goes to before noise is added. PyTorch computes it in float32, which decides some
/// timesteps.
fn middle(gamma: f64, next: f64) -> usize {
    ((1.0 - gamma) as f32 * next as f32) as usize
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn the_timestep_in_the_middle_is_that_of_pytorch() {
        // torch.floor((1 - eta) * torch.tensor(t)): in float64, some of these would be one less.
        for (gamma, next, expected) in
            [(0.3, 759.0, 531), (0.3, 90.0, 63), (0.3, 170.0, 119), (0.0, 259.0, 259), (1.0, 259.0, 0)]
        {
            assert_eq!(middle(gamma, next), expected, "{gamma}, {next}");
        }
    }
}
