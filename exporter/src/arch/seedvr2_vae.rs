//! SeedVR2's VideoAutoencoderKL: a causal 3-D variational autoencoder of videos, as its encoder and its decoder.
//!
//! Paper: <https://arxiv.org/abs/2506.05301>. Reference: <https://github.com/naxci1/ComfyUI-SeedVR2.5>,
//! `src/models/video_vae_v3/modules/{attn_video_vae,causal_inflation_lib}.py`, with `s8_c16_t4_inflation_sd3.yaml`.
//!
//! The network is AutoencoderKL with convolutions over time that read no later frame. Each convolution keeps the last
//! frames of its input, so cutting a video into chunks of time does not change the result. The graph of the first
//! chunk gives these frames as outputs `next_cache.LAYER`. The graph of every other chunk takes them as inputs
//! `cache.LAYER` and gives its own. Normalisation and attention read single frames. Cutting in space does change the
//! result, because it changes the input of normalisation and attention.
//!
//! In the first chunk, `frames` latent frames stand for 4 · frames − 3 frames of the video; in every other chunk, for 4
//! · frames.

use super::{Architecture, Keys, Mismatch, Variant};
use crate::nn::{
    AttentionNames, Chunk, Clip, Groups, Scope, attention_of_pixels, causal_conv3d, causal_conv3d_strided, channels,
    group_norm,
};
use crate::{Contract, Result, Shapes, Task};
use serde::Serialize;
use tileforge_contract::{Axis, ChannelOrder, Extent, Meaning, Precision, ReceptiveField, TensorSpec};
use tileforge_graph::{ConvOptions, DataType, Dim, Size, TensorType};

/// Hyperparameters of the encoder or of the decoder, which mirror each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct VideoAutoencoderKl {
    /// Channels of the video.
    image_channels: usize,
    latent_channels: usize,
    /// Filters of each level, from the video to the latent video.
    block_out_channels: Vec<usize>,
    /// Residual blocks of each level of the encoder; a level of the decoder has one more.
    layers_per_block: usize,
    /// How many levels also halve the number of frames: the levels next to the latent video.
    temporal_scale_num: usize,
    norm_num_groups: usize,
    attention_names: AttentionNames,
    /// The diffusion model works on `latent · scaling_factor`.
    scaling_factor: f64,
    chunk: Chunk,
}

/// A video to the mean and the logarithm of the variance of its latent video. The reference takes the mean as the
/// latent video and draws no sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Encoder(VideoAutoencoderKl);

/// A latent video to a video.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Decoder(VideoAutoencoderKl);

/// The reference's epsilon, for every normalisation.
const EPSILON: f32 = 1e-6;
/// The number of groups in the published autoencoder's configuration; no tensor determines it.
const GROUPS: usize = 32;
/// The factor in the configuration of the published pipeline; no tensor determines it.
const SCALING_FACTOR: f64 = 0.9152;

/// A video of more than one chunk needs both.
const CHUNKS: &[Variant] = &[("first", ("chunk", "first")), ("next", ("chunk", "next"))];

impl Architecture for Encoder {
    const NAME: &'static str = "VideoAutoencoderKLEncoder";
    const TASK: Task = Task::VaeEncoder;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "encoder.conv_in.weight",
        "encoder.down_blocks.0.resnets.0.conv1.weight",
        "encoder.mid_block.resnets.1.conv1.weight",
        "encoder.conv_out.weight",
    ]];

    const VARIANTS: &'static [Variant] = CHUNKS;

    /// AutoencoderKL has the same names, and kernels without time.
    fn shapes_fit(keys: &Keys<'_>) -> bool {
        keys.dims::<5>("encoder.conv_in.weight").is_ok()
    }

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [_, image_channels, ..] = keys.dims::<5>("encoder.conv_in.weight")?;
        let [twice_latent, ..] = keys.dims::<5>("encoder.conv_out.weight")?;
        let levels = keys.count("encoder.down_blocks.");
        let filters =
            |level: usize| Ok(keys.dims::<5>(&format!("encoder.down_blocks.{level}.resnets.0.conv1.weight"))?[0]);
        let time = |level: &usize| {
            keys.dims::<5>(&format!("encoder.down_blocks.{level}.downsamplers.0.conv.weight")).map(|dims| dims[2])
        };
        VideoAutoencoderKl {
            image_channels,
            latent_channels: twice_latent / 2,
            block_out_channels: (0..levels).map(filters).collect::<Result<_, Mismatch>>()?,
            layers_per_block: keys.count("encoder.down_blocks.0.resnets."),
            temporal_scale_num: (0..levels).filter(|level| time(level) == Ok(3)).count(),
            ..VideoAutoencoderKl::from_settings(keys, "encoder")?
        }
        .checked(keys)
        .map(Encoder)
    }

    fn contract(&self) -> Contract {
        self.0.contract(Self::TASK)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [dims] = shapes.resolve([("sample", &self.0.video_dims())])?;
        let clip = Clip::new(&w.trace().input("sample", TensorType::new(DataType::F32, dims)), self.0.chunk);
        w.trace().output("latent_parameters", &self.0.encode(w, &clip).video());
        clip.output_caches(shapes)
    }

    fn ignores(&self, name: &str) -> bool {
        name.starts_with("decoder.")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        VideoAutoencoderKl::presets().into_iter().map(|(name, network)| (name, Encoder(network))).collect()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.0.notes()
    }
}

