//! Whole pipelines in one file, with the names that their authors' code gave them: Stable Diffusion 1.5
//! (`v1-5-pruned.safetensors`) and SDXL (`sd_xl_base_1.0.safetensors`), as people train and share them.
//!
//! Tables translate the names into those of diffusers. A name that is in no table stays as it is, and is reported as
//! left over when the network is built. The tests compare these tables with diffusers 0.42.1,
//! `loaders/single_file_utils.py`.

use super::{Checkpoint, Names};
use crate::{Error, Result, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tileforge_graph::Weight;

/// The naming scheme below a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// <https://github.com/CompVis/latent-diffusion>, `ldm/modules/diffusionmodules/openaimodel.py`.
    Unet,
    /// The same repository, `ldm/modules/diffusionmodules/model.py`.
    Autoencoder,
    /// The names of transformers, which the original code uses.
    Transformers,
    /// <https://github.com/mlfoundations/open_clip>, `src/open_clip/transformer.py`.
    OpenClip,
}

/// Component, prefix of its names, and naming scheme.
const COMPONENTS: [(&str, &str, Naming); 6] = [
    ("unet", "model.diffusion_model.", Naming::Unet),
    ("vae", "first_stage_model.", Naming::Autoencoder),
    ("text_encoder", "cond_stage_model.transformer.", Naming::Transformers),
    ("text_encoder", "conditioner.embedders.0.transformer.", Naming::Transformers),
    ("text_encoder_2", "conditioner.embedders.1.model.", Naming::OpenClip),
    // The refiner has only this text encoder.
    ("text_encoder_2", "conditioner.embedders.0.model.", Naming::OpenClip),
];

/// Tensors that training left beside the networks: schedules, averages, and losses.
const NO_NETWORK: [&str; 11] = [
    "alphas_cumprod",
    "betas",
    "cond_stage_model.logit_scale",
    "denoiser.",
    "log_one_minus_",
    "logvar",
    "model_ema.",
    "posterior_",
    "sqrt_",
    "loss.",
    "scale_factor",
];

/// A component of a single file.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) tasks: &'static [(&'static str, Task)],
    pub(crate) checkpoint: Checkpoint,
}

/// The components of a file that holds a whole pipeline; an empty list for any other file.
///
/// # Errors
/// A weight does not have the sizes that its name requires, or two tensors have the same translated name.
pub(crate) fn components(file: &Checkpoint) -> Result<Vec<Component>> {
    let tensors: BTreeMap<String, &Weight> =
        file.tensors().iter().map(|(name, weight)| (file.original_name(name), weight)).collect();
    let mut found = Vec::new();
    for (name, prefix, naming) in COMPONENTS {
        let of_component = tensors.iter().filter_map(|(name, weight)| Some((name.strip_prefix(prefix)?, *weight)));
        let of_component: BTreeMap<&str, &Weight> = of_component.collect();
        if !of_component.is_empty() {
            let (tensors, originals) = translated(file.path(), &of_component, prefix, naming)?;
            let checkpoint = Checkpoint { tensors, names: Names::Translated(originals), config: None, ..file.clone() };
            let tasks: &[(&str, Task)] = match naming {
                Naming::Unet => &[("", Task::Unet)],
                Naming::Autoencoder => &[("_encoder", Task::VaeEncoder), ("_decoder", Task::VaeDecoder)],
                Naming::Transformers | Naming::OpenClip => &[("", Task::TextEncoder)],
            };
            found.push(Component { name, tasks, checkpoint });
        }
    }
    Ok(found)
}

/// Names in a file that belong to no known component.
pub(crate) fn unknown(file: &Checkpoint) -> Vec<String> {
    let known = |name: &str| {
        COMPONENTS.iter().any(|(_, prefix, _)| name.starts_with(prefix))
            || NO_NETWORK.iter().any(|prefix| name.starts_with(prefix))
    };
    file.tensors().keys().map(|name| file.original_name(name)).filter(|name| !known(name)).collect()
}

type Translated = (BTreeMap<String, Weight>, BTreeMap<String, String>);

/// The tensors by diffusers' names, and for each of these names the one in the file.
fn translated(path: &Path, tensors: &BTreeMap<&str, &Weight>, prefix: &str, naming: Naming) -> Result<Translated> {
    let names: BTreeSet<&str> = tensors.keys().copied().collect();
    let table = match naming {
        Naming::Unet => unet_table(&names),
        Naming::Autoencoder => autoencoder_table(&names),
        Naming::OpenClip => open_clip_table(&names),
        Naming::Transformers => Vec::new(),
    };
    let (mut made, mut originals) = (BTreeMap::new(), BTreeMap::new());
    for (name, weight) in tensors {
        for (new, weight) in parts(&translate(name, &table), weight, naming)? {
            originals.insert(new.clone(), format!("{prefix}{name}"));
            if made.insert(new.clone(), weight).is_some() {
                return Err(Error::checkpoint(path, format!("two of its tensors are `{new}` of the component")));
            }
        }
    }
    Ok((made, originals))
}

