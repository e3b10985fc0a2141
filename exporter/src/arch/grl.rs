//! GRL: attention in windows and, through anchors, in stripes.
//!
//! Paper: <https://arxiv.org/abs/2303.00748>. Upstream: <https://github.com/ofsoundof/GRL-Image-Restoration>,
//! `models/networks/grl.py`. Reference: spandrel 0.4.2, `architectures/GRL`.

use super::reconstruction::{Residual, Trunk, Upsampler};
use super::swin::{Frame, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Conv2d, CosineHeads, Grid, Order, Scope, Stripes, channel_weights, channels, conv2d, cosine_window_attention,
    linear, mlp,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::{ConvOptions, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Grl {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    /// Blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in windows, in each group.
    window_heads: Vec<usize>,
    /// Attention heads in stripes, in each group.
    stripe_heads: Vec<usize>,
    /// Side of the windows.
    window: usize,
    /// Height and width of the stripes in every other block; they are exchanged in the others.
    stripe: [usize; 2],
    /// Pixels along the side of an anchor.
    side: usize,
    anchors: Anchors,
    /// Whether a convolution of each channel comes before the layer of queries, keys and values.
    separable: bool,
    /// Whether queries, keys and values have a bias.
    biased: bool,
    /// Width of the networks of position biases.
    positions: usize,
    /// Width between the layers of an MLP.
    hidden: usize,
    /// Whether each block has convolutions with channel attention beside its attention.
    local: bool,
    residual: Residual,
    upsampler: Upsampler,
}

/// How anchors are made of pixels. A network with several stages halves the image in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Anchors {
    /// The mean of the pixels, and a layer. Upstream can also take the maximum. No tensor shows that; neither a
    /// published network nor the reference does it.
    Pooled,
    /// Convolutions, in this many stages.
    Convolved(usize),
    /// Convolutions of each channel and layers.
    Separable(usize),
    /// Layers of 2 × 2 pixels.
    Merged(usize),
}

/// The side of pooled anchors, which no tensor shows. All published networks have it.
const SIDE: usize = 4;
/// Divisors of the width in the convolutions beside attention. Upstream has no others.
const COMPRESSION: usize = 4;
const REDUCTION: usize = 18;
const FIRST: &str = "layers.0.blocks.0.attn";
/// Where the convolutions of the pixel shuffles are.
const STAGES: &str = "upsample.up";
/// Buffers that upstream stores and the export computes for its own size.
const BUFFERS: [&str; 13] = [
    "table_w",
    "table_sh",
    "table_sv",
    "index_w",
    "index_sh_a2w",
    "index_sh_w2a",
    "index_sv_a2w",
    "index_sv_w2a",
    "mask_w",
    "mask_sh_a2w",
    "mask_sh_w2a",
    "mask_sv_a2w",
    "mask_sv_w2a",
];

impl Architecture for Grl {
    const NAME: &'static str = "GRL";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_first.weight",
        "norm_start.weight",
        "norm_end.weight",
        "layers.0.blocks.0.mlp.fc1.weight",
        "layers.0.blocks.0.attn.window_attn.attn_transform.logit_scale",
        "layers.0.blocks.0.attn.window_attn.attn_transform.cpb_mlp.0.weight",
        "layers.0.blocks.0.attn.stripe_attn.attn_transform1.logit_scale",
        "layers.0.blocks.0.attn.stripe_attn.attn_transform2.logit_scale",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let groups = keys.count("layers.");
        let depths: Vec<usize> = (0..groups).map(|group| keys.count(&format!("layers.{group}.blocks."))).collect();
        let heads = |of: &str| {
            let name = |group| format!("layers.{group}.blocks.0.attn.{of}.logit_scale");
            (0..groups).map(|group| Ok(keys.dims::<3>(&name(group))?[0])).collect::<Result<Vec<_>, Mismatch>>()
        };
        let window_heads = heads("window_attn.attn_transform")?;
        let stripe_heads = heads("stripe_attn.attn_transform1")?;
        let fits = |heads: &usize| dim.is_multiple_of(2 * heads);
        if let Some(heads) = window_heads.iter().chain(&stripe_heads).find(|heads| !fits(heads)) {
            return Err(Mismatch::new(format!("half of {dim} channels does not divide into {heads} heads")));
        }
        let upsampler = Upsampler::detect_below(keys, channels, STAGES)?;
        let (anchors, shown) = Anchors::detect(keys)?;
        let sizes = Sizes::detect(keys, &upsampler, shown)?;
        let separable = !keys.contains(&format!("{FIRST}.qkv.body.weight"));
        let local = keys.contains("layers.0.blocks.0.conv.cab.0.weight");
        if local && dim / REDUCTION == 0 {
            return Err(Mismatch::new(format!(
                "expected at least {REDUCTION} channels beside convolutions, found {dim}"
            )));
        }
        let positions = format!("{FIRST}.window_attn.attn_transform.cpb_mlp.0.weight");
        Ok(Grl {
            channels,
            dim,
            depths,
            window_heads,
            stripe_heads,
            window: sizes.window,
            stripe: sizes.stripe,
            side: sizes.side,
            anchors,
            separable,
            biased: keys.contains(&format!("{FIRST}.qkv.body{}.bias", if separable { ".0" } else { "" })),
            positions: keys.dims::<2>(&positions)?[0],
            hidden: keys.dims::<2>("layers.0.blocks.0.mlp.fc1.weight")?[0],
            local,
            residual: Residual::detect_any(keys)?,
            upsampler,
        })
    }

    fn contract(&self) -> Contract {
        self.frame().contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        BUFFERS.contains(&name)
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("window", self.window.to_string()),
            ("stripe", format!("[{}, {}]", self.stripe[0], self.stripe[1])),
            ("side", self.side.to_string()),
        ]
    }

    fn example_shapes(&self) -> Shapes {
        self.frame().example_shapes()
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Grl {
            channels: 3,
            dim: 8,
            depths: vec![3],
            window_heads: vec![2],
            stripe_heads: vec![1],
            window: 4,
            stripe: [4, 8],
            side: 2,
            anchors: Anchors::Pooled,
            separable: false,
            biased: true,
            positions: 6,
            hidden: 16,
            local: false,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
        };
        let with = |anchors, residual, upsampler| Grl { anchors, residual, upsampler, depths: vec![1], ..tiny.clone() };
        let direct = |factor| Upsampler::PixelShuffleDirect { factor };
        let small = Grl {
            dim: 128,
            depths: vec![4; 4],
            window_heads: vec![2; 4],
            stripe_heads: vec![2; 4],
            window: 32,
            stripe: [64, 64],
            side: SIDE,
            positions: 512,
            hidden: 256,
            upsampler: Upsampler::shuffle(64, &[2, 2]),
            ..tiny.clone()
        };
        let base = Grl {
            dim: 180,
            depths: vec![4, 4, 8, 8, 8, 4, 4],
            window_heads: vec![3; 7],
            stripe_heads: vec![3; 7],
            hidden: 360,
            local: true,
            ..small.clone()
        };
        let nearest = |filters| Upsampler::NearestConv { filters, doublings: 2 };
        let restoring = |grl: &Grl| Grl { window: 8, stripe: [8, 8], upsampler: Upsampler::None, ..grl.clone() };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-local-x4",
                Grl { dim: 36, hidden: 36, local: true, depths: vec![1], upsampler: nearest(4), ..tiny.clone() },
            ),
            (
                "tiny-separable-x3",
                Grl {
                    separable: true,
                    biased: false,
                    stripe: [8, 8],
                    side: 4,
                    ..with(Anchors::Separable(2), Residual::Linear, direct(3))
                },
            ),
            ("tiny-convolved-x2", with(Anchors::Convolved(1), Residual::Pointwise, direct(2))),
            ("tiny-merged-x2", with(Anchors::Merged(1), Residual::Three, direct(2))),
            ("tiny-grey-x1", Grl { channels: 1, upsampler: Upsampler::None, ..tiny.clone() }),
            ("grl-tiny-x4", Grl { dim: 64, hidden: 128, upsampler: direct(4), ..small.clone() }),
            ("grl-small-x4", small.clone()),
            ("grl-base-x4", base.clone()),
            ("grl-base-real-x4", Grl { window: 16, stripe: [32, 64], upsampler: nearest(64), ..base.clone() }),
            ("grl-small-denoise", restoring(&small)),
            ("grl-base-denoise", restoring(&base)),
        ]
    }
}

