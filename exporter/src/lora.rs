//! Merges low-rank adaptations (LoRA, <https://arxiv.org/abs/2106.09685>) into a network's weights while these are
//! written.
//!
//! For a layer's weight `W` `[outputs, inputs…]`, a file holds `down` `[rank, inputs…]`, `up` `[outputs, rank]` and
//! `alpha`: the merged weight is `W + scale · alpha / rank · up · down`, rounded to the type of `W`. Files name layers
//! in one of two ways: kohya's (<https://github.com/kohya-ss/sd-scripts>, `networks/lora.py`) has underscores instead
//! of dots and a prefix for each network; diffusers and PEFT keep the dots.

use crate::checkpoint::single_file::original_unet_layer;
use crate::{Checkpoint, Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::str::FromStr;
use tileforge_graph::Weight;

/// A file of adaptations, and how strongly they are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Lora {
    /// A safetensors file.
    pub path: PathBuf,
    /// Factor of the adaptation: 1 is its strength in training.
    pub scale: f64,
}

impl FromStr for Lora {
    type Err = String;

    /// `FILE`, or `FILE:SCALE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let scaled = text.rsplit_once(':').and_then(|(path, scale)| Some((path, scale.parse::<f64>().ok()?)));
        let (path, scale) = scaled.unwrap_or((text, 1.0));
        match scale.is_finite() && !path.is_empty() {
            true => Ok(Lora { path: path.into(), scale }),
            false => Err(format!("expected FILE or FILE:SCALE, as in style.safetensors:0.8, found `{text}`")),
        }
    }
}

/// The prefixes of names, and the component that each stands for.
const PREFIXES: [(&str, &str); 7] = [
    ("lora_unet_", "unet"),
    ("lora_te_", "text_encoder"),
    ("lora_te1_", "text_encoder"),
    ("lora_te2_", "text_encoder_2"),
    ("unet.", "unet"),
    ("text_encoder.", "text_encoder"),
    ("text_encoder_2.", "text_encoder_2"),
];

/// The endings of names, and the factor that each stands for. Where two endings fit, the longer one comes first.
const ENDINGS: [(&str, Role); 13] = [
    (".lora_down.weight", Role::Down),
    (".lora_up.weight", Role::Up),
    (".lora_A.default.weight", Role::Down),
    (".lora_B.default.weight", Role::Up),
    (".lora_A.weight", Role::Down),
    (".lora_B.weight", Role::Up),
    (".lora_linear_layer.down.weight", Role::Down),
    (".lora_linear_layer.up.weight", Role::Up),
    (".lora.down.weight", Role::Down),
    (".lora.up.weight", Role::Up),
    ("_lora.down.weight", Role::Down),
    ("_lora.up.weight", Role::Up),
    (".alpha", Role::Alpha),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Down,
    Up,
    Alpha,
}

/// What a file holds for one layer.
#[derive(Debug, Default)]
struct Factors<'a> {
    /// The names in the file.
    names: Vec<&'a str>,
    down: Option<&'a Weight>,
    up: Option<&'a Weight>,
    alpha: Option<&'a Weight>,
}

/// A layer in a file: its component, and its name there with underscores instead of dots.
type Layer = (&'static str, String);

/// Merges files of adaptations into the checkpoints of components. Returns for each file the number of tensors that
/// belong to other components.
///
/// # Errors
/// A file cannot be read, or one of its tensors belongs to no layer of its component, does not fit the layer's weight,
/// or belongs to another kind of adaptation.
pub fn merge(components: &mut [(&str, &mut Checkpoint)], files: &[Lora]) -> Result<Vec<usize>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let targets: Vec<BTreeMap<String, String>> =
        components.iter().map(|(name, checkpoint)| targets(name, checkpoint)).collect();
    let mut elsewhere = Vec::new();
    for lora in files {
        let file = Checkpoint::open(&lora.path)?;
        let (layers, mut unmatched) = layers(&file);
        let mut skipped = 0;
        for ((component, layer), factors) in layers {
            let Some(index) = components.iter().position(|(name, _)| *name == component) else {
                skipped += factors.names.len();
                continue;
            };
            match targets[index].get(&layer) {
                Some(weight) => apply(components[index].1, weight, &factors, lora)?,
                None => unmatched.extend(factors.names.iter().map(|name| name.to_string())),
            }
        }
        if !unmatched.is_empty() {
            return Err(Error::checkpoint(&lora.path, describe(&unmatched, components)));
        }
        elsewhere.push(skipped);
    }
    Ok(elsewhere)
}

