//! SAFMN: features that are weighted by convolutions of themselves in four sizes.
//!
//! Paper: <https://arxiv.org/abs/2302.13800>. Upstream: <https://github.com/sunny2109/SAFMN>,
//! `basicsr/archs/safmn_arch.py`. Reference: spandrel 0.4.2, `architectures/SAFMN`.

use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{
    Conv2d, Mirror, Scope, conv2d, crop_to_image, image_input_of_multiples, layer_norm_of_channels, pad_to_multiple,
    split_channels,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Safmn {
    /// Width of the network.
    filters: usize,
    blocks: usize,
    /// Width between the two convolutions at the end of a block.
    hidden: usize,
    scale: usize,
}

/// Input and output are RGB.
const CHANNELS: usize = 3;
/// Each size is half of the one before. Upstream has no other number of them.
const LEVELS: usize = 4;
/// The coarsest size has pixels of this side.
const MULTIPLE: usize = 1 << (LEVELS - 1);
/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;

impl Architecture for Safmn {
    const NAME: &'static str = "SAFMN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "to_feat.weight",
        "feats.0.norm1.weight",
        "feats.0.norm2.weight",
        "feats.0.safm.mfr.0.weight",
        "feats.0.safm.mfr.3.weight",
        "feats.0.safm.aggr.weight",
        "feats.0.ccm.ccm.0.weight",
        "feats.0.ccm.ccm.2.weight",
        "to_img.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("to_feat.weight")?;
        if channels != CHANNELS || filters % LEVELS != 0 {
            return Err(Mismatch::new(format!(
                "expected {CHANNELS} channels and filters that divide into {LEVELS}, found {channels} and {filters}"
            )));
        }
        Ok(Safmn {
            filters,
            blocks: keys.count("feats."),
            hidden: keys.dims::<4>("feats.0.ccm.ccm.0.weight")?[0],
            scale: keys.shuffle_scale("to_img.0.weight", CHANNELS)?,
        })
    }

    fn contract(&self) -> Contract {
        // In each block, a pixel reaches the coarse pixel beside its own, and one pixel more. There is one convolution
        // at each end.
        let block = 2 * MULTIPLE - 1 + 1;
        Upscale {
            size_multiple: MULTIPLE,
            receptive_field: reach(self.blocks * block + 2),
            // The weights multiply features of any size by each other.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(self.scale, CHANNELS)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_multiples(w, "image", CHANNELS, MULTIPLE, shapes)?;
        let padded = pad_to_multiple(&image, MULTIPLE, Mirror::Reflect)?;
        let upscaled = self.network(w, &padded);
        w.trace().output("upscaled", &crop_to_image(&upscaled, &image, MULTIPLE, self.scale));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Safmn { filters: 8, blocks: 2, hidden: 16, scale: 4 };
        let published = Safmn { filters: 36, blocks: 8, hidden: 72, scale: 4 };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-x1", Safmn { scale: 1, blocks: 1, ..tiny }),
            ("safmn-x2", Safmn { scale: 2, ..published.clone() }),
            ("safmn-x4", published.clone()),
            ("safmn-l-real-x4", Safmn { filters: 128, blocks: 16, hidden: 256, ..published }),
        ]
    }
}

impl Safmn {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let shallow = conv2d(&w.at("to_feat"), image, self.filters, 3);
        let mut x = shallow.clone();
        for number in 0..self.blocks {
            x = self.block(&w.at(format!("feats.{number}")), &x);
        }
        conv2d(&w.at("to_img.0"), &(x + shallow), CHANNELS * self.scale * self.scale, 3).depth_to_space(self.scale)
    }

    /// y = x + weighted features, then y + two convolutions.
    fn block(&self, w: &Scope<'_>, x: &Value) -> Value {
        let norm = |name: &str, x: &Value| layer_norm_of_channels(&w.at(name), x, EPSILON);
        let x = self.weighted(&w.at("safm"), &norm("norm1", x)) + x;
        let y = conv2d(&w.at("ccm.ccm.0"), &norm("norm2", &x), self.hidden, 3).gelu();
        conv2d(&w.at("ccm.ccm.2"), &y, self.filters, 1) + x
    }

    /// SAFM: x times a layer of parts of x, each convolved in its own size.
    fn weighted(&self, w: &Scope<'_>, x: &Value) -> Value {
        let each = self.filters / LEVELS;
        let convolve =
            |level: usize, x: &Value| Conv2d::depthwise(each, [3, 3]).apply(&w.at(format!("mfr.{level}")), x);
        let parts: [Value; LEVELS] = split_channels(x, [each; LEVELS]);
        let coarse: Vec<Value> = (1..LEVELS)
            .map(|level| convolve(level, &parts[level].max_pool(1 << level)).upsample_nearest(1 << level))
            .collect();
        let all = convolve(0, &parts[0]).concat(&coarse.iter().collect::<Vec<_>>(), 1);
        conv2d(&w.at("aggr"), &all, self.filters, 1).gelu() * x
    }
}