impl Anchors {
    /// From the layers' names and shapes; and the side of the anchors, where they show it.
    fn detect(keys: &Keys<'_>) -> Result<(Self, Option<usize>), Mismatch> {
        let body = format!("{FIRST}.anchor.body.");
        let stages = keys.count(&body);
        // No published network comes near.
        if !(1..=6).contains(&stages) {
            return Err(Mismatch::new(format!("expected 1 to 6 stages of anchors in `{body}`, found {stages}")));
        }
        if keys.contains(&format!("{body}0.reduction.bias")) {
            return Ok((Anchors::Pooled, None));
        }
        if keys.contains(&format!("{body}0.reduction.weight")) {
            return Ok((Anchors::Merged(stages), Some(1 << stages)));
        }
        let separable = keys.contains(&format!("{body}0.0.weight"));
        let weight = if separable { format!("{body}0.0.weight") } else { format!("{body}0.weight") };
        let [_, _, kernel, _] = keys.dims::<4>(&weight)?;
        let side = if stages == 1 { kernel.saturating_sub(1) } else { 1 << stages };
        if side == 0 || side % 2 == 1 {
            return Err(Mismatch::new(format!("expected anchors of an even side, found kernels of side {kernel}")));
        }
        Ok((if separable { Anchors::Separable(stages) } else { Anchors::Convolved(stages) }, Some(side)))
    }

