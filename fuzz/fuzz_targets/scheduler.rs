//! Any scheduler configuration with any number of steps and any strength gives finite values, or an error.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_runtime::diffusion::schedulers::{Config, SchedulerOptions};
use tileforge_runtime::random::{Noise, TorchCpu};

/// Evaluations that are made at most.
const MOST: usize = 64;

#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    steps: u16,
    strength: f64,
    eta: f64,
    end: Option<f64>,
    start: Option<f64>,
    name: Option<&'a str>,
    config: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    // A class and JSON's brackets, so that most inputs get further than the first letter.
    let classes = [
        "EulerDiscrete",
        "EulerAncestralDiscrete",
        "DDIM",
        "PNDM",
        "LMSDiscrete",
        "HeunDiscrete",
        "DPMSolverMultistep",
        "UniPCMultistep",
        "LCM",
        "TCD",
    ];
    let class = classes[usize::from(input.steps) % classes.len()];
    let text = format!("{{\"_class_name\": \"{class}Scheduler\"{}}}", input.config);
    let Ok(config) = Config::parse(&text).or_else(|_| Config::parse(input.config)) else { return };
    let config = match input.name {
        Some(name) => config.with_name(name),
        None => Ok(config),
    };
    let Ok(config) = config else { return };
    let mut options = SchedulerOptions::new(usize::from(input.steps / 10));
    (options.strength, options.eta) = (input.strength, input.eta);
    (options.end, options.start) = (input.end.unwrap_or(1.0), input.start);
    let Ok(mut scheduler) = config.scheduler(&options) else { return };
    let (mut noise, mut outputs) = (TorchCpu::new(1), TorchCpu::new(2));
    let start = noise.normal(4);
    let Ok(mut sample) = scheduler.add_noise(&[0.5, -0.5, 0.1, 0.0], &start) else { return };
    for _ in 0..MOST {
        if scheduler.timestep().is_none() {
            break;
        }
        let Ok(model_input) = scheduler.model_input(&sample) else { return };
        assert!(model_input.iter().all(|value| value.is_finite()));
        if scheduler.step(&outputs.normal(4), &mut sample, &mut noise).is_err() {
            return;
        }
        assert!(sample.iter().all(|value| value.is_finite()));
    }
});