impl Architecture for Decoder {
    const NAME: &'static str = "VideoAutoencoderKLDecoder";
    const TASK: Task = Task::VaeDecoder;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "decoder.conv_in.weight",
        "decoder.mid_block.resnets.1.conv1.weight",
        "decoder.up_blocks.0.resnets.0.conv1.weight",
        "decoder.up_blocks.0.upsamplers.0.upscale_conv.weight",
        "decoder.conv_out.weight",
    ]];
    const VARIANTS: &'static [Variant] = CHUNKS;

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [_, latent_channels, ..] = keys.dims::<5>("decoder.conv_in.weight")?;
        let [image_channels, ..] = keys.dims::<5>("decoder.conv_out.weight")?;
        let levels = keys.count("decoder.up_blocks.");
        let filters =
            |level: usize| Ok(keys.dims::<5>(&format!("decoder.up_blocks.{level}.resnets.0.conv1.weight"))?[0]);
        // Each pixel becomes 2 × 2 pixels, or 2 × 2 pixels of 2 frames.
        let larger = |level: &usize| {
            let [wide, inputs, ..] =
                keys.dims::<5>(&format!("decoder.up_blocks.{level}.upsamplers.0.upscale_conv.weight")).ok()?;
            Some(wide / inputs)
        };
        VideoAutoencoderKl {
            image_channels,
            latent_channels,
            block_out_channels: (0..levels).rev().map(filters).collect::<Result<_, Mismatch>>()?,
            layers_per_block: keys.count("decoder.up_blocks.0.resnets.").saturating_sub(1),
            temporal_scale_num: (0..levels).filter(|level| larger(level) == Some(8)).count(),
            ..VideoAutoencoderKl::from_settings(keys, "decoder")?
        }
        .checked(keys)
        .map(Decoder)
    }

    fn contract(&self) -> Contract {
        self.0.contract(Self::TASK)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [batch, frames, height, width] = ["batch", "frames", "height", "width"].map(Dim::symbol);
        let [dims] =
            shapes.resolve([("latent_sample", &[batch, Dim::Fixed(self.0.latent_channels), frames, height, width])])?;
        let clip = Clip::new(&w.trace().input("latent_sample", TensorType::new(DataType::F32, dims)), self.0.chunk);
        w.trace().output("sample", &self.0.decode(w, &clip).video());
        clip.output_caches(shapes)
    }

    fn ignores(&self, name: &str) -> bool {
        name.starts_with("encoder.")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        VideoAutoencoderKl::presets().into_iter().map(|(name, network)| (name, Decoder(network))).collect()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.0.notes()
    }
}

/// The frames that a convolution over time keeps for the next chunk.
struct Cache {
    /// Its path in the checkpoint.
    layer: String,
    frames: usize,
    channels: usize,
    /// Pixels for each pixel of the latent video, in each direction.
    factor: usize,
}

impl VideoAutoencoderKl {
    /// The hyperparameters that follow from no tensor's sizes, with placeholders for the others.
    fn from_settings(keys: &Keys<'_>, half: &str) -> Result<Self, Mismatch> {
        let old = keys.contains(&format!("{half}.mid_block.attentions.0.query.weight"));
        keys.only("_class_name", "VideoAutoencoderKL")?;
        keys.only("act_fn", "silu")?;
        Ok(VideoAutoencoderKl {
            image_channels: 0,
            latent_channels: 0,
            block_out_channels: Vec::new(),
            layers_per_block: 0,
            temporal_scale_num: 0,
            norm_num_groups: keys.setting("norm_num_groups")?.unwrap_or(GROUPS),
            attention_names: if old { AttentionNames::Old } else { AttentionNames::Current },
            scaling_factor: keys.setting("scaling_factor")?.unwrap_or(SCALING_FACTOR),
            chunk: keys.setting("chunk")?.unwrap_or_default(),
        })
    }

