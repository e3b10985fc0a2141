//! The common parts of the depth networks: detection, inputs and contract.

use super::{Keys, Mismatch};
use crate::nn::{Dinov2, Dpt, Naming, PATCH};
use crate::shapes::all_fixed;
use crate::{Contract, Result, Shapes, Task};
use serde::Serialize;
use serde_json::Value as Json;
use tileforge_contract::{
    Axis, ChannelOrder, DepthUnit, Extent, Meaning, Normalisation, Precision, ReceptiveField, TensorSpec,
};
use tileforge_graph::{Constant, Dim, Value};

/// Width of an attention head in every published DINOv2.
const HEAD_WIDTH: usize = 64;
/// Where transformers' configuration describes the backbone.
const CONFIG: &str = "backbone_config";
/// Number of heads where that description has none: the reference's default.
const HEADS: usize = 12;
/// The blocks whose tokens the head of a published network reads: of 12 blocks, and of 24.
const TAPS_OF_12: [usize; 4] = [2, 5, 8, 11];
const TAPS_OF_24: [usize; 4] = [4, 11, 17, 23];

/// Where an image of 0 … 1 is normalised to mean 0 and variance 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Preprocess {
    /// Before the graph.
    Outside,
    /// In the graph.
    InGraph,
}

impl Preprocess {
    pub(super) fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        match keys.hint("preprocess") {
            None | Some("outside") => Ok(Preprocess::Outside),
            Some("in-graph") => Ok(Preprocess::InGraph),
            Some(other) => {
                Err(Mismatch::new(format!("expected `preprocess` to be outside or in-graph, found `{other}`")))
            }
        }
    }

    pub(super) fn apply(self, pixels: &Value) -> Value {
        let constant = |name, values: [f32; 3]| pixels.trace().constant(name, &[1, 3, 1, 1], Constant::F32(&values));
        match self {
            Preprocess::Outside => pixels.clone(),
            Preprocess::InGraph => {
                let Normalisation { mean, deviation } = Normalisation::IMAGENET;
                (pixels - &constant("mean", mean)) / constant("deviation", deviation)
            }
        }
    }
}

/// The side of a picture: a multiple of the patches that it is cut into.
const SIDE: Extent = Extent::multiple_of(PATCH);

/// The contract of a network that takes a picture, besides `more` inputs of the picture's size, and gives `depth`.
pub(super) fn contract(preprocess: Preprocess, more: Vec<(&str, Meaning)>, output: &str, unit: DepthUnit) -> Contract {
    let normalisation = match preprocess {
        Preprocess::Outside => Some(Normalisation::IMAGENET),
        Preprocess::InGraph => None,
    };
    let pixels = Meaning::Pixels { range: [0.0, 1.0], normalisation, order: ChannelOrder::Rgb, padding: None };
    let input = |name: &str, channels, meaning| {
        TensorSpec::new(name, [Axis::Batch, Axis::Channels(channels), Axis::Height(SIDE), Axis::Width(SIDE)], meaning)
    };
    let mut inputs = vec![input("pixel_values", 3, pixels)];
    inputs.extend(more.into_iter().map(|(name, meaning)| input(name, 1, meaning)));
    let depth = Meaning::Depth { unit, missing: None };
    Contract {
        task: Task::Depth,
        inputs,
        outputs: vec![TensorSpec::new(output, [Axis::Batch, Axis::Height(SIDE), Axis::Width(SIDE)], depth)],
        receptive_field: ReceptiveField::Unbounded,
        // Transformers of this kind overflow half precision in some of their features.
        safe_precisions: vec![Precision::Fp32, Precision::Bf16],
    }
}

/// The shape of an input. All its sizes must be fixed.
pub(super) fn depth_shape(shapes: &Shapes, input: &str, channels: usize) -> Result<[usize; 4]> {
    let size = |name| Dim::affine(name, PATCH, 0);
    let [dims] =
        shapes.resolve([(input, &[Dim::symbol("batch"), Dim::Fixed(channels), size("height"), size("width")])])?;
    all_fixed(input, &dims, "its position embeddings are computed for that size", [1, channels, 518, 686])
}

/// The hyperparameters in which two networks with the same tensors can differ.
pub(super) fn notes(backbone: &Dinov2) -> Vec<(&'static str, String)> {
    vec![("heads", backbone.heads.to_string()), ("taps", backbone.taps.map(|tap| tap.to_string()).join(","))]
}

