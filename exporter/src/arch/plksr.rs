//! PLKSR: convolutions with a large kernel on a part of the channels; and RealPLKSR, the same with normalisation, for
//! real photographs.
//!
//! Paper: <https://arxiv.org/abs/2404.11848>. Upstream: <https://github.com/dslisleedh/PLKSR>,
//! `plksr/archs/plksr_arch.py`, and <https://github.com/neosr-project/neosr>, `neosr/archs/realplksr_arch.py`.
//! Reference: spandrel 0.4.2, `architectures/PLKSR`.

use super::{Architecture, Keys, Mismatch, reach};
use crate::nn::{
    Scope, conv2d, conv2d_dilated, dysample, group_norm, image_input, layer_norm_of_channels, repeat_channels,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Padding, Precision, ReceptiveField, Upscale};
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Plksr {
    /// Width of the network.
    filters: usize,
    blocks: usize,
    scale: usize,
    mixer: Mixer,
    large_kernel: LargeKernel,
    /// The number of channels that the large kernel reads, from the first one on. The others skip it.
    partial: usize,
    /// Whether each element is weighted by the elements around it.
    attention: bool,
    normalisation: Normalisation,
    /// Whether the upsampling samples at learned positions, which RealPLKSR also offers.
    dysample: bool,
}

/// The two convolutions of local texture, between which the channels are doubled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mixer {
    /// 3×3, then 1×1.
    Ccm,
    /// 1×1, then 3×3.
    Iccm,
    /// 3×3 twice.
    Dccm,
    /// As `Dccm`, with RealPLKSR's activation.
    Real,
}

