//! UNet2DConditionModel: the denoiser of latent diffusion (Stable Diffusion 1 and 2, SDXL with its refiner, their
//! inpainting, turbo and latent consistency variants).
//!
//! Papers: <https://arxiv.org/abs/2112.10752>, <https://arxiv.org/abs/2307.01952>. Reference: diffusers 0.42.1,
//! `models/unets/{unet_2d_condition,unet_2d_blocks}.py`, `models/attention.py`,
//! `models/transformers/transformer_2d.py`.

use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Groups, LAYER_NORM_EPSILON, Scope, Sequences, Sinusoids, attention_of_rows, conv2d, downsample, group_norm,
    layer_norm,
};
use crate::nn::{linear, linear_unbiased, resnet, upsample, width};
use crate::{Contract, Result, Shapes, Task};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tileforge_contract::{Axis, Embedding, Extent, Meaning, Precision, ReceptiveField, TensorSpec};
use tileforge_graph::{DataType, Dim, TensorType, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct UNet2DConditionModel {
    /// 4, or 9 for inpainting: the noisy latent image, a mask, and the latent of the picture with the masked part
    /// blanked.
    in_channels: usize,
    out_channels: usize,
    /// Filters of each level, from the latent image down.
    block_out_channels: Vec<usize>,
    /// Residual blocks of each level on the way down. Each level has one more on the way up.
    layers_per_block: usize,
    /// Transformer layers after each residual block, for each level; 0 for a level without attention.
    transformer_layers: Vec<usize>,
    /// Transformer layers in the middle.
    middle_transformer_layers: usize,
    /// Heads of each level. In diffusers' configurations, `attention_head_dim` is this number.
    heads: Vec<usize>,
    /// Width of the text's states.
    cross_attention_dim: usize,
    /// Whether the layers around the transformers are stored as linear layers instead of 1×1 convolutions.
    use_linear_projection: bool,
    norm_num_groups: usize,
    norm_eps: f64,
    sinusoids: Sinusoids,
    added: Option<Added>,
    /// Width of the embedding of the guidance scale, in networks that are distilled to follow a text in one evaluation
    /// (latent consistency models, <https://arxiv.org/abs/2310.04378>).
    #[serde(skip_serializing_if = "Option::is_none")]
    time_cond_proj_dim: Option<usize>,
    /// Whether a batch shares its timestep. The user chooses it: every checkpoint serves both forms.
    #[serde(skip_serializing_if = "Timestep::is_shared")]
    timestep: Timestep,
}

/// Which images of a batch a timestep is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Timestep {
    /// One scalar for the whole batch, as diffusers' ONNX pipelines feed it.
    #[default]
    Shared,
    /// `[batch]`, a timestep for each image, for servers that put requests at different steps into one batch.
    PerSample,
}

/// SDXL's conditions beside the text's states.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Added {
    /// Width of the vector of the whole text.
    text_embeds_width: usize,
    /// How many numbers describe the picture: its size, crop and target size, or its size, crop and score.
    time_ids: usize,
    /// Width of the embedding of each of these numbers.
    addition_time_embed_dim: usize,
}

/// The reference's epsilon of the normalisation before a transformer.
const TRANSFORMER_NORM_EPSILON: f32 = 1e-6;
/// The reference's default epsilon of all other normalisations of images.
const EPSILON: f64 = 1e-5;
/// The reference's default, which every published model has; no tensor determines it.
const GROUPS: usize = 32;
/// The reference's default number of heads, which Stable Diffusion 1 has on all levels.
const HEADS: usize = 8;
/// Steps of the noise that these networks are trained on.
const TIMESTEPS: f32 = 1000.0;
/// Guidance scales that latent consistency models are distilled with: their code draws 2 to 14 above 1.
const GUIDANCE: [f32; 2] = [3.0, 15.0];
/// What the guidance scale above 1 is multiplied by before it is embedded.
const GUIDANCE_FACTOR: f32 = 1000.0;
/// Width of a head in all published models with linear projections.
const HEAD: usize = 64;
/// Width of OpenCLIP bigG's text embeddings, which all published models with added conditions take.
const TEXT_EMBEDS: usize = 1280;
/// The width in all published models with added conditions.
const ADDITION_TIME_EMBED_DIM: usize = 256;

