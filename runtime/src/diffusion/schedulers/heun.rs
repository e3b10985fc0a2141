//! Heun's method: two evaluations for each step but the last (algorithm 2 of Karras and others 2022,
//! <https://arxiv.org/abs/2206.00364>, without its noise).

use super::config::Config;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::{Prediction, clip};
use super::schedule::Schedule;
use super::sigma_schedule::{SigmaSchedule, bounds};
use super::solver::Solver;
use super::spacing::{Spacing, Spread, Timesteps};
use crate::random::Noise;

#[derive(Debug)]
struct Heun {
    /// Timesteps and σ of all evaluations: those of every step but the first and the last come twice.
    schedule: SigmaSchedule,
    prediction: Prediction,
    clip: f64,
    /// The sample and the derivative at the start of a step, between its evaluations.
    start: Option<(Vec<f64>, Vec<f64>)>,
}

pub(super) fn heun(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    let prediction = Prediction::new(config)?;
    let levels = NoiseLevels::plain(config, Betas::Heun)?;
    let timesteps = Timesteps::new(config, Spacing::Linspace, options.steps)?;
    let mut schedule = SigmaSchedule::new(&levels, &timesteps, Spread::new(config)?, bounds(config)?, 0.0)?;
    let steps = schedule.timesteps.len();
    let twice = |(index, value): (usize, &f64)| std::iter::repeat_n(*value, if index % steps == 0 { 1 } else { 2 });
    schedule.timesteps = schedule.timesteps.iter().enumerate().flat_map(twice).collect();
    schedule.sigmas = schedule.sigmas.iter().enumerate().flat_map(twice).collect();
    Ok(Box::new(Heun { schedule, prediction, clip: clip(config, false)?, start: None }))
}

impl Solver for Heun {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn evaluations_of_step(&self) -> usize {
        2
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], _: &mut dyn Noise) {
        let sigma = self.schedule.sigmas[evaluation];
        let derivative = |(value, output): (&f64, &f32)| {
            let picture = self.prediction.picture_of_scaled(*value, f64::from(*output), sigma);
            (value - picture.clamp(-self.clip, self.clip)) / sigma
        };
        let derivative: Vec<f64> = sample.iter().zip(output).map(derivative).collect();
        match self.start.take() {
            None => {
                let start = sample.to_vec();
                let step = self.schedule.sigmas[evaluation + 1] - sigma;
                for (value, derivative) in sample.iter_mut().zip(&derivative) {
                    *value += step * derivative;
                }
                self.start = Some((start, derivative));
            }
            Some((start, first)) => {
                let step = sigma - self.schedule.sigmas[evaluation - 1];
                for (index, value) in sample.iter_mut().enumerate() {
                    *value = start[index] + step * (first[index] + derivative[index]) / 2.0;
                }
            }
        }
    }
}
