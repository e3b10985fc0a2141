//! AutoencoderKL: the variational autoencoder of latent diffusion, as its encoder and its decoder (Stable Diffusion 1
//! to 3, SDXL, Flux).
//!
//! Paper: <https://arxiv.org/abs/2112.10752>. Reference: diffusers 0.42.1,
//! `models/autoencoders/{autoencoder_kl,vae}.py`.

use super::{Architecture, Keys, Mismatch};
use crate::nn::{AttentionNames, Groups, Scope, attention_of_pixels, conv2d, downsample, group_norm, resnet, upsample};
use crate::{Contract, Result, Shapes, Task};
use serde::Serialize;
use tileforge_contract::{Axis, ChannelOrder, Extent, Meaning, Precision, ReceptiveField, TensorSpec};
use tileforge_graph::{DataType, Dim, TensorType, Value};

/// Hyperparameters of the encoder or of the decoder, which mirror each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct AutoencoderKl {
    /// Channels of the image.
    image_channels: usize,
    latent_channels: usize,
    /// Filters of each level, from the image to the latent image.
    block_out_channels: Vec<usize>,
    /// Residual blocks of each level of the encoder; a level of the decoder has one more.
    layers_per_block: usize,
    norm_num_groups: usize,
    /// Whether a 1×1 convolution follows the encoder and precedes the decoder.
    quant_conv: bool,
    /// Whether there is attention in the middle.
    mid_block_add_attention: bool,
    attention_names: AttentionNames,
    /// The diffusion model works on `(latent − shift_factor) · scaling_factor`.
    scaling_factor: f64,
    shift_factor: f64,
}

/// An image to the mean and the logarithm of the variance of its latent image.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Encoder(AutoencoderKl);

/// A latent image to an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Decoder(AutoencoderKl);

/// The reference's epsilon, for every normalisation of an autoencoder.
const EPSILON: f32 = 1e-6;
/// The reference's default, which every published autoencoder has; no tensor determines it.
const GROUPS: usize = 32;
/// The reference's default, which is the factor of Stable Diffusion 1.
const SCALING_FACTOR: f64 = 0.18215;

impl Architecture for Encoder {
    const NAME: &'static str = "AutoencoderKLEncoder";
    const TASK: Task = Task::VaeEncoder;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "encoder.conv_in.weight",
        "encoder.down_blocks.0.resnets.0.conv1.weight",
        "encoder.mid_block.resnets.1.conv1.weight",
        "encoder.conv_out.weight",
    ]];

    /// The autoencoder of videos has the same names, and kernels with time.
    fn shapes_fit(keys: &Keys<'_>) -> bool {
        keys.dims::<5>("encoder.conv_in.weight").is_err()
    }

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [_, image_channels, ..] = keys.dims::<4>("encoder.conv_in.weight")?;
        let [twice_latent, ..] = keys.dims::<4>("encoder.conv_out.weight")?;
        let levels = keys.count("encoder.down_blocks.");
        let filters =
            |level: usize| Ok(keys.dims::<4>(&format!("encoder.down_blocks.{level}.resnets.0.conv1.weight"))?[0]);
        AutoencoderKl {
            image_channels,
            latent_channels: twice_latent / 2,
            block_out_channels: (0..levels).map(filters).collect::<Result<_, Mismatch>>()?,
            layers_per_block: keys.count("encoder.down_blocks.0.resnets."),
            ..AutoencoderKl::from_settings(keys, "encoder", "quant_conv")?
        }
        .checked(keys)
        .map(Encoder)
    }

    fn contract(&self) -> Contract {
        self.0.contract(Self::TASK)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let factor = self.0.factor();
        let [dims] = shapes.resolve([("sample", &image_dims(self.0.image_channels, factor))])?;
        let image = w.trace().input("sample", TensorType::new(DataType::F32, dims));
        w.trace().output("latent_parameters", &self.0.encode(w, &image));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        name.starts_with("decoder.") || name.starts_with("post_quant_conv.")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        AutoencoderKl::presets().into_iter().map(|(name, network)| (name, Encoder(network))).collect()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.0.notes()
    }
}