    /// `image` `[batch, channels, height, width]` → `[batch, channels / 2, height / side, width / side]`.
    fn apply(self, w: &Scope<'_>, image: &Value, side: usize) -> Value {
        let half = channels(image) / 2;
        let body = |stage: usize| w.at(format!("body.{stage}"));
        // With a single stage, kernels reach from one anchor to the next.
        let strided = |stages: usize, convolution: fn(usize, usize, usize) -> Conv2d, inputs: usize| {
            let (kernel, stride) = if stages == 1 { (side + 1, side) } else { (3, 2) };
            convolution(inputs, half, kernel).strided(stride)
        };
        match self {
            Anchors::Pooled => {
                let w = body(0).at("reduction");
                let weight = w.tensor_as("weight", &[half, 2 * half], &[half, 2 * half, 1, 1]);
                let bias = w.tensor("bias", [half]);
                image.average_pool(side).conv(&weight, Some(&bias), &ConvOptions::same(1))
            }
            Anchors::Convolved(stages) => (0..stages).fold(image.clone(), |x, stage| {
                strided(stages, |_, filters, kernel| Conv2d::new(filters, kernel), 0).apply(&body(stage), &x)
            }),
            Anchors::Separable(stages) => (0..stages).fold(image.clone(), |x, stage| {
                let each = strided(stages, |inputs, _, kernel| Conv2d::depthwise(inputs, [kernel; 2]), channels(&x));
                conv2d(&body(stage).at("1"), &each.apply(&body(stage).at("0"), &x), half, 1)
            }),
            Anchors::Merged(stages) => (0..stages).fold(image.clone(), |x, stage| {
                let inputs = channels(&x);
                // The layer reads the four pixels column by column.
                let weight =
                    body(stage).at("reduction").computed_from("weight", &[half, 4 * inputs], "weight", |weight| {
                        weight.reshaped(vec![half, 2, 2, inputs])?.transposed(&[0, 3, 2, 1])
                    });
                let options = ConvOptions { strides: vec![2; 2], ..ConvOptions::same(1) };
                x.conv(&weight, None, &options)
            }),
        }
    }
}

/// The sizes of windows, stripes and anchors.
struct Sizes {
    window: usize,
    stripe: [usize; 2],
    side: usize,
}