/// The convolution of distant texture. Upstream can also add its input to its output. No tensor shows that; neither a
/// published configuration nor the reference does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum LargeKernel {
    /// One kernel of this side.
    Plain(usize),
    /// The sum of three kernels: this side by a third of it, a third by this side, and a third by a third.
    Rectangular(usize),
    /// The sum of several kernels, each with its own side and dilation.
    Sparse { kernels: Vec<usize>, dilations: Vec<usize> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Normalisation {
    /// PLKSR.
    None,
    /// RealPLKSR: groups of channels over the whole image, at the end of each block.
    Group,
    /// Later RealPLKSR: the channels of each pixel, at the beginning of each block.
    Layer,
}

/// Input and output are RGB.
const CHANNELS: usize = 3;
/// Upstream's default, which every published RealPLKSR has; no tensor determines it.
const NORMALISATION_GROUPS: usize = 4;
/// PyTorch's default, for GroupNorm.
const GROUP_EPSILON: f32 = 1e-5;
/// Upstream's, for its own LayerNorm.
const LAYER_EPSILON: f32 = 1e-6;

impl Architecture for Plksr {
    const NAME: &'static str = "PLKSR";

    /// RealPLKSR has corrected upstream's `channe_mixer`.
    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &["feats.0.weight", "feats.1.channe_mixer.0.weight", "feats.1.lk.conv.weight", "feats.1.refine.weight"],
        &["feats.0.weight", "feats.1.channe_mixer.0.weight", "feats.1.lk.mn_conv.weight", "feats.1.refine.weight"],
        &["feats.0.weight", "feats.1.channe_mixer.0.weight", "feats.1.lk.convs.0.weight", "feats.1.refine.weight"],
        &["feats.0.weight", "feats.1.channel_mixer.0.weight", "feats.1.lk.conv.weight", "feats.1.refine.weight"],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, ..] = keys.dims::<4>("feats.0.weight")?;
        let mixer = Mixer::detect(keys)?;
        let last = keys.count("feats.").saturating_sub(1);
        // RealPLKSR has a dropout after its blocks, which has a number and no weights.
        let blocks = last.saturating_sub(if mixer == Mixer::Real { 2 } else { 1 });
        let (large_kernel, partial) = LargeKernel::detect(keys)?;
        Ok(Plksr {
            filters,
            blocks,
            scale: keys.shuffle_scale(&format!("feats.{last}.weight"), CHANNELS)?,
            mixer,
            large_kernel,
            partial,
            attention: keys.contains("feats.1.attn.f.0.weight"),
            normalisation: match mixer {
                Mixer::Real if keys.contains("feats.1.layer_norm.weight") => Normalisation::Layer,
                Mixer::Real => Normalisation::Group,
                _ => Normalisation::None,
            },
            dysample: keys.contains("to_img.init_pos"),
        })
    }

    fn contract(&self) -> Contract {
        let [before, after] = self.mixer.kernels();
        let block = before / 2 + self.large_kernel.reach() + after / 2 + usize::from(self.attention);
        let unbounded = self.dysample || self.normalisation == Normalisation::Group;
        Upscale {
            input: "image".into(),
            output: "upscaled".into(),
            scale: self.scale,
            channels: CHANNELS,
            range: [0.0, 1.0],
            size_multiple: 1,
            size_minimum: 1,
            only_size: None,
            padding: Padding::Reflect,
            receptive_field: if unbounded { ReceptiveField::Unbounded } else { reach(self.blocks * block + 2) },
            safe_precisions: match self.normalisation {
                // Positions in half precision are wrong by pixels.
                _ if self.dysample => vec![Precision::Fp32],
                // According to the reference, these overflow.
                Normalisation::Group => vec![Precision::Fp32, Precision::Bf16],
                _ => vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
            },
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", CHANNELS, shapes)?;
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Plksr {
            filters: 8,
            blocks: 2,
            scale: 4,
            mixer: Mixer::Dccm,
            large_kernel: LargeKernel::Plain(7),
            partial: 2,
            attention: true,
            normalisation: Normalisation::None,
            dysample: false,
        };
        let sparse = LargeKernel::Sparse { kernels: vec![5, 5, 5, 3], dilations: vec![1, 2, 3, 4] };
        let real = Plksr { mixer: Mixer::Real, normalisation: Normalisation::Group, ..tiny.clone() };
        let published = Plksr { filters: 64, partial: 16, ..tiny.clone() };
        let large = Plksr { blocks: 28, large_kernel: LargeKernel::Plain(17), ..published.clone() };
        let small = Plksr { blocks: 12, large_kernel: LargeKernel::Plain(13), attention: false, ..published };
        let to_real =
            |plksr: &Plksr| Plksr { mixer: Mixer::Real, normalisation: Normalisation::Group, ..plksr.clone() };
        let later = Plksr { normalisation: Normalisation::Layer, dysample: true, ..to_real(&large) };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-ccm-x2", Plksr { mixer: Mixer::Ccm, scale: 2, attention: false, ..tiny.clone() }),
            ("tiny-iccm-x3", Plksr { mixer: Mixer::Iccm, scale: 3, ..tiny.clone() }),
            ("tiny-all-channels-x1", Plksr { partial: 8, scale: 1, ..tiny.clone() }),
            ("tiny-rectangular", Plksr { large_kernel: LargeKernel::Rectangular(9), ..tiny.clone() }),
            ("tiny-sparse", Plksr { large_kernel: sparse, ..tiny }),
            ("tiny-real", real.clone()),
            (
                "tiny-real-layer-norm-x2",
                Plksr { normalisation: Normalisation::Layer, scale: 2, attention: false, ..real.clone() },
            ),
            (
                "tiny-real-dysample",
                Plksr { normalisation: Normalisation::Layer, dysample: true, blocks: 1, ..real.clone() },
            ),
            ("tiny-real-dysample-x3", Plksr { dysample: true, scale: 3, ..real.clone() }),
            ("tiny-real-dysample-x1", Plksr { dysample: true, scale: 1, ..real }),
            ("plksr-x4", large.clone()),
            ("plksr-tiny-x4", small.clone()),
            ("realplksr-x4", to_real(&large)),
            ("realplksr-s-x4", to_real(&small)),
            ("realplksr-l-x4", Plksr { filters: 96, partial: 24, ..to_real(&large) }),
            ("realplksr-dysample-x4", later),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        match &self.large_kernel {
            LargeKernel::Sparse { dilations, .. } => {
                vec![("sparse_dilations", dilations.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))]
            }
            _ => Vec::new(),
        }
    }
}

