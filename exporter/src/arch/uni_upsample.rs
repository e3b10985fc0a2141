//! The upsampling that networks of MoESR's kind share, "UniUpsample".
//!
//! Upstream: <https://github.com/umzi2/MoESR>, and its later version in FDAT. Reference: spandrel 0.4.2,
//! `architectures/FDAT`.

use super::{Keys, Mismatch};
use crate::nn::{Scope, channels, conv_transpose2d, conv2d, dysample, lda_aqu, shuffle_stages};
use serde::Serialize;
use tileforge_graph::Value;

/// From features to an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Upsampler {
    /// A convolution and a pixel shuffle by this factor; by 1, the convolution alone ("conv", "pixelshuffledirect").
    Direct(usize),
    /// A convolution to this many filters, and a convolution and a pixel shuffle for each factor ("pixelshuffle").
    Shuffles { filters: usize, factors: Vec<usize> },
    /// This many times a convolution and a nearest-neighbour upsampling by 2 ("nearest+conv").
    Nearest(usize),
    /// The same once, by 3.
    NearestTriple,
    /// Positions that are learned ("dysample").
    DySample(usize),
    /// The same, after a convolution to this many filters.
    FilteredDySample { filters: usize, scale: usize },
    /// Transposed convolutions, two for a factor of 4 ("transpose+conv").
    Transposed(usize),
    /// Attention to learned positions, with or without a convolution to this many filters before it ("lda").
    Lda { filters: Option<usize>, scale: usize },
    /// For each factor, a nearest-neighbour upsampling, a convolution, features times their own gates, and another
    /// convolution ("pa_up").
    Gated { filters: usize, factors: Vec<usize> },
}

/// The hyperparameter for the scale of an upsampling whose tensors do not show it.
const SCALE: &str = "scale";
/// What upstream writes into each checkpoint: a version, the method, the scale, and widths.
const MARK: &str = "MetaUpsample";
const MARKS: usize = 7;
/// Groups of channels with positions of their own. Upstream has no other number.
const POSITION_GROUPS: usize = 4;
/// Slopes of the activations: PyTorch's default, and upstream's.
const SLOPE: f32 = 0.01;
const STEEP_SLOPE: f32 = 0.2;
/// Modules for each factor of [`Upsampler::Gated`].
const GATED_MODULES: usize = 6;

impl Upsampler {
    /// Detects the upsampling from the numbers of the layers below `prefix`; the numbers of activations have no
    /// tensors. `channels` is the image's number of channels. `known` is the scale, if it follows from something else.
    pub(super) fn detect(
        keys: &Keys<'_>,
        prefix: &str,
        channels: usize,
        known: Option<usize>,
    ) -> Result<Self, Mismatch> {
        let layer = |number: usize| format!("{prefix}.{number}");
        let has = |number: usize, name: &str| keys.contains(&format!("{}.{name}", layer(number)));
        let weight = |number: usize| keys.dims::<4>(&format!("{}.weight", layer(number)));
        let modules = keys.count(&format!("{prefix}."));
        for first in [0, 2] {
            let filters = || (first > 0).then(|| Ok(weight(0)?[0])).transpose();
            if has(first, "init_pos") {
                let scale = sampled_scale(keys, &layer(first), channels)?;
                return Ok(match filters()? {
                    Some(filters) => Upsampler::FilteredDySample { filters, scale },
                    None => Upsampler::DySample(scale),
                });
            }
            if has(first, "proj_q.weight") {
                let scale = hidden_scale(keys, prefix, known)?;
                // No published network comes near 16.
                return match (2..=16).contains(&scale) {
                    true => Ok(Upsampler::Lda { filters: filters()?, scale }),
                    false => Err(Mismatch::new(format!("expected `{SCALE}` to be 2 to 16, found {scale}"))),
                };
            }
        }
        if modules == 1 {
            return Ok(Upsampler::Direct(keys.shuffle_scale(&format!("{}.weight", layer(0)), channels)?));
        }
        let unknown = || Mismatch::new(format!("{modules} modules in `{prefix}` make no upsampling"));
        if has(1, "weight") && !has(0, "weight") {
            let stages = modules.saturating_sub(1) / GATED_MODULES;
            if modules != GATED_MODULES * stages + 1 || !(1..=4).contains(&stages) {
                return Err(unknown());
            }
            let factors = if stages == 1 { vec![two_or_three(keys, prefix, known)?] } else { vec![2; stages] };
            return Ok(Upsampler::Gated { filters: weight(1)?[0], factors });
        }
        let [filters, _, kernel, _] = weight(0)?;
        match (modules, kernel) {
            (2, 4) => return Ok(Upsampler::Transposed(2)),
            (2, 3) => return Ok(Upsampler::Transposed(3)),
            (4, 4) => return Ok(Upsampler::Transposed(4)),
            _ => {}
        }
        if has(3, "weight") {
            // A convolution, an upsampling and an activation for each factor, and three modules behind them.
            let stages = modules.saturating_sub(3) / 3;
            return match stages {
                _ if modules != 3 * stages + 3 || !(1..=6).contains(&stages) => Err(unknown()),
                1 if two_or_three(keys, prefix, known)? == 3 => Ok(Upsampler::NearestTriple),
                stages => Ok(Upsampler::Nearest(stages)),
            };
        }
        let factors = (2..modules.saturating_sub(1))
            .step_by(2)
            .map(|number| keys.shuffle_scale(&format!("{}.weight", layer(number)), filters));
        Ok(Upsampler::Shuffles { filters, factors: factors.collect::<Result<_, _>>()? })
    }

