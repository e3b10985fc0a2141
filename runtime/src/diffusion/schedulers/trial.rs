//! Checks whether a configuration can make pictures: runs its scheduler on random predictions.

use serde_json::Value;

use super::config::Config;
use super::error::{Error, Result};
use super::options::SchedulerOptions;
use crate::diffusion::quote::quoted;
use crate::random::{Noise, TorchCpu};

/// Common numbers of steps: for distilled networks, and for others.
const STEPS: [usize; 5] = [1, 2, 4, 20, 50];

/// Values of a sample: enough to find every failure of a step, since each value is computed independently, except that
/// the largest can affect the others.
const VALUES: usize = 64;

/// The seed of noise and predictions.
const SEED: u64 = 0;

impl Config {
    /// Runs the scheduler from start to end for several numbers of steps, with noise as predictions.
    ///
    /// Some classes refuse certain numbers of steps. At least one number must work.
    ///
    /// # Errors
    /// As [`Config::scheduler`]; [`Error::NeverFinite`]: a value becomes infinite or NaN on the way.
    pub fn try_runs(&self) -> Result<()> {
        let (mut ran, mut refused, mut without_numbers) = (false, None, None);
        for steps in STEPS {
            match self.try_run(steps) {
                Ok(true) => ran = true,
                Ok(false) | Err(Error::NotFinite { .. }) => return Err(self.not_finite(steps)),
                Err(Error::NoNumbers { .. }) => without_numbers = Some(steps),
                Err(
                    error @ (Error::Steps { .. }
                    | Error::Spacing { .. }
                    | Error::NoSteps { .. }
                    | Error::Combination { .. }),
                ) => {
                    // The error for the fewest steps is the most useful.
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let never = || without_numbers.map(|steps| self.not_finite(steps));
        if ran { Ok(()) } else { never().or(refused).map_or(Ok(()), Err) }
    }

    /// Runs the scheduler once. Returns whether all values stay finite, also in the network's single precision.
    fn try_run(&self, steps: usize) -> Result<bool> {
        let mut scheduler = self.scheduler(&SchedulerOptions::new(steps))?;
        let mut noise = TorchCpu::new(SEED);
        let deviation = scheduler.initial_deviation();
        let mut sample: Vec<f64> = noise.normal(VALUES).iter().map(|value| f64::from(*value) * deviation).collect();
        while let Some(timestep) = scheduler.timestep() {
            let input = scheduler.model_input(&sample)?;
            let prediction = noise.normal(VALUES);
            let preview = scheduler.picture(&prediction, &sample)?;
            scheduler.step(&prediction, &mut sample, &mut noise)?;
            let values = preview.iter().chain(&sample).map(|value| *value as f32).chain(input);
            if !(timestep.is_finite() && values.into_iter().all(f32::is_finite)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The error for values that do not stay finite. It names a key without which they stay finite, if there is one.
    fn not_finite(&self, steps: usize) -> Error {
        // Numeric values are tried first: they are likelier causes than the choice of a formula.
        let is_number = |key: &&str| self.value(key).is_some_and(Value::is_number);
        let keys = self.keys().filter(is_number).chain(self.keys());
        let cause = keys.into_iter().find(|key| self.without(key).try_run(steps).is_ok_and(|finite| finite));
        let cause = cause.map(|key| {
            let value = self.value(key).map_or_else(String::new, Value::to_string);
            (key.to_owned(), quoted(&value))
        });
        Error::NeverFinite { class: self.class().into(), steps, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(class: &str, values: &str) -> Result<(), String> {
        let config = Config::parse(&format!(r#"{{"_class_name": "{class}Scheduler", {values}}}"#)).unwrap();
        config.try_runs().map_err(|error| error.to_string())
    }

    #[test]
    fn every_class_runs_with_its_own_values() {
        for class in super::super::class::Class::ALL {
            let config = Config::parse(&format!(r#"{{"_class_name": "{}"}}"#, class.name())).unwrap();
            config.try_runs().unwrap_or_else(|error| panic!("{}: {error}", class.name()));
        }
    }

    #[test]
    fn a_configuration_that_can_never_run_names_its_key_and_what_is_possible() {
        for (class, values, words) in [
            ("EulerDiscrete", r#""sigma_min": 0"#, ["sigma_min is 0", "expected a positive number"]),
            ("DPMSolverMultistep", r#""solver_order": 0"#, ["solver_order is 0", "expected a whole number from 1 to"]),
            ("UniPCMultistep", r#""solver_order": 9"#, ["solver_order is 9", "expected a whole number from 1 to"]),
            ("PNDM", r#""beta_schedule": "square""#, ["beta_schedule is \"square\"", "expected linear or"]),
            ("DDIM", r#""num_train_timesteps": 1"#, ["num_train_timesteps is 1", "expected a whole number from 2 to"]),
            ("DDIM", r#""prediction_type": "guess""#, ["prediction_type is \"guess\"", "expected "]),
        ] {
            let error = of(class, values).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn values_that_do_not_stay_finite_are_found_with_the_key_that_makes_them() {
        let error = of("EulerDiscrete", r#""sigma_max": 1e300, "use_karras_sigmas": true"#).unwrap_err();
        assert!(error.contains("sigma_max (1e+300)") && error.contains("not finite"), "{error}");
    }

    #[test]
    fn a_class_may_refuse_some_numbers_of_steps_but_not_all() {
        // A network distilled to four steps.
        of("LCM", r#""original_inference_steps": 4"#).unwrap();
        of("DDIM", r#""num_train_timesteps": 10"#).unwrap();
        let error = of("DDIM", r#""num_train_timesteps": 2, "steps_offset": 2"#).unwrap_err();
        assert!(error.contains("do not fit"), "{error}");
    }
}
