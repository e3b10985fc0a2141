//! How much noise each timestep of the training has.

use super::config::Config;
use super::error::Result;

/// How β grows with the timestep.
#[derive(Clone, Copy)]
enum Growth {
    Linear,
    ScaledLinear,
    SquaredCosine,
}

const GROWTHS: [(&str, Growth); 3] =
    [("linear", Growth::Linear), ("scaled_linear", Growth::ScaledLinear), ("squaredcos_cap_v2", Growth::SquaredCosine)];

/// The default values of a class, where they differ from those of DDPM.
#[derive(Clone, Copy)]
pub(super) enum Betas {
    /// Linear, 0.0001 to 0.02.
    Ddpm,
    /// Linear, 0.00085 to 0.012.
    Heun,
    /// Scaled linear, 0.00085 to 0.012.
    LatentConsistency,
}

/// ᾱ of each training timestep: the remaining share of the picture's variance.
#[derive(Clone, Debug)]
pub(super) struct NoiseLevels {
    alphas_bar: Vec<f64>,
}

impl NoiseLevels {
    /// Without `rescale_betas_zero_snr`.
    pub(super) fn plain(config: &Config, defaults: Betas) -> Result<Self> {
        let count = config.train_timesteps()?;
        let (growth, start, end) = match defaults {
            Betas::Ddpm => (Growth::Linear, 0.0001, 0.02),
            Betas::Heun => (Growth::Linear, 0.00085, 0.012),
            Betas::LatentConsistency => (Growth::ScaledLinear, 0.00085, 0.012),
        };
        let trained = config.numbers("trained_betas")?;
        let growth = config.choice("beta_schedule", growth, &GROWTHS)?;
        let start = config.number_within("beta_start", start, 0.0, 1.0)?;
        let end = config.number_within("beta_end", end, 0.0, 1.0)?;
        let betas = match (trained, growth) {
            (Some(trained), _) => trained,
            (None, Growth::Linear) => linspace(start, end, count),
            (None, Growth::ScaledLinear) => {
                linspace(start.sqrt(), end.sqrt(), count).into_iter().map(|root| root * root).collect()
            }
            (None, Growth::SquaredCosine) => squared_cosine(count),
        };
        if betas.len() != count {
            return Err(config.conflict("trained_betas has to have num_train_timesteps values"));
        }
        if !betas.iter().all(|beta| (0.0..1.0).contains(beta)) || betas[0] == 0.0 {
            return Err(config.conflict("every beta has to be at least 0 and less than 1, and the first more than 0"));
        }
        Ok(Self { alphas_bar: products(betas.into_iter().map(|beta| 1.0 - beta)) })
    }

    /// With `rescale_betas_zero_snr`: ᾱ of the last timestep is then 0.
    pub(super) fn new(config: &Config, defaults: Betas) -> Result<Self> {
        let mut levels = Self::plain(config, defaults)?;
        if config.flag("rescale_betas_zero_snr", false)? {
            levels.rescale();
        }
        Ok(levels)
    }

    /// For classes that divide by ᾱ: the last one is 2⁻²⁴ in place of 0.
    pub(super) fn without_zero(config: &Config, defaults: Betas) -> Result<Self> {
        let mut levels = Self::new(config, defaults)?;
        if let Some(last) = levels.alphas_bar.last_mut().filter(|last| **last == 0.0) {
            *last = 2.0_f64.powi(-24);
        }
        Ok(levels)
    }

    /// Zero terminal signal-to-noise ratio: algorithm 1 of Lin and others 2023, <https://arxiv.org/abs/2305.08891>.
    fn rescale(&mut self) {
        let (Some(first), Some(last)) = (self.alphas_bar.first().copied(), self.alphas_bar.last().copied()) else {
            return;
        };
        let (first, last) = (first.sqrt(), last.sqrt());
        for alpha_bar in &mut self.alphas_bar {
            *alpha_bar = ((alpha_bar.sqrt() - last) * (first / (first - last))).powi(2);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.alphas_bar.len()
    }

    pub(super) fn alpha_bar(&self, timestep: usize) -> f64 {
        self.alphas_bar[timestep]
    }

    /// σ of each timestep, ascending: the deviation of the noise if the picture keeps its scale.
    pub(super) fn sigmas(&self) -> Vec<f64> {
        self.alphas_bar.iter().map(|alpha_bar| ((1.0 - alpha_bar) / alpha_bar).sqrt()).collect()
    }
}

/// `count` values from `start` to `end`, as NumPy computes them. One value is `start`.
pub(super) fn linspace(start: f64, end: f64, count: usize) -> Vec<f64> {
    let parts = count.max(2) - 1;
    let step = (end - start) / parts as f64;
    (0..count).map(|index| if index == parts { end } else { index as f64 * step + start }).collect()
}

fn products(factors: impl Iterator<Item = f64>) -> Vec<f64> {
    factors
        .scan(1.0, |product, factor| {
            *product *= factor;
            Some(*product)
        })
        .collect()
}

/// Nichol and Dhariwal 2021, <https://arxiv.org/abs/2102.09672>.
fn squared_cosine(count: usize) -> Vec<f64> {
    let alpha_bar = |part: f64| ((part + 0.008) / 1.008 * std::f64::consts::FRAC_PI_2).cos().powi(2);
    let part = |index: usize| index as f64 / count as f64;
    (0..count).map(|index| (1.0 - alpha_bar(part(index + 1)) / alpha_bar(part(index))).min(0.999)).collect()
}