    /// The same hyperparameters, checked against the configuration and against the limits of such a network.
    fn checked(self, keys: &Keys<'_>) -> Result<Self, Mismatch> {
        keys.agree("block_out_channels", &self.block_out_channels)?;
        keys.agree("layers_per_block", self.layers_per_block)?;
        keys.agree("latent_channels", self.latent_channels)?;
        keys.agree("temporal_scale_num", self.temporal_scale_num)?;
        keys.only("time_receptive_field", "full")?;
        Mismatch::unless_levels_fit(&self.block_out_channels, self.norm_num_groups)?;
        Ok(self)
    }

    /// The level next to the latent video, which does not change sizes.
    fn last(&self) -> usize {
        self.block_out_channels.len().saturating_sub(1)
    }

    /// Pixels of the video for each pixel of the latent video, in each direction.
    fn factor(&self) -> usize {
        1 << self.last()
    }

    /// Frames of the video for each frame of the latent video. A video's first latent frame stands for one frame only.
    fn temporal_factor(&self) -> usize {
        1 << self.temporal_scale_num
    }

    fn contract(&self, task: Task) -> Contract {
        let video = |name: &str, channels, frames, side, meaning| {
            let axes =
                [Axis::Batch, Axis::Channels(channels), Axis::Frames(frames), Axis::Height(side), Axis::Width(side)];
            TensorSpec::new(name, axes, meaning)
        };
        let frames = Extent::multiple_of(self.temporal_factor());
        let frames = match self.chunk {
            Chunk::First => frames.plus(1 - self.temporal_factor() as isize),
            Chunk::Next => frames,
        };
        let (latent_side, side) = (Extent::multiple_of(1), Extent::multiple_of(self.factor()));
        let order = if self.image_channels == 1 { ChannelOrder::Grey } else { ChannelOrder::Rgb };
        let pixels = Meaning::Pixels { range: [-1.0, 1.0], normalisation: None, order, padding: None };
        let pixels = video("sample", self.image_channels, frames, side, pixels);
        let latent = |name, channels, meaning| video(name, channels, Extent::multiple_of(1), latent_side, meaning);
        let (scaling, shift) = (self.scaling_factor as f32, 0.0);
        let (input, output, caches) = if task == Task::VaeEncoder {
            let distribution = Meaning::LatentDistribution { scaling, shift };
            let parameters = latent("latent_parameters", 2 * self.latent_channels, distribution);
            (pixels, parameters, self.caches_of_encoder())
        } else {
            let latent = latent("latent_sample", self.latent_channels, Meaning::Latent { scaling, shift });
            (latent, pixels, self.caches_of_decoder())
        };
        let (mut inputs, mut outputs) = (vec![input], vec![output]);
        for Cache { layer, frames, channels, factor } in caches {
            let side = Extent::multiple_of(factor);
            let axes =
                [Axis::Batch, Axis::Fixed(frames), Axis::Channels(channels), Axis::Height(side), Axis::Width(side)];
            let kept = format!("next_cache.{layer}");
            if self.chunk == Chunk::Next {
                let carried = Meaning::Carried { from: kept.clone() };
                inputs.push(TensorSpec::new(format!("cache.{layer}"), axes, carried));
            }
            outputs.push(TensorSpec::new(kept, axes, Meaning::Cache));
        }
        Contract {
            task,
            inputs,
            outputs,
            receptive_field: ReceptiveField::Unbounded,
            // The published weights are in half precision, and no tensor shows whether every activation fits it.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
        }
    }

    /// The caches of a block's two convolutions over time: two frames of the input of each.
    fn caches_of_resnet(block: &str, inputs: usize, filters: usize, factor: usize) -> [Cache; 2] {
        let cache = |name: &str, channels| Cache { layer: format!("{block}.{name}"), frames: 2, channels, factor };
        [cache("conv1", inputs), cache("conv2", filters)]
    }