impl Architecture for UNet2DConditionModel {
    const NAME: &'static str = "UNet2DConditionModel";
    const TASK: Task = Task::Unet;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_in.weight",
        "time_embedding.linear_1.weight",
        "down_blocks.0.resnets.0.time_emb_proj.weight",
        "mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight",
        "up_blocks.0.resnets.0.conv1.weight",
        "conv_out.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [_, in_channels, ..] = keys.dims::<4>("conv_in.weight")?;
        let [out_channels, ..] = keys.dims::<4>("conv_out.weight")?;
        let levels = keys.count("down_blocks.");
        let filters = |level: usize| Ok(keys.dims::<4>(&format!("down_blocks.{level}.resnets.0.conv1.weight"))?[0]);
        let block_out_channels = (0..levels).map(filters).collect::<Result<Vec<_>, Mismatch>>()?;
        let transformers = |block: &str| keys.count(&format!("{block}.attentions.0.transformer_blocks."));
        let [_, cross_attention_dim] =
            keys.dims::<2>("mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight")?;
        let use_linear_projection = keys.dims::<2>("mid_block.attentions.0.proj_in.weight").is_ok();
        UNet2DConditionModel {
            in_channels,
            out_channels,
            layers_per_block: keys.count("down_blocks.0.resnets."),
            transformer_layers: (0..levels).map(|level| transformers(&format!("down_blocks.{level}"))).collect(),
            middle_transformer_layers: transformers("mid_block"),
            heads: heads(keys, &block_out_channels, use_linear_projection)?,
            block_out_channels,
            cross_attention_dim,
            use_linear_projection,
            norm_num_groups: keys.setting("norm_num_groups")?.unwrap_or(GROUPS),
            norm_eps: keys.setting("norm_eps")?.unwrap_or(EPSILON),
            sinusoids: Sinusoids {
                flip_sin_to_cos: keys.setting("flip_sin_to_cos")?.unwrap_or(true),
                freq_shift: keys.setting("freq_shift")?.unwrap_or(0.0),
            },
            added: Added::detect(keys)?,
            time_cond_proj_dim: guidance_width(keys)?,
            timestep: keys.setting("timestep")?.unwrap_or_default(),
        }
        .checked(keys)
    }

    fn contract(&self) -> Contract {
        let side = Extent::multiple_of(self.size_multiple());
        let latent = |channels| [Axis::Batch, Axis::Channels(channels), Axis::Height(side), Axis::Width(side)];
        // Inpainting adds a mask and the latent of the masked picture, which has as many channels as the noise.
        let rest = self.in_channels.saturating_sub(self.out_channels);
        let (mask, masked_image) = (rest.saturating_sub(self.out_channels), rest.min(self.out_channels));
        let noisy = Meaning::NoisyLatent { latent: self.in_channels - rest, condition: 0, mask, masked_image };
        let timestep: &[Axis] = if self.timestep == Timestep::PerSample { &[Axis::Batch] } else { &[] };
        let context = Meaning::Embedding { from: Embedding::Context };
        let text = [Axis::Batch, Axis::Tokens(None), Axis::Channels(self.cross_attention_dim)];
        let mut inputs = vec![
            TensorSpec::new("sample", latent(self.in_channels), noisy),
            TensorSpec::new("timestep", timestep, Meaning::Timestep { range: [0.0, TIMESTEPS] }),
            TensorSpec::new("encoder_hidden_states", text, context),
        ];
        if let Some(added) = &self.added {
            let embeds = [Axis::Batch, Axis::Channels(added.text_embeds_width)];
            let projected = Meaning::Embedding { from: Embedding::Projected };
            inputs.push(TensorSpec::new("text_embeds", embeds, projected));
            inputs.push(TensorSpec::new("time_ids", [Axis::Batch, Axis::Fixed(added.time_ids)], Meaning::TimeIds));
        }
        if self.time_cond_proj_dim.is_some() {
            inputs.push(TensorSpec::new("guidance", [Axis::Batch], Meaning::Guidance { range: GUIDANCE }));
        }
        Contract {
            task: Self::TASK,
            inputs,
            outputs: vec![TensorSpec::new("out_sample", latent(self.out_channels), Meaning::Prediction)],
            receptive_field: ReceptiveField::Unbounded,
            safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
        }
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let side = |name: &str| Dim::affine(name, self.size_multiple(), 0);
        let batch = || Dim::symbol("batch");
        let sample = [batch(), Dim::Fixed(self.in_channels), side("height"), side("width")];
        let text = [batch(), Dim::symbol("sequence"), Dim::Fixed(self.cross_attention_dim)];
        let added = self.added.as_ref().map_or([0, 0], |added| [added.text_embeds_width, added.time_ids]);
        let [embeds, ids] = added.map(|width| [batch(), Dim::Fixed(width)]);
        let timestep = self.timestep.dims();
        let names = ["sample", "timestep", "encoder_hidden_states", "text_embeds", "time_ids", "guidance"];
        let [sample, timestep, text, embeds, ids, guidance] = shapes.resolve([
            (names[0], &sample[..]),
            (names[1], &timestep),
            (names[2], &text),
            (names[3], &embeds),
            (names[4], &ids),
            (names[5], &[batch()]),
        ])?;
        let input = |name: &str, dims: Vec<Dim>| w.trace().input(name, TensorType::new(DataType::F32, dims));
        let sample = input(names[0], sample);
        // FP32, because fractions of steps are timesteps too.
        let timestep = input(names[1], timestep);
        let text = input(names[2], text);
        let added = self.added.as_ref().map(|added| (added, input(names[3], embeds), input(names[4], ids)));
        let guidance = self.time_cond_proj_dim.map(|width| (width, input(names[5], guidance)));
        let steps = timestep.reshape(self.timestep.column());
        let mut steps = self.sinusoids.embed(&steps, self.filters(w, 0));
        if let Some((width, guidance)) = guidance {
            let scale = guidance.reshape(&[-1, 1]).offset(-1.0).scale(GUIDANCE_FACTOR);
            let sinusoids = Sinusoids { flip_sin_to_cos: false, freq_shift: 1.0 };
            let projection = w.at("time_embedding.cond_proj");
            steps = steps + linear_unbiased(&projection, &sinusoids.embed(&scale, width), self.filters(w, 0));
        }
        let mut time = self.time(&w.at("time_embedding"), &steps);
        if let Some((added, embeds, ids)) = added {
            let numbers = self.sinusoids.embed(&ids.reshape(&[-1, 1]), added.addition_time_embed_dim);
            let numbers = numbers.reshape(&[-1, (added.time_ids * added.addition_time_embed_dim) as i64]);
            time = time + self.time(&w.at("add_embedding"), &embeds.concat(&[&numbers], 1));
        }
        w.trace().output("out_sample", &self.network(w, &sample, &time.silu(), &Context::new(&text)));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        presets()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        let mut notes = vec![
            ("attention_head_dim", format!("{:?}", self.heads)),
            ("norm_num_groups", self.norm_num_groups.to_string()),
            ("flip_sin_to_cos", self.sinusoids.flip_sin_to_cos.to_string()),
            ("freq_shift", self.sinusoids.freq_shift.to_string()),
        ];
        if let Some(added) = &self.added {
            notes.push(("text_embeds_width", added.text_embeds_width.to_string()));
            notes.push(("addition_time_embed_dim", added.addition_time_embed_dim.to_string()));
        }
        // Only checkpoints of tests have a note that chooses one of the forms.
        if self.timestep == Timestep::PerSample {
            notes.push(("timestep", "per-sample".into()));
        }
        notes
    }
}

