//! KBNet-L: a U-Net of attention between channels and of mixtures of learned kernels.
//!
//! Paper: <https://arxiv.org/abs/2303.02881>. Upstream: <https://github.com/zhangyi-3/KBNet>,
//! `basicsr/models/archs/kbnet_l_arch.py`. Reference: spandrel 0.4.2, `architectures/KBNet`.

use super::kbnet_s::mixture;
use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{
    Conv2d, Mirror, Scope, attention_of_channels, channels, conv2d, conv2d_unbiased, crop_to_image,
    image_input_of_multiples, kernel_basis_attention, layer_norm_of_channels, pad_to_multiple, split_channels,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct KbNetL {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the finest level. Each coarser one is twice as wide.
    filters: usize,
    /// Blocks of each level, from the finest: as many on the way down as on the way up.
    blocks: [usize; LEVELS],
    /// Blocks after the finest level.
    refinement: usize,
    /// Attention heads on each level.
    heads: [usize; LEVELS],
    /// Width of the mixtures of kernels on the finest level.
    hidden: usize,
    /// Kernels that a pixel mixes.
    kernels: usize,
    /// Whether most convolutions have biases.
    biased: bool,
}

const LEVELS: usize = 4;
/// Names of the levels on the way down, the coarsest included, and on the way up.
const DOWN: [&str; LEVELS] = ["encoder_level1", "encoder_level2", "encoder_level3", "latent"];
const UP: [&str; LEVELS - 1] = ["decoder_level1", "decoder_level2", "decoder_level3"];
/// The image is halved three times.
const MULTIPLE: usize = 1 << (LEVELS - 1);
/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;
/// Channels that a kernel of the basis reads. Upstream has no other number.
const GROUP: usize = 2;
/// Largest width inside the layers that mix. Upstream has no other number.
const MOST_INNER: usize = 24;

impl Architecture for KbNetL {
    const NAME: &'static str = "KBNet-L";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "patch_embed.proj.weight",
        "encoder_level1.0.attn.ga1",
        "encoder_level3.0.ffn.project_out.weight",
        "latent.0.ffn.qkv.weight",
        "latent.0.ffn.temperature",
        "refinement.0.attn.dwconv.0.weight",
        "output.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("patch_embed.proj.weight")?;
        let [outputs, ..] = keys.dims::<4>("output.weight")?;
        let hidden = keys.dims::<4>("encoder_level1.0.attn.ga1")?[1];
        let mut heads = [0; LEVELS];
        for (heads, level) in heads.iter_mut().zip(DOWN) {
            *heads = keys.dims::<3>(&format!("{level}.0.ffn.temperature"))?[0];
        }
        let mixes = (0..LEVELS).map(|level| filters << level).all(|width| width.is_multiple_of(MOST_INNER.min(width)));
        let divides = heads.iter().enumerate().all(|(level, heads)| (filters << level).is_multiple_of(*heads));
        // The last levels of the way up have twice the width of the finest one, and its heads.
        if outputs != channels || !divides || !mixes || !filters.is_multiple_of(2) || !hidden.is_multiple_of(GROUP) {
            return Err(Mismatch::new(format!(
                "expected as many channels out as in, an even width that divides into the heads of each level and \
                 into {MOST_INNER} where it is larger, and mixtures of a width that divides into {GROUP}; found \
                 {channels} and {outputs} channels, a width of {filters}, {heads:?} heads and mixtures of {hidden}"
            )));
        }
        Ok(KbNetL {
            channels,
            filters,
            blocks: DOWN.map(|level| keys.count(&format!("{level}."))),
            refinement: keys.count("refinement."),
            heads,
            hidden,
            kernels: keys.dims::<4>("encoder_level1.0.attn.attgamma")?[1],
            biased: keys.contains("encoder_level1.0.ffn.qkv.bias"),
        })
    }

    fn contract(&self) -> Contract {
        // Channels attend to each other over the whole picture, so the receptive field is unbounded.
        Upscale {
            size_multiple: MULTIPLE,
            // Lengths of vectors and products of features overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(1, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_multiples(w, "image", self.channels, MULTIPLE, shapes)?;
        let padded = pad_to_multiple(&image, MULTIPLE, Mirror::Reflect)?;
        w.trace().output("upscaled", &crop_to_image(&self.network(w, &padded), &image, MULTIPLE, 1));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = KbNetL {
            channels: 3,
            filters: 12,
            blocks: [1; LEVELS],
            refinement: 1,
            heads: [1, 2, 2, 4],
            hidden: 18,
            kernels: 10,
            biased: false,
        };
        let published = KbNetL {
            filters: 48,
            blocks: [4, 6, 6, 8],
            refinement: 4,
            heads: [1, 2, 4, 8],
            hidden: 72,
            kernels: 32,
            ..tiny.clone()
        };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-biased-grey", KbNetL { channels: 1, blocks: [1, 2, 1, 1], kernels: 6, biased: true, ..tiny }),
            ("kbnet-l", published),
        ]
    }
}

