//! GFPGAN: restores an aligned face by a StyleGAN2 whose features a U-Net modulates.
//!
//! Paper: <https://arxiv.org/abs/2101.04061>; StyleGAN2: <https://arxiv.org/abs/1912.04958>. Upstream:
//! <https://github.com/TencentARC/GFPGAN>, `gfpgan/archs/gfpganv1_clean_arch.py` and `stylegan2_clean_arch.py`.
//! Reference: spandrel 0.4.2, `architectures/GFPGAN`.
//!
//! The reference draws the noise of StyleGAN2 anew in each run, unless `randomize_noise=False`: then it takes the noise
//! that the checkpoint stores. The graph has the stored noise, so equal pictures give equal results.

use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{Conv2d, Scope, channels, conv2d, image_input_of_side, linear, split_channels};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::{ConvOptions, DataType, Value, Weight};

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Gfpgan {
    /// Width of the U-Net at each level: 4 × 4 pixels, then twice as high and wide each time.
    features: Vec<usize>,
    /// Width of StyleGAN2 at each level.
    generator: Vec<usize>,
    /// Width of the style.
    style: usize,
    /// Whether the U-Net modulates only the second half of the generator's channels.
    half: bool,
}

/// Height and width of the coarsest level.
const COARSEST: usize = 4;
/// Levels of images of 1024 × 1024, the largest of StyleGAN2.
const MOST_LEVELS: usize = 8;
/// Channels of the image.
const COLOURS: usize = 3;
/// Upstream's slope of LeakyReLU.
const SLOPE: f32 = 0.2;
/// Upstream's, added to the sum of a filter's squares.
const EPSILON: f32 = 1e-8;
/// Side of the kernels that are not of side 1.
const KERNEL: usize = 3;

impl Architecture for Gfpgan {
    const NAME: &'static str = "GFPGAN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_body_first.weight",
        "conv_body_down.0.conv1.weight",
        "final_conv.weight",
        "final_linear.weight",
        "conv_body_up.0.conv1.weight",
        "condition_scale.0.0.weight",
        "condition_shift.0.0.weight",
        "stylegan_decoder.constant_input.weight",
        "stylegan_decoder.style_conv1.modulated_conv.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let levels = keys.count("conv_body_up.");
        if levels > MOST_LEVELS {
            return Err(Mismatch::new(format!("expected at most {MOST_LEVELS} levels, found {levels}")));
        }
        let [_, width, ..] = keys.dims::<4>("stylegan_decoder.constant_input.weight")?;
        let mut features = vec![keys.dims::<4>("final_conv.weight")?[0]];
        let mut generator = vec![width];
        for level in 0..levels {
            features.push(keys.dims::<4>(&format!("condition_scale.{level}.0.weight"))?[0]);
            generator.push(keys.dims::<5>(&format!("stylegan_decoder.to_rgbs.{level}.modulated_conv.weight"))?[2]);
        }
        let [_, style] = keys.dims::<2>("stylegan_decoder.style_conv1.modulated_conv.modulation.weight")?;
        let [modulated, ..] = keys.dims::<4>("condition_scale.0.2.weight")?;
        let [styles, _] = keys.dims::<2>("final_linear.weight")?;
        let found = Gfpgan { half: modulated < generator[1], features, generator, style };
        let expected = found.layers() * style;
        if styles != expected {
            let reason = format!("expected a style of {style} for each of {} layers, found {styles}", found.layers());
            return Err(Mismatch::new(reason));
        }
        Ok(found)
    }

    fn contract(&self) -> Contract {
        Upscale {
            range: [-1.0, 1.0],
            only_size: Some(self.side()),
            // The reference does not run in half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(1, COLOURS)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_side(w, "image", COLOURS, self.side(), shapes)?;
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    /// Ignores the layers that make a style from noise, and the layers that make pictures from the U-Net for training.
    fn ignores(&self, name: &str) -> bool {
        name.starts_with("stylegan_decoder.style_mlp.") || name.starts_with("toRGB.")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Gfpgan { features: vec![4, 4, 6], generator: vec![8, 8, 12], style: 8, half: true };
        let published = Gfpgan {
            features: vec![256, 256, 256, 256, 256, 128, 64, 32],
            generator: vec![512, 512, 512, 512, 512, 256, 128, 64],
            style: 512,
            half: true,
        };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-all", Gfpgan { features: vec![4, 6], generator: vec![8, 12], half: false, ..tiny }),
            ("gfpgan-v1.4", published),
        ]
    }

    fn example_shapes(&self) -> Shapes {
        Shapes::of("image", &[1, COLOURS, self.side(), self.side()])
    }
}

