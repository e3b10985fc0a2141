//! The part of a scheduler that differs between classes.

use std::fmt::Debug;

use super::schedule::Schedule;
use crate::random::Noise;

/// A method, prepared for one run.
pub(super) trait Solver: Debug + Send {
    /// The evaluations from pure noise to the end.
    fn schedule(&self) -> &dyn Schedule;

    /// How many evaluations make a step: `order` in diffusers.
    fn evaluations_of_step(&self) -> usize {
        1
    }

    /// Whether its evaluations already take the strength into account.
    fn is_shortened(&self) -> bool {
        false
    }

    /// Makes the next sample from the network's output. Lengths are equal, and each evaluation comes once, in order.
    fn step(&mut self, evaluation: usize, output: &[f32], sample: &mut [f64], noise: &mut dyn Noise);
}