impl KbNetL {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let mut x = conv2d_unbiased(&w.at("patch_embed.proj"), image, self.filters, 3);
        let mut levels = Vec::new();
        for (level, name) in DOWN.into_iter().enumerate() {
            if level > 0 {
                let down = w.at(format!("down{level}_{}.body.0", level + 1));
                x = conv2d_unbiased(&down, &x, channels(&x) / 2, 3).pixel_unshuffle(2);
            }
            x = self.blocks(&w.at(name), &x, self.blocks[level], level);
            levels.push(x.clone());
        }
        for level in (0..LEVELS - 1).rev() {
            let up = w.at(format!("up{}_{}.body.0", level + 2, level + 1));
            let larger = conv2d_unbiased(&up, &x, 2 * channels(&x), 3).depth_to_space(2);
            x = larger.concat(&[&levels[level]], 1);
            if level > 0 {
                // The finest level keeps the features of both ways.
                x = self
                    .layer(Conv2d::new(channels(&x) / 2, 1))
                    .apply(&w.at(format!("reduce_chan_level{}", level + 1)), &x);
            }
            x = self.blocks(&w.at(UP[level]), &x, self.blocks[level], level);
        }
        x = self.blocks(&w.at("refinement"), &x, self.refinement, 0);
        self.layer(Conv2d::new(self.channels, 3)).apply(&w.at("output"), &x) + image
    }

    fn layer(&self, convolution: Conv2d) -> Conv2d {
        if self.biased { convolution } else { convolution.unbiased() }
    }

    fn blocks(&self, w: &Scope<'_>, x: &Value, count: usize, level: usize) -> Value {
        (0..count).fold(x.clone(), |x, number| self.block(&w.at(number.to_string()), &x, self.heads[level]))
    }

    /// y = x + mixtures of kernels, then y + attention between channels.
    fn block(&self, w: &Scope<'_>, x: &Value, heads: usize) -> Value {
        let norm = |name: &str, x: &Value| layer_norm_of_channels(&w.at(name), x, EPSILON);
        let x = self.mixed(&w.at("attn"), &norm("norm1", x)) + x;
        self.channels_attend(&w.at("ffn"), &norm("norm2", &x), heads) + x
    }

    fn channels_attend(&self, w: &Scope<'_>, x: &Value, heads: usize) -> Value {
        let filters = channels(x);
        let wide = self.layer(Conv2d::new(3 * filters, 1)).apply(&w.at("qkv"), x);
        let wide = self.layer(Conv2d::depthwise(3 * filters, [3, 3])).apply(&w.at("qkv_dwconv"), &wide);
        let rows = split_channels(&wide, [filters; 3]);
        let attended = attention_of_channels(rows.each_ref(), heads, &w.tensor("temperature", [heads, 1, 1]));
        self.layer(Conv2d::new(filters, 1)).apply(&w.at("project_out"), &attended)
    }

    /// MFF: features from each pixel's own kernels, times plain features and weights of the channels.
    fn mixed(&self, w: &Scope<'_>, x: &Value) -> Value {
        let filters = channels(x);
        let hidden = self.hidden * filters / self.filters;
        let weights = conv2d(&w.at("sca.1"), &x.global_average_pool(), hidden, 1);
        let branch = |name: &str| {
            let y = self.layer(Conv2d::new(hidden, 1)).apply(&w.at(name).at("0"), x);
            self.layer(Conv2d::depthwise(hidden, [3, 3])).apply(&w.at(name).at("1"), &y)
        };
        let (plain, own) = (branch("dwconv").gelu(), branch("conv1"));
        let mixture = mixture(w, x, MOST_INNER.min(filters), self.kernels);
        let own = kernel_basis_attention(w, &own, &mixture, GROUP, "ga1") + own;
        self.layer(Conv2d::new(filters, 1)).apply(&w.at("project_out"), &(plain * own * weights))
    }
}
