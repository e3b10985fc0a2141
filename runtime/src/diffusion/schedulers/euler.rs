//! Euler's method, and its ancestral form, which adds noise in each step (`sample_euler` and `sample_euler_ancestral`
//! of k-diffusion).

use super::config::Config;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::Prediction;
use super::schedule::Schedule;
use super::sigma_schedule::{SigmaSchedule, bounds};
use super::solver::Solver;
use super::spacing::{Spacing, Spread, Timesteps, final_sigma};
use crate::random::Noise;

#[derive(Debug)]
struct Euler {
    schedule: SigmaSchedule,
    prediction: Prediction,
    ancestral: bool,
}

pub(super) fn euler(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    config.choice("timestep_type", (), &[("discrete", ())])?;
    let prediction = Prediction::new(config)?;
    let levels = NoiseLevels::without_zero(config, Betas::Ddpm)?;
    let timesteps = Timesteps::new(config, Spacing::Linspace, options.steps)?;
    let (spread, bounds) = (Spread::new(config)?, bounds(config)?);
    let last = final_sigma(config, &levels.sigmas())?;
    let log_linear = config.choice("interpolation_type", false, &[("linear", false), ("log_linear", true)])?;
    let schedule = if log_linear {
        if spread != Spread::Timesteps {
            return Err(config.conflict("interpolation_type log_linear excludes use_karras_sigmas and the like"));
        }
        SigmaSchedule::log_linear(&levels, &timesteps, last)
    } else {
        SigmaSchedule::new(&levels, &timesteps, spread, bounds, last)?
    };
    Ok(Box::new(Euler { schedule, prediction, ancestral: false }))
}

pub(super) fn ancestral(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    let prediction = Prediction::of_noise(config)?;
    let levels = NoiseLevels::without_zero(config, Betas::Ddpm)?;
    let timesteps = Timesteps::new(config, Spacing::Linspace, options.steps)?;
    let schedule = SigmaSchedule::new(&levels, &timesteps, Spread::Timesteps, (None, None), 0.0)?;
    Ok(Box::new(Euler { schedule, prediction, ancestral: true }))
}

impl Solver for Euler {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], noise: &mut dyn Noise) {
        let (from, to) = (self.schedule.sigmas[evaluation], self.schedule.sigmas[evaluation + 1]);
        let (down, up) = if self.ancestral { ancestral_step(from, to) } else { (to, 0.0) };
        for (value, output) in sample.iter_mut().zip(output) {
            let picture = self.prediction.picture_of_scaled(*value, f64::from(*output), from);
            *value += (*value - picture) / from * (down - from);
        }
        if self.ancestral {
            // Also drawn in the last step, where its factor is 0, so that the next picture gets the same numbers as in
            // diffusers.
            for (value, noise) in sample.iter_mut().zip(noise.normal(output.len())) {
                *value += f64::from(noise) * up;
            }
        }
    }
}

/// Where Euler's step goes, and the deviation of the noise that is added: down² + up² = to².
///
/// diffusers takes the root of to² − up², which equals to⁴ ⁄ from². In float32 that difference becomes negative for
/// small steps, and the picture NaN.
fn ancestral_step(from: f64, to: f64) -> (f64, f64) {
    let ratio = to / from;
    (to * ratio, to * ((1.0 - ratio) * (1.0 + ratio)).max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::ancestral_step;
    use crate::diffusion::schedulers::{Config, SchedulerOptions};
    use crate::random::{Noise, TorchCpu};

    #[test]
    fn ancestral_steps_keep_the_variance_and_are_numbers() {
        for (from, to) in [(14.6, 12.0), (0.03, 0.029_999_999), (1.0, 1.0 - f64::EPSILON), (4096.0, 14.6), (0.1, 0.0)] {
            let (down, up) = ancestral_step(from, to);
            assert!(down >= 0.0 && up >= 0.0, "{from} to {to}: {down}, {up}");
            assert!((down * down + up * up - to * to).abs() <= 1e-15 * to * to);
        }
    }

    /// In diffusers the sample becomes NaN with many steps, because sigmas are float32 there.
    #[test]
    fn as_many_steps_as_the_training_has_give_numbers() {
        let config = Config::parse(r#"{"_class_name": "EulerAncestralDiscreteScheduler"}"#).unwrap();
        let mut scheduler = config.scheduler(&SchedulerOptions::new(1000)).unwrap();
        let mut noise = TorchCpu::new(1);
        let mut sample = vec![1.0; 16];
        while scheduler.timestep().is_some() {
            let output = noise.normal(16);
            scheduler.step(&output, &mut sample, &mut noise).unwrap();
        }
        assert!(sample.iter().all(|value| value.is_finite()));
    }
}