impl Sizes {
    /// The user's, else those of upstream's buffers, else those of the published networks of this kind; `shown` is the
    /// side of anchors that their layers show.
    fn detect(keys: &Keys<'_>, upsampler: &Upsampler, shown: Option<usize>) -> Result<Self, Mismatch> {
        // As the reference: networks that restore, those for photos, and those for clean pictures.
        let (window, stripe) = match upsampler {
            Upsampler::None => (8, [8, 8]),
            Upsampler::NearestConv { .. } => (16, [32, 64]),
            _ => (32, [64, 64]),
        };
        let mut sizes = Sizes { window, stripe, side: shown.unwrap_or(SIDE) };
        if ["table_w", "table_sh", "index_sh_a2w"].iter().all(|name| keys.contains(name)) {
            let [_, distances, ..] = keys.dims::<4>("table_w")?;
            let [_, height, width, _] = keys.dims::<4>("table_sh")?;
            let [anchors, pixels] = keys.dims::<2>("index_sh_a2w")?;
            let side = (anchors.max(pixels) / anchors.min(pixels)).isqrt();
            // Each direction of the table has a row for each distance between an anchor and a pixel.
            let stripe = [height, width].map(|rows| (rows + 1) * side / (side + 1));
            sizes = Sizes { window: distances.div_ceil(2), stripe, side: shown.unwrap_or(side) };
        }
        let window = keys.setting("window")?.unwrap_or(sizes.window);
        let stripe = keys.setting("stripe")?.unwrap_or(sizes.stripe);
        let side = keys.setting("side")?.unwrap_or(sizes.side);
        if shown.is_some_and(|shown| shown != side) {
            return Err(Mismatch::new(format!("the layers make anchors of {shown:?} pixels, not of {side} (`side`)")));
        }
        let pad = stripe[0].max(stripe[1]).max(window);
        let divides = |size: usize| size > 0 && pad.is_multiple_of(size);
        // Larger ones than any image make no sense.
        let fits = side > 0 && pad <= 1 << 12 && window > 1 && divides(window);
        if !fits || !stripe.iter().all(|size| divides(*size) && size.is_multiple_of(2 * side)) {
            return Err(Mismatch::new(format!(
                "expected windows and stripes whose sides divide the largest of them, and stripes of multiples of two \
                 anchors; found windows of {window}, stripes of {stripe:?} and anchors of {side} pixels"
            )));
        }
        Ok(Sizes { window, stripe, side })
    }
}

impl Grl {
    /// The image is padded to whole windows and stripes.
    fn frame(&self) -> Frame {
        let multiple = self.stripe[0].max(self.stripe[1]).max(self.window);
        Frame::new(self.channels, self.upsampler.factor(), multiple)
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let trunk = Trunk {
            channels: self.channels,
            dim: self.dim,
            first: "conv_first",
            projection: false,
            norm: Some("norm_start"),
            last_norm: "norm_end",
            groups: self.depths.len(),
            residual: self.residual,
            upsampler: &self.upsampler,
            stages: STAGES,
        };
        trunk.apply(w, image, grid, |w, x, group| {
            let block = |x: Value, number| self.block(&w.at(format!("blocks.{number}")), &x, grid, group, number);
            (0..self.depths[group]).fold(x.clone(), block)
        })
    }

