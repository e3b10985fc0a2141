//! MoESR: gated convolutions in two sizes.
//!
//! Upstream: <https://github.com/umzi2/MoESR>. Reference: spandrel 0.4.2, `architectures/MoESR`.

use super::uni_upsample::Upsampler;
use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{
    Conv2d, Mirror, Scope, conv2d, crop_to_image, gated_convolution, image_input_of_multiples, pad_to_multiple,
    split_channels,
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

/// The part of the network that enlarges.
const UPSCALE: &str = "upscale";
/// Blocks of half the size in each group.
const HALF_BLOCKS: usize = 3;
/// Each of three kernels convolves an eighth of the channels.
const SHARE: usize = 8;
/// Length of the long kernels.
const BAND: usize = 11;
/// The image is halved once.
const MULTIPLE: usize = 2;
/// Slope of the activations around the blocks of half the size.
const HALF_SLOPE: f32 = 0.1;

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
        let upsampler = Upsampler::detect(keys, UPSCALE, channels, None)?;
        if matches!(
            upsampler,
            Upsampler::FilteredDySample { .. }
                | Upsampler::Transposed(_)
                | Upsampler::Lda { .. }
                | Upsampler::Gated { .. }
        ) {
            return Err(Mismatch::new(format!("MoESR has no upsampling of this kind: {upsampler:?}")));
        }
        Ok(MoEsr {
            channels,
            filters,
            groups: keys.count("blocks."),
            blocks: keys.count("blocks.0.blocks."),
            hidden,
            hidden_half,
            upsampler,
        })
    }

    fn contract(&self) -> Contract {
        let sampled = self.upsampler.samples();
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

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.upsampler.notes()
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
            ("tiny-nearest-x3", MoEsr { upsampler: Upsampler::NearestTriple, ..tiny.clone() }),
            ("tiny-nearest-x4", MoEsr { upsampler: Upsampler::Nearest(2), ..tiny.clone() }),
            ("tiny-dysample-x2", MoEsr { upsampler: Upsampler::DySample(2), ..tiny }),
            ("moesr-x2", MoEsr { upsampler: Upsampler::Direct(2), ..published.clone() }),
            ("moesr-x4", published),
        ]
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
        self.upsampler.apply(&w.at(UPSCALE), &(x + shallow), self.channels)
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
}
