//! Errors of a scheduler's configuration or its use.

use std::path::PathBuf;

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the scheduler's configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is too large for a configuration.
    #[error("{} is not a scheduler configuration: expected at most {most} bytes, found more", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// The most bytes.
        most: u64,
    },
    /// The text is too long for a configuration.
    #[error("the scheduler's configuration has {found} bytes; expected at most {most}")]
    Long {
        /// Its bytes.
        found: usize,
        /// The most bytes.
        most: u64,
    },
    /// The text is not a JSON object.
    #[error("the scheduler's configuration is not a JSON object")]
    Json(#[from] serde_json::Error),
    /// There is no such class here.
    #[error("unknown scheduler class {found:?}; expected one of {}", known.join(", "))]
    Class {
        /// What the configuration says.
        found: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// There is no sampler of this name here.
    #[error("unknown sampler {found:?}; expected one of {}, or one of the classes {}", known.join(", "),
        classes.join(", "))]
    Sampler {
        /// What was asked for.
        found: String,
        /// The samplers that there are.
        known: Vec<&'static str>,
        /// The classes that there are.
        classes: Vec<&'static str>,
    },
    /// The sampler has no such spread of noise levels.
    #[error("the sampler {sampler:?} cannot be combined with {spread}")]
    SamplerSpread {
        /// The sampler's name.
        sampler: &'static str,
        /// The spread's name.
        spread: &'static str,
    },
    /// No scheduler of diffusers has such a key.
    #[error("unknown key {key:?} in the scheduler's configuration{}; remove it if it has no meaning",
        nearest.map_or(String::new(), |nearest| format!(" (is {nearest:?} meant?)")))]
    Key {
        /// The key.
        key: String,
        /// A known key with a similar spelling.
        nearest: Option<&'static str>,
    },
    /// A value that the class does not take.
    #[error("{class}: {key} is {found}; expected {expected}")]
    Value {
        /// The class.
        class: String,
        /// The key.
        key: &'static str,
        /// The value, as JSON.
        found: String,
        /// What is possible.
        expected: String,
    },
    /// Values that exclude each other.
    #[error("{class}: {reason}")]
    Combination {
        /// The class.
        class: String,
        /// What is wrong, and what to change.
        reason: &'static str,
    },
    /// The number of steps does not fit.
    #[error("{class} cannot run {steps} steps; expected 1 to {most}")]
    Steps {
        /// The class.
        class: String,
        /// The steps that were asked for.
        steps: usize,
        /// The most steps.
        most: usize,
    },
    /// The timesteps lie outside of the training's, or two noise levels are equal.
    #[error("{class}: {steps} steps do not fit the training timesteps with this timestep_spacing; choose fewer steps")]
    Spacing {
        /// The class.
        class: String,
        /// The steps that were asked for.
        steps: usize,
    },
    /// A number outside of its range.
    #[error("{name} is {found}; expected {expected}")]
    Range {
        /// What it is.
        name: &'static str,
        /// The number.
        found: f64,
        /// The range.
        expected: &'static str,
    },
    /// The strength leaves fewer timesteps than the requested steps.
    #[error("{class} cannot run {steps} steps with a strength of {strength}; expected 1 to {most}")]
    StepsOfStrength {
        /// The class.
        class: String,
        /// The steps that were asked for.
        steps: usize,
        /// The strength.
        strength: f64,
        /// The most that are possible.
        most: usize,
    },
    /// Strength leaves no steps.
    #[error("no step is left of {steps} with a strength of {strength}; choose more steps or a higher strength")]
    NoSteps {
        /// The steps that were asked for.
        steps: usize,
        /// The strength.
        strength: f64,
    },
    /// Numbers do not stay finite in a run.
    #[error("{class}: in a run of {steps} steps, the picture's values are not finite{}", cause.as_ref().map_or_else(
        || "; take the scheduler's configuration that the network was published with".to_owned(),
        |(key, value)| format!(" because of {key} ({value}); expected a value with which they are, as without it"),
    ))]
    NeverFinite {
        /// The class.
        class: String,
        /// The steps of the run.
        steps: usize,
        /// A key and its value; without this key, the values stay finite.
        cause: Option<(String, String)>,
    },
    /// All steps were made.
    #[error("the scheduler has made all of its {evaluations} steps")]
    Finished {
        /// How many there were.
        evaluations: usize,
    },
    /// The configuration's values lead to timesteps or noise levels that are infinite or NaN.
    #[error(
        "{class}: the configuration gives noise levels that are infinite or NaN; check sigma_max, sigma_min and \
        the betas"
    )]
    NoNumbers {
        /// The class.
        class: String,
    },
    /// A step gave a sample that is infinite or NaN.
    #[error("step {evaluation} of the scheduler gave values that are infinite or NaN; check its configuration")]
    NotFinite {
        /// The evaluation of the network, from 1.
        evaluation: usize,
    },
    /// Tensors of different lengths.
    #[error("{what} has {found} values; expected {expected}")]
    Length {
        /// Which tensor.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length of the sample.
        expected: usize,
    },
}