    /// y = x + norm(attention) and convolutions of x, then y + norm(MLP): tokens in raster order → the same.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, group: usize, number: usize) -> Value {
        let image = grid.image(x);
        let attended = self.attention(&w.at("attn"), x, &image, grid, group, number);
        let mut y = normalise(&w.at("norm1"), &attended) + x;
        if self.local {
            y = y + grid.tokens(&self.convolved(&w.at("conv.cab"), &image));
        }
        normalise(&w.at("norm2"), &mlp(&w.at("mlp"), &y, self.hidden)) + y
    }

    /// Attention in windows with one half of the channels, in stripes with the other. Every other block rolls its
    /// windows and has its stripes along rows; two of four roll their stripes.
    fn attention(&self, w: &Scope<'_>, x: &Value, image: &Value, grid: &Grid, group: usize, number: usize) -> Value {
        let (is_even, [height, width]) = (number.is_multiple_of(2), self.stripe);
        let windows = Grid { window: [self.window; 2], ..*grid };
        let roll = [if is_even { self.window / 2 } else { 0 }; 2];
        let stripe = if is_even { [height, width] } else { [width, height] };
        let stripes = Stripes { grid: Grid { window: stripe, ..*grid }, side: self.side, rolled: number % 4 >= 2 };
        // With linear layers, the order of tokens is free, so they are ordered before there are three times as many.
        let qkv = w.at("qkv");
        let x = if self.separable {
            let convolution = Conv2d::depthwise(self.dim, [3, 3]);
            let convolution = if self.biased { convolution } else { convolution.unbiased() };
            grid.tokens(&convolution.apply(&qkv.at("body.0"), image))
        } else {
            x.clone()
        };
        let ordered = [Order::Windows(roll), stripes.order()];
        let ordered =
            [windows.reorder(&x, Order::Raster, ordered[0]), stripes.grid.reorder(&x, Order::Raster, ordered[1])];
        let rows = self.query_key_value(&qkv, &ordered);
        let sizes = |heads| CosineHeads { heads, positions: self.positions };
        let [q, k, v] = rows[0].each_ref();
        let heads = self.window_heads[group];
        let of_windows = cosine_window_attention(&w.at("window_attn"), [q, k, v], &windows, roll, sizes(heads));
        let anchors = self.anchors.apply(&w.at("anchor"), image, self.side);
        let heads = self.stripe_heads[group];
        let of_stripes = stripes.attention(&w.at("stripe_attn"), rows[1].each_ref(), &anchors, sizes(heads));
        let of_windows = windows.reorder(&of_windows, Order::Windows(roll), Order::Raster);
        let of_stripes = stripes.grid.reorder(&of_stripes, stripes.order(), Order::Raster);
        linear(&w.at("proj"), &of_windows.concat(&[&of_stripes], 1), self.dim)
    }

    /// Queries, keys and values of windows and of stripes, each half as wide as the tokens: the rows of one layer.
    fn query_key_value(&self, w: &Scope<'_>, ordered: &[Value; 2]) -> [[Value; 3]; 2] {
        let (dim, half) = (self.dim, self.dim / 2);
        let layer = w.at(if self.separable { "body.1" } else { "body" });
        let dims: &[usize] = if self.separable { &[3 * dim, dim, 1, 1] } else { &[3 * dim, dim] };
        let weights = layer.stored("weight", dims);
        let biases = self.biased.then(|| layer.stored("bias", &[3 * dim]));
        let parts = ["query", "key", "value"];
        std::array::from_fn(|of| {
            std::array::from_fn(|part| {
                let first = ((3 * of + part) * half) as u32;
                let rows: Vec<u32> = (first..first + half as u32).collect();
                let name = format!("{}.{}", ["window", "stripe"][of], parts[part]);
                let weight = weights.as_ref().map_err(Clone::clone);
                let weight = weight.and_then(|weight| weight.rows(rows.clone())?.reshaped(vec![half, dim]));
                let weight = layer.made(&format!("{name}.weight"), weight);
                let bias = biases.as_ref().map(|bias| {
                    let bias = bias.as_ref().map_err(Clone::clone).and_then(|bias| bias.rows(rows));
                    layer.made(&format!("{name}.bias"), bias)
                });
                ordered[of].linear(&weight, bias.as_ref())
            })
        })
    }

    /// CAB: convolutions whose channels are weighted by their means.
    fn convolved(&self, w: &Scope<'_>, image: &Value) -> Value {
        let y = conv2d(&w.at("0"), image, self.dim / COMPRESSION, 3).gelu();
        let y = conv2d(&w.at("2"), &y, self.dim, 3);
        let layers = ["1", "3"].map(|number| w.at("3.attention").at(number));
        channel_weights(layers.each_ref(), &y, self.dim / REDUCTION) * y
    }
}
