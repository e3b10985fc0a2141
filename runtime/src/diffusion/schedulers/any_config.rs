//! Any configuration, steps and strength: a run of finite values, or an error.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::class::Class;
use super::keys::KEYS;
use super::{Config, SchedulerOptions};
use crate::random::{Noise, TorchCpu};

/// Evaluations that are made at most, so that a case does not take long.
const MOST: usize = 64;

/// The keys that classes here use.
const USED: [&str; 31] = [
    "algorithm_type",
    "beta_end",
    "beta_schedule",
    "beta_start",
    "clip_sample",
    "clip_sample_range",
    "disable_corrector",
    "euler_at_final",
    "final_sigmas_type",
    "interpolation_type",
    "lambda_min_clipped",
    "lower_order_final",
    "num_train_timesteps",
    "original_inference_steps",
    "predict_x0",
    "prediction_type",
    "rescale_betas_zero_snr",
    "set_alpha_to_one",
    "sigma_max",
    "sigma_min",
    "skip_prk_steps",
    "solver_order",
    "solver_type",
    "steps_offset",
    "timestep_scaling",
    "timestep_spacing",
    "trained_betas",
    "use_exponential_sigmas",
    "use_karras_sigmas",
    "use_lu_lambdas",
    "timestep_type",
];

fn value() -> impl Strategy<Value = Value> {
    let words = [
        "dpmsolver",
        "dpmsolver++",
        "sde-dpmsolver",
        "sde-dpmsolver++",
        "deis",
        "linear",
        "scaled_linear",
        "squaredcos_cap_v2",
        "zero",
        "sigma_min",
        "log_linear",
        "epsilon",
        "v_prediction",
        "sample",
        "midpoint",
        "heun",
        "bh1",
        "bh2",
        "leading",
        "linspace",
        "trailing",
        "discrete",
        "Infinity",
        "-Infinity",
    ];
    prop_oneof![
        4 => any::<bool>().prop_map(Value::from),
        4 => prop::sample::select(words.to_vec()).prop_map(Value::from),
        4 => (0_u64..60).prop_map(Value::from),
        2 => (0.0..1.0).prop_map(|number: f64| json!(number)),
        2 => prop::sample::select(vec![
            json!(1e300), json!(-1e300), json!(1e-300), json!(-5.1), json!(0.0), json!(1.0), json!(0.999_999_999),
            json!(1e16), json!(u64::MAX), json!(1_u64 << 63), json!(100_000), json!(99_999), json!(1000), json!(999),
        ]).boxed(),
        1 => prop::collection::vec(prop_oneof![0.0..1.0, Just(0.999_999), Just(1e300), 0.0..20.0], 0..12)
            .prop_map(|numbers: Vec<f64>| json!(numbers)),
        1 => Just(json!({})),
    ]
}

fn config() -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof![8 => prop::sample::select(USED.to_vec()), 1 => prop::sample::select(KEYS.to_vec())];
    let train = prop_oneof![1 => Just(None), 3 => (2_usize..40).prop_map(Some)];
    (prop::collection::vec((key, value()), 0..6), train).prop_map(|(values, train)| {
        let mut config: Map<String, Value> =
            train.map(|train| ("num_train_timesteps".into(), train.into())).into_iter().collect();
        config.extend(values.into_iter().map(|(key, value)| (key.to_owned(), value)));
        config
    })
}

fn share() -> impl Strategy<Value = f64> {
    let odd = vec![0.0, 1.0, 0.01, 0.5, 0.999_999, f64::NAN, -0.0, 1.1, f64::MIN_POSITIVE, 1.0 - f64::EPSILON];
    prop_oneof![0.0..1.0, prop::sample::select(odd)]
}

fn options() -> impl Strategy<Value = SchedulerOptions> {
    let steps = prop_oneof![4 => 1_usize..50, 1 => prop::sample::select(vec![0, 999, 1000, 1001, usize::MAX])];
    (
        steps,
        share(),
        share(),
        prop_oneof![3 => Just(1.0).boxed(), 1 => share().boxed()],
        prop::option::weighted(0.2, share()),
    )
        .prop_map(|(steps, strength, eta, end, start)| {
            let mut options = SchedulerOptions::new(steps);
            (options.strength, options.eta, options.end, options.start) = (strength, eta, end, start);
            options
        })
}

