//! The result gets the colours of what it was made of: a restored frame is sharper, and its colours drift.
//!
//! | module | holds |
//! |---|---|
//! | `wavelet` | details of one picture over the broad colours of another |
//! | `lab` | CIELAB of D65, and back |
//! | `saturation` | hue, saturation and value, and saturation by hue |
//! | `histogram` | values of one distribution by the ranks of others |
//!
//! The formulas are those of the reference's `src/utils/color_fix.py`, for samples from 0 to 1.

mod histogram;
mod lab;
mod saturation;
mod wavelet;

use std::str::FromStr;

use serde::Serialize;

use crate::pixels::Pixels;

/// How a result gets the colours of what it was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColourCorrection {
    /// The details over the broad colours of the original; then the distribution of the colours in CIELAB of the
    /// original, over all frames of a batch, and a fifth of its lightness.
    #[default]
    Lab,
    /// The details over the broad colours of the original.
    Wavelet,
    /// The same, and less saturation where it grew much.
    WaveletAdaptive,
    /// The distribution of the saturation of the original, for each twelfth of the hues.
    Hsv,
    /// Mean and deviation of each channel of the original, frame by frame.
    Adain,
    /// As the network made it.
    None,
}

impl ColourCorrection {
    /// All of them, with their names.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("lab", Self::Lab),
        ("wavelet", Self::Wavelet),
        ("wavelet-adaptive", Self::WaveletAdaptive),
        ("hsv", Self::Hsv),
        ("adain", Self::Adain),
        ("none", Self::None),
    ];

    /// Gives each of `frames` the colours of the one in `like` that it was made of, which has its size.
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

/// What keeps a deviation from being zero.
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
    // Its range is twice as wide.
    let variance = 4.0 * squares / (count - 1.0) + LEAST_VARIANCE;
    [mean, variance.sqrt() / 2.0]
}