/// Heads of each level: one number for all, or one for each.
fn heads(keys: &Keys<'_>, filters: &[usize], linear: bool) -> Result<Vec<usize>, Mismatch> {
    // Without a configuration, the heads are those of published models with such tensors. A configuration without the
    // key stands for the reference's default.
    let has_config = keys.setting::<Json>("_class_name")?.is_some();
    let declared = match keys.setting::<Json>("num_attention_heads")? {
        Some(declared) => Some(declared),
        None => keys.setting("attention_head_dim")?,
    };
    let number = |value: &Json| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let heads = match &declared {
        None if linear && !has_config => filters.iter().map(|filters| filters / HEAD).collect(),
        None => vec![HEADS; filters.len()],
        Some(Json::Array(each)) => each.iter().filter_map(number).collect(),
        Some(one) => vec![number(one).unwrap_or(0); filters.len()],
    };
    let fits = heads.len() == filters.len()
        && heads.iter().zip(filters).all(|(heads, filters)| *heads > 0 && filters % heads == 0);
    let declared = declared.unwrap_or_else(|| heads.clone().into());
    fits.then_some(heads).ok_or_else(|| {
        Mismatch::new(format!("{declared} heads (`attention_head_dim`) do not divide the filters {filters:?}"))
    })
}

/// Width of the embedding of the guidance scale; `None` for a network that takes no such scale.
fn guidance_width(keys: &Keys<'_>) -> Result<Option<usize>, Mismatch> {
    let name = "time_embedding.cond_proj.weight";
    if !keys.contains(name) {
        return Ok(None);
    }
    let [_, width] = keys.dims::<2>(name)?;
    // Sines and cosines take a half each, and the exponent's denominator is that half less 1, so the width is above 2.
    let is_embedding = width % 2 == 0 && width > 2;
    is_embedding
        .then_some(Some(width))
        .ok_or_else(|| Mismatch::new(format!("`{name}` takes {width} numbers; expected an even number from 4 on")))
}

