//! Gives the result the colours of its original: a restored frame is sharper, but its colours drift.
//!
//! | module | holds |
//! |---|---|
//! | `wavelet` | details of one picture over the broad colours of another |
//! | `lab` | CIELAB of D65, and back |
//! | `saturation` | hue, saturation and value, and saturation by hue |
//! | `histogram` | values of one distribution by the ranks of others |
//!
//! The formulas come from the reference's `src/utils/color_fix.py`, for samples from 0 to 1.

mod histogram;
mod lab;
mod saturation;
mod wavelet;

use std::str::FromStr;

use serde::Serialize;

use crate::pixels::Pixels;

/// How a result gets the colours of its original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColourCorrection {
    /// The result's details over the original's broad colours; then the original's distribution of colours in CIELAB,
    /// over all frames of a batch, and a fifth of its lightness.
    #[default]
    Lab,
    /// The details over the broad colours of the original.
    Wavelet,
    /// As `Wavelet`, with less saturation where it grew much.
    WaveletAdaptive,
    /// The original's distribution of saturation, for each twelfth of the hues.
    Hsv,
    /// The original's mean and deviation of each channel, frame by frame.
    Adain,
    /// The network's colours, unchanged.
    None,
}

impl ColourCorrection {
    /// All variants with their names.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("lab", Self::Lab),
        ("wavelet", Self::Wavelet),
        ("wavelet-adaptive", Self::WaveletAdaptive),
        ("hsv", Self::Hsv),
        ("adain", Self::Adain),
        ("none", Self::None),
    ];

    /// Gives each frame of `frames` the colours of its original in `like`, which has the same size.
    pub(super) fn correct(self, frames: &mut [Pixels], like: &[Pixels]) {
        match self {
            Self::None => {}
            Self::Wavelet => over_colours(frames, like),
            Self::Lab => {
                over_colours(frames, like);
                lab::match_distribution(frames, like);
            }
            Self::Hsv => saturation::match_by_hue(frames, like),
            Self::WaveletAdaptive => {
                let mut broad = frames.to_vec();
                over_colours(&mut broad, like);
                let mut saturated = frames.to_vec();
                saturation::match_by_hue(&mut saturated, like);
                for (((frame, like), broad), saturated) in frames.iter_mut().zip(like).zip(broad).zip(&saturated) {
                    saturation::tame(frame, like, broad, saturated);
                }
            }
            Self::Adain => frames.iter_mut().zip(like).for_each(|(frame, like)| match_moments(frame, like)),
        }
    }
}

impl FromStr for ColourCorrection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMED.into_iter().find(|(name, _)| *name == text);
        let names = Self::NAMED.map(|(name, _)| name);
        found.map(|(_, colour)| colour).ok_or_else(|| format!("expected one of {}", names.join(", ")))
    }
}

fn over_colours(frames: &mut [Pixels], like: &[Pixels]) {
    frames.iter_mut().zip(like).for_each(|(frame, like)| wavelet::over_colours(frame, like));
}

/// Keeps deviations above zero.
const LEAST_VARIANCE: f64 = 1e-5;

/// Gives each channel the mean and the deviation of another picture's.
fn match_moments(frame: &mut Pixels, like: &Pixels) {
    for channel in 0..frame.channels {
        let ([mean, deviation], [wanted_mean, wanted_deviation]) = (moments(frame, channel), moments(like, channel));
        for value in frame.samples.iter_mut().skip(channel).step_by(frame.channels) {
            *value = ((f64::from(*value) - mean) / deviation * wanted_deviation + wanted_mean) as f32;
        }
    }
}

/// Mean and deviation of a channel in the range from −1 to 1, for values from 0 to 1.
fn moments(frame: &Pixels, channel: usize) -> [f64; 2] {
    let values = || frame.samples.iter().skip(channel).step_by(frame.channels).map(|value| f64::from(*value));
    let count = values().count() as f64;
    let mean = values().sum::<f64>() / count;
    let squares = values().map(|value| (value - mean).powi(2)).sum::<f64>();
    // The range from −1 to 1 is twice as wide.
    let variance = 4.0 * squares / (count - 1.0) + LEAST_VARIANCE;
    [mean, variance.sqrt() / 2.0]
}