    /// The caches of the encoder, layer by layer.
    fn caches_of_encoder(&self) -> Vec<Cache> {
        let mut factor = self.factor();
        let mut channels = self.block_out_channels.first().copied().unwrap_or(1);
        let cache = |layer: &str, frames, channels, factor| Cache { layer: layer.into(), frames, channels, factor };
        let mut caches = vec![cache("encoder.conv_in", 2, self.image_channels, factor)];
        for (level, &filters) in self.block_out_channels.iter().enumerate() {
            for layer in 0..self.layers_per_block {
                let block = format!("encoder.down_blocks.{level}.resnets.{layer}");
                caches.extend(Self::caches_of_resnet(&block, channels, filters, factor));
                channels = filters;
            }
            if level < self.last() {
                if level + self.temporal_scale_num >= self.last() {
                    let layer = format!("encoder.down_blocks.{level}.downsamplers.0.conv");
                    // A window of three frames moves by two, so one frame is read again.
                    caches.push(cache(&layer, 1, filters, factor));
                }
                factor /= 2;
            }
        }
        for layer in 0..2 {
            let block = format!("encoder.mid_block.resnets.{layer}");
            caches.extend(Self::caches_of_resnet(&block, channels, channels, factor));
        }
        caches.push(cache("encoder.conv_out", 2, channels, factor));
        caches
    }

    /// The caches of the decoder, layer by layer.
    fn caches_of_decoder(&self) -> Vec<Cache> {
        let mut factor = 1;
        let mut channels = self.block_out_channels.last().copied().unwrap_or(1);
        let cache = |layer: &str, channels, factor| Cache { layer: layer.into(), frames: 2, channels, factor };
        let mut caches = vec![cache("decoder.conv_in", self.latent_channels, factor)];
        for layer in 0..2 {
            let block = format!("decoder.mid_block.resnets.{layer}");
            caches.extend(Self::caches_of_resnet(&block, channels, channels, factor));
        }
        for (level, &filters) in self.block_out_channels.iter().rev().enumerate() {
            for layer in 0..=self.layers_per_block {
                let block = format!("decoder.up_blocks.{level}.resnets.{layer}");
                caches.extend(Self::caches_of_resnet(&block, channels, filters, factor));
                channels = filters;
            }
            if level < self.last() {
                factor *= 2;
                caches.push(cache(&format!("decoder.up_blocks.{level}.upsamplers.0.conv"), filters, factor));
            }
        }
        caches.push(cache("decoder.conv_out", channels, factor));
        caches
    }

    /// `[batch, channels, frames, height, width]`, with the number of frames that a chunk can have.
    fn video_dims(&self) -> [Dim; 5] {
        let fewer = match self.chunk {
            Chunk::First => 1 - self.temporal_factor() as isize,
            Chunk::Next => 0,
        };
        let frames = Dim::affine("frames", self.temporal_factor(), fewer);
        let [height, width] = ["height", "width"].map(|name| Dim::affine(name, self.factor(), 0));
        [Dim::symbol("batch"), Dim::Fixed(self.image_channels), frames, height, width]
    }

    /// The result has 2 · latent channels: first the means, which are the latent video, then the logarithms of the
    /// variances.
    fn encode(&self, w: &Scope<'_>, video: &Clip) -> Clip {
        let e = w.at("encoder");
        let mut x = causal_conv3d(&e.at("conv_in"), video, self.filters(w, 0), [3, 3]);
        for (level, filters) in self.block_out_channels.iter().enumerate() {
            let block = e.at(format!("down_blocks.{level}"));
            for layer in 0..self.layers_per_block {
                x = self.resnet(&block.at(format!("resnets.{layer}")), &x, *filters);
            }
            if level < self.last() {
                let time = level + self.temporal_scale_num >= self.last();
                x = downsample(&block.at("downsamplers.0.conv"), &x, *filters, time);
            }
        }
        self.out(&e, &self.middle(&e.at("mid_block"), &x), 2 * self.latent_channels)
    }

    fn decode(&self, w: &Scope<'_>, latent: &Clip) -> Clip {
        let d = w.at("decoder");
        let x = causal_conv3d(&d.at("conv_in"), latent, self.filters(w, self.last()), [3, 3]);
        let mut x = self.middle(&d.at("mid_block"), &x);
        for (level, filters) in self.block_out_channels.iter().rev().enumerate() {
            let block = d.at(format!("up_blocks.{level}"));
            for layer in 0..=self.layers_per_block {
                x = self.resnet(&block.at(format!("resnets.{layer}")), &x, *filters);
            }
            if level < self.last() {
                x = upsample(&block.at("upsamplers.0"), &x, *filters, level < self.temporal_scale_num);
            }
        }
        self.out(&d, &x, self.image_channels)
    }

    fn filters(&self, w: &Scope<'_>, level: usize) -> usize {
        w.of_level("block_out_channels", &self.block_out_channels, level)
    }

    fn groups(&self) -> Groups {
        Groups { count: self.norm_num_groups, epsilon: EPSILON }
    }

    /// Normalises groups of channels of each frame, then SiLU.
    fn normalised(&self, w: &Scope<'_>, x: &Clip) -> Clip {
        x.map(|images| group_norm(w, images, self.norm_num_groups, EPSILON).silu())
    }