pub(super) fn detect_backbone(keys: &Keys<'_>, prefix: &str, naming: Naming) -> Result<Dinov2, Mismatch> {
    let (positions, blocks, first) = match naming {
        Naming::Original => ("pos_embed", "blocks.", "blocks.0.mlp.fc1.weight"),
        Naming::Transformers => ("embeddings.position_embeddings", "encoder.layer.", "encoder.layer.0.mlp.fc1.weight"),
    };
    let [_, places, dim] = keys.dims::<3>(&format!("{prefix}.{positions}"))?;
    let grid = places.saturating_sub(1).isqrt();
    if grid * grid + 1 != places {
        return Err(Mismatch::new(format!(
            "expected `{prefix}.{positions}` to have a square number of places and one more, found {places}"
        )));
    }
    let blocks = keys.count(&format!("{prefix}.{blocks}"));
    let [hidden, _] = keys.dims::<2>(&format!("{prefix}.{first}"))?;
    let backbone = Dinov2 { naming, dim, blocks, heads: heads(keys, naming, dim)?, hidden, grid, taps: [0; 4] };
    if naming == Naming::Transformers {
        agree_on_backbone(keys, &backbone)?;
    }
    Ok(Dinov2 { taps: taps(keys, naming, blocks)?, ..backbone })
}

/// The number of heads. The tensors do not determine it: without a setting, heads have the published width.
fn heads(keys: &Keys<'_>, naming: Naming, dim: usize) -> Result<usize, Mismatch> {
    let declared = match naming {
        Naming::Original => keys.setting("heads")?,
        Naming::Transformers => match keys.setting_at("heads", &format!("{CONFIG}.num_attention_heads"))? {
            None if keys.setting::<Json>(CONFIG)?.is_some() => Some(HEADS),
            declared => declared,
        },
    };
    match declared {
        Some(heads) if heads > 0 && dim.is_multiple_of(heads) => Ok(heads),
        Some(heads) => Err(Mismatch::new(format!("tokens of width {dim} do not divide into {heads} heads (`heads`)"))),
        None if dim > 0 && dim.is_multiple_of(HEAD_WIDTH) => Ok(dim / HEAD_WIDTH),
        None => {
            let reason = format!(
                "tokens of width {dim} do not divide into heads of width {HEAD_WIDTH}, as in the published networks; \
                 expected the number of heads, a divisor of {dim}"
            );
            Err(Mismatch::missing(reason, "heads", &["2"]))
        }
    }
}

/// Compares the backbone's part of transformers' configuration with the tensors, and with what is supported.
fn agree_on_backbone(keys: &Keys<'_>, backbone: &Dinov2) -> Result<(), Mismatch> {
    let name = |name: &str| format!("{CONFIG}.{name}");
    keys.only(&name("model_type"), "dinov2")?;
    keys.agree(&name("hidden_size"), backbone.dim)?;
    keys.agree(&name("num_hidden_layers"), backbone.blocks)?;
    keys.agree(&name("mlp_ratio"), backbone.hidden as f64 / backbone.dim as f64)?;
    keys.agree(&name("image_size"), backbone.grid * PATCH)?;
    keys.agree(&name("patch_size"), PATCH)?;
    for (key, supported) in [
        ("num_channels", Json::from(3)),
        ("hidden_act", "gelu".into()),
        ("layer_norm_eps", 1e-6.into()),
        ("qkv_bias", true.into()),
        ("use_swiglu_ffn", false.into()),
        ("apply_layernorm", true.into()),
        ("reshape_hidden_states", false.into()),
    ] {
        keys.only(&name(key), supported)?;
    }
    Ok(())
}

/// The blocks whose tokens the head reads. The tensors do not determine them.
fn taps(keys: &Keys<'_>, naming: Naming, blocks: usize) -> Result<[usize; 4], Mismatch> {
    if naming == Naming::Transformers
        && keys.user_setting("taps").is_none()
        && let Some(taps) = configured_taps(keys, blocks)?
    {
        return Ok(taps);
    }
    let Some(hint) = keys.hint("taps") else {
        return published_taps(blocks).ok_or_else(|| {
            let reason = format!(
                "no published network has {blocks} blocks; expected the numbers of the four blocks whose features are \
                 used"
            );
            Mismatch::missing(reason, "taps", &["2,5,8,11"])
        });
    };
    let taps: Option<Vec<usize>> = hint.split(',').map(|tap| tap.trim().parse().ok()).collect();
    taps.and_then(|taps| four_ascending(&taps, blocks)).ok_or_else(|| {
        Mismatch::new(format!(
            "expected `taps` to be four ascending numbers below {blocks}, with commas, found `{hint}`"
        ))
    })
}

