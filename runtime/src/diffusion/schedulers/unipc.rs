//! UniPC: a multistep predictor, and a corrector that uses the next evaluation (Zhao and others 2023,
//! <https://arxiv.org/abs/2302.04867>).

use std::collections::{BTreeSet, VecDeque};

use super::config::Config;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::Prediction;
use super::schedule::{MixtureSchedule, Schedule};
use super::sigma_schedule::bounds;
use super::solver::Solver;
use super::spacing::{Spacing, Spread, Timesteps, final_sigma, interpolate, timestep_of, truncated};
use crate::random::Noise;

/// The highest order: the paper uses up to 3.
const MOST_ORDER: usize = 4;

#[derive(Debug)]
struct UniPc {
    /// With the noise level after the last timestep.
    schedule: MixtureSchedule,
    prediction: Prediction,
    /// The polynomial goes through predictions of the picture (`predict_x0`), otherwise of the noise.
    pictures: bool,
    /// B(h) of the paper is eʰ − 1 (`bh2`), otherwise h.
    exponential: bool,
    order: usize,
    lower_order_final: bool,
    /// Steps that are not corrected.
    uncorrected: BTreeSet<usize>,
    /// The last predictions, the latest first.
    predictions: VecDeque<Vec<f64>>,
    /// The sample that the last step started from, and its order.
    last: Option<(Vec<f64>, usize)>,
}

pub(super) fn unipc(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    config.refuse(&["thresholding", "solver_p", "use_dynamic_shifting", "shift_terminal"])?;
    let prediction = Prediction::new(config)?;
    let pictures = config.flag("predict_x0", true)?;
    let solver_types = [("bh1", false), ("bh2", true), ("midpoint", true), ("heun", true), ("logrho", true)];
    let exponential = config.choice("solver_type", true, &solver_types)?;
    let order = config.count("solver_order", 2, 1, MOST_ORDER)?;
    let lower_order_final = config.flag("lower_order_final", true)?;
    let uncorrected = config.numbers("disable_corrector")?.unwrap_or_default();

    let all = NoiseLevels::without_zero(config, Betas::Ddpm)?.sigmas();
    let timesteps = Timesteps::new(config, Spacing::Linspace, options.steps)?;
    let spread = Spread::new(config)?;
    let (largest, smallest) = bounds(config)?;
    let (largest, smallest) = (largest.unwrap_or(all[all.len() - 1]), smallest.unwrap_or(all[0]));
    let mut last = final_sigma(config, &all)?;
    let (timesteps, mut sigmas) = match spread.sigmas(largest, smallest, options.steps) {
        None => {
            let timesteps = timesteps.multistep(all.len())?;
            let sigmas = interpolate(&timesteps, &all);
            (timesteps, sigmas)
        }
        Some(sigmas) => {
            let whole =
                |timestep: f64| if spread == Spread::Karras { timestep.round_ties_even() } else { truncated(timestep) };
            if last > 0.0 {
                last = sigmas[sigmas.len() - 1];
            }
            (sigmas.iter().map(|sigma| whole(timestep_of(*sigma, &all))).collect(), sigmas)
        }
    };
    if last == 0.0 && !(pictures && (lower_order_final || order == 1)) {
        return Err(config
            .conflict("final_sigmas_type zero needs predict_x0 and, with a solver_order above 1, lower_order_final"));
    }
    sigmas.push(last);
    Ok(Box::new(UniPc {
        schedule: MixtureSchedule::of_sigmas(sigmas, timesteps),
        prediction,
        pictures,
        exponential,
        order,
        lower_order_final,
        uncorrected: uncorrected.into_iter().map(|step| step as usize).collect(),
        predictions: VecDeque::new(),
        last: None,
    }))
}

/// A step from one noise level to the next, with the polynomial's equations.
struct Step {
    /// The factors of the sample, of the latest prediction, and of the sum of differences.
    kept: f64,
    latest: f64,
    scale: f64,
    /// The places of the differences, in steps: those of earlier predictions, and 1 for the end of this step.
    places: Vec<f64>,
    /// The right sides of the equations.
    moments: Vec<f64>,
}

impl UniPc {
    /// The step from `evaluation` to the next noise level, of the given order.
    fn step_from(&self, evaluation: usize, order: usize) -> Step {
        let (from, to) = (self.schedule.mixtures[evaluation], self.schedule.mixtures[evaluation + 1]);
        let h = to.log_ratio() - from.log_ratio();
        let (kept, scale, z) = match self.pictures {
            true => (to.sigma / from.sigma, -to.alpha, -h),
            false => (to.alpha / from.alpha, -to.sigma, h),
        };
        let first = z.exp_m1();
        let b = if self.exponential { first } else { z };
        let earlier =
            (1..order).map(|back| (self.schedule.mixtures[evaluation - back].log_ratio() - from.log_ratio()) / h);
        let places = earlier.chain([1.0]).collect();
        let (mut moments, mut phi, mut factorial) = (Vec::new(), first / z - 1.0, 1.0);
        for power in 1..=order {
            moments.push(phi * factorial / b);
            factorial *= (power + 1) as f64;
            phi = phi / z - 1.0 / factorial;
        }
        Step { kept, latest: scale * first, scale: scale * b, places, moments }
    }

