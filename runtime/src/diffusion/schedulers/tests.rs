//! Every class, step by step, against diffusers (`tests/golden-schedulers/README.md`).

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::Value;

use super::class::Class;
use super::{Config, Error, SchedulerOptions};
use crate::random::{Noise, TorchCpu};

/// Relative to the range of a tensor's values, or to 1 if that range is smaller. Both compute in f64.
const TOLERANCE: f64 = 1e-9;
const COUNT: usize = 16;

fn golden(class: &str) -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden-schedulers");
    let files = std::fs::read_dir(Path::new(folder).join(class)).unwrap();
    files.map(|entry| entry.unwrap().path()).collect()
}

fn read(tensors: &SafeTensors, name: &str) -> Vec<f64> {
    let tensor = tensors.tensor(name).unwrap();
    tensor.data().chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn assert_near(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let extreme = |from: f64, of: fn(f64, f64) -> f64| expected.iter().copied().fold(from, of);
    let range = extreme(f64::NEG_INFINITY, f64::max) - extreme(f64::INFINITY, f64::min);
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / range.max(1.0);
        assert!(
            error <= TOLERANCE,
            "{what}: value {index} is {found} instead of {expected} ({error:.1e} of the range)"
        );
    }
}

fn options(run: &str) -> SchedulerOptions {
    let run: Value = serde_json::from_str(run).unwrap();
    let number = |key: &str| run.get(key).and_then(Value::as_f64);
    let mut options = SchedulerOptions::new(run["steps"].as_u64().unwrap() as usize);
    options.strength = number("strength").unwrap_or(1.0);
    options.eta = number("eta").unwrap_or(0.0);
    options.start = number("start");
    options.end = number("end").unwrap_or(1.0);
    options
}

/// Runs a golden case. The network's outputs, the picture and the noise are random numbers of known seeds.
fn run(path: &Path) {
    let file = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let case = path.file_stem().unwrap().to_string_lossy();
    let config = Config::parse(&metadata["config"]).unwrap();
    let case = format!("{}/{case}", config.class());
    let options = options(&metadata["run"]);
    let mut scheduler = config.scheduler(&options).unwrap_or_else(|error| panic!("{case}: {error}"));

    let (mut noise, mut outputs) = (TorchCpu::new(42), TorchCpu::new(1));
    let picture: Vec<f64> = TorchCpu::new(2).normal(COUNT).into_iter().map(f64::from).collect();
    let start = noise.normal(COUNT);
    assert_near(&format!("{case}: timesteps"), scheduler.timesteps(), &read(&tensors, "timesteps"));
    let deviation = read(&tensors, "initial_deviation");
    assert_near(&format!("{case}: initial deviation"), &[scheduler.initial_deviation()], &deviation);

    let mut sample: Vec<f64> = start.iter().map(|value| f64::from(*value) * deviation[0]).collect();
    if metadata["run"].contains("strength") {
        sample = scheduler.add_noise(&picture, &start).unwrap();
    }
    let samples = read(&tensors, "sample");
    let (divisors, noised) = (read(&tensors, "divisor"), read(&tensors, "noised"));
    let mut evaluation = 0;
    assert_near(&format!("{case}: start"), &sample, &samples[..COUNT]);
    while scheduler.timestep().is_some() {
        let what = |name: &str| format!("{case}: {name}, evaluation {evaluation}");
        let input = scheduler.model_input(&sample).unwrap();
        for (input, value) in input.iter().zip(&sample) {
            let expected = (value / divisors[evaluation]) as f32;
            assert!((input - expected).abs() <= 1e-6 * expected.abs(), "{}", what("input"));
        }
        let known = scheduler.add_noise(&picture, &start).unwrap();
        assert_near(&what("picture with noise"), &known[..4], &noised[4 * evaluation..][..4]);
        scheduler.step(&outputs.normal(COUNT), &mut sample, &mut noise).unwrap();
        assert_near(&what("sample"), &sample, &samples[COUNT * (evaluation + 1)..][..COUNT]);
        evaluation += 1;
    }
    assert_eq!(evaluation, divisors.len(), "{case}");
    assert_eq!(scheduler.add_noise(&picture, &start).unwrap(), picture, "{case}: the end has no noise");
    let finished = scheduler.step(&start, &mut sample, &mut noise);
    assert!(matches!(finished, Err(Error::Finished { .. })), "{case}: {finished:?}");
}