/// The same blocks in transformers' configuration, which numbers stages: stage 0 is the input of the first block, and
/// stage `i` is the output of the `i`-th block. Negative numbers count from the end.
fn configured_taps(keys: &Keys<'_>, blocks: usize) -> Result<Option<[usize; 4]>, Mismatch> {
    let (numbers, names) = (format!("{CONFIG}.out_indices"), format!("{CONFIG}.out_features"));
    let of_names = |stages: Vec<String>| -> Vec<Option<usize>> {
        stages.iter().map(|stage| stage.strip_prefix("stage")?.parse::<usize>().ok()?.checked_sub(1)).collect()
    };
    let of_numbers = |stages: Vec<i64>| -> Vec<Option<usize>> {
        let from_start = |stage: i64| if stage < 0 { stage + blocks as i64 + 1 } else { stage };
        stages.into_iter().map(|stage| usize::try_from(from_start(stage)).ok()?.checked_sub(1)).collect()
    };
    let numbered = keys.setting::<Vec<i64>>(&numbers)?.map(of_numbers);
    let named = keys.setting::<Vec<String>>(&names)?.map(of_names);
    if let (Some(numbered), Some(named)) = (&numbered, &named)
        && numbered != named
    {
        return Err(Mismatch::new(format!("config.json says different stages in `{numbers}` and in `{names}`")));
    }
    let Some(stages) = numbered.or(named) else { return Ok(None) };
    let taps: Option<Vec<usize>> = stages.into_iter().collect();
    taps.and_then(|taps| four_ascending(&taps, blocks)).map(Some).ok_or_else(|| {
        Mismatch::new(format!(
            "config.json: expected `{numbers}` and `{names}` to be four ascending stages from 1 to {blocks}"
        ))
    })
}

/// Four numbers of blocks in ascending order.
fn four_ascending(taps: &[usize], blocks: usize) -> Option<[usize; 4]> {
    let taps = <[usize; 4]>::try_from(taps).ok()?;
    (taps.is_sorted_by(|a, b| a < b) && taps[3] < blocks).then_some(taps)
}

fn published_taps(blocks: usize) -> Option<[usize; 4]> {
    match blocks {
        12 => Some(TAPS_OF_12),
        24 => Some(TAPS_OF_24),
        40 => Some([9, 19, 29, 39]),
        _ => None,
    }
}

pub(super) fn detect_head(keys: &Keys<'_>, prefix: &str, naming: Naming) -> Result<Dpt, Mismatch> {
    let dot = if prefix.is_empty() { "" } else { "." };
    let filters = |name: &str| Ok(keys.dims::<4>(&format!("{prefix}{dot}{name}.weight"))?[0]);
    let width = |i: usize| match naming {
        Naming::Original => filters(&format!("projects.{i}")),
        Naming::Transformers => filters(&format!("neck.reassemble_stage.layers.{i}.projection")),
    };
    let (features, head) = match naming {
        Naming::Original => (filters("scratch.layer1_rn")?, filters("scratch.output_conv2.0")?),
        Naming::Transformers => (filters("neck.convs.0")?, filters("head.conv2")?),
    };
    Ok(Dpt { naming, widths: [width(0)?, width(1)?, width(2)?, width(3)?], features, head })
}

/// DINOv2 in one of the published sizes.
pub(super) fn published_backbone(variant: &str, naming: Naming) -> Dinov2 {
    let (dim, blocks, taps) = match variant {
        "vits" => (384, 12, TAPS_OF_12),
        "vitb" => (768, 12, TAPS_OF_12),
        _ => (1024, 24, TAPS_OF_24),
    };
    Dinov2 { naming, dim, blocks, heads: dim / HEAD_WIDTH, hidden: 4 * dim, grid: 37, taps }
}

/// Features and widths of the head that goes with it.
pub(super) fn published_head(variant: &str) -> (usize, [usize; 4]) {
    match variant {
        "vits" => (64, [48, 96, 192, 384]),
        "vitb" => (128, [96, 192, 384, 768]),
        _ => (256, [256, 512, 1024, 1024]),
    }
}
