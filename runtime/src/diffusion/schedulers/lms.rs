//! Linear multistep method of order 4 (`sample_lms` of k-diffusion).

use std::collections::VecDeque;

use super::config::Config;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::Prediction;
use super::schedule::Schedule;
use super::sigma_schedule::{SigmaSchedule, bounds};
use super::solver::Solver;
use super::spacing::{Spacing, Spread, Timesteps};
use crate::random::Noise;

const ORDER: usize = 4;

#[derive(Debug)]
struct Lms {
    schedule: SigmaSchedule,
    prediction: Prediction,
    /// The last derivatives, the latest first.
    derivatives: VecDeque<Vec<f64>>,
}

pub(super) fn lms(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    let prediction = Prediction::new(config)?;
    let levels = NoiseLevels::plain(config, Betas::Ddpm)?;
    let timesteps = Timesteps::new(config, Spacing::Linspace, options.steps)?;
    let spread = Spread::new(config)?;
    // diffusers' LMS has no bounds for Karras' σ.
    let bounds = if spread == Spread::Exponential { bounds(config)? } else { (None, None) };
    let schedule = SigmaSchedule::new(&levels, &timesteps, spread, bounds, 0.0)?;
    Ok(Box::new(Lms { schedule, prediction, derivatives: VecDeque::new() }))
}

impl Lms {
    /// The integral of a Lagrange polynomial from this σ to the next: 1 at the σ of one derivative, 0 at the others'.
    fn coefficient(&self, order: usize, evaluation: usize, derivative: usize) -> f64 {
        let sigmas = &self.schedule.sigmas;
        let polynomial = |sigma: f64| -> f64 {
            let others = (0..order).filter(|other| *other != derivative).map(|other| sigmas[evaluation - other]);
            others.map(|other| (sigma - other) / (sigmas[evaluation - derivative] - other)).product()
        };
        // Two points of Gauss are exact for the third degree.
        let (from, to) = (sigmas[evaluation], sigmas[evaluation + 1]);
        let (middle, half) = ((from + to) / 2.0, (to - from) / 2.0);
        let offset = half / 3.0_f64.sqrt();
        half * (polynomial(middle - offset) + polynomial(middle + offset))
    }
}

impl Solver for Lms {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], _: &mut dyn Noise) {
        let sigma = self.schedule.sigmas[evaluation];
        let derivative = sample.iter().zip(output).map(|(value, output)| {
            let picture = self.prediction.picture_of_scaled(*value, f64::from(*output), sigma);
            (value - picture) / sigma
        });
        let derivative = derivative.collect();
        self.derivatives.push_front(derivative);
        self.derivatives.truncate(ORDER);
        // A run that starts in the middle has fewer derivatives than evaluations before this one. As in diffusers, it
        // then uses the coefficients of the full order, and missing derivatives count as 0.
        let order = ORDER.min(evaluation + 1);
        for (index, derivative) in self.derivatives.iter().enumerate() {
            let coefficient = self.coefficient(order, evaluation, index);
            for (value, derivative) in sample.iter_mut().zip(derivative) {
                *value += coefficient * derivative;
            }
        }
    }
}
