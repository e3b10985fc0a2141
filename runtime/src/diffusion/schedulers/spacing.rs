//! The timesteps and σ of a run's steps.

use super::config::Config;
use super::error::{Error, Result};
use super::noise_levels::linspace;

/// `timestep_spacing`: table 2 of Lin and others 2023, <https://arxiv.org/abs/2305.08891>.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spacing {
    Leading,
    Linspace,
    Trailing,
}

const SPACINGS: [(&str, Spacing); 3] =
    [("leading", Spacing::Leading), ("linspace", Spacing::Linspace), ("trailing", Spacing::Trailing)];

/// How the σ of a run are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spread {
    /// They follow the timesteps.
    Timesteps,
    /// Equation 5 of Karras and others 2022, <https://arxiv.org/abs/2206.00364>, with ρ = 7.
    Karras,
    /// Equal steps of the logarithm.
    Exponential,
}

/// The keys of [`Spread`] that are not supported.
pub(super) const OTHER_SPREADS: [&str; 2] = ["use_beta_sigmas", "use_flow_sigmas"];

impl Spread {
    pub(super) fn new(config: &Config) -> Result<Self> {
        config.refuse(&OTHER_SPREADS)?;
        match (config.flag("use_karras_sigmas", false)?, config.flag("use_exponential_sigmas", false)?) {
            (false, false) => Ok(Self::Timesteps),
            (true, false) => Ok(Self::Karras),
            (false, true) => Ok(Self::Exponential),
            (true, true) => Err(config.conflict("use_karras_sigmas and use_exponential_sigmas exclude each other")),
        }
    }

    /// The σ of `steps` steps, descending, between two σ; `None` if they follow the timesteps.
    pub(super) fn sigmas(self, largest: f64, smallest: f64, steps: usize) -> Option<Vec<f64>> {
        const RHO: f64 = 7.0;
        match self {
            Self::Timesteps => None,
            Self::Karras => {
                let (from, to) = (largest.powf(1.0 / RHO), smallest.powf(1.0 / RHO));
                Some(linspace(0.0, 1.0, steps).into_iter().map(|part| (from + part * (to - from)).powf(RHO)).collect())
            }
            Self::Exponential => Some(linspace(largest.ln(), smallest.ln(), steps).into_iter().map(f64::exp).collect()),
        }
    }
}

impl Spacing {
    pub(super) fn new(config: &Config, default: Self) -> Result<Self> {
        config.choice("timestep_spacing", default, &SPACINGS)
    }

    /// Timesteps, descending. `linspace` gives fractions.
    ///
    /// NumPy's `arange` gives diffusers one timestep too many, −1, for `trailing` and 62 numbers of steps below 1000
    /// (the first is 61). It is not repeated here.
    fn timesteps(self, train: usize, steps: usize, offset: usize) -> Vec<f64> {
        match self {
            Self::Linspace => linspace(0.0, (train - 1) as f64, steps).into_iter().rev().collect(),
            Self::Leading => (0..steps).rev().map(|step| (step * (train / steps) + offset) as f64).collect(),
            Self::Trailing => trailing(train as f64, train as f64 / steps as f64, steps),
        }
    }
}

/// From `last` downwards.
fn trailing(last: f64, ratio: f64, steps: usize) -> Vec<f64> {
    let delta = (last - ratio) - last; // as NumPy's `arange` computes it
    (0..steps).map(|step| (last + step as f64 * delta).round_ties_even() - 1.0).collect()
}

/// The timesteps of a run: `timestep_spacing`, `steps_offset`, and the number of steps.
#[derive(Clone, Debug)]
pub(super) struct Timesteps {
    pub(super) spacing: Spacing,
    offset: usize,
    train: usize,
    steps: usize,
    class: String,
}

