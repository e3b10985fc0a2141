//! Samplers, by their names in AUTOMATIC1111, ComfyUI and k-diffusion.
//!
//! The class and values of each sampler: <https://huggingface.co/docs/diffusers/api/schedulers/overview>.

use super::class::Class;
use super::config::Config;
use super::error::{Error, Result};

/// A sampler.
struct Sampler {
    /// As users write it.
    name: &'static str,
    /// The same and other names, as [`plain`] writes them.
    known_as: &'static [&'static str],
    class: Class,
    /// `algorithm_type`, for DPM-Solver.
    algorithm: Option<&'static str>,
}

const fn sampler(name: &'static str, known_as: &'static [&'static str], class: Class) -> Sampler {
    Sampler { name, known_as, class, algorithm: None }
}

const fn dpm_solver(name: &'static str, known_as: &'static [&'static str], algorithm: &'static str) -> Sampler {
    Sampler { name, known_as, class: Class::DpmSolverMultistep, algorithm: Some(algorithm) }
}

const SAMPLERS: [Sampler; 10] = [
    sampler("Euler", &["euler"], Class::EulerDiscrete),
    sampler("Euler a", &["eulera", "eulerancestral"], Class::EulerAncestralDiscrete),
    sampler("Heun", &["heun"], Class::HeunDiscrete),
    sampler("LMS", &["lms"], Class::LmsDiscrete),
    dpm_solver("DPM++ 2M", &["dpmpp2m"], "dpmsolver++"),
    dpm_solver("DPM++ 2M SDE", &["dpmpp2msde"], "sde-dpmsolver++"),
    sampler("UniPC", &["unipc"], Class::UniPcMultistep),
    sampler("DDIM", &["ddim"], Class::Ddim),
    sampler("PLMS", &["plms", "pndm"], Class::Pndm),
    sampler("LCM", &["lcm"], Class::Lcm),
];

/// The suffix of a sampler's name: how its noise levels are spread.
#[derive(Clone, Copy, PartialEq)]
enum Spread {
    Plain,
    Karras,
    Exponential,
    /// Timesteps counted from the last one.
    Uniform,
}

const SPREADS: [(&str, &str, Spread); 4] = [
    ("karras", "Karras", Spread::Karras),
    ("exponential", "Exponential", Spread::Exponential),
    ("sgmuniform", "SGM Uniform", Spread::Uniform),
    ("", "", Spread::Plain),
];

/// The samplers by the names that users write, as [`Config::with_name`] takes them.
pub fn sampler_names() -> impl Iterator<Item = &'static str> {
    SAMPLERS.iter().map(|sampler| sampler.name)
}

/// The suffixes of sampler names, as in `DPM++ 2M Karras`: how noise levels are spread. Not every sampler takes every
/// suffix.
pub fn spread_names() -> impl Iterator<Item = &'static str> {
    SPREADS.iter().map(|(_, shown, _)| *shown).filter(|shown| !shown.is_empty())
}

impl Config {
    /// The same values for another class, or for a sampler by its name in other programs: "Euler a",
    /// `dpmpp_2m_karras`.
    ///
    /// # Errors
    /// There is no such class and no such sampler.
    pub fn with_name(self, name: &str) -> Result<Self> {
        if name.ends_with("Scheduler") { self.with_class(name) } else { apply(self, name) }
    }
}

/// The configuration for a sampler. Values that follow from its name replace the configuration's own.
fn apply(config: Config, name: &str) -> Result<Config> {
    let plain = plain(name);
    // The endings are different, so at most one matches; the empty one comes last.
    let named = SPREADS
        .into_iter()
        .find_map(|(ending, shown, spread)| plain.strip_suffix(ending).map(|rest| (rest, shown, spread)));
    let found = named.and_then(|(rest, shown, spread)| {
        let known = |known: &&str| *known == rest || rest.strip_prefix('k') == Some(known);
        SAMPLERS.iter().find(|sampler| sampler.known_as.iter().any(known)).map(|sampler| (sampler, shown, spread))
    });
    let (sampler, shown, spread) = found.ok_or_else(|| Error::Sampler {
        found: name.into(),
        known: SAMPLERS.iter().map(|sampler| sampler.name).collect(),
        classes: Class::ALL.map(Class::name).into(),
    })?;
    let (spreads, spaced) = match sampler.class {
        Class::EulerDiscrete | Class::HeunDiscrete | Class::LmsDiscrete => (true, true),
        Class::DpmSolverMultistep | Class::UniPcMultistep => (true, true),
        Class::EulerAncestralDiscrete | Class::Ddim | Class::Pndm => (false, true),
        Class::Lcm | Class::Tcd => (false, false),
    };
    let fits = match spread {
        Spread::Plain => true,
        Spread::Karras | Spread::Exponential => spreads,
        Spread::Uniform => spaced,
    };
    if !fits {
        return Err(Error::SamplerSpread { sampler: sampler.name, spread: shown });
    }
    let mut config = config.of_kind(sampler.class);
    if spreads {
        config.set("use_karras_sigmas", spread == Spread::Karras);
        config.set("use_exponential_sigmas", spread == Spread::Exponential);
    }
    if spread == Spread::Uniform {
        config.set("timestep_spacing", "trailing");
    }
    if let Some(algorithm) = sampler.algorithm {
        config.set("algorithm_type", algorithm);
        config.set("solver_order", 2);
        config.set("solver_type", "midpoint");
        config.set("use_lu_lambdas", false);
    }
    if sampler.class == Class::Pndm {
        config.set("skip_prk_steps", true);
    }
    Ok(config)
}

