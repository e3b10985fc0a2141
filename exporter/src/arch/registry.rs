//! The list of architectures, in the order in which they are tried.

use super::{Architecture, Keys, Mismatch, Network};
use crate::{Checkpoint, Error, Result, Task};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Configurations of one architecture, by name.
pub type Presets = Vec<(&'static str, Box<dyn Network>)>;

/// One architecture of the registry.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The architecture's name.
    pub name: &'static str,
    /// What its graph does.
    pub task: Task,
    signatures: &'static [&'static [&'static str]],
    shapes_fit: fn(&Keys<'_>) -> bool,
    detect: fn(&Keys<'_>) -> Result<Box<dyn Network>, Mismatch>,
    presets: fn() -> Presets,
}

const fn entry<A: Architecture>() -> Entry {
    Entry {
        name: A::NAME,
        task: A::TASK,
        signatures: A::SIGNATURES,
        shapes_fit: A::shapes_fit,
        detect: |keys| Ok(Box::new(A::detect(keys)?)),
        presets: || {
            A::presets().into_iter().map(|(name, network)| (name, Box::new(network) as Box<dyn Network>)).collect()
        },
    }
}

/// The order matters: the first architecture whose signature is complete is taken, so the loosest signature comes last.
static REGISTRY: &[Entry] = &[
    entry::<super::unet_2d_condition::UNet2DConditionModel>(),
    entry::<super::clip_text::ClipText>(),
    entry::<super::seedvr2_vae::Encoder>(),
    entry::<super::seedvr2_vae::Decoder>(),
    entry::<super::autoencoder_kl::Encoder>(),
    entry::<super::autoencoder_kl::Decoder>(),
    entry::<super::rgbd_depth::RgbdDepth>(),
    entry::<super::depth_anything::DepthAnything>(),
    entry::<super::mirage::UnetPair>(),
    entry::<super::mirage::SmallUnet>(),
    entry::<super::rrdbnet::RrdbNet>(),
    entry::<super::span::Span>(),
    entry::<super::plksr::Plksr>(),
    entry::<super::drct::Drct>(),
    entry::<super::hat::Hat>(),
    entry::<super::swinir::SwinIr>(),
    entry::<super::srvgg_net_compact::SrvggNetCompact>(),
];

/// All architectures, in the order in which they are tried.
pub fn registry() -> &'static [Entry] {
    REGISTRY
}

impl Entry {
    /// Configurations worth testing, and the published ones, by name.
    pub fn presets(&self) -> Presets {
        (self.presets)()
    }

    /// The names that are missing for the nearest signature, and the length of that signature.
    fn missing(&self, keys: &Keys<'_>) -> (Vec<&'static str>, usize) {
        let missing = |signature: &&'static [&'static str]| {
            let names: Vec<&'static str> = signature.iter().copied().filter(|name| !keys.contains(name)).collect();
            (names, signature.len())
        };
        self.signatures
            .iter()
            .map(missing)
            .min_by_key(|(missing, length)| missing.len() * 100 / length.max(&1))
            .unwrap_or_default()
    }
}

/// Finds a checkpoint's architecture and its hyperparameters. `hints` are values of hyperparameters that the tensors do
/// not determine.
///
/// # Errors
/// No architecture fits (each candidate's missing names are listed), several graphs can be made, the hyperparameters
/// cannot be determined, or a hint is for no hyperparameter of the architecture.
pub fn detect(checkpoint: &Checkpoint, hints: &BTreeMap<String, String>) -> Result<Box<dyn Network>> {
    detect_task(checkpoint, None, hints)
}

/// As [`detect`], among the architectures of one task, for a checkpoint that gives several graphs.
///
/// # Errors
/// As [`detect`].
pub fn detect_task(
    checkpoint: &Checkpoint,
    task: Option<Task>,
    hints: &BTreeMap<String, String>,
) -> Result<Box<dyn Network>> {
    let keys = Keys::new(checkpoint, hints);
    let path = checkpoint.path();
    let fits = |entry: &&Entry| entry.missing(&keys).0.is_empty() && (entry.shapes_fit)(&keys);
    let mut complete = REGISTRY.iter().filter(|entry| task.is_none_or(|task| entry.task == task)).filter(fits);
    let Some(entry) = complete.next() else {
        return Err(unknown(checkpoint, &keys, task));
    };
    if let Some(other) = complete.find(|other| entry.task != Task::Upscale && other.task != entry.task) {
        return Err(Error::SeveralGraphs { path: path.to_owned(), tasks: vec![entry.task, other.task] });
    }
    let network = (entry.detect)(&keys).map_err(|Mismatch { reason, missing }| Error::Hyperparameters {
        path: path.to_owned(),
        architecture: entry.name,
        reason,
        missing,
    })?;
    match keys.unused_hints().first() {
        Some(hint) => Err(Error::UnknownHyperparameter { architecture: entry.name, name: (*hint).to_owned() }),
        None => Ok(network),
    }
}

fn unknown(checkpoint: &Checkpoint, keys: &Keys<'_>, task: Option<Task>) -> Error {
    let entries = REGISTRY.iter().filter(|entry| task.is_none_or(|task| entry.task == task));
    let mut candidates: Vec<(&str, Vec<&str>, usize)> = entries
        .map(|entry| (entry.missing(keys), entry.name))
        .map(|((missing, length), name)| (name, missing, length))
        .collect();
    candidates.sort_by_key(|(_, missing, length)| missing.len() * 100 / length.max(&1));
    let mut text = String::new();
    for (position, (name, missing, length)) in candidates.iter().enumerate() {
        let missing = missing.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let nearest = if position == 0 { "nearest candidate " } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {nearest}{name}: needs {length} names, missing: {missing}");
    }
    let found: Vec<&str> = checkpoint.tensors().keys().take(3).map(String::as_str).collect();
    let _ = write!(text, "  found names such as {}", found.join(", "));
    Error::UnknownArchitecture {
        path: checkpoint.path().to_owned(),
        tensors: checkpoint.tensors().len(),
        candidates: text,
    }
}
