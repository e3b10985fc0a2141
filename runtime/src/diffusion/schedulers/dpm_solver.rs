//! DPM-Solver and DPM-Solver++ as multistep methods, also with noise in each step (Lu and others 2022,
//! <https://arxiv.org/abs/2206.00927> and <https://arxiv.org/abs/2211.01095>).

use std::collections::VecDeque;

use super::config::Config;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels, linspace};
use super::options::SchedulerOptions;
use super::prediction::Prediction;
use super::schedule::{MixtureSchedule, Schedule};
use super::sigma_schedule::bounds;
use super::solver::Solver;
use super::spacing::{Spacing, Spread, Timesteps, final_sigma, interpolate, timestep_of, truncated};
use crate::random::Noise;

/// With fewer steps, `lower_order_final` lowers the order at the end.
const FEW_STEPS: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Algorithm {
    /// The polynomial goes through noise predictions.
    Noise,
    /// The polynomial goes through predictions of the picture: `dpmsolver++`.
    Picture,
}

#[derive(Debug)]
struct Multistep {
    /// With the noise level after the last timestep.
    schedule: MixtureSchedule,
    prediction: Prediction,
    algorithm: Algorithm,
    stochastic: bool,
    /// `solver_type: heun` in place of `midpoint`.
    heun: bool,
    order: usize,
    lower_order_final: bool,
    first_order_at_end: bool,
    /// The last predictions, the latest first.
    predictions: VecDeque<Vec<f64>>,
}

pub(super) fn multistep(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    config.refuse(&["thresholding", "variance_type", "use_dynamic_shifting"])?;
    let prediction = Prediction::new(config)?;
    let algorithms = [
        ("dpmsolver++", (Algorithm::Picture, false)),
        ("sde-dpmsolver++", (Algorithm::Picture, true)),
        ("dpmsolver", (Algorithm::Noise, false)),
        ("sde-dpmsolver", (Algorithm::Noise, true)),
        ("deis", (Algorithm::Picture, false)), // diffusers takes the nearest that it has
    ];
    let (algorithm, stochastic) = config.choice("algorithm_type", (Algorithm::Picture, false), &algorithms)?;
    let solver_types = [("midpoint", false), ("heun", true), ("logrho", false), ("bh1", false), ("bh2", false)];
    let heun = config.choice("solver_type", false, &solver_types)?;
    let order = config.count("solver_order", 2, 1, 3)?;
    if order == 3 && stochastic && algorithm == Algorithm::Noise {
        return Err(config.conflict("algorithm_type sde-dpmsolver has solver_order 1 and 2 only"));
    }

    let levels = NoiseLevels::without_zero(config, Betas::Ddpm)?;
    let all = levels.sigmas();
    let last = final_sigma(config, &all)?;
    if last == 0.0 && algorithm == Algorithm::Noise {
        return Err(config.conflict("algorithm_type dpmsolver and sde-dpmsolver need final_sigmas_type sigma_min"));
    }
    let timesteps = Timesteps::new(config, Spacing::Linspace, options.steps)?;
    let (timesteps, mut sigmas) = schedule(config, &timesteps, &all)?;
    sigmas.push(last);
    Ok(Box::new(Multistep {
        schedule: MixtureSchedule::of_sigmas(sigmas, timesteps),
        prediction,
        algorithm,
        stochastic,
        heun,
        order,
        lower_order_final: config.flag("lower_order_final", true)?,
        first_order_at_end: config.flag("euler_at_final", false)? || last == 0.0,
        predictions: VecDeque::new(),
    }))
}

fn schedule(config: &Config, timesteps: &Timesteps, all: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    // λ, half of the logarithm of the signal-to-noise ratio, is −ln(σ) and descends with the timestep.
    let least = config.number("lambda_min_clipped")?.unwrap_or(f64::NEG_INFINITY);
    let last = all.partition_point(|sigma| -sigma.ln() >= least);
    if last == 0 {
        return Err(config.conflict("lambda_min_clipped leaves no timestep of the training; choose a lower one"));
    }
    let (largest, smallest) = bounds(config)?;
    let (largest, smallest) = (largest.unwrap_or(all[all.len() - 1]), smallest.unwrap_or(all[0]));
    let lu = config.flag("use_lu_lambdas", false)?;
    let sigmas = match (Spread::new(config)?, lu) {
        (Spread::Timesteps, false) => None,
        (Spread::Timesteps, true) => {
            let logarithms = linspace(all[all.len() - 1].ln(), all[0].ln(), timesteps.steps());
            Some(logarithms.into_iter().map(f64::exp).collect())
        }
        (spread, false) => spread.sigmas(largest, smallest, timesteps.steps()),
        (_, true) => return Err(config.conflict("use_lu_lambdas excludes use_karras_sigmas and the like")),
    };
    let Some(sigmas) = sigmas else {
        let timesteps = timesteps.multistep(last)?;
        let sigmas = interpolate(&timesteps, all);
        return Ok((timesteps, sigmas));
    };
    // Rounded, unless the spread is exponential or the betas follow a cosine.
    let exponential = config.flag("use_exponential_sigmas", false)?;
    let cosine = config.choice(
        "beta_schedule",
        false,
        &[("linear", false), ("scaled_linear", false), ("squaredcos_cap_v2", true)],
    )?;
    let timestep = |sigma: &f64| {
        let timestep = timestep_of(*sigma, all);
        if exponential || cosine { truncated(timestep) } else { timestep.round_ties_even() }
    };
    Ok((sigmas.iter().map(timestep).collect(), sigmas))
}