    /// The number of the image's channels, from the last layer below `prefix`. `scale` is that of the upsampling.
    pub(super) fn outputs(keys: &Keys<'_>, prefix: &str, scale: usize) -> Result<usize, Mismatch> {
        let last = keys.count(&format!("{prefix}.")).saturating_sub(1);
        if keys.contains(&format!("{prefix}.{last}.init_pos")) {
            return Ok(keys.dims::<4>(&format!("{prefix}.{last}.end_conv.weight"))?[0]);
        }
        let [filters, ..] = keys.dims::<4>(&format!("{prefix}.{last}.weight"))?;
        Ok(if last == 0 { filters / (scale * scale).max(1) } else { filters })
    }

    /// Output pixels for each pixel of the features.
    pub(super) fn scale(&self) -> usize {
        match self {
            Upsampler::Direct(scale) | Upsampler::DySample(scale) | Upsampler::Transposed(scale) => *scale,
            Upsampler::FilteredDySample { scale, .. } | Upsampler::Lda { scale, .. } => *scale,
            Upsampler::Shuffles { factors, .. } | Upsampler::Gated { factors, .. } => factors.iter().product(),
            Upsampler::Nearest(doublings) => 1 << doublings,
            Upsampler::NearestTriple => 3,
        }
    }

    /// Whether the upsampling reads pixels at positions that the network computes.
    pub(super) fn samples(&self) -> bool {
        matches!(self, Upsampler::DySample(_) | Upsampler::FilteredDySample { .. } | Upsampler::Lda { .. })
    }

    /// The scale, where no tensor shows it.
    pub(super) fn notes(&self) -> Vec<(&'static str, String)> {
        let hidden = match self {
            Upsampler::Lda { .. } | Upsampler::NearestTriple => true,
            Upsampler::Nearest(doublings) => *doublings == 1,
            Upsampler::Gated { factors, .. } => factors.len() == 1,
            _ => false,
        };
        if hidden { vec![(SCALE, self.scale().to_string())] } else { Vec::new() }
    }

