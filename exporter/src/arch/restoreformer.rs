//! RestoreFormer: restores an aligned face by attention between its features and entries of a codebook.
//!
//! Paper: <https://arxiv.org/abs/2201.06374>. Upstream: <https://github.com/wzhouxiff/RestoreFormer>,
//! `RestoreFormer/modules/vqvae/vqvae_arch.py`. Reference: spandrel 0.4.2, `architectures/RestoreFormer`.

use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{Scope, attention, channels, conv2d, downsample, group_norm, image_input_of_side, pointwise, upsample};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::{Constant, DataType, Value, Weight};

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RestoreFormer {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the first convolution.
    filters: usize,
    /// Width of each level, from the finest.
    levels: Vec<usize>,
    /// Residual blocks of each level of the encoder. The decoder has one more.
    blocks: usize,
    /// Width of the features that are compared with the codebook, before and after their convolution.
    latent: [usize; 2],
    /// Entries of the codebook.
    entries: usize,
}

/// Height and width of the coarsest level, the one that has attention. Upstream's `attn_resolutions`.
const COARSEST: usize = 16;
/// Levels of images of 2048 × 2048.
const MOST_LEVELS: usize = 8;
/// Upstream's number of attention heads, which no tensor shows.
const HEADS: usize = 8;
/// Upstream's normalisation.
const GROUPS: usize = 32;
const EPSILON: f32 = 1e-6;

impl Architecture for RestoreFormer {
    const NAME: &'static str = "RestoreFormer";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "quantize.embedding.weight",
        "encoder.conv_in.weight",
        "encoder.down.0.block.0.norm1.weight",
        "encoder.mid.attn_1.norm2.weight",
        "encoder.conv_out.weight",
        "quant_conv.weight",
        "post_quant_conv.weight",
        "decoder.mid.attn_1.norm2.weight",
        "decoder.conv_out.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("encoder.conv_in.weight")?;
        let count = keys.count("encoder.down.");
        if !(1..=MOST_LEVELS).contains(&count) {
            return Err(Mismatch::new(format!("expected 1 to {MOST_LEVELS} levels, found {count}")));
        }
        let width = |level: usize| Ok(keys.dims::<4>(&format!("encoder.down.{level}.block.0.conv2.weight"))?[0]);
        let levels = (0..count).map(width).collect::<Result<Vec<usize>, Mismatch>>()?;
        let attends: Vec<usize> =
            (0..count).filter(|level| keys.any_with_prefix(&format!("encoder.down.{level}.attn."))).collect();
        if attends != [count - 1] {
            return Err(Mismatch::new(format!(
                "expected attention at the last of {count} levels alone, found it at {attends:?}"
            )));
        }
        let [entries, embedding] = keys.dims::<2>("quantize.embedding.weight")?;
        let [_, latent, ..] = keys.dims::<4>("quant_conv.weight")?;
        let [stored, ..] = keys.dims::<4>("encoder.conv_out.weight")?;
        if stored != latent {
            return Err(Mismatch::new(format!("expected an encoder of {latent} channels, found {stored}")));
        }
        if let Some(width) = levels.iter().chain([&filters]).find(|width| !width.is_multiple_of(GROUPS)) {
            return Err(Mismatch::new(format!("expected widths that are multiples of {GROUPS}, found {width}")));
        }
        Ok(RestoreFormer {
            channels,
            filters,
            levels,
            blocks: keys.count("encoder.down.0.block."),
            latent: [latent, embedding],
            entries,
        })
    }

    fn contract(&self) -> Contract {
        Upscale {
            range: [-1.0, 1.0],
            only_size: Some(self.side()),
            // The reference does not run in half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(1, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_side(w, "image", self.channels, self.side(), shapes)?;
        let [encoded, before, after] = self.encode(&w.at("encoder"), &image);
        let [latent, embedding] = self.latent;
        let encoded = conv2d(&w.at("quant_conv"), &encoded, embedding, 1);
        let chosen = self.nearest_entries(&w.at("quantize"), &encoded);
        let x = conv2d(&w.at("post_quant_conv"), &chosen, latent, 1);
        w.trace().output("upscaled", &self.decode(&w.at("decoder"), &x, &[before, after]));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny =
            RestoreFormer { channels: 3, filters: 32, levels: vec![32, 64], blocks: 1, latent: [6, 4], entries: 12 };
        let published = RestoreFormer {
            channels: 3,
            filters: 64,
            levels: vec![64, 128, 128, 256, 256, 512],
            blocks: 2,
            latent: [256, 256],
            entries: 1024,
        };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-two-blocks", RestoreFormer { levels: vec![32, 32], blocks: 2, ..tiny }),
            ("restoreformer", published),
        ]
    }

    fn example_shapes(&self) -> Shapes {
        Shapes::of("image", &[1, self.channels, self.side(), self.side()])
    }
}

impl RestoreFormer {
    /// Height and width of the image.
    fn side(&self) -> usize {
        COARSEST << (self.levels.len() - 1)
    }

    /// The width of the coarsest level.
    fn coarsest(&self) -> usize {
        self.levels[self.levels.len() - 1]
    }