impl Architecture for Decoder {
    const NAME: &'static str = "AutoencoderKLDecoder";
    const TASK: Task = Task::VaeDecoder;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "decoder.conv_in.weight",
        "decoder.mid_block.resnets.1.conv1.weight",
        "decoder.up_blocks.0.resnets.0.conv1.weight",
        "decoder.conv_out.weight",
    ]];

    /// The autoencoder of videos has the same names, and kernels with time.
    fn shapes_fit(keys: &Keys<'_>) -> bool {
        keys.dims::<5>("decoder.conv_in.weight").is_err()
    }

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [_, latent_channels, ..] = keys.dims::<4>("decoder.conv_in.weight")?;
        let [image_channels, ..] = keys.dims::<4>("decoder.conv_out.weight")?;
        let levels = keys.count("decoder.up_blocks.");
        let filters =
            |level: usize| Ok(keys.dims::<4>(&format!("decoder.up_blocks.{level}.resnets.0.conv1.weight"))?[0]);
        AutoencoderKl {
            image_channels,
            latent_channels,
            block_out_channels: (0..levels).rev().map(filters).collect::<Result<_, Mismatch>>()?,
            layers_per_block: keys.count("decoder.up_blocks.0.resnets.").saturating_sub(1),
            ..AutoencoderKl::from_settings(keys, "decoder", "post_quant_conv")?
        }
        .checked(keys)
        .map(Decoder)
    }

    fn contract(&self) -> Contract {
        self.0.contract(Self::TASK)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [dims] = shapes.resolve([("latent_sample", &image_dims(self.0.latent_channels, 1))])?;
        let latent = w.trace().input("latent_sample", TensorType::new(DataType::F32, dims));
        w.trace().output("sample", &self.0.decode(w, &latent));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        name.starts_with("encoder.") || name.starts_with("quant_conv.")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        AutoencoderKl::presets().into_iter().map(|(name, network)| (name, Decoder(network))).collect()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.0.notes()
    }
}

/// `[batch, channels, factor · height, factor · width]`.
fn image_dims(channels: usize, factor: usize) -> [Dim; 4] {
    let side = |name: &str| Dim::affine(name, factor, 0);
    [Dim::symbol("batch"), Dim::Fixed(channels), side("height"), side("width")]
}

impl AutoencoderKl {
    /// The hyperparameters that follow from no tensor's sizes, with placeholders for the others.
    fn from_settings(keys: &Keys<'_>, half: &str, quant_conv: &str) -> Result<Self, Mismatch> {
        let attention = format!("{half}.mid_block.attentions.0");
        let old = keys.contains(&format!("{attention}.query.weight"));
        keys.only("_class_name", "AutoencoderKL")?;
        keys.only("act_fn", "silu")?;
        Ok(AutoencoderKl {
            image_channels: 0,
            latent_channels: 0,
            block_out_channels: Vec::new(),
            layers_per_block: 0,
            norm_num_groups: keys.setting("norm_num_groups")?.unwrap_or(GROUPS),
            quant_conv: keys.contains(&format!("{quant_conv}.weight")),
            mid_block_add_attention: keys.any_with_prefix(&format!("{attention}.")),
            attention_names: if old { AttentionNames::Old } else { AttentionNames::Current },
            scaling_factor: keys.setting("scaling_factor")?.unwrap_or(SCALING_FACTOR),
            shift_factor: keys.setting("shift_factor")?.unwrap_or(0.0),
        })
    }

    /// The same hyperparameters, checked against the configuration and against the limits of such a network.
    fn checked(self, keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let levels = self.block_out_channels.len();
        keys.agree("block_out_channels", &self.block_out_channels)?;
        keys.agree("layers_per_block", self.layers_per_block)?;
        keys.agree("latent_channels", self.latent_channels)?;
        keys.agree("mid_block_add_attention", self.mid_block_add_attention)?;
        keys.only("down_block_types", vec!["DownEncoderBlock2D"; levels])?;
        keys.only("up_block_types", vec!["UpDecoderBlock2D"; levels])?;
        Mismatch::unless_levels_fit(&self.block_out_channels, self.norm_num_groups)?;
        Ok(self)
    }

    /// Pixels of the image for each pixel of the latent image, in each direction.
    fn factor(&self) -> usize {
        1 << self.block_out_channels.len().saturating_sub(1)
    }

    fn contract(&self, task: Task) -> Contract {
        let (latent_side, side) = (Extent::multiple_of(1), Extent::multiple_of(self.factor()));
        let tensor = |name: &str, channels, side, meaning| {
            let axes = [Axis::Batch, Axis::Channels(channels), Axis::Height(side), Axis::Width(side)];
            TensorSpec::new(name, axes, meaning)
        };
        let order = if self.image_channels == 1 { ChannelOrder::Grey } else { ChannelOrder::Rgb };
        let pixels = Meaning::Pixels { range: [-1.0, 1.0], normalisation: None, order, padding: None };
        let picture = tensor("sample", self.image_channels, side, pixels);
        let (scaling, shift) = (self.scaling_factor as f32, self.shift_factor as f32);
        let (input, output) = if task == Task::VaeEncoder {
            let distribution = Meaning::LatentDistribution { scaling, shift };
            (picture, tensor("latent_parameters", 2 * self.latent_channels, latent_side, distribution))
        } else {
            let latent = Meaning::Latent { scaling, shift };
            (tensor("latent_sample", self.latent_channels, latent_side, latent), picture)
        };
        Contract {
            task,
            inputs: vec![input],
            outputs: vec![output],
            receptive_field: ReceptiveField::Unbounded,
            // SDXL's autoencoder overflows half precision, and no tensor shows which checkpoints stay within it.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
        }
    }

    fn groups(&self) -> Groups {
        Groups { count: self.norm_num_groups, epsilon: EPSILON }
    }