/// A name in lower case, without spaces and dashes, and with `pp` for `++`.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, ' ' | '_' | '-'));
    letters.flat_map(char::to_lowercase).map(|letter| if letter == '+' { 'p' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::SchedulerOptions;
    use super::*;

    fn config(values: &str) -> Config {
        Config::parse(&format!(r#"{{"_class_name": "PNDMScheduler", "beta_schedule": "scaled_linear"{values}}}"#))
            .unwrap()
    }

    /// A configuration as its scheduler, without values that do not change a run.
    fn shown(config: &Config) -> String {
        format!("{:?}", config.scheduler(&SchedulerOptions::new(8)).unwrap())
    }

    #[test]
    fn names_of_other_programs_are_classes_with_values() {
        for (names, class, values) in [
            (&["euler", "Euler", "k_euler"][..], "EulerDiscrete", ""),
            (&["euler_a", "Euler a", "euler_ancestral", "k_euler_a", "EULER-A"], "EulerAncestralDiscrete", ""),
            (&["Euler Karras"], "EulerDiscrete", r#", "use_karras_sigmas": true"#),
            (&["heun"], "HeunDiscrete", ""),
            (&["LMS Karras", "lms_karras"], "LMSDiscrete", r#", "use_karras_sigmas": true"#),
            (&["DPM++ 2M", "dpmpp_2m", "k_dpmpp_2m"], "DPMSolverMultistep", ""),
            (&["DPM++ 2M Karras", "dpmpp_2m_karras"], "DPMSolverMultistep", r#", "use_karras_sigmas": true"#),
            (
                &["DPM++ 2M SDE Karras", "dpm++_2m_sde_karras"],
                "DPMSolverMultistep",
                r#", "use_karras_sigmas": true, "algorithm_type": "sde-dpmsolver++""#,
            ),
            (
                &["DPM++ 2M SDE Exponential"],
                "DPMSolverMultistep",
                r#", "use_exponential_sigmas": true, "algorithm_type": "sde-dpmsolver++""#,
            ),
            (&["DPM++ 2M SGM Uniform"], "DPMSolverMultistep", r#", "timestep_spacing": "trailing""#),
            (&["uni_pc", "UniPC"], "UniPCMultistep", ""),
            (&["ddim", "DDIM"], "DDIM", ""),
            (&["plms", "PNDM"], "PNDM", r#", "skip_prk_steps": true"#),
            (&["lcm"], "LCM", ""),
        ] {
            let expected = config(values).with_class(&format!("{class}Scheduler")).unwrap();
            for name in names {
                assert_eq!(shown(&config("").with_name(name).unwrap()), shown(&expected), "{name}");
            }
        }
    }

    #[test]
    fn a_name_decides_over_the_engines_values() {
        let values = r#", "use_karras_sigmas": true, "solver_order": 3, "algorithm_type": "deis""#;
        let plain = config("").with_class("DPMSolverMultistepScheduler").unwrap();
        assert_eq!(shown(&config(values).with_name("DPM++ 2M").unwrap()), shown(&plain));
        // A class keeps them.
        assert_ne!(shown(&config(values).with_name("DPMSolverMultistepScheduler").unwrap()), shown(&plain));
    }

    #[test]
    fn other_names_are_refused_with_those_that_there_are() {
        for name in ["DPM++ SDE", "dpm2_a", "", "karras", "kk_euler", "euler_a_b", "🦊", "\u{130}"] {
            let text = config("").with_name(name).unwrap_err().to_string();
            assert!(text.contains("unknown sampler") && text.contains("DPM++ 2M SDE, UniPC"), "{name}: {text}");
        }
        let text = config("").with_name("Euler a Karras").unwrap_err().to_string();
        assert_eq!(text, "the sampler \"Euler a\" cannot be combined with Karras");
        assert!(config("").with_name("FastScheduler").unwrap_err().to_string().contains("scheduler class"));
    }
}
