//! The prediction of a step: combines the predictions with and without the text.

use super::denoiser::Steps;
use super::settings::Settings;
use crate::error::Result;

/// One step of all pictures.
pub(super) struct Step<'s> {
    pub(super) settings: &'s Settings,
    /// Whether there are also rows without the text.
    pub(super) is_guided: bool,
    pub(super) timestep: f32,
    /// `[pictures, channels, height, width]`.
    pub(super) input: &'s [f32],
    /// The mask and the masked picture's latent.
    pub(super) extra: &'s [f32],
}

impl Step<'_> {
    /// The network's prediction for all pictures, with guidance if requested.
    pub(super) fn predicted(&self, steps: &Steps<'_>) -> Result<Vec<f32>> {
        let count = self.settings.count;
        let length = self.input.len() / count;
        let row = |row: usize| vec![&self.input[row % count * length..][..length], self.extra];
        let rows = steps.run(self.timestep, row)?;
        if !self.is_guided {
            return Ok(rows.concat());
        }
        let mut all = Vec::with_capacity(self.input.len());
        let (without, with) = rows.split_at(count);
        for (without, with) in without.iter().zip(with) {
            let mut made = guided(without, with, self.settings.guidance as f32);
            if self.settings.guidance_rescale > 0.0 {
                rescale(&mut made, with, self.settings.guidance_rescale);
            }
            all.extend(made);
        }
        Ok(all)
    }
}

/// `unconditional + scale · (conditional − unconditional)` (Ho and Salimans 2022, <https://arxiv.org/abs/2207.12598>).
fn guided(unconditional: &[f32], conditional: &[f32], scale: f32) -> Vec<f32> {
    unconditional.iter().zip(conditional).map(|(without, with)| without + scale * (with - without)).collect()
}

/// Moves the standard deviation of one picture's guided prediction towards that of the conditional one by `share`,
/// against overexposure (section 3.4 of Lin and others 2023, <https://arxiv.org/abs/2305.08891>).
fn rescale(guided: &mut [f32], conditional: &[f32], share: f64) {
    let ratio = deviation(conditional) / deviation(guided);
    let factor = (share * ratio + 1.0 - share) as f32;
    guided.iter_mut().for_each(|value| *value *= factor);
}

/// The standard deviation of a sample, as `torch.std` has it.
fn deviation(values: &[f32]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().copied().map(f64::from).sum::<f64>() / count;
    let squares = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>();
    (squares / (count - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::{deviation, guided, rescale};

    #[test]
    fn guidance_goes_beyond_the_conditional_prediction() {
        assert_eq!(guided(&[1.0, 2.0], &[2.0, 0.0], 3.0), [4.0, -4.0]);
        assert_eq!(guided(&[1.0, 2.0], &[2.0, 0.0], 1.0), [2.0, 0.0]);
    }

    #[test]
    fn a_rescaled_prediction_has_the_deviation_of_the_conditional_one() {
        assert_eq!(deviation(&[1.0, 2.0, 3.0, 4.0]), (5.0_f64 / 3.0).sqrt());
        let (conditional, mut whole) = ([1.0, -1.0, 2.0], [4.0, -3.0, 5.0]);
        let before = deviation(&whole);
        let mut half = whole;
        rescale(&mut whole, &conditional, 1.0);
        assert!((deviation(&whole) - deviation(&conditional)).abs() < 1e-6);
        rescale(&mut half, &conditional, 0.5);
        assert!((deviation(&half) - (before + deviation(&conditional)) / 2.0).abs() < 1e-6);
    }
}