    fn out(&self, w: &Scope<'_>, x: &Clip, filters: usize) -> Clip {
        causal_conv3d(&w.at("conv_out"), &self.normalised(&w.at("conv_norm_out"), x), filters, [3, 3])
    }

    fn middle(&self, w: &Scope<'_>, x: &Clip) -> Clip {
        let filters = self.filters(w, self.last());
        let x = self.resnet(&w.at("resnets.0"), x, filters);
        let x = x.map(|images| attention_of_pixels(&w.at("attentions.0"), images, self.attention_names, self.groups()));
        self.resnet(&w.at("resnets.1"), &x, filters)
    }

    /// x + two convolutions, with x through a 1×1×1 convolution where the channels change.
    fn resnet(&self, w: &Scope<'_>, x: &Clip, filters: usize) -> Clip {
        let y = causal_conv3d(&w.at("conv1"), &self.normalised(&w.at("norm1"), x), filters, [3, 3]);
        let y = causal_conv3d(&w.at("conv2"), &self.normalised(&w.at("norm2"), &y), filters, [3, 3]);
        match channels(x.images()) == filters {
            true => y.map(|images| x.images() + images),
            false => causal_conv3d(&w.at("conv_shortcut"), x, filters, [1, 1]).map(|images| images + y.images()),
        }
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = VideoAutoencoderKl {
            image_channels: 3,
            latent_channels: 4,
            block_out_channels: vec![8, 8, 16],
            layers_per_block: 1,
            temporal_scale_num: 1,
            norm_num_groups: 4,
            attention_names: AttentionNames::Current,
            scaling_factor: SCALING_FACTOR,
            chunk: Chunk::First,
        };
        let seedvr2 = VideoAutoencoderKl {
            latent_channels: 16,
            block_out_channels: vec![128, 256, 512, 512],
            layers_per_block: 2,
            temporal_scale_num: 2,
            norm_num_groups: GROUPS,
            ..tiny.clone()
        };
        let old = AttentionNames::Old;
        vec![
            ("tiny", tiny.clone()),
            ("tiny-next", VideoAutoencoderKl { chunk: Chunk::Next, ..tiny.clone() }),
            (
                "tiny-old-names",
                VideoAutoencoderKl { attention_names: old, temporal_scale_num: 2, scaling_factor: 0.5, ..tiny.clone() },
            ),
            ("tiny-images", VideoAutoencoderKl { temporal_scale_num: 0, block_out_channels: vec![8, 16], ..tiny }),
            ("seedvr2", seedvr2),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        let mut notes = vec![
            ("norm_num_groups", self.norm_num_groups.to_string()),
            ("scaling_factor", self.scaling_factor.to_string()),
        ];
        // A checkpoint serves both graphs; only checkpoints of tests have a note that chooses one.
        if self.chunk == Chunk::Next {
            notes.push(("chunk", "next".into()));
        }
        notes
    }
}

/// A convolution that halves the size, and with `time` the frames as well.
fn downsample(w: &Scope<'_>, x: &Clip, filters: usize, time: bool) -> Clip {
    // The reference pads on one side only.
    let options = ConvOptions { strides: vec![2, 2], pads: vec![0, 0, 1, 1], dilations: vec![1, 1], groups: 1 };
    let (kernel, stride) = if time { (3, 2) } else { (1, 1) };
    causal_conv3d_strided(w, x, filters, [kernel, 3], stride, &options)
}

/// A convolution makes 2 × 2 pixels of each pixel, and with `time` two frames of each frame. A second convolution
/// follows.
///
/// A video's first frame becomes one frame: the second of its two frames is dropped.
fn upsample(w: &Scope<'_>, x: &Clip, filters: usize, time: bool) -> Clip {
    let frames = if time { 2 } else { 1 };
    // The channels are [2 rows, 2 columns, frames, filters].
    let wide = causal_conv3d(&w.at("upscale_conv"), x, 4 * frames * filters, [1, 1])
        .map(|images| images.depth_to_space_of_blocks(2));
    let larger = match time {
        // The frames that come from one frame follow each other, as in time.
        true => wide.map(|images| {
            images.reshape_to(&[
                Size::Number(-1),
                Size::Number(filters as i64),
                Size::Of(images, 2),
                Size::Of(images, 3),
            ])
        }),
        false => wide,
    };
    let larger = if time && x.chunk() == Chunk::First { larger.without_second_frame() } else { larger };
    causal_conv3d(&w.at("conv"), &larger, filters, [3, 3])
}