#[test]
fn every_class_makes_the_steps_of_diffusers() {
    for class in Class::ALL.map(Class::name) {
        let cases = golden(class);
        assert!(cases.len() >= 5, "{class} has {} golden cases", cases.len());
        cases.iter().for_each(|case| run(case));
    }
}

fn refused(class: &str, values: &str, options: &SchedulerOptions) -> String {
    let config = Config::parse(&format!(r#"{{"_class_name": "{class}Scheduler"{values}}}"#)).unwrap();
    config.scheduler(options).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn what_diffusers_has_and_we_have_not_is_refused() {
    for (class, values, expected) in [
        ("EulerDiscrete", r#", "use_beta_sigmas": true"#, "use_beta_sigmas is true; expected false or nothing"),
        ("EulerDiscrete", r#", "timestep_type": "continuous""#, "timestep_type is \"continuous\"; expected discrete"),
        ("EulerDiscrete", r#", "prediction_type": "flow_prediction""#, "expected epsilon or v_prediction or sample"),
        ("EulerAncestralDiscrete", r#", "prediction_type": "sample""#, "expected epsilon or v_prediction"),
        ("EulerDiscrete", r#", "beta_schedule": "sigmoid""#, "expected linear or scaled_linear or squaredcos_cap_v2"),
        (
            "EulerDiscrete",
            r#", "timestep_spacing": 7"#,
            "timestep_spacing is 7; expected leading or linspace or trailing",
        ),
        ("DDIM", r#", "thresholding": true"#, "thresholding is true"),
        ("DPMSolverMultistep", r#", "variance_type": "learned""#, "variance_type is \"learned\""),
        ("DPMSolverMultistep", r#", "use_flow_sigmas": true"#, "use_flow_sigmas is true"),
        ("DPMSolverMultistep", r#", "solver_order": 4"#, "solver_order is 4; expected a whole number from 1 to 3"),
        ("DPMSolverMultistep", r#", "algorithm_type": "dpmsolver""#, "need final_sigmas_type sigma_min"),
        ("UniPCMultistep", r#", "predict_x0": false"#, "final_sigmas_type zero needs predict_x0"),
        ("UniPCMultistep", r#", "solver_p": {}"#, "solver_p is {}"),
    ] {
        let text = refused(class, values, &SchedulerOptions::new(10));
        assert!(text.contains(expected) && text.starts_with(class), "{text}");
    }
}

#[test]
fn wrong_values_are_refused() {
    for (class, values, expected) in [
        ("DDIM", r#", "num_train_timesteps": 0"#, "num_train_timesteps is 0; expected a whole number from 2 to 100000"),
        ("DDIM", r#", "num_train_timesteps": 1e9"#, "num_train_timesteps is 1000000000.0; expected a whole number"),
        ("DDIM", r#", "beta_end": "large""#, "beta_end is \"large\"; expected a number"),
        ("DDIM", r#", "beta_end": 2"#, "beta_end is 2; expected a number from 0 to 1"),
        ("DDIM", r#", "beta_end": 1.0"#, "every beta has to be at least 0 and less than 1"),
        ("DDIM", r#", "trained_betas": [0.1]"#, "trained_betas has to have num_train_timesteps values"),
        ("DDIM", r#", "trained_betas": "x""#, "expected a list of numbers"),
        ("DDIM", r#", "clip_sample": 1"#, "clip_sample is 1; expected true or false"),
        ("DDIM", r#", "rescale_betas_zero_snr": true, "timestep_spacing": "trailing""#, "needs prediction_type v_pred"),
        ("DDIM", r#", "steps_offset": 900"#, "10 steps do not fit the training timesteps"),
        ("EulerDiscrete", r#", "use_karras_sigmas": true, "use_exponential_sigmas": true"#, "exclude each other"),
        ("EulerDiscrete", r#", "sigma_min": 3, "sigma_max": 2"#, "sigma_max has to be larger than sigma_min"),
        ("EulerDiscrete", r#", "sigma_min": -1"#, "sigma_min is -1; expected a positive number"),
    ] {
        let text = refused(class, values, &SchedulerOptions::new(10));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn runs_that_cannot_be_are_refused() {
    let with = |change: fn(&mut SchedulerOptions)| {
        let mut options = SchedulerOptions::new(10);
        change(&mut options);
        refused("LCM", "", &options)
    };
    assert!(with(|options| options.strength = 1.5).contains("strength is 1.5; expected a number from 0 to 1"));
    assert!(with(|options| options.strength = f64::NAN).contains("strength is NaN"));
    assert!(with(|options| options.eta = -0.1).contains("eta is -0.1"));
    assert!(with(|options| options.strength = 0.05).contains("no step is left of 10 with a strength of 0.05"));
    assert!(with(|options| options.steps = 51).contains("LCMScheduler cannot run 51 steps; expected 1 to 50"));
    assert!(with(|options| options.steps = 0).contains("cannot run 0 steps"));
    assert!(refused("DDIM", "", &SchedulerOptions::new(1001)).contains("cannot run 1001 steps; expected 1 to 1000"));
    assert!(refused("PNDM", "", &SchedulerOptions::new(3)).contains("at least 4 steps"));
}

#[test]
fn lengths_are_checked() {
    let config = Config::parse(r#"{"_class_name": "DDIMScheduler"}"#).unwrap();
    let mut scheduler = config.scheduler(&SchedulerOptions::new(10)).unwrap();
    let mut noise = TorchCpu::new(0);
    let error = scheduler.step(&[0.0; 3], &mut [0.0; 4], &mut noise).unwrap_err();
    assert_eq!(error.to_string(), "the network's output has 3 values; expected 4");
    assert!(scheduler.add_noise(&[0.0; 4], &[0.0; 5]).is_err());
}

#[test]
fn any_number_of_steps_gives_numbers() {
    for class in Class::ALL.map(Class::name) {
        for spacing in ["leading", "linspace", "trailing"] {
            let text = format!(
                r#"{{"_class_name": "{class}", "beta_schedule": "scaled_linear", "beta_start": 0.00085,
                "beta_end": 0.012, "timestep_spacing": "{spacing}", "skip_prk_steps": true, "clip_sample": false}}"#
            );
            let config = Config::parse(&text).unwrap();
            for steps in (1..=40).chain([50, 61, 100, 333, 998, 999, 1000]) {
                // A scheduler may refuse a number of steps, but must not produce NaN or infinity.
                let Ok(mut scheduler) = config.scheduler(&SchedulerOptions::new(steps)) else {
                    assert!(steps > 40, "{class} refuses {steps} steps, {spacing}");
                    continue;
                };
                let (mut noise, mut sample) = (TorchCpu::new(1), vec![1.0; 2]);
                while scheduler.timestep().is_some() {
                    scheduler.step(&[0.5, -0.5], &mut sample, &mut noise).unwrap();
                }
                assert!(sample.iter().all(|value| value.is_finite()), "{class}, {spacing}, {steps} steps: {sample:?}");
            }
        }
    }
}

#[test]
fn another_class_takes_the_same_values() {
    let text = r#"{"_class_name": "EulerDiscreteScheduler", "prediction_type": "v_prediction", "sigma_max": 10.0}"#;
    let config = Config::parse(text).unwrap().with_class("DPMSolverMultistepScheduler").unwrap();
    assert_eq!(config.class(), "DPMSolverMultistepScheduler");
    assert!(format!("{:?}", config.scheduler(&SchedulerOptions::new(4)).unwrap()).contains("Velocity"));
    assert_eq!(config.number("sigma_max").unwrap(), None, "the new class has no such value");
}