    /// Features `[batch, filters, height, width]` → `[batch, outputs, height · scale, width · scale]`.
    pub(super) fn apply(&self, w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
        w.marker(MARK, &[MARKS]);
        let layer = |number: usize| w.at(number.to_string());
        let dim = channels(x);
        match self {
            Upsampler::Direct(scale) => {
                let shuffled = conv2d(&layer(0), x, outputs * scale * scale, 3);
                if *scale == 1 { shuffled } else { shuffled.depth_to_space(*scale) }
            }
            Upsampler::Shuffles { filters, factors } => {
                let x = conv2d(&layer(0), x, *filters, 3).leaky_relu(SLOPE);
                let x = shuffle_stages(w, &x, 2, factors);
                conv2d(&layer(2 + 2 * factors.len()), &x, outputs, 3)
            }
            Upsampler::Nearest(doublings) => nearest(w, x, &vec![2; *doublings], outputs),
            Upsampler::NearestTriple => nearest(w, x, &[3], outputs),
            Upsampler::DySample(scale) => dysample(&layer(0), x, POSITION_GROUPS, *scale, Some(outputs)),
            Upsampler::FilteredDySample { filters, scale } => {
                let x = conv2d(&layer(0), x, *filters, 3).leaky_relu(SLOPE);
                dysample(&layer(2), &x, POSITION_GROUPS, *scale, Some(outputs))
            }
            Upsampler::Transposed(4) => {
                let x = conv_transpose2d(&layer(0), x, dim, 4, 2).gelu();
                conv2d(&layer(3), &conv_transpose2d(&layer(2), &x, outputs, 4, 2), outputs, 3)
            }
            Upsampler::Transposed(scale) => {
                let kernel = if *scale == 2 { 4 } else { *scale };
                conv2d(&layer(1), &conv_transpose2d(&layer(0), x, outputs, kernel, *scale), outputs, 3)
            }
            Upsampler::Lda { filters, scale } => {
                let (x, first) = match filters {
                    Some(filters) => (conv2d(&layer(0), x, *filters, 3).leaky_relu(SLOPE), 2),
                    None => (x.clone(), 0),
                };
                conv2d(&layer(first + 1), &lda_aqu(&layer(first), &x, *scale), outputs, 3)
            }
            Upsampler::Gated { filters, factors } => {
                let mut x = x.clone();
                for (number, factor) in factors.iter().enumerate() {
                    let layer = |offset: usize| layer(GATED_MODULES * number + offset);
                    let y = conv2d(&layer(1), &x.upsample_nearest(*factor), *filters, 3);
                    let y = (conv2d(&layer(2).at("conv.0"), &y, *filters, 1).sigmoid() * y).leaky_relu(STEEP_SLOPE);
                    x = conv2d(&layer(4), &y, *filters, 3).leaky_relu(STEEP_SLOPE);
                }
                conv2d(&layer(GATED_MODULES * factors.len()), &x, outputs, 3)
            }
        }
    }
}

fn nearest(w: &Scope<'_>, x: &Value, factors: &[usize], outputs: usize) -> Value {
    let (layer, dim) = (|number: usize| w.at(number.to_string()), channels(x));
    let mut x = x.clone();
    for (number, factor) in factors.iter().enumerate() {
        // The activation comes first: it has fewer pixels then.
        x = conv2d(&layer(3 * number), &x, dim, 3).leaky_relu(STEEP_SLOPE).upsample_nearest(*factor);
    }
    let last = 3 * factors.len();
    let x = conv2d(&layer(last), &x, dim, 3).leaky_relu(STEEP_SLOPE);
    conv2d(&layer(last + 2), &x, outputs, 3)
}

/// The scale of a DySample, from the number of its positions.
fn sampled_scale(keys: &Keys<'_>, layer: &str, channels: usize) -> Result<usize, Mismatch> {
    let [positions, ..] = keys.dims::<4>(&format!("{layer}.offset.weight"))?;
    let [outputs, ..] = keys.dims::<4>(&format!("{layer}.end_conv.weight"))?;
    let scale = (positions / (2 * POSITION_GROUPS)).isqrt();
    match scale > 0 && 2 * POSITION_GROUPS * scale * scale == positions && outputs == channels {
        true => Ok(scale),
        false => Err(Mismatch::new(format!("{positions} positions and {outputs} channels make no upsampling"))),
    }
}

/// A scale that no tensor shows: the one that is known, else the user's, else the one of upstream's mark.
fn hidden_scale(keys: &Keys<'_>, prefix: &str, known: Option<usize>) -> Result<usize, Mismatch> {
    if let Some(scale) = known {
        return Ok(scale);
    }
    let mark =
        || keys.values(&format!("{prefix}.{MARK}")).and_then(|mark| mark.get(2).map(|scale| usize::from(*scale)));
    keys.setting(SCALE)?.or_else(mark).ok_or_else(|| {
        let reason =
            format!("the upsampling's tensors do not show by how much it enlarges, nor does `{prefix}.{MARK}`");
        Mismatch::missing(reason, SCALE, &["2", "3", "4"])
    })
}

/// One upsampling by 3 has the same names and sizes as one by 2.
fn two_or_three(keys: &Keys<'_>, prefix: &str, known: Option<usize>) -> Result<usize, Mismatch> {
    match hidden_scale(keys, prefix, known)? {
        scale @ (2 | 3) => Ok(scale),
        scale => Err(Mismatch::new(format!("expected `{SCALE}` to be 2 or 3, found {scale}"))),
    }
}