impl Timestep {
    fn is_shared(&self) -> bool {
        *self == Timestep::Shared
    }

    /// The sizes of the input.
    fn dims(self) -> Vec<Dim> {
        match self {
            Timestep::Shared => Vec::new(),
            Timestep::PerSample => vec![Dim::symbol("batch")],
        }
    }

    /// The shape, in Reshape's form, of a column of timesteps.
    fn column(self) -> &'static [i64] {
        match self {
            Timestep::Shared => &[1, 1],
            Timestep::PerSample => &[-1, 1],
        }
    }
}

impl Added {
    fn detect(keys: &Keys<'_>) -> Result<Option<Self>, Mismatch> {
        if !keys.contains("add_embedding.linear_1.weight") {
            keys.agree("addition_embed_type", Json::Null)?;
            return Ok(None);
        }
        keys.only("addition_embed_type", "text_time")?;
        let [_, inputs] = keys.dims::<2>("add_embedding.linear_1.weight")?;
        keys.agree("projection_class_embeddings_input_dim", inputs)?;
        let each = keys.setting("addition_time_embed_dim")?.unwrap_or(ADDITION_TIME_EMBED_DIM);
        let text = keys.setting("text_embeds_width")?.unwrap_or(TEXT_EMBEDS);
        let numbers = inputs.checked_sub(text).filter(|rest| each > 0 && rest % each == 0).map(|rest| rest / each);
        let added = |time_ids| Added { text_embeds_width: text, time_ids, addition_time_embed_dim: each };
        let found = numbers.filter(|numbers| *numbers > 0).map(added).ok_or_else(|| {
            let reason = format!(
                "{inputs} added conditions are not text embeddings of {text} and numbers of {each} each; expected the \
                 width of the second text encoder's embeddings, which is `projection_dim` in its configuration"
            );
            Mismatch::missing(reason, "text_embeds_width", &["768"])
        })?;
        Ok(Some(found))
    }
}

/// The text's states, as rows and as sequences.
struct Context {
    rows: Value,
    sequences: Sequences,
}

impl Context {
    fn new(states: &Value) -> Self {
        let sequences = Sequences::new(states);
        Context { rows: sequences.rows(), sequences }
    }
}