    /// (prediction − latest) ⁄ place, summed with weights.
    fn differences(&self, step: &Step, weights: &[f64], index: usize) -> f64 {
        let terms = weights.iter().zip(&step.places).enumerate();
        terms
            .map(|(back, (weight, place))| {
                weight * (self.predictions[back + 1][index] - self.predictions[0][index]) / place
            })
            .sum()
    }

    /// Corrects the sample of the last step with the prediction made from it.
    fn correct(&self, evaluation: usize, prediction: &[f64], sample: &mut [f64]) {
        let Some((start, order)) = &self.last else { return };
        let step = self.step_from(evaluation - 1, *order);
        let weights = if *order == 1 { vec![0.5] } else { solve(&step.places, &step.moments) };
        let (own, earlier) = (weights[order - 1], &weights[..order - 1]);
        for (index, value) in sample.iter_mut().enumerate() {
            let latest = self.predictions[0][index];
            let sum = self.differences(&step, earlier, index) + own * (prediction[index] - latest);
            *value = step.kept * start[index] + step.latest * latest + step.scale * sum;
        }
    }

    fn predict(&self, evaluation: usize, order: usize, sample: &mut [f64]) {
        let step = self.step_from(evaluation, order);
        let weights = match order {
            1 => Vec::new(),
            2 => vec![0.5],
            _ => solve(&step.places[..order - 1], &step.moments[..order - 1]),
        };
        for (index, value) in sample.iter_mut().enumerate() {
            *value = step.kept * *value + step.latest * self.predictions[0][index];
            if order > 1 {
                *value += step.scale * self.differences(&step, &weights, index);
            }
        }
    }
}

/// The weights w for which Σ w · placeᵏ is the moment k, for all k (a Vandermonde system), by elimination.
fn solve(places: &[f64], moments: &[f64]) -> Vec<f64> {
    let count = places.len();
    let mut rows: Vec<Vec<f64>> = (0..count)
        .map(|power| places.iter().map(|place| place.powi(power as i32)).chain([moments[power]]).collect())
        .collect();
    for column in 0..count {
        let largest = |a: &usize, b: &usize| rows[*a][column].abs().total_cmp(&rows[*b][column].abs());
        let pivot = (column..count).max_by(largest).unwrap_or(column);
        rows.swap(column, pivot);
        let chosen = rows[column].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = row[column] / chosen[column];
            row.iter_mut().zip(&chosen).for_each(|(value, chosen)| *value -= factor * chosen);
        }
    }
    rows.iter().enumerate().map(|(index, row)| row[count] / row[index]).collect()
}

impl Solver for UniPc {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], _: &mut dyn Noise) {
        let mixture = self.schedule.mixtures[evaluation];
        let predict = |(value, output): (&f64, &f32)| match self.pictures {
            true => self.prediction.picture(*value, f64::from(*output), mixture),
            false => self.prediction.noise(*value, f64::from(*output), mixture),
        };
        let prediction: Vec<f64> = sample.iter().zip(output).map(predict).collect();
        if evaluation > 0 && !self.uncorrected.contains(&(evaluation - 1)) {
            self.correct(evaluation, &prediction, sample);
        }
        self.predictions.push_front(prediction);
        self.predictions.truncate(self.order);

        let left = self.schedule.timesteps.len() - evaluation;
        let most = if self.lower_order_final { self.order.min(left) } else { self.order };
        let order = most.min(self.predictions.len());
        self.last = Some((sample.to_vec(), order));
        if self.schedule.mixtures[evaluation].sigma != self.schedule.mixtures[evaluation + 1].sigma {
            self.predict(evaluation, order, sample);
        } // otherwise `final_sigmas_type: sigma_min` repeats the last noise level
    }
}

#[cfg(test)]
mod tests {
    use super::solve;

    #[test]
    fn weights_fulfil_their_equations() {
        let (places, moments) = ([-1.7, -0.8, 1.0], [0.4, -0.3, 0.9]);
        let weights = solve(&places, &moments);
        for (power, moment) in (0..).zip(moments) {
            let sum: f64 = weights.iter().zip(places).map(|(weight, place)| weight * f64::powi(place, power)).sum();
            assert!((sum - moment).abs() < 1e-14);
        }
    }
}