impl Multistep {
    /// The order of the step at this evaluation.
    fn order_at(&self, evaluation: usize) -> usize {
        let (steps, made) = (self.schedule.timesteps.len(), self.predictions.len());
        let few = self.lower_order_final && steps < FEW_STEPS;
        match steps - evaluation {
            1 if few || self.first_order_at_end => 1,
            2 if few => self.order.min(made).min(2),
            _ => self.order.min(made),
        }
    }

    /// The factors of the sample, of the latest prediction, of its first and second difference, and of noise.
    fn factors(&self, evaluation: usize, order: usize) -> [f64; 5] {
        let (from, to) = (self.schedule.mixtures[evaluation], self.schedule.mixtures[evaluation + 1]);
        let h = self.step_size(evaluation);
        let (kept, scale, z) = match (self.algorithm, self.stochastic) {
            (Algorithm::Picture, false) => (to.sigma / from.sigma, -to.alpha, -h),
            (Algorithm::Picture, true) => (to.sigma / from.sigma * (-h).exp(), -to.alpha, -2.0 * h),
            (Algorithm::Noise, false) => (to.alpha / from.alpha, -to.sigma, h),
            (Algorithm::Noise, true) => (to.alpha / from.alpha, -2.0 * to.sigma, h),
        };
        let first = z.exp_m1();
        let second = if self.heun || order == 3 { first / z - 1.0 } else { first / 2.0 };
        // The limit for small steps is ½, which is subtracted. diffusers adds it for sde-dpmsolver++. The same is done
        // here, to give the same picture.
        let limit = if self.stochastic { -0.5 } else { 0.5 };
        let third = (first - z) / (z * z) - limit;
        let noise = match (self.algorithm, self.stochastic) {
            (_, false) => 0.0,
            (Algorithm::Picture, true) => to.sigma * (-(-2.0 * h).exp_m1()).sqrt(),
            (Algorithm::Noise, true) => to.sigma * (2.0 * h).exp_m1().sqrt(),
        };
        [kept, scale * first, scale * second, scale * third, noise]
    }

    /// λ of the next noise level minus λ of this one. Infinite if the next level is 0.
    fn step_size(&self, evaluation: usize) -> f64 {
        self.schedule.mixtures[evaluation + 1].log_ratio() - self.schedule.mixtures[evaluation].log_ratio()
    }
}

impl Solver for Multistep {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], noise: &mut dyn Noise) {
        let mixture = self.schedule.mixtures[evaluation];
        let predict = |(value, output): (&f64, &f32)| match self.algorithm {
            Algorithm::Picture => self.prediction.picture(*value, f64::from(*output), mixture),
            Algorithm::Noise => self.prediction.noise(*value, f64::from(*output), mixture),
        };
        let prediction = sample.iter().zip(output).map(predict).collect();
        self.predictions.push_front(prediction);
        self.predictions.truncate(self.order);
        let drawn = if self.stochastic { noise.normal(sample.len()) } else { Vec::new() };

        let h = self.step_size(evaluation);
        if h == 0.0 {
            return; // `final_sigmas_type: sigma_min` repeats the last noise level
        }
        let order = self.order_at(evaluation);
        let [kept, latest, first, second, deviation] = self.factors(evaluation, order);
        let before = |steps: usize| self.step_size(evaluation - steps) / h;
        for (index, value) in sample.iter_mut().enumerate() {
            let prediction = |back: usize| self.predictions[back][index];
            let mut next = kept * *value + latest * prediction(0);
            if order >= 2 {
                let r = before(1);
                let mut difference = (prediction(0) - prediction(1)) / r;
                if order == 3 {
                    let other = (prediction(1) - prediction(2)) / before(2);
                    let change = (difference - other) / (r + before(2));
                    difference += r * change;
                    next += second * change;
                }
                next += first * difference;
            }
            if self.stochastic {
                next += deviation * f64::from(drawn[index]);
            }
            *value = next;
        }
    }
}
