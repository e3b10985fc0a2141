//! MoESR: gated convolutions in two sizes.
//!
//! Upstream: <https://github.com/umzi2/MoESR>. Reference: spandrel 0.4.2, `architectures/MoESR`.

use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{
    Conv2d, Mirror, Scope, conv2d, crop_to_image, dysample, gated_convolution, image_input_of_multiples,
    pad_to_multiple, shuffle_stages, split_channels,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, ReceptiveField, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MoEsr {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    groups: usize,
    /// Blocks of each group.
    blocks: usize,
    /// Channels that a block gates, and as many gates.
    hidden: usize,
    /// The same for the blocks of half the size.
    hidden_half: usize,
    upsampler: Upsampler,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Upsampler {
    /// A convolution and a pixel shuffle by this factor; by 1, the convolution alone ("conv", "pixelshuffledirect").
    Direct(usize),
    /// A convolution to this many filters, and a convolution and a pixel shuffle for each factor ("pixelshuffle").
    Shuffles { filters: usize, factors: Vec<usize> },
    /// This many times a convolution and a nearest-neighbour upsampling by 2 ("nearest+conv").
    Nearest(usize),
    /// Positions that are learned ("dysample").
    DySample(usize),
}

/// Blocks of half the size in each group.
const HALF_BLOCKS: usize = 3;
/// An eighth of the channels is convolved with each of three kernels.
const SHARE: usize = 8;
/// Length of the long kernels.
const BAND: usize = 11;
/// Groups of channels with positions of their own. Upstream has no other number.
const POSITION_GROUPS: usize = 4;
/// The image is halved once.
const MULTIPLE: usize = 2;
/// Slope of the activations around the blocks of half the size.
const HALF_SLOPE: f32 = 0.1;
/// Slopes of the activations while the image is enlarged: PyTorch's default, and upstream's.
const SHUFFLES_SLOPE: f32 = 0.01;
const NEAREST_SLOPE: f32 = 0.2;

impl Architecture for MoEsr {
    const NAME: &'static str = "MoESR";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "in_to_dim.weight",
        "in_to_dim.bias",
        "blocks.0.blocks.0.gamma",
        "blocks.0.blocks.0.norm.weight",
        "blocks.0.blocks.0.norm.bias",
        "blocks.0.blocks.0.fc1.weight",
        "blocks.0.blocks.0.fc1.bias",
        "blocks.0.blocks.0.conv.dwconv_hw.weight",
        "blocks.0.blocks.0.conv.dwconv_hw.bias",
        "blocks.0.blocks.0.conv.dwconv_w.weight",
        "blocks.0.blocks.0.conv.dwconv_w.bias",
        "blocks.0.blocks.0.conv.dwconv_h.weight",
        "blocks.0.blocks.0.conv.dwconv_h.bias",
        "blocks.0.blocks.0.fc2.weight",
        "blocks.0.blocks.0.fc2.bias",
        "upscale.MetaUpsample",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("in_to_dim.weight")?;
        let hidden = |name: &str| Ok(keys.dims::<4>(name)?[0] / 2);
        let (hidden, hidden_half) =
            (hidden("blocks.0.blocks.0.fc1.weight")?, hidden("blocks.0.msg.gated.0.fc1.weight")?);
        if filters % SHARE != 0 || filters > hidden.min(hidden_half) {
            return Err(Mismatch::new(format!(
                "expected filters that divide into {SHARE} and are {hidden} and {hidden_half} at most, found {filters}"
            )));
        }
        Ok(MoEsr {
            channels,
            filters,
            groups: keys.count("blocks."),
            blocks: keys.count("blocks.0.blocks."),
            hidden,
            hidden_half,
            upsampler: Upsampler::detect(keys, channels)?,
        })
    }

    fn contract(&self) -> Contract {
        let sampled = matches!(self.upsampler, Upsampler::DySample(_));
        // A block reaches 1 + 5 + 1 pixels, and those of half the size twice as many; around these, a convolution of
        // each size and one pixel of alignment. Enlarging reaches three pixels at most.
        let block = 2 + BAND / 2;
        let group = self.blocks * block + 2 * HALF_BLOCKS * block + 1 + 2 + 1;
        let all = picture(self.upsampler.scale(), self.channels);
        Upscale {
            size_multiple: MULTIPLE,
            size_minimum: MULTIPLE,
            receptive_field: if sampled { ReceptiveField::Unbounded } else { reach(self.groups * group + 4) },
            // Positions in half precision are wrong by pixels.
            safe_precisions: if sampled { vec![Precision::Fp32] } else { all.safe_precisions.clone() },
            ..all
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_multiples(w, "image", self.channels, MULTIPLE, shapes)?;
        let padded = pad_to_multiple(&image, MULTIPLE, Mirror::Reflect)?;
        let upscaled = self.network(w, &padded);
        w.trace().output("upscaled", &crop_to_image(&upscaled, &image, MULTIPLE, self.upsampler.scale()));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = MoEsr {
            channels: 3,
            filters: 16,
            groups: 1,
            blocks: 1,
            hidden: 20,
            hidden_half: 16,
            upsampler: Upsampler::Direct(4),
        };
        let published = MoEsr { filters: 64, groups: 9, blocks: 4, hidden: 170, hidden_half: 96, ..tiny.clone() };
        let shuffles = Upsampler::Shuffles { filters: 4, factors: vec![2, 2] };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-grey-x1", MoEsr { channels: 1, groups: 2, upsampler: Upsampler::Direct(1), ..tiny.clone() }),
            ("tiny-shuffles-x4", MoEsr { upsampler: shuffles, ..tiny.clone() }),
            ("tiny-nearest-x4", MoEsr { upsampler: Upsampler::Nearest(2), ..tiny.clone() }),
            ("tiny-dysample-x2", MoEsr { upsampler: Upsampler::DySample(2), ..tiny }),
            ("moesr-x2", MoEsr { upsampler: Upsampler::Direct(2), ..published.clone() }),
            ("moesr-x4", published),
        ]
    }
}

impl Upsampler {
    /// From the layers' numbers; the first is a convolution, except in DySample.
    fn detect(keys: &Keys<'_>, channels: usize) -> Result<Self, Mismatch> {
        if keys.contains("upscale.0.init_pos") {
            let [positions, ..] = keys.dims::<4>("upscale.0.offset.weight")?;
            let [outputs, ..] = keys.dims::<4>("upscale.0.end_conv.weight")?;
            let scale = (positions / (2 * POSITION_GROUPS)).isqrt();
            return match scale > 0 && 2 * POSITION_GROUPS * scale * scale == positions && outputs == channels {
                true => Ok(Upsampler::DySample(scale)),
                false => Err(Mismatch::new(format!("{positions} positions and {outputs} channels make no upsampling"))),
            };
        }
        let modules = keys.count("upscale.");
        if modules == 1 {
            return Ok(Upsampler::Direct(keys.shuffle_scale("upscale.0.weight", channels)?));
        }
        let [filters, ..] = keys.dims::<4>("upscale.0.weight")?;
        if keys.contains("upscale.3.weight") {
            // One upsampling by 3 has the same names as one by 2; upstream's mark says which.
            if keys.values("upscale.MetaUpsample").is_some_and(|mark| mark.get(2) == Some(&3)) {
                return Err(Mismatch::new("nearest-neighbour upsampling by 3 is not supported"));
            }
            // A convolution, an upsampling and an activation for each doubling, and three modules behind them.
            let doublings = modules.saturating_sub(3) / 3;
            return match modules == 3 * doublings + 3 && (1..=6).contains(&doublings) {
                true => Ok(Upsampler::Nearest(doublings)),
                false => Err(Mismatch::new(format!("{modules} modules in `upscale` make no upsampling"))),
            };
        }
        let factors = (2..modules.saturating_sub(1))
            .step_by(2)
            .map(|number| keys.shuffle_scale(&format!("upscale.{number}.weight"), filters));
        Ok(Upsampler::Shuffles { filters, factors: factors.collect::<Result<_, _>>()? })
    }

    fn scale(&self) -> usize {
        match self {
            Upsampler::Direct(scale) | Upsampler::DySample(scale) => *scale,
            Upsampler::Shuffles { factors, .. } => factors.iter().product(),
            Upsampler::Nearest(doublings) => 1 << doublings,
        }
    }
}

impl MoEsr {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let shallow = conv2d(&w.at("in_to_dim"), image, self.filters, 3);
        let mut x = shallow.clone();
        for number in 0..self.groups {
            x = self.group(&w.at(format!("blocks.{number}")), &x);
        }
        let w = w.at("upscale");
        // What it holds follows from the other tensors.
        w.marker("MetaUpsample", &[7]);
        self.enlarge(&w, &(x + shallow))
    }

    /// y = blocks of x, then y + blocks of y in half the size.
    fn group(&self, w: &Scope<'_>, x: &Value) -> Value {
        let mut x = x.clone();
        for number in 0..self.blocks {
            x = self.block(&w.at(format!("blocks.{number}")), &x, self.hidden);
        }
        let narrow = conv2d(&w.at("msg.down.0"), &x, self.filters / 4, 3);
        let mut y = narrow.pixel_unshuffle(2).leaky_relu(HALF_SLOPE);
        for number in 0..HALF_BLOCKS {
            y = self.block(&w.at(format!("msg.gated.{number}")), &y, self.hidden_half);
        }
        conv2d(&w.at("msg.up.0"), &y, 4 * self.filters, 3).depth_to_space(2).leaky_relu(HALF_SLOPE) + x
    }

    /// x + gated features of x, times a number for each channel.
    fn block(&self, w: &Scope<'_>, x: &Value, hidden: usize) -> Value {
        let gated = gated_convolution(w, x, [hidden, self.filters], |w, x| self.inception(w, x));
        gated * w.tensor("gamma", [1, self.filters, 1, 1]) + x
    }

    /// A small square kernel, a long row and a long column for an eighth of the channels each.
    fn inception(&self, w: &Scope<'_>, x: &Value) -> Value {
        let each = self.filters / SHARE;
        let [same, square, row, column] = split_channels(x, [self.filters - 3 * each, each, each, each]);
        let convolve = |name: &str, x: &Value, kernel| Conv2d::depthwise(each, kernel).apply(&w.at(name), x);
        let square = convolve("dwconv_hw", &square, [3, 3]);
        let row = convolve("dwconv_w", &row, [1, BAND]);
        let column = convolve("dwconv_h", &column, [BAND, 1]);
        same.concat(&[&square, &row, &column], 1)
    }

    fn enlarge(&self, w: &Scope<'_>, x: &Value) -> Value {
        let layer = |number: usize| w.at(number.to_string());
        match &self.upsampler {
            Upsampler::Direct(scale) => {
                let shuffled = conv2d(&layer(0), x, self.channels * scale * scale, 3);
                if *scale == 1 { shuffled } else { shuffled.depth_to_space(*scale) }
            }
            Upsampler::Shuffles { filters, factors } => {
                let x = conv2d(&layer(0), x, *filters, 3).leaky_relu(SHUFFLES_SLOPE);
                let x = shuffle_stages(w, &x, 2, factors);
                conv2d(&layer(2 + 2 * factors.len()), &x, self.channels, 3)
            }
            Upsampler::Nearest(doublings) => {
                let mut x = x.clone();
                for doubling in 0..*doublings {
                    x = conv2d(&layer(3 * doubling), &x, self.filters, 3).leaky_relu(NEAREST_SLOPE).upsample_nearest(2);
                }
                let x = conv2d(&layer(3 * doublings), &x, self.filters, 3).leaky_relu(NEAREST_SLOPE);
                conv2d(&layer(3 * doublings + 2), &x, self.channels, 3)
            }
            Upsampler::DySample(scale) => dysample(&layer(0), x, POSITION_GROUPS, *scale, Some(self.channels)),
        }
    }
}
