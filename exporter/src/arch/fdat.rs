//! FDAT: attention in windows and between channels in turn, each beside a convolution, as in DAT but with fewer layers.
//!
//! Upstream: <https://github.com/stinkybread/fdat>, `fdat.py`. Reference: spandrel 0.4.2, `architectures/FDAT`.

use super::swin::{Frame, normalise};
use super::uni_upsample::Upsampler;
use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Conv2d, Grid, Scope, Scores, attention_of_channels, conv2d, conv2d_unbiased, linear, linear_of_image,
    linear_of_image_unbiased, query_key_value, query_key_value_of_image,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Fdat {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    groups: usize,
    /// Blocks of each group: one with attention in windows, then one with attention between channels, and so on.
    blocks: usize,
    heads: usize,
    window: usize,
    /// Width between the layers at the end of a block.
    hidden: usize,
    /// Width between the layers of the weights of channels.
    squeezed: usize,
    /// Side of the blocks of pixels that become channels at the input.
    unshuffle: usize,
    upsampler: Upsampler,
}

/// The part of the network that enlarges.
const UPSAMPLER: &str = "upsampler";
/// An image that is unshuffled is enlarged by this factor at the end.
const AFTER_UNSHUFFLE: usize = 4;

impl Architecture for Fdat {
    const NAME: &'static str = "FDAT";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "conv_first.weight",
            "groups.0.blocks.0.attn.bias",
            "groups.0.blocks.0.inter.cg.1.weight",
            "groups.0.blocks.0.ffn.fc1.weight",
            "groups.0.blocks.0.n1.weight",
            "upsampler.MetaUpsample",
        ],
        &[
            "conv_first.1.weight",
            "groups.0.blocks.0.attn.bias",
            "groups.0.blocks.0.inter.cg.1.weight",
            "groups.0.blocks.0.ffn.fc1.weight",
            "groups.0.blocks.0.n1.weight",
            "upsampler.MetaUpsample",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let unshuffled = keys.contains("conv_first.1.weight");
        let first = if unshuffled { "conv_first.1.weight" } else { "conv_first.weight" };
        let [dim, inputs, ..] = keys.dims::<4>(first)?;
        let known = unshuffled.then_some(AFTER_UNSHUFFLE);
        let channels = if unshuffled { Upsampler::outputs(keys, UPSAMPLER, AFTER_UNSHUFFLE)? } else { inputs };
        let unshuffle = if unshuffled { (inputs / channels.max(1)).isqrt() } else { 1 };
        if channels * unshuffle * unshuffle != inputs {
            return Err(Mismatch::new(format!("{inputs} channels are no unshuffled image of {channels} channels")));
        }
        let upsampler = Upsampler::detect(keys, UPSAMPLER, channels, known)?;
        let outputs = Upsampler::outputs(keys, UPSAMPLER, upsampler.scale())?;
        if !upsampler.scale().is_multiple_of(unshuffle) || outputs != channels {
            return Err(Mismatch::new(format!(
                "expected an image of {channels} channels and of a multiple of {unshuffle} times the size of the \
                 unshuffled one, found {outputs} channels and {}",
                upsampler.scale()
            )));
        }
        let [heads, area, _] = keys.dims::<3>("groups.0.blocks.0.attn.bias")?;
        let window = area.isqrt();
        if window * window != area || !dim.is_multiple_of(heads) {
            return Err(Mismatch::new(format!(
                "expected square windows and a width that divides into {heads} heads, found windows of {area} pixels \
                 and a width of {dim}"
            )));
        }
        Ok(Fdat {
            channels,
            dim,
            groups: keys.count("groups."),
            blocks: keys.count("groups.0.blocks."),
            heads,
            window,
            hidden: keys.dims::<2>("groups.0.blocks.0.ffn.fc1.weight")?[0],
            squeezed: keys.dims::<4>("groups.0.blocks.0.inter.cg.1.weight")?[0],
            unshuffle,
            upsampler,
        })
    }

    fn contract(&self) -> Contract {
        let contract = self.frame().upscale();
        // Positions in half precision are wrong by pixels.
        let sampled = vec![Precision::Fp32];
        let safe_precisions = if self.upsampler.samples() { sampled } else { contract.safe_precisions.clone() };
        Upscale { safe_precisions, ..contract }.contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        // Each block stores layers for the weights of channels and for the weights of pixels, and needs only one of
        // the two.
        name.contains(".inter.")
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        if self.unshuffle == 1 { self.upsampler.notes() } else { Vec::new() }
    }

    /// Two by two windows, of which the last ones are not full.
    fn example_shapes(&self) -> Shapes {
        let side = (2 * self.window - 1) * self.unshuffle;
        Shapes::of("image", &[1, self.channels, side, side])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let shuffles = |filters, factors: &[usize]| Upsampler::Shuffles { filters, factors: factors.to_vec() };
        let tiny = Fdat {
            channels: 3,
            dim: 16,
            groups: 1,
            blocks: 2,
            heads: 2,
            window: 4,
            hidden: 24,
            squeezed: 2,
            unshuffle: 1,
            upsampler: shuffles(8, &[2]),
        };
        let with = |upsampler: Upsampler| Fdat { upsampler, ..tiny.clone() };
        let medium = Fdat {
            dim: 120,
            groups: 4,
            blocks: 6,
            heads: 4,
            window: 8,
            hidden: 240,
            squeezed: 15,
            upsampler: Upsampler::Transposed(4),
            ..tiny.clone()
        };
        let light = Fdat { dim: 108, groups: 3, blocks: 4, hidden: 216, squeezed: 13, ..medium.clone() };
        let large = Fdat { dim: 180, blocks: 8, heads: 6, hidden: 360, squeezed: 22, ..medium.clone() };
        let unshuffled = |unshuffle, upsampler| Fdat { unshuffle, upsampler, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-unshuffle-x2", unshuffled(2, Upsampler::Direct(4))),
            ("tiny-unshuffle-lda-x1", unshuffled(4, Upsampler::Lda { filters: None, scale: 4 })),
            ("tiny-grey-x1", Fdat { channels: 1, groups: 2, blocks: 1, ..with(Upsampler::Direct(1)) }),
            ("tiny-nearest-x2", with(Upsampler::Nearest(1))),
            ("tiny-nearest-x3", with(Upsampler::NearestTriple)),
            ("tiny-nearest-x4", with(Upsampler::Nearest(2))),
            ("tiny-dysample-x2", with(Upsampler::DySample(2))),
            ("tiny-dysample-x3", with(Upsampler::FilteredDySample { filters: 8, scale: 3 })),
            ("tiny-transposed-x2", with(Upsampler::Transposed(2))),
            ("tiny-transposed-x3", with(Upsampler::Transposed(3))),
            ("tiny-transposed-x4", with(Upsampler::Transposed(4))),
            ("tiny-lda-x2", with(Upsampler::Lda { filters: Some(32), scale: 2 })),
            ("tiny-gated-x3", with(Upsampler::Gated { filters: 8, factors: vec![3] })),
            ("tiny-gated-x4", with(Upsampler::Gated { filters: 8, factors: vec![2, 2] })),
            (
                "fdat-tiny-x4",
                Fdat {
                    dim: 96,
                    groups: 2,
                    blocks: 4,
                    heads: 3,
                    hidden: 144,
                    squeezed: 12,
                    upsampler: shuffles(64, &[2, 2]),
                    ..medium.clone()
                },
            ),
            ("fdat-light-x4", Fdat { upsampler: shuffles(64, &[2, 2]), ..light }),
            ("fdat-medium-x2", Fdat { upsampler: Upsampler::Transposed(2), ..medium.clone() }),
            ("fdat-medium-x4", medium),
            ("fdat-large-x4", large.clone()),
            ("fdat-xl-x4", Fdat { groups: 6, blocks: 12, ..large }),
        ]
    }
}

