//! One run of a scheduler of any class.

use super::config::Config;
use super::error::{Error, Result};
use super::options::SchedulerOptions;
use super::prediction::{Mixture, Prediction};
use super::registry;
use super::schedule::Schedule;
use super::solver::Solver;
use crate::random::Noise;

/// One run: as many steps as it was made for.
#[derive(Debug)]
pub struct Scheduler {
    solver: Box<dyn Solver>,
    prediction: Prediction,
    /// The first evaluation of this run, the next one, and the one after the last.
    first: usize,
    next: usize,
    end: usize,
}

impl Config {
    /// Makes a scheduler for one run.
    ///
    /// # Errors
    /// A value that the class does not take or that is not supported, steps that do not fit the training's timesteps,
    /// or an option outside of its range.
    pub fn scheduler(&self, options: &SchedulerOptions) -> Result<Scheduler> {
        for (name, found) in [
            ("strength", options.strength),
            ("eta", options.eta),
            ("end", options.end),
            ("start", options.start.unwrap_or(0.0)),
        ] {
            if !(0.0..=1.0).contains(&found) {
                return Err(Error::Range { name, found, expected: "a number from 0 to 1" });
            }
        }
        let solver = registry::solver(self, options)?;
        if !has_numbers(solver.schedule()) {
            return Err(Error::NoNumbers { class: self.class().into() });
        }

        let train = self.train_timesteps()? as f64;
        let first = match options.start {
            Some(start) => after(&*solver, train - start * train),
            None if solver.is_shortened() => 0,
            None => {
                let made = ((options.steps as f64 * options.strength) as usize).min(options.steps);
                (options.steps - made) * solver.evaluations_of_step()
            }
        };
        let end = if 0.0 < options.end && options.end < 1.0 {
            let cutoff = (train - options.end * train).round_ties_even();
            solver.schedule().timesteps().iter().filter(|timestep| **timestep >= cutoff).count()
        } else {
            solver.schedule().timesteps().len()
        };
        if first >= end {
            return Err(Error::NoSteps { steps: options.steps, strength: options.strength });
        }
        Ok(Scheduler { solver, prediction: Prediction::new(self)?, first, next: first, end })
    }
}

/// Whether all values that a run takes from its schedule are finite.
fn has_numbers(schedule: &dyn Schedule) -> bool {
    let at = |(evaluation, timestep): (usize, &f64)| {
        let (kept, added) = schedule.shares(evaluation);
        [*timestep, kept, added, schedule.input_divisor(evaluation)].iter().all(|value| value.is_finite())
    };
    schedule.initial_deviation().is_finite() && schedule.timesteps().iter().enumerate().all(at)
}

/// The first evaluation below a timestep. A step of two evaluations is not cut in its middle.
fn after(solver: &dyn Solver, timestep: f64) -> usize {
    let cutoff = timestep.round_ties_even();
    let mut left = solver.schedule().timesteps().iter().filter(|timestep| **timestep < cutoff).count();
    if solver.evaluations_of_step() == 2 && left.is_multiple_of(2) {
        left += 1;
    }
    solver.schedule().timesteps().len().saturating_sub(left)
}

impl Scheduler {
    /// The timesteps of this run, one for each evaluation of the network.
    pub fn timesteps(&self) -> &[f64] {
        &self.solver.schedule().timesteps()[self.first..self.end]
    }

    /// The timestep of the next evaluation; none after the last.
    pub fn timestep(&self) -> Option<f64> {
        self.solver.schedule().timesteps()[..self.end].get(self.next).copied()
    }

    /// The deviation of the noise that a run starts with.
    pub fn initial_deviation(&self) -> f64 {
        self.solver.schedule().initial_deviation()
    }

    /// The network's input for the next evaluation.
    ///
    /// # Errors
    /// All steps were made, or a value does not fit into a 32-bit float.
    pub fn model_input(&self, sample: &[f64]) -> Result<Vec<f32>> {
        let evaluation = self.evaluation()?;
        let divisor = self.solver.schedule().input_divisor(evaluation);
        let input: Vec<f32> = sample.iter().map(|value| (value / divisor) as f32).collect();
        if input.iter().all(|value| value.is_finite()) { Ok(input) } else { Err(self.not_finite(evaluation)) }
    }

    /// Makes the next sample from the network's output. Methods with noise draw it here, as one tensor.
    ///
    /// # Errors
    /// All steps were made, the lengths differ, or the sample would be infinite or NaN.
    pub fn step(&mut self, output: &[f32], sample: &mut [f64], noise: &mut dyn Noise) -> Result<()> {
        let evaluation = self.evaluation()?;
        same_length("the network's output", output.len(), sample.len())?;
        self.solver.step(evaluation, output, sample, noise);
        if !sample.iter().all(|value| value.is_finite()) {
            return Err(self.not_finite(evaluation));
        }
        self.next += 1;
        Ok(())
    }

    fn not_finite(&self, evaluation: usize) -> Error {
        Error::NotFinite { evaluation: evaluation - self.first + 1 }
    }

    /// The picture that the network predicts from a sample, by its output for the next evaluation.
    ///
    /// # Errors
    /// All steps were made, or the lengths differ.
    pub fn picture(&self, output: &[f32], sample: &[f64]) -> Result<Vec<f64>> {
        let (kept, added) = self.solver.schedule().shares(self.evaluation()?);
        same_length("the network's output", output.len(), sample.len())?;
        let norm = kept.hypot(added);
        let mixture = Mixture { alpha: kept / norm, sigma: added / norm };
        let of = |(value, output): (&f64, &f32)| self.prediction.picture(value / norm, f64::from(*output), mixture);
        Ok(sample.iter().zip(output).map(of).collect())
    }

    /// A picture with as much noise as a sample has at the next evaluation: the start of a run from a picture, and the
    /// known part of a picture between steps. After the last step, it is the picture without noise.
    ///
    /// # Errors
    /// The lengths differ.
    pub fn add_noise(&self, picture: &[f64], noise: &[f32]) -> Result<Vec<f64>> {
        same_length("the noise", noise.len(), picture.len())?;
        if self.next == self.end {
            return Ok(picture.to_vec());
        }
        let (kept, added) = self.solver.schedule().shares(self.next);
        Ok(picture.iter().zip(noise).map(|(value, noise)| kept * value + added * f64::from(*noise)).collect())
    }

    fn evaluation(&self) -> Result<usize> {
        if self.next < self.end { Ok(self.next) } else { Err(Error::Finished { evaluations: self.end - self.first }) }
    }
}

fn same_length(what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Length { what, found, expected }) }
}