impl Mixer {
    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        if keys.contains("feats.1.channel_mixer.0.weight") {
            return Ok(Mixer::Real);
        }
        let [_, _, before, _] = keys.dims::<4>("feats.1.channe_mixer.0.weight")?;
        let [_, _, after, _] = keys.dims::<4>("feats.1.channe_mixer.2.weight")?;
        let known = [Mixer::Ccm, Mixer::Iccm, Mixer::Dccm].into_iter().find(|mixer| mixer.kernels() == [before, after]);
        known.ok_or_else(|| {
            Mismatch::new(format!(
                "expected `channe_mixer` to have kernels 3 and 1, 1 and 3, or 3 and 3, found {before} and {after}"
            ))
        })
    }

    fn kernels(self) -> [usize; 2] {
        match self {
            Mixer::Ccm => [3, 1],
            Mixer::Iccm => [1, 3],
            Mixer::Dccm | Mixer::Real => [3, 3],
        }
    }

    fn name(self) -> &'static str {
        if self == Mixer::Real { "channel_mixer" } else { "channe_mixer" }
    }
}

impl LargeKernel {
    /// The kernel, and the number of channels that it reads.
    fn detect(keys: &Keys<'_>) -> Result<(Self, usize), Mismatch> {
        let sides = |name: &str| keys.dims::<4>(&format!("feats.1.lk.{name}.weight"));
        let count = keys.count("feats.1.lk.convs.");
        let (kernel, partial) = if count > 0 {
            let kernels =
                (0..count).map(|i| Ok(sides(&format!("convs.{i}"))?[2])).collect::<Result<Vec<_>, Mismatch>>()?;
            let dilations = Self::dilations_from_hint(keys, count)?;
            (LargeKernel::Sparse { kernels, dilations }, sides("convs.0")?[0])
        } else if keys.contains("feats.1.lk.mn_conv.weight") {
            let [partial, _, kernel, _] = sides("mn_conv")?;
            (LargeKernel::Rectangular(kernel), partial)
        } else {
            let [partial, _, kernel, _] = sides("conv")?;
            (LargeKernel::Plain(kernel), partial)
        };
        match kernel.convolutions().iter().flat_map(|(_, sides, _)| sides).find(|side| side.is_multiple_of(2)) {
            Some(even) => {
                Err(Mismatch::new(format!("expected kernels of odd sides, which keep an image's size, found {even}")))
            }
            None => Ok((kernel, partial)),
        }
    }

    /// The dilations, which a weight does not show.
    fn dilations_from_hint(keys: &Keys<'_>, count: usize) -> Result<Vec<usize>, Mismatch> {
        let Some(hint) = keys.hint("sparse_dilations") else {
            let reason = format!(
                "the tensors do not tell the dilations of the {count} sparse kernels; upstream's default is 1,2,3,4, \
                 and 1 for a last kernel of full size"
            );
            return Err(Mismatch::missing(reason, "sparse_dilations", &["1,2,3,4"]));
        };
        // Dilations larger than any image are typing errors.
        let dilations =
            hint.split(',').map(|part| part.trim().parse().ok().filter(|dilation| (1..=1024).contains(dilation)));
        let dilations = dilations.collect::<Option<Vec<usize>>>().filter(|dilations| dilations.len() == count);
        dilations.ok_or_else(|| {
            Mismatch::new(format!(
                "expected `sparse_dilations` to be {count} numbers from 1, with commas, found `{hint}`"
            ))
        })
    }

