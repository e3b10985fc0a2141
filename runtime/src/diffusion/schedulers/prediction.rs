//! What the network predicts: `prediction_type`.

use super::config::Config;
use super::error::Result;

/// What the network predicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Prediction {
    /// The noise.
    Epsilon,
    /// α · noise − σ · picture (Salimans and Ho 2022, <https://arxiv.org/abs/2202.00512>).
    Velocity,
    /// The picture.
    Sample,
}

const ALL: [(&str, Prediction); 3] =
    [("epsilon", Prediction::Epsilon), ("v_prediction", Prediction::Velocity), ("sample", Prediction::Sample)];

/// The factors of picture and noise in a sample of variance 1: α² + σ² = 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture {
    pub(super) alpha: f64,
    pub(super) sigma: f64,
}

impl Mixture {
    pub(super) fn of_alpha_bar(alpha_bar: f64) -> Self {
        Self { alpha: alpha_bar.sqrt(), sigma: (1.0 - alpha_bar).sqrt() }
    }

    /// From the deviation of the noise if the picture keeps its scale.
    pub(super) fn of_sigma(sigma: f64) -> Self {
        let alpha = 1.0 / (sigma * sigma + 1.0).sqrt();
        Self { alpha, sigma: sigma * alpha }
    }

    /// λ: half of the logarithm of the signal-to-noise ratio.
    pub(super) fn log_ratio(self) -> f64 {
        self.alpha.ln() - self.sigma.ln()
    }
}

impl Prediction {
    pub(super) fn new(config: &Config) -> Result<Self> {
        config.choice("prediction_type", Self::Epsilon, &ALL)
    }

    /// For classes that support only noise and velocity in diffusers.
    pub(super) fn of_noise(config: &Config) -> Result<Self> {
        config.choice("prediction_type", Self::Epsilon, &ALL[..2])
    }

    /// The picture in a sample of variance 1.
    pub(super) fn picture(self, sample: f64, output: f64, Mixture { alpha, sigma }: Mixture) -> f64 {
        match self {
            Self::Epsilon => (sample - sigma * output) / alpha,
            Self::Velocity => alpha * sample - sigma * output,
            Self::Sample => output,
        }
    }

    /// The noise in a sample of variance 1.
    pub(super) fn noise(self, sample: f64, output: f64, Mixture { alpha, sigma }: Mixture) -> f64 {
        match self {
            Self::Epsilon => output,
            Self::Velocity => alpha * output + sigma * sample,
            Self::Sample => (sample - alpha * output) / sigma,
        }
    }

    /// The picture in a sample where the picture keeps its scale and the noise has the deviation σ.
    pub(super) fn picture_of_scaled(self, sample: f64, output: f64, sigma: f64) -> f64 {
        let variance = sigma * sigma + 1.0;
        match self {
            Self::Epsilon => sample - sigma * output,
            Self::Velocity => sample / variance - output * sigma / variance.sqrt(),
            Self::Sample => output,
        }
    }
}

/// `clip_sample`: the largest absolute value of the picture; infinity if clipping is off.
pub(super) fn clip(config: &Config, default: bool) -> Result<f64> {
    let range = config.positive("clip_sample_range")?.unwrap_or(1.0);
    Ok(if config.flag("clip_sample", default)? { range } else { f64::INFINITY })
}