impl UNet2DConditionModel {
    /// The same hyperparameters, checked against the configuration and against the limits of such a network.
    fn checked(self, keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let types = |with: &'static str, without: &'static str| -> Vec<&str> {
            self.transformer_layers.iter().map(|layers| if *layers > 0 { with } else { without }).collect()
        };
        let down = types("CrossAttnDownBlock2D", "DownBlock2D");
        let up: Vec<&str> = types("CrossAttnUpBlock2D", "UpBlock2D").into_iter().rev().collect();
        keys.only("_class_name", "UNet2DConditionModel")?;
        keys.agree("in_channels", self.in_channels)?;
        keys.agree("out_channels", self.out_channels)?;
        keys.agree("block_out_channels", &self.block_out_channels)?;
        keys.agree("cross_attention_dim", self.cross_attention_dim)?;
        keys.agree("use_linear_projection", self.use_linear_projection)?;
        keys.agree("layers_per_block", self.layers_per_block)?;
        keys.agree("time_cond_proj_dim", self.time_cond_proj_dim)?;
        keys.agree("down_block_types", down)?;
        keys.agree("up_block_types", up)?;
        self.agree_on_transformers(keys)?;
        for (name, supported) in [
            ("mid_block_type", Json::from("UNetMidBlock2DCrossAttn")),
            ("act_fn", "silu".into()),
            ("time_embedding_type", "positional".into()),
            ("resnet_time_scale_shift", "default".into()),
            ("attention_type", "default".into()),
            ("conv_in_kernel", 3.into()),
            ("conv_out_kernel", 3.into()),
            ("downsample_padding", 1.into()),
            ("mid_block_scale_factor", 1.into()),
            ("resnet_out_scale_factor", 1.into()),
            ("center_input_sample", false.into()),
            ("dual_cross_attention", false.into()),
            ("only_cross_attention", false.into()),
            ("resnet_skip_time_act", false.into()),
            ("class_embeddings_concat", false.into()),
        ] {
            keys.only(name, supported)?;
        }
        for name in [
            "class_embed_type",
            "num_class_embeds",
            "encoder_hid_dim",
            "encoder_hid_dim_type",
            "time_embedding_dim",
            "time_embedding_act_fn",
            "timestep_post_act",
            "cross_attention_norm",
            "mid_block_only_cross_attention",
            "reverse_transformer_layers_per_block",
        ] {
            keys.only(name, Json::Null)?;
        }
        Mismatch::unless_levels_fit(&self.block_out_channels, self.norm_num_groups)?;
        Ok(self)
    }

    /// Compares transformer layers with the configuration, which has one number for all levels or one for each. Numbers
    /// of levels without attention do not count.
    fn agree_on_transformers(&self, keys: &Keys<'_>) -> Result<(), Mismatch> {
        let name = "transformer_layers_per_block";
        let Some(declared) = keys.setting::<Json>(name)? else { return Ok(()) };
        let of_level = |level: usize| match &declared {
            Json::Array(each) => each.get(level).cloned().unwrap_or_default(),
            one => one.clone(),
        };
        let last = self.block_out_channels.len().saturating_sub(1);
        let levels = self.transformer_layers.iter().copied().enumerate().filter(|(_, layers)| *layers > 0);
        for (level, layers) in levels.chain([(last, self.middle_transformer_layers)]) {
            if of_level(level) != layers {
                let reason = format!("`{name}` is {declared}, the weights have {layers} layers for level {level}");
                return Err(Mismatch::new(format!("{reason}: they do not belong to each other")));
            }
        }
        Ok(())
    }

    /// The multiple of a latent image's height and width, since each level halves them.
    fn size_multiple(&self) -> usize {
        1 << self.block_out_channels.len().saturating_sub(1)
    }

    fn filters(&self, w: &Scope<'_>, level: usize) -> usize {
        w.of_level("block_out_channels", &self.block_out_channels, level)
    }

    fn groups(&self) -> Groups {
        Groups { count: self.norm_num_groups, epsilon: self.norm_eps as f32 }
    }

    /// Two linear layers to four times the first level's filters.
    fn time(&self, w: &Scope<'_>, x: &Value) -> Value {
        let width = 4 * self.filters(w, 0);
        linear(&w.at("linear_2"), &linear(&w.at("linear_1"), x, width).silu(), width)
    }