    /// The features of an image, and those in the middle before and after attention, which the decoder attends with.
    fn encode(&self, w: &Scope<'_>, image: &Value) -> [Value; 3] {
        let last = self.levels.len() - 1;
        let mut x = conv2d(&w.at("conv_in"), image, self.filters, 3);
        for (level, filters) in self.levels.iter().enumerate() {
            let w = w.at(format!("down.{level}"));
            for block in 0..self.blocks {
                x = residual_block(&w.at(format!("block.{block}")), &x, *filters);
                if level == last {
                    x = attend(&w.at(format!("attn.{block}")), &x, None);
                }
            }
            if level < last {
                x = downsample(&w.at("downsample.conv"), &x, *filters, [0, 1]);
            }
        }
        let before = residual_block(&w.at("mid.block_1"), &x, self.coarsest());
        let after = attend(&w.at("mid.attn_1"), &before, None);
        let after = residual_block(&w.at("mid.block_2"), &after, self.coarsest());
        let x = normalised(&w.at("norm_out"), &after).silu();
        [conv2d(&w.at("conv_out"), &x, self.latent[0], 3), before, after]
    }

    /// Features to an image. The queries of the attention in the middle are the encoder's features after its
    /// attention; the queries of the attention on the coarsest level are the features before it.
    fn decode(&self, w: &Scope<'_>, x: &Value, [before, after]: &[Value; 2]) -> Value {
        let last = self.levels.len() - 1;
        let mut x = conv2d(&w.at("conv_in"), x, self.coarsest(), 3);
        x = residual_block(&w.at("mid.block_1"), &x, self.coarsest());
        x = attend(&w.at("mid.attn_1"), &x, Some(after));
        x = residual_block(&w.at("mid.block_2"), &x, self.coarsest());
        for (level, filters) in self.levels.iter().enumerate().rev() {
            let w = w.at(format!("up.{level}"));
            for block in 0..=self.blocks {
                x = residual_block(&w.at(format!("block.{block}")), &x, *filters);
                if level == last {
                    x = attend(&w.at(format!("attn.{block}")), &x, Some(before));
                }
            }
            if level > 0 {
                x = upsample(&w.at("upsample.conv"), &x);
            }
        }
        conv2d(&w.at("conv_out"), &normalised(&w.at("norm_out"), &x).silu(), self.channels, 3)
    }

    /// For each pixel, the nearest entry of the codebook: the entry with the largest `2 · z · e − |e|²`.
    fn nearest_entries(&self, w: &Scope<'_>, x: &Value) -> Value {
        let dims = [self.entries, self.latent[1]];
        let w = w.at("embedding");
        let codebook = w.tensor("weight", dims);
        let lengths = w.computed_from("weight", &dims, "half_squares", |weight| {
            let squares = weight.to_f32s()?;
            let halves = squares.chunks(dims[1].max(1)).map(|entry| {
                let sum: f64 = entry.iter().map(|value| f64::from(*value).powi(2)).sum();
                ((-0.5 * sum) as f32).to_le_bytes()
            });
            Weight::from_bytes(DataType::F32, vec![dims[0]], halves.flatten().collect::<Vec<u8>>())
        });
        let pixels = x.transpose(&[0, 2, 3, 1]).reshape(&[-1, dims[1] as i64]);
        let scores = pixels.linear(&codebook, Some(&lengths));
        let flat = w.trace().constant("shape", &[1], Constant::I64(&[-1]));
        let nearest = w.trace().node("Reshape", &[&scores.arg_max(1), &flat], []);
        let side = COARSEST as i64;
        codebook.gather_by(&nearest, 0).reshape(&[-1, side, side, dims[1] as i64]).transpose(&[0, 3, 1, 2])
    }
}

fn normalised(w: &Scope<'_>, x: &Value) -> Value {
    group_norm(w, x, GROUPS, EPSILON)
}

/// x + two convolutions. Where the channels change, a convolution of side 1 is applied to x.
fn residual_block(w: &Scope<'_>, x: &Value, filters: usize) -> Value {
    let y = conv2d(&w.at("conv1"), &normalised(&w.at("norm1"), x).silu(), filters, 3);
    let y = conv2d(&w.at("conv2"), &normalised(&w.at("norm2"), &y).silu(), filters, 3);
    if channels(x) == filters { x + y } else { conv2d(&w.at("nin_shortcut"), x, filters, 1) + y }
}

/// x + attention between the pixels of the coarsest level, whose queries are made of `asks`, or of x.
fn attend(w: &Scope<'_>, x: &Value, asks: Option<&Value>) -> Value {
    let width = channels(x);
    let rows = |x: &Value| x.transpose(&[0, 2, 3, 1]).reshape(&[-1, width as i64]);
    let own = normalised(&w.at("norm1"), x);
    // Upstream has this normalisation in every layer, and uses it only if the queries come from another image.
    let asks = match asks {
        Some(asks) => normalised(&w.at("norm2"), asks),
        None => {
            w.marker("norm2.weight", &[width]);
            w.marker("norm2.bias", &[width]);
            own.clone()
        }
    };
    let tokens = |name: &str, x: &Value| {
        pointwise(&w.at(name), &rows(x), width).reshape(&[-1, (COARSEST * COARSEST) as i64, width as i64])
    };
    let attended = attention(&tokens("q", &asks), &tokens("k", &own), &tokens("v", &own), HEADS, &[]);
    let side = COARSEST as i64;
    let image = attended.reshape(&[-1, side, side, width as i64]).transpose(&[0, 3, 1, 2]);
    x + conv2d(&w.at("proj_out"), &image, width, 1)
}