impl Gfpgan {
    /// Levels after the coarsest one.
    fn levels(&self) -> usize {
        self.features.len() - 1
    }

    /// Height and width of the image.
    fn side(&self) -> usize {
        COARSEST << self.levels()
    }

    /// Number of styles: two layers of the coarsest level have one, then three layers of each level; the last layer of
    /// a level and the first layer of the next level share one.
    fn layers(&self) -> usize {
        2 * self.levels() + 2
    }

    /// `image`: `[batch, 3, side, side]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let finest = self.levels();
        let mut x = conv2d(&w.at("conv_body_first"), image, self.features[finest], 1).leaky_relu(SLOPE);
        let mut skips = Vec::new();
        for (number, level) in (0..finest).rev().enumerate() {
            let w = w.at(format!("conv_body_down.{number}"));
            x = residual_block(&w, &x, self.features[level], |x| x.average_pool(2));
            skips.push(x.clone());
        }
        x = conv2d(&w.at("final_conv"), &x, self.features[0], KERNEL).leaky_relu(SLOPE);
        let pixels = (self.features[0] * COARSEST * COARSEST) as i64;
        let styles = linear(&w.at("final_linear"), &x.reshape(&[0, pixels]), self.layers() * self.style);
        let mut modulations = Vec::new();
        for (level, skip) in skips.iter().rev().enumerate() {
            let w_up = w.at(format!("conv_body_up.{level}"));
            x = residual_block(&w_up, &(x + skip), self.features[level + 1], |x| x.upsample_bilinear(2));
            let of = |name: &str| self.condition(&w.at(format!("{name}.{level}")), &x, level + 1);
            modulations.push([of("condition_scale"), of("condition_shift")]);
        }
        self.generate(&w.at("stylegan_decoder"), &styles, &modulations)
    }

    /// What the features of a level are multiplied by, or what is added to them.
    fn condition(&self, w: &Scope<'_>, x: &Value, level: usize) -> Value {
        let hidden = conv2d(&w.at("0"), x, self.features[level], KERNEL).leaky_relu(SLOPE);
        let modulated = self.generator[level] / if self.half { 2 } else { 1 };
        conv2d(&w.at("2"), &hidden, modulated, KERNEL)
    }

    /// StyleGAN2: a constant that becomes an image, with the style of each layer, `[batch, layers · style]`, and the
    /// scale and the shift of each level.
    fn generate(&self, w: &Scope<'_>, styles: &Value, modulations: &[[Value; 2]]) -> Value {
        let style = |layer: usize| styles.slice(1, layer * self.style, (layer + 1) * self.style);
        let constant = w.at("constant_input").tensor("weight", [1, self.generator[0], COARSEST, COARSEST]);
        let mut x = self.style_conv(w, ("style_conv1", 0), &constant, &style(0), 0);
        let mut image = to_colours(&w.at("to_rgb1"), &x, &style(1));
        for (number, [scale, shift]) in modulations.iter().enumerate() {
            let (first, level) = (2 * number, number + 1);
            x = self.style_conv(w, (&format!("style_convs.{first}"), first + 1), &x, &style(first + 1), level);
            x = if self.half {
                let kept = channels(&x) - channels(scale);
                let [kept, modulated] = split_channels(&x, [kept, channels(scale)]);
                kept.concat(&[&(modulated * scale + shift)], 1)
            } else {
                x * scale + shift
            };
            x = self.style_conv(w, (&format!("style_convs.{}", first + 1), first + 2), &x, &style(first + 2), level);
            let colours = to_colours(&w.at(format!("to_rgbs.{number}")), &x, &style(first + 3));
            image = colours + image.upsample_bilinear(2);
        }
        image
    }

    /// A modulated convolution whose filters have the length √2, stored noise, a bias and an activation. The first one
    /// of a level enlarges the image. `noise` is the number of the layer's noise.
    fn style_conv(
        &self,
        decoder: &Scope<'_>,
        (name, noise): (&str, usize),
        x: &Value,
        style: &Value,
        level: usize,
    ) -> Value {
        let (w, filters, side) = (decoder.at(name), self.generator[level], COARSEST << level);
        let w_conv = w.at("modulated_conv");
        let factors = modulation(&w_conv, style, channels(x));
        let dims = [1, filters, channels(x), KERNEL, KERNEL];
        // The square of a filter's length is the sum of its weights' squares, each times the square of the modulation.
        let squares = w_conv.computed_from("weight", &dims, "squares", |weight| sums_of_squares(&weight));
        let lengths = factors.square().linear(&squares, None).offset(EPSILON).scale(0.5).sqrt();
        let scaled = modulated(x, &factors);
        let enlarges = x.fixed(2) < side;
        let scaled = if enlarges { scaled.upsample_bilinear(2) } else { scaled };
        let weight = w_conv.tensor_as("weight", &dims, &dims[1..]);
        let y = scaled.conv(&weight, None, &ConvOptions::same(KERNEL)) / lengths.reshape(&[0, filters as i64, 1, 1]);
        let noise = decoder.stored(&format!("noises.noise{noise}"), &[1, 1, side, side]).and_then(|noise| {
            let strength = w.stored("weight", &[1])?.to_f32s()?;
            noise.cast(DataType::F32)?.reshaped(vec![1, side, side])?.rows_scaled(&strength)
        });
        (y + w.made("noise", noise) + w.tensor_as("bias", &[1, filters, 1, 1], &[filters, 1, 1])).leaky_relu(SLOPE)
    }
}