    /// `sample` `[batch, channels, height, width]` → the same with `out_channels`, conditioned on `time` `[1 or batch,
    /// width]` and on the text.
    fn network(&self, w: &Scope<'_>, sample: &Value, time: &Value, text: &Context) -> Value {
        let last = self.block_out_channels.len().saturating_sub(1);
        let mut x = conv2d(&w.at("conv_in"), sample, self.filters(w, 0), 3);
        let mut skips = vec![x.clone()];
        for level in 0..=last {
            let block = w.at(format!("down_blocks.{level}"));
            for layer in 0..self.layers_per_block {
                x = self.layer(&block, layer, level, &x, time, text);
                skips.push(x.clone());
            }
            if level < last {
                x = downsample(&block.at("downsamplers.0.conv"), &x, self.filters(w, level), [1, 1]);
                skips.push(x.clone());
            }
        }
        let middle = w.at("mid_block");
        x = resnet(&middle.at("resnets.0"), &x, self.filters(w, last), self.groups(), Some(time));
        x = self.transformer(&middle.at("attentions.0"), &x, last, self.middle_transformer_layers, text);
        x = resnet(&middle.at("resnets.1"), &x, self.filters(w, last), self.groups(), Some(time));
        for level in (0..=last).rev() {
            let block = w.at(format!("up_blocks.{}", last - level));
            for layer in 0..=self.layers_per_block {
                let Some(skip) = skips.pop() else {
                    block.fail(format!("expected a value of the way down for layer {layer}, found none"));
                    return x;
                };
                x = self.layer(&block, layer, level, &x.concat(&[&skip], 1), time, text);
            }
            if level > 0 {
                x = upsample(&block.at("upsamplers.0.conv"), &x);
            }
        }
        let normalised = group_norm(&w.at("conv_norm_out"), &x, self.norm_num_groups, self.norm_eps as f32);
        conv2d(&w.at("conv_out"), &normalised.silu(), self.out_channels, 3)
    }

    /// A residual block, followed by a transformer on the levels that have one.
    fn layer(&self, w: &Scope<'_>, number: usize, level: usize, x: &Value, time: &Value, text: &Context) -> Value {
        let x = resnet(&w.at(format!("resnets.{number}")), x, self.filters(w, level), self.groups(), Some(time));
        match w.of_level("transformer_layers", &self.transformer_layers, level) {
            0 => x,
            layers => self.transformer(&w.at(format!("attentions.{number}")), &x, level, layers, text),
        }
    }

    /// x + the transformer layers of its pixels. `x` `[batch, filters, height, width]` → the same.
    fn transformer(&self, w: &Scope<'_>, x: &Value, level: usize, layers: usize, text: &Context) -> Value {
        let normalised = group_norm(&w.at("norm"), x, self.norm_num_groups, TRANSFORMER_NORM_EPSILON);
        let pixels = Sequences::new(&normalised.transpose(&[0, 2, 3, 1]));
        let heads = w.of_level("heads", &self.heads, level);
        let mut tokens = self.projection(&w.at("proj_in"), &pixels.rows());
        for layer in 0..layers {
            tokens = transformer_layer(&w.at(format!("transformer_blocks.{layer}")), &tokens, &pixels, heads, text);
        }
        x + pixels.restore(&self.projection(&w.at("proj_out"), &tokens)).transpose(&[0, 3, 1, 2])
    }

    /// A linear layer of rows, which may be stored as a 1×1 convolution.
    fn projection(&self, w: &Scope<'_>, x: &Value) -> Value {
        let side = width(x);
        let stored = if self.use_linear_projection { vec![side; 2] } else { vec![side, side, 1, 1] };
        x.linear(&w.tensor_as("weight", &stored, &[side; 2]), Some(&w.tensor("bias", [side])))
    }
}

/// Adds self-attention, then attention to the text, then GEGLU to `x`, each computed from the normalised sum so far.
/// `x` are rows.
fn transformer_layer(w: &Scope<'_>, x: &Value, pixels: &Sequences, heads: usize, text: &Context) -> Value {
    let norm = |name: &str, x: &Value| layer_norm(&w.at(name), x, LAYER_NORM_EPSILON);
    let attention = |name: &str, x: &Value, context: &Value, keys: &Sequences| {
        let (a, side) = (w.at(name), width(x));
        let q = linear_unbiased(&a.at("to_q"), x, side);
        let [k, v] = ["to_k", "to_v"].map(|name| linear_unbiased(&a.at(name), context, side));
        linear(&a.at("to_out.0"), &attention_of_rows([&q, &k, &v], pixels, keys, heads, false), side)
    };
    let normalised = norm("norm1", x);
    let x = x + attention("attn1", &normalised, &normalised, pixels);
    let x = &x + attention("attn2", &norm("norm2", &x), &text.rows, &text.sequences);
    &x + geglu(&w.at("ff"), &norm("norm3", &x))
}