/// The weights that a tensor becomes; most tensors stay as they are.
fn parts(name: &str, weight: &Weight, naming: Naming) -> tileforge_graph::Result<Vec<(String, Weight)>> {
    match (naming, weight.dims()) {
        // Attention of pixels is stored as 1×1 convolutions.
        (Naming::Autoencoder, &[outputs, inputs, 1, 1]) if name.contains(".attentions.0.") => {
            Ok(vec![(name.into(), weight.reshaped(vec![outputs, inputs])?)])
        }
        // The original code multiplies by it from the right.
        (Naming::OpenClip, [_, _]) if name == "text_projection" => {
            Ok(vec![(format!("{name}.weight"), weight.transposed(&[1, 0])?)])
        }
        (Naming::OpenClip, [rows, ..]) if name.contains(".in_proj_") => {
            let third = (rows / 3) as u32;
            let part = |i: u32, to: &str| {
                Ok((name.replace("in_proj_", to), weight.rows((i * third..(i + 1) * third).collect::<Vec<_>>())?))
            };
            Ok(vec![part(0, "q_proj.")?, part(1, "k_proj.")?, part(2, "v_proj.")?])
        }
        _ => Ok(vec![(name.into(), weight.clone())]),
    }
}

/// Translates the beginning of a name by a table, and the part that follows by [`INNER`].
fn translate(name: &str, table: &[(String, String)]) -> String {
    let longest = table.iter().filter(|(from, _)| name.starts_with(from.as_str())).max_by_key(|(from, _)| from.len());
    let Some((from, to)) = longest else { return name.to_owned() };
    let rest = &name[from.len()..];
    match INNER.iter().find_map(|(from, to)| Some((rest.strip_prefix(from)?, to))) {
        Some((rest, inner)) => format!("{to}{inner}{rest}"),
        None => format!("{to}{rest}"),
    }
}

/// Layers of a residual block, and of a layer of OpenCLIP.
const INNER: [(&str, &str); 12] = [
    ("in_layers.0.", "norm1."),
    ("in_layers.2.", "conv1."),
    ("emb_layers.1.", "time_emb_proj."),
    ("out_layers.0.", "norm2."),
    ("out_layers.3.", "conv2."),
    ("skip_connection.", "conv_shortcut."),
    ("nin_shortcut.", "conv_shortcut."),
    ("ln_1.", "layer_norm1."),
    ("ln_2.", "layer_norm2."),
    ("attn.", "self_attn."),
    ("mlp.c_fc.", "mlp.fc1."),
    ("mlp.c_proj.", "mlp.fc2."),
];

const UNET: [(&str, &str); 10] = [
    ("time_embed.0.", "time_embedding.linear_1."),
    ("time_embed.2.", "time_embedding.linear_2."),
    ("label_emb.0.0.", "add_embedding.linear_1."),
    ("label_emb.0.2.", "add_embedding.linear_2."),
    ("input_blocks.0.0.", "conv_in."),
    ("middle_block.0.", "mid_block.resnets.0."),
    ("middle_block.1.", "mid_block.attentions.0."),
    ("middle_block.2.", "mid_block.resnets.1."),
    ("out.0.", "conv_norm_out."),
    ("out.2.", "conv_out."),
];

/// Layers of the encoder and of the decoder.
const HALF: [(&str, &str); 8] = [
    ("norm_out.", "conv_norm_out."),
    ("mid.block_1.", "mid_block.resnets.0."),
    ("mid.block_2.", "mid_block.resnets.1."),
    ("mid.attn_1.norm.", "mid_block.attentions.0.group_norm."),
    ("mid.attn_1.q.", "mid_block.attentions.0.to_q."),
    ("mid.attn_1.k.", "mid_block.attentions.0.to_k."),
    ("mid.attn_1.v.", "mid_block.attentions.0.to_v."),
    ("mid.attn_1.proj_out.", "mid_block.attentions.0.to_out.0."),
];

const OPEN_CLIP: [(&str, &str); 3] = [
    ("token_embedding.", "text_model.embeddings.token_embedding."),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("ln_final.", "text_model.final_layer_norm."),
];

fn pairs(table: &[(&str, &str)]) -> Vec<(String, String)> {
    table.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect()
}

/// The original code numbers all blocks of one direction; diffusers numbers levels, and the layers of each level.
fn unet_table(names: &BTreeSet<&str>) -> Vec<(String, String)> {
    let contains = |prefix: &str| names.range(prefix..).next().is_some_and(|name| name.starts_with(prefix));
    let mut table = pairs(&UNET);
    let (mut level, mut layer) = (0, 0);
    for block in (1..).take_while(|block| contains(&format!("input_blocks.{block}."))) {
        let (from, to) = (format!("input_blocks.{block}"), format!("down_blocks.{level}"));
        if contains(&format!("{from}.0.op.")) {
            table.push((format!("{from}.0.op."), format!("{to}.downsamplers.0.conv.")));
            (level, layer) = (level + 1, 0);
        } else {
            table.push((format!("{from}.0."), format!("{to}.resnets.{layer}.")));
            table.push((format!("{from}.1."), format!("{to}.attentions.{layer}.")));
            layer += 1;
        }
    }
    (level, layer) = (0, 0);
    for block in (0..).take_while(|block| contains(&format!("output_blocks.{block}."))) {
        let (from, to) = (format!("output_blocks.{block}"), format!("up_blocks.{level}"));
        table.push((format!("{from}.0."), format!("{to}.resnets.{layer}.")));
        table.push((format!("{from}.1."), format!("{to}.attentions.{layer}.")));
        layer += 1;
        // The upsampler follows the attention, or the residual block where there is no attention.
        for place in [1, 2] {
            if contains(&format!("{from}.{place}.conv.")) {
                table.push((format!("{from}.{place}.conv."), format!("{to}.upsamplers.0.conv.")));
                (level, layer) = (level + 1, 0);
            }
        }
    }
    table
}