impl Timesteps {
    pub(super) fn new(config: &Config, default: Spacing, steps: usize) -> Result<Self> {
        let train = config.train_timesteps()?;
        let spacing = Spacing::new(config, default)?;
        let offset = config.count("steps_offset", 0, 0, train)?;
        let class = config.class().to_owned();
        if !(1..=train).contains(&steps) {
            return Err(Error::Steps { class, steps, most: train });
        }
        Ok(Self { spacing, offset, train, steps, class })
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// For schedulers that interpolate between the training's timesteps.
    pub(super) fn fractions(&self) -> Vec<f64> {
        self.spacing.timesteps(self.train, self.steps, self.offset)
    }

    /// For schedulers that look up noise levels.
    pub(super) fn whole(&self) -> Result<Vec<f64>> {
        self.checked(self.fractions().into_iter().map(f64::round_ties_even).collect())
    }

    /// For multistep solvers, which take the timesteps of one step more without the last one. `last` is the number of
    /// usable training timesteps.
    pub(super) fn multistep(&self, last: usize) -> Result<Vec<f64>> {
        let ratio = self.train as f64 / self.steps as f64;
        let timesteps = match self.spacing {
            Spacing::Trailing => {
                let count = (last as f64 / ratio).ceil() as usize;
                trailing(last as f64, ratio, count.min(self.steps))
            }
            spacing => {
                let mut timesteps = spacing.timesteps(last, self.steps + 1, self.offset);
                timesteps.truncate(self.steps);
                timesteps.into_iter().map(f64::round_ties_even).collect()
            }
        };
        self.checked(timesteps)
    }

    fn checked(&self, timesteps: Vec<f64>) -> Result<Vec<f64>> {
        let inside = timesteps.iter().all(|timestep| (0.0..self.train as f64).contains(timestep));
        let falling = timesteps.windows(2).all(|pair| pair[0] > pair[1]);
        if inside && falling && !timesteps.is_empty() { Ok(timesteps) } else { Err(self.misfit()) }
    }

    pub(super) fn misfit(&self) -> Error {
        Error::Spacing { class: self.class.clone(), steps: self.steps }
    }
}

/// σ at timesteps between the training's; those outside take the nearest.
pub(super) fn interpolate(timesteps: &[f64], sigmas: &[f64]) -> Vec<f64> {
    let last = sigmas.len() - 1;
    let at = |timestep: &f64| {
        let low = (timestep.max(0.0) as usize).min(last);
        let high = (low + 1).min(last);
        let part = (timestep - low as f64).clamp(0.0, 1.0);
        sigmas[low] + part * (sigmas[high] - sigmas[low])
    };
    timesteps.iter().map(at).collect()
}

/// The timestep of a σ, by linear interpolation between logarithms.
pub(super) fn timestep_of(sigma: f64, sigmas: &[f64]) -> f64 {
    let low = sigmas.partition_point(|level| level.ln() <= sigma.ln()).saturating_sub(1).min(sigmas.len() - 2);
    let (from, to) = (sigmas[low].ln(), sigmas[low + 1].ln());
    low as f64 + ((from - sigma.ln()) / (from - to)).clamp(0.0, 1.0)
}

/// A timestep that diffusers makes whole by truncation.
///
/// The timestep of the largest σ is whole except for the last bit of a logarithm. There, rounding in diffusers'
/// float32 decides by chance: for Stable Diffusion's betas and exponential σ the first timestep is 998 in place of
/// 999.
pub(super) fn truncated(timestep: f64) -> f64 {
    let nearest = timestep.round_ties_even();
    if (timestep - nearest).abs() < 1e-6 { nearest } else { timestep.trunc() }
}

/// `final_sigmas_type`: the σ after the last step.
pub(super) fn final_sigma(config: &Config, sigmas: &[f64]) -> Result<f64> {
    let smallest = sigmas.first().copied().unwrap_or_default();
    config.choice("final_sigmas_type", 0.0, &[("zero", 0.0), ("sigma_min", smallest)])
}