/// Splits `proj(x)` into two halves, multiplies the first by GELU of the second, and projects back to the width of `x`
/// (<https://arxiv.org/abs/2002.05202>).
///
/// Each half is a separate matrix product with half of the stored weight, so no result has to be split.
fn geglu(w: &Scope<'_>, x: &Value) -> Value {
    let (side, hidden) = (width(x), 4 * width(x));
    let projection = w.at("net.0.proj");
    let names = ["hidden", "gate"];
    let weights = projection.parts("weight", [2 * hidden, side], names);
    let biases = projection.parts("bias", [2 * hidden], names);
    let [value, gate] = [0, 1].map(|i| x.linear(&weights[i], Some(&biases[i])));
    linear(&w.at("net.2"), &(value * gate.gelu()), side)
}

fn presets() -> Vec<(&'static str, UNet2DConditionModel)> {
    let tiny = UNet2DConditionModel {
        in_channels: 4,
        out_channels: 4,
        block_out_channels: vec![8, 16],
        layers_per_block: 1,
        transformer_layers: vec![1, 0],
        middle_transformer_layers: 1,
        heads: vec![2, 2],
        cross_attention_dim: 6,
        use_linear_projection: false,
        norm_num_groups: 4,
        norm_eps: EPSILON,
        sinusoids: Sinusoids { flip_sin_to_cos: true, freq_shift: 0.0 },
        added: None,
        time_cond_proj_dim: None,
        timestep: Timestep::Shared,
    };
    let tiny_added = Added { text_embeds_width: 6, time_ids: 6, addition_time_embed_dim: 4 };
    let tiny_xl = UNet2DConditionModel {
        transformer_layers: vec![0, 2],
        middle_transformer_layers: 2,
        heads: vec![1, 2],
        use_linear_projection: true,
        added: Some(tiny_added),
        ..tiny.clone()
    };
    let sd15 = UNet2DConditionModel {
        block_out_channels: vec![320, 640, 1280, 1280],
        layers_per_block: 2,
        transformer_layers: vec![1, 1, 1, 0],
        heads: vec![HEADS; 4],
        cross_attention_dim: 768,
        norm_num_groups: GROUPS,
        ..tiny.clone()
    };
    let sd21 = UNet2DConditionModel {
        heads: vec![5, 10, 20, 20],
        cross_attention_dim: 1024,
        use_linear_projection: true,
        ..sd15.clone()
    };
    let added = |time_ids| {
        Some(Added { text_embeds_width: TEXT_EMBEDS, time_ids, addition_time_embed_dim: ADDITION_TIME_EMBED_DIM })
    };
    let sdxl = UNet2DConditionModel {
        block_out_channels: vec![320, 640, 1280],
        transformer_layers: vec![0, 2, 10],
        middle_transformer_layers: 10,
        heads: vec![5, 10, 20],
        cross_attention_dim: 2048,
        added: added(6),
        ..sd21.clone()
    };
    let refiner = UNet2DConditionModel {
        block_out_channels: vec![384, 768, 1536, 1536],
        transformer_layers: vec![0, 4, 4, 0],
        middle_transformer_layers: 4,
        heads: vec![6, 12, 24, 24],
        cross_attention_dim: 1280,
        added: added(5),
        ..sdxl.clone()
    };
    vec![
        ("tiny", tiny.clone()),
        ("tiny-per-sample", UNet2DConditionModel { timestep: Timestep::PerSample, ..tiny.clone() }),
        ("tiny-xl-per-sample", UNet2DConditionModel { timestep: Timestep::PerSample, ..tiny_xl.clone() }),
        ("tiny-guidance", UNet2DConditionModel { time_cond_proj_dim: Some(6), ..tiny.clone() }),
        ("tiny-inpainting", UNet2DConditionModel { in_channels: 9, layers_per_block: 2, ..tiny }),
        ("tiny-xl", tiny_xl),
        ("sd15-inpainting", UNet2DConditionModel { in_channels: 9, ..sd15.clone() }),
        ("lcm", UNet2DConditionModel { time_cond_proj_dim: Some(256), ..sd15.clone() }),
        ("sd15", sd15),
        ("sd21", sd21),
        ("sdxl-inpainting", UNet2DConditionModel { in_channels: 9, ..sdxl.clone() }),
        ("sdxl-base", sdxl),
        ("sdxl-refiner", refiner),
    ]
}