/// The names that a UNet's layer may have in the original code. `name` is diffusers' name, and `layers` is the number
/// of residual blocks of each level on the way down.
pub(crate) fn original_unet_layer(name: &str, layers: usize) -> Vec<String> {
    let upsampler = name.strip_prefix("up_blocks.").and_then(|rest| rest.strip_suffix(".upsamplers.0.conv"));
    if let Some(level) = upsampler.and_then(|level| level.parse::<usize>().ok()) {
        // The upsampler follows the attention, or the residual block where there is no attention.
        return [1, 2].map(|place| format!("output_blocks.{}.{place}.conv", (level + 1) * (layers + 1) - 1)).to_vec();
    }
    original_layer(name, layers).into_iter().collect()
}

fn original_layer(name: &str, layers: usize) -> Option<String> {
    let mut parts = name.split('.');
    let (block, number) = (parts.next()?, parts.next().and_then(|number| number.parse::<usize>().ok()));
    let (kind, layer) = (parts.next().unwrap_or_default(), parts.next().and_then(|layer| layer.parse::<usize>().ok()));
    let rest: String = parts.map(|part| format!(".{part}")).collect();
    let inner = |from: &str| {
        INNER.iter().find(|(_, to)| to.trim_end_matches('.') == from).map(|(from, _)| from.trim_end_matches('.'))
    };
    // The layers of a residual block have other names; those of an attention have the same.
    let rest = match rest.strip_prefix('.').filter(|_| kind == "resnets").and_then(inner) {
        Some(inner) => format!(".{inner}"),
        None => rest,
    };
    let place = usize::from(kind == "attentions");
    match (block, number, kind, layer) {
        ("down_blocks", Some(level), "downsamplers", Some(0)) => {
            Some(format!("input_blocks.{}.0.op", (level + 1) * (layers + 1)))
        }
        ("down_blocks", Some(level), _, Some(layer)) => {
            Some(format!("input_blocks.{}.{place}{rest}", 1 + level * (layers + 1) + layer))
        }
        ("up_blocks", Some(level), "resnets" | "attentions", Some(layer)) => {
            Some(format!("output_blocks.{}.{place}{rest}", level * (layers + 1) + layer))
        }
        _ => {
            let (from, to) = UNET.iter().find(|(_, to)| format!("{name}.").starts_with(to))?;
            let rest = &format!("{name}.")[to.len()..];
            let renamed = INNER.iter().find(|(_, inner)| rest == *inner).map_or(rest, |(from, _)| from);
            Some(format!("{from}{renamed}").trim_end_matches('.').to_owned())
        }
    }
}

/// The original code numbers the levels of the decoder from the image, like those of the encoder; diffusers numbers
/// them from the latent image.
fn autoencoder_table(names: &BTreeSet<&str>) -> Vec<(String, String)> {
    let mut table = Vec::new();
    for half in ["encoder", "decoder"] {
        table.extend(HALF.iter().map(|(from, to)| (format!("{half}.{from}"), format!("{half}.{to}"))));
    }
    let number = |name: &str, prefix: &str| name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
    let levels = names.iter().filter_map(|name| number(name, "decoder.up.")).max().map_or(0, |last| last + 1);
    // More levels than tensors come from a damaged name.
    for level in 0..levels.min(names.len()) {
        let turned = levels - 1 - level;
        for (from, to) in [
            (format!("encoder.down.{level}"), format!("encoder.down_blocks.{level}")),
            (format!("decoder.up.{level}"), format!("decoder.up_blocks.{turned}")),
        ] {
            table.push((format!("{from}.downsample."), format!("{to}.downsamplers.0.")));
            table.push((format!("{from}.upsample."), format!("{to}.upsamplers.0.")));
            table.extend((0..4).map(|block| (format!("{from}.block.{block}."), format!("{to}.resnets.{block}."))));
        }
    }
    table
}

fn open_clip_table(names: &BTreeSet<&str>) -> Vec<(String, String)> {
    let layer = |name: &str| name.strip_prefix("transformer.resblocks.")?.split('.').next()?.parse::<usize>().ok();
    let layers: BTreeSet<usize> = names.iter().filter_map(|name| layer(name)).collect();
    let of_layer = |layer| (format!("transformer.resblocks.{layer}."), format!("text_model.encoder.layers.{layer}."));
    pairs(&OPEN_CLIP).into_iter().chain(layers.into_iter().map(of_layer)).collect()
}