    /// Name, `[height, width]` and dilation of each convolution.
    fn convolutions(&self) -> Vec<(String, [usize; 2], usize)> {
        match self {
            LargeKernel::Plain(side) => vec![("conv".into(), [*side; 2], 1)],
            LargeKernel::Rectangular(side) => {
                let (long, short) = (*side, side / 3);
                [("mn_conv", [long, short]), ("nm_conv", [short, long]), ("nn_conv", [short; 2])]
                    .map(|(n, k)| (n.into(), k, 1))
                    .to_vec()
            }
            LargeKernel::Sparse { kernels, dilations } => {
                let numbered = kernels.iter().zip(dilations).enumerate();
                numbered.map(|(i, (side, dilation))| (format!("convs.{i}"), [*side; 2], *dilation)).collect()
            }
        }
    }

    /// How many pixels the convolution reaches in each direction.
    fn reach(&self) -> usize {
        self.convolutions()
            .iter()
            .map(|(_, [height, width], dilation)| height.max(width) / 2 * dilation)
            .max()
            .unwrap_or(0)
    }
}

impl Plksr {
    /// Shuffled features of `image` `[batch, 3, height, width]`, plus `image` itself in larger pixels.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let layer = |number: usize| w.at(format!("feats.{number}"));
        let area = self.scale * self.scale;
        let mut x = conv2d(&layer(0), image, self.filters, 3);
        for number in 1..=self.blocks {
            x = self.block(&layer(number), &x);
        }
        let last = self.blocks + if self.mixer == Mixer::Real { 2 } else { 1 };
        let x = conv2d(&layer(last), &x, CHANNELS * area, 3) + repeat_channels(image, area);
        if !self.dysample {
            return x.depth_to_space(self.scale);
        }
        // The number of groups follows upstream's rule, and there is no last convolution at scale 1.
        let groups = if self.scale.is_multiple_of(2) { 4 } else { CHANNELS };
        dysample(&w.at("to_img"), &x, groups, self.scale, (self.scale > 1).then_some(CHANNELS))
    }

    /// x + the block's result: local texture, distant texture of a part of the channels, and attention.
    fn block(&self, w: &Scope<'_>, x: &Value) -> Value {
        let y = match self.normalisation {
            Normalisation::Layer => layer_norm_of_channels(&w.at("layer_norm"), x, LAYER_EPSILON),
            _ => x.clone(),
        };
        let y = self.local(&w.at(self.mixer.name()), &y);
        let mut y = self.distant(&w.at("lk"), &y);
        if self.attention {
            y = conv2d(&w.at("attn.f.0"), &y, self.filters, 3).sigmoid() * y;
        }
        y = conv2d(&w.at("refine"), &y, self.filters, 1);
        if self.normalisation == Normalisation::Group {
            y = group_norm(&w.at("norm"), &y, NORMALISATION_GROUPS, GROUP_EPSILON);
        }
        y + x
    }

    fn local(&self, w: &Scope<'_>, x: &Value) -> Value {
        let [before, after] = self.mixer.kernels();
        let wide = conv2d(&w.at("0"), x, 2 * self.filters, before);
        let wide = if self.mixer == Mixer::Real { wide.mish() } else { wide.gelu() };
        conv2d(&w.at("2"), &wide, self.filters, after)
    }

    fn distant(&self, w: &Scope<'_>, x: &Value) -> Value {
        let all = self.partial == self.filters;
        let part = if all { x.clone() } else { x.slice(1, 0, self.partial) };
        let convolutions = self.large_kernel.convolutions().into_iter();
        let convolved = convolutions
            .map(|(name, sides, dilation)| conv2d_dilated(&w.at(name), &part, self.partial, sides, dilation));
        let Some(sum) = convolved.reduce(|sum, next| sum + next) else {
            w.fail(format!("expected at least one large kernel, found {:?}", self.large_kernel));
            return x.clone();
        };
        if all { sum } else { sum.concat(&[&x.slice(1, self.partial, self.filters)], 1) }
    }
}