/// Two convolutions beside one of side 1; `resize` changes the size of both.
fn residual_block(w: &Scope<'_>, x: &Value, filters: usize, resize: impl Fn(&Value) -> Value) -> Value {
    let y = conv2d(&w.at("conv1"), x, channels(x), KERNEL).leaky_relu(SLOPE);
    let y = conv2d(&w.at("conv2"), &resize(&y), filters, KERNEL).leaky_relu(SLOPE);
    y + Conv2d::new(filters, 1).unbiased().apply(&w.at("skip"), &resize(x))
}

/// What the style multiplies each channel by: `[batch, channels]`.
fn modulation(w: &Scope<'_>, style: &Value, channels: usize) -> Value {
    linear(&w.at("modulation"), style, channels)
}

fn modulated(x: &Value, factors: &Value) -> Value {
    x * factors.reshape(&[0, channels(x) as i64, 1, 1])
}

/// Red, green and blue of features. Upstream modulates the weights; modulating the features is the same.
fn to_colours(w: &Scope<'_>, x: &Value, style: &Value) -> Value {
    let w_conv = w.at("modulated_conv");
    let factors = modulation(&w_conv, style, channels(x));
    let weight = w_conv.tensor_as("weight", &[1, COLOURS, channels(x), 1, 1], &[COLOURS, channels(x), 1, 1]);
    let colours = modulated(x, &factors).conv(&weight, None, &ConvOptions::same(1));
    colours + w.tensor_as("bias", &[1, COLOURS, 1, 1], &[COLOURS, 1, 1])
}

/// `[1, filters, channels, side, side]` → `[filters, channels]`.
fn sums_of_squares(weight: &Weight) -> tileforge_graph::Result<Weight> {
    let [_, filters, channels, height, width] = *weight.dims() else {
        return Err(tileforge_graph::Error::Graph(format!("expected five dimensions, found {:?}", weight.dims())));
    };
    let weights = weight.to_f32s()?;
    let sums = weights.chunks((height * width).max(1)).map(|kernel| {
        let sum: f64 = kernel.iter().map(|weight| f64::from(*weight).powi(2)).sum();
        (sum as f32).to_le_bytes()
    });
    Weight::from_bytes(DataType::F32, vec![filters, channels], sums.flatten().collect::<Vec<u8>>())
}