/// Runs a configuration as a pipeline does, with a picture as its start. Errors are fine; other values have to be
/// finite.
fn run(config: &Config, options: &SchedulerOptions) {
    let Ok(mut scheduler) = config.scheduler(options) else { return };
    let (mut noise, mut outputs) = (TorchCpu::new(1), TorchCpu::new(2));
    let deviation = scheduler.initial_deviation();
    assert!(deviation.is_finite());
    let start = noise.normal(4);
    let Ok(mut sample) = scheduler.add_noise(&[0.5, -0.5, 0.1, 0.0], &start) else { return };
    assert_eq!(scheduler.timestep(), scheduler.timesteps().first().copied());
    for _ in 0..MOST {
        let Some(timestep) = scheduler.timestep() else { break };
        assert!(timestep.is_finite());
        let Ok(input) = scheduler.model_input(&sample) else { return };
        assert!(input.iter().all(|value| value.is_finite()));
        let output = outputs.normal(4);
        let _ = scheduler.picture(&output, &sample).unwrap();
        if scheduler.step(&output, &mut sample, &mut noise).is_err() {
            return;
        }
        assert!(sample.iter().all(|value| value.is_finite()));
        let known = scheduler.add_noise(&[0.5; 4], &start).unwrap();
        assert!(known.iter().all(|value| value.is_finite()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration_gives_finite_values_or_an_error(values in config(), options in options()) {
        for class in Class::ALL.map(Class::name) {
            let mut values = values.clone();
            values.insert("_class_name".into(), class.into());
            if let Ok(config) = Config::parse(&Value::Object(values).to_string()) {
                run(&config, &options);
            }
        }
    }

    #[test]
    fn any_text_is_a_configuration_or_an_error(text in "\\PC{0,40}", name in "\\PC{0,12}") {
        let _ = Config::parse(&text);
        let _ = Config::parse(r#"{"_class_name": "DDIMScheduler"}"#).unwrap().with_name(&name);
    }
}

/// Malicious configurations: each of these once panicked.
#[test]
fn configurations_of_an_attacker_are_refused() {
    for (class, values, steps, strength, expected) in [
        ("DPMSolverMultistep", r#""lambda_min_clipped": 1e300"#, 10, 1.0, "lambda_min_clipped leaves no timestep"),
        (
            "LCM",
            r#""num_train_timesteps": 10"#,
            4,
            0.01,
            "original_inference_steps is 50; expected a whole number from 1 to 10",
        ),
        ("TCD", r#""num_train_timesteps": 10"#, 4, 1.0, "original_inference_steps is 50"),
        ("EulerDiscrete", r#""use_karras_sigmas": true, "sigma_max": 1e300"#, 10, 1.0, "infinite or NaN"),
    ] {
        let config = Config::parse(&format!(r#"{{"_class_name": "{class}Scheduler", {values}}}"#)).unwrap();
        let mut options = SchedulerOptions::new(steps);
        options.strength = strength;
        let text = config.scheduler(&options).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains(expected), "{class}: {text}");
    }
    let long = format!(r#"{{"_class_name": "DDIMScheduler", "trained_betas": [{}0]}}"#, "0,".repeat(1 << 20));
    assert!(Config::parse(&long).unwrap_err().to_string().contains("at most 1048576"));
}

#[test]
fn a_step_into_values_that_are_no_numbers_is_an_error() {
    let text = r#"{"_class_name": "DDIMScheduler", "clip_sample": false}"#;
    let mut scheduler = Config::parse(text).unwrap().scheduler(&SchedulerOptions::new(4)).unwrap();
    let (mut noise, mut sample) = (TorchCpu::new(1), vec![1e308; 4]);
    let error = scheduler.step(&[0.5; 4], &mut sample, &mut noise).unwrap_err();
    assert!(error.to_string().starts_with("step 1 of the scheduler gave values that are infinite or NaN"), "{error}");
    let error = scheduler.model_input(&[1e300; 4]).unwrap_err();
    assert!(error.to_string().contains("infinite or NaN"), "{error}");
}
