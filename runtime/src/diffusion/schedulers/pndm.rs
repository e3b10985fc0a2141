//! PNDM (Liu and others 2022, <https://arxiv.org/abs/2202.09778>): Runge–Kutta steps, unless `skip_prk_steps`, then
//! linear multistep ones.

use super::config::Config;
use super::ddim::final_alpha_bar;
use super::error::Result;
use super::noise_levels::{Betas, NoiseLevels};
use super::options::SchedulerOptions;
use super::prediction::{Mixture, Prediction};
use super::schedule::{MixtureSchedule, Schedule};
use super::solver::Solver;
use super::spacing::{Spacing, Timesteps};
use crate::random::Noise;

/// The Runge–Kutta steps; each takes four evaluations. Neighbouring steps share a timestep.
const RUNGE_KUTTA_STEPS: usize = 3;

#[derive(Debug)]
struct Pndm {
    levels: NoiseLevels,
    schedule: MixtureSchedule,
    /// The number of Runge–Kutta evaluations, at the start of every run.
    runge_kutta: usize,
    stride: usize,
    final_alpha_bar: f64,
    prediction: Prediction,
    /// Evaluations of this run.
    made: usize,
    /// The last outputs, the latest at the end.
    outputs: Vec<Vec<f64>>,
    /// The sample that several evaluations start from.
    kept: Vec<f64>,
    /// Runge–Kutta's sum.
    sum: Vec<f64>,
}

pub(super) fn pndm(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    let prediction = Prediction::of_noise(config)?;
    let levels = NoiseLevels::plain(config, Betas::Ddpm)?;
    let steps = Timesteps::new(config, Spacing::Leading, options.steps)?.whole()?;
    let final_alpha_bar = final_alpha_bar(config, &levels, false)?;
    let stride = levels.count() / options.steps;
    let (timesteps, runge_kutta) = if config.flag("skip_prk_steps", false)? {
        // The second timestep comes twice: the first step is repeated with the mean of both outputs.
        let mut timesteps = steps;
        if let Some(second) = timesteps.get(1).copied() {
            timesteps.insert(1, second);
        }
        (timesteps, 0)
    } else {
        if steps.len() <= RUNGE_KUTTA_STEPS {
            return Err(config.conflict("at least 4 steps are needed without skip_prk_steps"));
        }
        let half = (stride / 2) as f64;
        let mut timesteps = Vec::new();
        for pair in steps[..=RUNGE_KUTTA_STEPS].windows(2) {
            // At the start, twice in the middle, and at the end.
            timesteps.extend([pair[0], pair[1] + half, pair[1] + half, pair[1]]);
        }
        if timesteps.iter().any(|timestep| *timestep as usize >= levels.count()) {
            return Err(config.conflict("steps_offset moves a timestep behind the training's last one"));
        }
        let runge_kutta = timesteps.len();
        timesteps.extend(&steps[RUNGE_KUTTA_STEPS..]);
        (timesteps, runge_kutta)
    };
    Ok(Box::new(Pndm {
        schedule: MixtureSchedule::of_levels(&levels, timesteps),
        levels,
        runge_kutta,
        stride,
        final_alpha_bar,
        prediction,
        made: 0,
        outputs: Vec::new(),
        kept: Vec::new(),
        sum: Vec::new(),
    }))
}

impl Pndm {
    /// Equation 9 of the paper, from one timestep to another. `None` is the end, after the last timestep.
    fn transfer(&self, sample: &mut [f64], output: &[f64], from: usize, to: Option<usize>) {
        let from = self.levels.alpha_bar(from);
        let to = to.map_or(self.final_alpha_bar, |to| self.levels.alpha_bar(to));
        let denominator = from * (1.0 - to).sqrt() + (from * (1.0 - from) * to).sqrt();
        let mixture = Mixture::of_alpha_bar(from);
        for (value, output) in sample.iter_mut().zip(output) {
            let noise = self.prediction.noise(*value, *output, mixture);
            *value = (to / from).sqrt() * *value - (to - from) * noise / denominator;
        }
    }

    /// A run that starts in the middle makes its Runge–Kutta steps there. As in diffusers, each step then begins at
    /// the timestep of the same step of a whole run, and ends at this evaluation's own timestep.
    fn runge_kutta(&mut self, evaluation: usize, output: Vec<f64>, sample: &mut [f64]) {
        let phase = self.made % 4;
        let weight = if phase == 0 || phase == 3 { 1.0 / 6.0 } else { 1.0 / 3.0 };
        if phase == 0 {
            self.sum = vec![0.0; output.len()];
            self.kept = sample.to_vec();
            self.outputs.push(output.clone());
        }
        for (sum, output) in self.sum.iter_mut().zip(&output) {
            *sum += weight * output;
        }
        sample.copy_from_slice(&self.kept);
        let back = if phase % 2 == 1 { 0 } else { self.stride / 2 };
        let to = (self.schedule.timesteps[evaluation] as usize).checked_sub(back);
        let from = self.schedule.timesteps[self.made - phase] as usize;
        let output = if phase == 3 { std::mem::take(&mut self.sum) } else { output };
        self.transfer(sample, &output, from, to);
    }

    fn multistep(&mut self, evaluation: usize, output: Vec<f64>, sample: &mut [f64]) {
        let timestep = self.schedule.timesteps[evaluation] as usize;
        if self.made == 1 {
            // The second evaluation without Runge–Kutta: the first step again, with the mean of both outputs.
            let first = self.outputs.last().into_iter().flatten();
            let mean: Vec<f64> = output.iter().zip(first).map(|(second, first)| (second + first) / 2.0).collect();
            sample.copy_from_slice(&self.kept);
            self.transfer(sample, &mean, timestep + self.stride, Some(timestep));
            return;
        }
        if self.made == 0 {
            self.kept = sample.to_vec();
        }
        self.outputs.drain(..self.outputs.len().saturating_sub(3));
        self.outputs.push(output);
        // Adams–Bashforth of order 1 to 4, the latest output first.
        let coefficients: &[f64] = match self.outputs.len() {
            1 => &[1.0],
            2 => &[3.0 / 2.0, -1.0 / 2.0],
            3 => &[23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0],
            _ => &[55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0],
        };
        let mut combined = vec![0.0; sample.len()];
        for (coefficient, output) in coefficients.iter().zip(self.outputs.iter().rev()) {
            for (sum, output) in combined.iter_mut().zip(output) {
                *sum += coefficient * output;
            }
        }
        self.transfer(sample, &combined, timestep, timestep.checked_sub(self.stride));
    }
}

impl Solver for Pndm {
    fn schedule(&self) -> &dyn Schedule {
        &self.schedule
    }

    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], _: &mut dyn Noise) {
        let output: Vec<f64> = output.iter().copied().map(f64::from).collect();
        if self.made < self.runge_kutta {
            self.runge_kutta(evaluation, output, sample);
        } else {
            self.multistep(evaluation, output, sample);
        }
        self.made += 1;
    }
}