    /// `image` `[batch, channels, height, width]` → `[batch, 2 · latent channels, height / factor, width / factor]`:
    /// first the means, then the logarithms of the variances.
    fn encode(&self, w: &Scope<'_>, image: &Value) -> Value {
        let e = w.at("encoder");
        let last = self.block_out_channels.len().saturating_sub(1);
        let mut x = conv2d(&e.at("conv_in"), image, self.filters(w, 0), 3);
        for (level, filters) in self.block_out_channels.iter().enumerate() {
            let block = e.at(format!("down_blocks.{level}"));
            for layer in 0..self.layers_per_block {
                x = resnet(&block.at(format!("resnets.{layer}")), &x, *filters, self.groups(), None);
            }
            if level < last {
                // The reference pads on one side only.
                x = downsample(&block.at("downsamplers.0.conv"), &x, *filters, [0, 1]);
            }
        }
        let moments = self.out(&e, &self.middle(&e.at("mid_block"), &x), 2 * self.latent_channels);
        if self.quant_conv { conv2d(&w.at("quant_conv"), &moments, 2 * self.latent_channels, 1) } else { moments }
    }

    /// `latent` `[batch, latent channels, height, width]` → `[batch, channels, height · factor, width · factor]`.
    fn decode(&self, w: &Scope<'_>, latent: &Value) -> Value {
        let d = w.at("decoder");
        let levels = self.block_out_channels.len();
        let z = if self.quant_conv {
            conv2d(&w.at("post_quant_conv"), latent, self.latent_channels, 1)
        } else {
            latent.clone()
        };
        let x = conv2d(&d.at("conv_in"), &z, self.filters(w, levels.saturating_sub(1)), 3);
        let mut x = self.middle(&d.at("mid_block"), &x);
        for (level, filters) in self.block_out_channels.iter().rev().enumerate() {
            let block = d.at(format!("up_blocks.{level}"));
            for layer in 0..=self.layers_per_block {
                x = resnet(&block.at(format!("resnets.{layer}")), &x, *filters, self.groups(), None);
            }
            if level + 1 < levels {
                x = upsample(&block.at("upsamplers.0.conv"), &x);
            }
        }
        self.out(&d, &x, self.image_channels)
    }

    fn filters(&self, w: &Scope<'_>, level: usize) -> usize {
        w.of_level("block_out_channels", &self.block_out_channels, level)
    }

    fn out(&self, w: &Scope<'_>, x: &Value, channels: usize) -> Value {
        let normalised = group_norm(&w.at("conv_norm_out"), x, self.norm_num_groups, EPSILON);
        conv2d(&w.at("conv_out"), &normalised.silu(), channels, 3)
    }

    /// Two residual blocks, with attention of all pixels to each other between them.
    fn middle(&self, w: &Scope<'_>, x: &Value) -> Value {
        let filters = self.filters(w, self.block_out_channels.len().saturating_sub(1));
        let mut x = resnet(&w.at("resnets.0"), x, filters, self.groups(), None);
        if self.mid_block_add_attention {
            x = attention_of_pixels(&w.at("attentions.0"), &x, self.attention_names, self.groups());
        }
        resnet(&w.at("resnets.1"), &x, filters, self.groups(), None)
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = AutoencoderKl {
            image_channels: 3,
            latent_channels: 4,
            block_out_channels: vec![8, 16],
            layers_per_block: 1,
            norm_num_groups: 4,
            quant_conv: true,
            mid_block_add_attention: true,
            attention_names: AttentionNames::Current,
            scaling_factor: SCALING_FACTOR,
            shift_factor: 0.0,
        };
        let sd = AutoencoderKl {
            block_out_channels: vec![128, 256, 512, 512],
            layers_per_block: 2,
            norm_num_groups: GROUPS,
            ..tiny.clone()
        };
        let large = AutoencoderKl { latent_channels: 16, quant_conv: false, ..sd.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-old-names", AutoencoderKl { attention_names: AttentionNames::Old, ..tiny.clone() }),
            (
                "tiny-no-quant",
                AutoencoderKl {
                    quant_conv: false,
                    latent_channels: 16,
                    scaling_factor: 0.3611,
                    shift_factor: 0.1159,
                    ..tiny.clone()
                },
            ),
            ("tiny-no-attention", AutoencoderKl { mid_block_add_attention: false, ..tiny }),
            ("sdxl", AutoencoderKl { scaling_factor: 0.13025, ..sd.clone() }),
            ("sd15", sd),
            ("sd3", AutoencoderKl { scaling_factor: 1.5305, shift_factor: 0.0609, ..large.clone() }),
            ("flux", AutoencoderKl { scaling_factor: 0.3611, shift_factor: 0.1159, ..large }),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("norm_num_groups", self.norm_num_groups.to_string()),
            ("scaling_factor", self.scaling_factor.to_string()),
            ("shift_factor", self.shift_factor.to_string()),
        ]
    }
}