impl Fdat {
    fn frame(&self) -> Frame {
        Frame {
            unshuffle: self.unshuffle,
            centred: false,
            ..Frame::new(self.channels, self.upsampler.scale() / self.unshuffle, 1)
        }
    }

    /// `image` is unshuffled.
    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let first = w.at(if self.unshuffle > 1 { "conv_first.1" } else { "conv_first" });
        let shallow = conv2d(&first, image, self.dim, 3);
        let mut x = shallow.clone();
        for group in 0..self.groups {
            let w = w.at(format!("groups.{group}"));
            let block = |x: Value, number: usize| self.block(&w.at(format!("blocks.{number}")), &x, grid, number);
            let made = grid.image(&(0..self.blocks).fold(grid.tokens(&x), block));
            x = conv2d_unbiased(&w.at("conv"), &made, self.dim, 3) + x;
        }
        let deep = conv2d_unbiased(&w.at("conv_after"), &x, self.dim, 3) + shallow;
        self.upsampler.apply(&w.at(UPSAMPLER), &deep, self.channels)
    }

    /// y = x + attention beside a convolution, then y + layers of each pixel around a convolution of each channel:
    /// tokens in raster order → the same.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, number: usize) -> Value {
        let normalised = normalise(&w.at("n1"), x);
        let image = grid.image(&normalised);
        let convolved = Conv2d::depthwise(self.dim, [3, 3]).unbiased().apply(&w.at("conv.0"), &image).gelu();
        let (attn, inter) = (w.at("attn"), w.at("inter"));
        let fused = if number.is_multiple_of(2) {
            let attended = self.windows_attend(&attn, &normalised, grid);
            // Means of the convolution's channels weight those of the attention.
            let means = conv2d_unbiased(&inter.at("cg.1"), &convolved.global_average_pool(), self.squeezed, 1).gelu();
            let weights = conv2d_unbiased(&inter.at("cg.3"), &means, self.dim, 1).sigmoid();
            let sequences = |x: &Value| x.reshape(&[grid.batch as i64, -1, self.dim as i64]);
            let weighted = sequences(&attended) * sequences(&weights);
            weighted.reshape(&[-1, self.dim as i64]) + grid.tokens(&convolved)
        } else {
            let attended = self.channels_attend(&attn, &image);
            // The attention weights the pixels of the convolution.
            let weights = conv2d_unbiased(&inter.at("sg.0"), &attended, 1, 1).sigmoid();
            grid.tokens(&(convolved * weights + attended))
        };
        let x = x + fused;
        let ffn = w.at("ffn");
        // On images, the depthwise convolution needs the same layout as the layers around it.
        let image = grid.image(&normalise(&w.at("n2"), &x));
        let wide = linear_of_image_unbiased(&ffn.at("fc1"), &image, self.hidden).gelu();
        let wide = Conv2d::depthwise(self.hidden, [3, 3]).unbiased().apply(&ffn.at("smix"), &wide);
        grid.tokens(&linear_of_image_unbiased(&ffn.at("fc2"), &wide, self.dim)) + x
    }

    /// Attention of the pixels of each window to each other; the windows are extended with zeros.
    fn windows_attend(&self, w: &Scope<'_>, x: &Value, grid: &Grid) -> Value {
        let sizes = [grid.height, grid.width];
        let [height, width] = sizes.map(|size| size.next_multiple_of(self.window));
        let windows = Grid { batch: grid.batch, height, width, window: [self.window; 2] };
        let area = self.window * self.window;
        let rows = windows.windows_with_border(x, sizes);
        let rows = query_key_value(&w.at("qkv"), &rows, ["weight", "bias"], false);
        let bias = w.tensor_as("bias", &[self.heads, area, area], &[1, self.heads, area, area]);
        let scores = Scores { heads: self.heads, bias: &bias, factor: None };
        let attended = windows.attention_of(rows.each_ref(), [0; 2], scores);
        windows.without_border(&linear(&w.at("proj"), &attended, self.dim), sizes)
    }

    /// Attention of the channels of an image to each other.
    fn channels_attend(&self, w: &Scope<'_>, image: &Value) -> Value {
        let rows = query_key_value_of_image(&w.at("qkv"), image, ["weight", "bias"], false);
        let attended = attention_of_channels(rows.each_ref(), self.heads, &w.tensor("temp", [self.heads, 1, 1]));
        linear_of_image(&w.at("proj"), &attended, self.dim)
    }
}