/// The tensors of a file by layer, and the names of those that belong to no layer.
fn layers(file: &Checkpoint) -> (BTreeMap<Layer, Factors<'_>>, Vec<String>) {
    let (mut layers, mut unknown) = (BTreeMap::new(), Vec::new());
    for (name, weight) in file.tensors() {
        let parsed = ENDINGS.iter().find_map(|(ending, role)| Some((name.strip_suffix(ending)?, role)));
        let parsed = parsed.and_then(|(layer, role)| {
            let prefixed =
                PREFIXES.iter().find_map(|(prefix, component)| Some((*component, layer.strip_prefix(prefix)?)));
            let (component, layer) = prefixed?;
            Some(((component, layer.replace(".processor.", ".").replace('.', "_")), role))
        });
        let Some((layer, role)) = parsed else {
            unknown.push(name.clone());
            continue;
        };
        let factors: &mut Factors<'_> = layers.entry(layer).or_default();
        factors.names.push(name);
        match role {
            Role::Down => factors.down = Some(weight),
            Role::Up => factors.up = Some(weight),
            Role::Alpha => factors.alpha = Some(weight),
        }
    }
    (layers, unknown)
}

/// The names that a file may use for each layer of a component, with the name of the layer's weight.
fn targets(component: &str, checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    let number = |name: &str| name.strip_prefix("down_blocks.0.resnets.")?.split('.').next()?.parse::<usize>().ok();
    let blocks = checkpoint.tensors().keys().filter_map(|name| number(name)).max().map_or(0, |last| last + 1);
    let mut targets = BTreeMap::new();
    for (name, weight) in checkpoint.tensors() {
        let Some(layer) = name.strip_suffix(".weight").filter(|_| weight.dims().len() >= 2) else { continue };
        let mut aliases = vec![layer.to_owned()];
        if component == "unet" {
            aliases.extend(original_unet_layer(layer, blocks));
        } else if !layer.starts_with("text_") {
            aliases.push(format!("text_model.{layer}"));
        }
        // The oldest files of diffusers leave out this number: `to_out` has only one layer with weights.
        aliases.extend(layer.strip_suffix(".to_out.0").map(|rest| format!("{rest}.to_out")));
        targets.extend(aliases.into_iter().map(|alias| (alias.replace('.', "_"), name.clone())));
    }
    targets
}

/// Replaces a weight by its sum with the product.
fn apply(checkpoint: &mut Checkpoint, name: &str, factors: &Factors<'_>, lora: &Lora) -> Result<()> {
    let fail = |reason: String| Error::checkpoint(&lora.path, format!("`{}`: {reason}", factors.names.join("`, `")));
    let (Some(down), Some(up)) = (factors.down, factors.up) else {
        return Err(fail("expected both factors of a layer (down and up, or A and B), found one".into()));
    };
    let Some(base) = checkpoint.tensor_mut(name) else { return Err(fail(format!("there is no weight `{name}`"))) };
    let rank = down.dims().first().copied().unwrap_or_default().max(1);
    let alpha = match factors.alpha {
        None => rank as f32,
        // A tensor with more elements could be as large as the file.
        Some(alpha) if alpha.elements() == 1 => alpha.to_f32s()?.first().copied().unwrap_or(f32::NAN),
        Some(alpha) => return Err(fail(format!("expected one number for `alpha`, found {}", alpha.elements()))),
    };
    let flat = |weight: &Weight| {
        let rows = weight.dims().first().copied().unwrap_or_default();
        weight.reshaped(vec![rows, weight.elements() / rows.max(1)])
    };
    let factor = lora.scale * f64::from(alpha) / rank as f64;
    if !(factor as f32).is_finite() {
        return Err(fail(format!("expected a finite number for `alpha`, found {alpha} (times {})", lora.scale)));
    }
    let merged = flat(up).and_then(|up| base.plus_product(&up, &flat(down)?, factor));
    *base = merged.map_err(|_| {
        fail(format!(
            "factors of {:?} and {:?} do not fit the weight `{name}` of {:?}: they were made for another model",
            up.dims(),
            down.dims(),
            base.dims()
        ))
    })?;
    Ok(())
}

fn describe(unmatched: &[String], components: &[(&str, &mut Checkpoint)]) -> String {
    const SHOWN: usize = 12;
    let names = components.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{} tensors are of no layer of this model ({names}); the file was made for another model, or has more than \
         LoRA:",
        unmatched.len()
    );
    for name in unmatched.iter().take(SHOWN) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {name}");
    }
    if unmatched.len() > SHOWN {
        text.push_str("\n  …");
    }
    text
}
