//! The list of architectures, in the order in which they are tried.

use super::{Architecture, Keys, Mismatch, Network, Variant};
use crate::{Candidate, Checkpoint, Error, Result, Task};
use std::collections::BTreeMap;
use tileforge_files::bounded;

/// Configurations of one architecture, by name.
pub type Presets = Vec<(&'static str, Box<dyn Network>)>;

/// One architecture of the registry.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The architecture's name.
    pub name: &'static str,
    /// What its graph does.
    pub task: Task,
    variants: &'static [Variant],
    signatures: &'static [&'static [&'static str]],
    shapes_fit: fn(&Keys<'_>) -> bool,
    detect: fn(&Keys<'_>) -> Result<Box<dyn Network>, Mismatch>,
    presets: fn() -> Presets,
}

const fn entry<A: Architecture>() -> Entry {
    Entry {
        name: A::NAME,
        task: A::TASK,
        variants: A::VARIANTS,
        signatures: A::SIGNATURES,
        shapes_fit: A::shapes_fit,
        detect: |keys| Ok(Box::new(A::detect(keys)?)),
        presets: || {
            A::presets().into_iter().map(|(name, network)| (name, Box::new(network) as Box<dyn Network>)).collect()
        },
    }
}

/// A checkpoint has the names and shapes of one architecture for each task: a test compares all with all. If several
/// architectures fit a damaged checkpoint, the first one is taken, so the loosest signature comes last.
static REGISTRY: &[Entry] = &[
    entry::<super::unet_2d_condition::UNet2DConditionModel>(),
    entry::<super::clip_text::ClipText>(),
    entry::<super::seedvr2_transformer::NaDit>(),
    entry::<super::seedvr2_vae::Encoder>(),
    entry::<super::seedvr2_vae::Decoder>(),
    entry::<super::autoencoder_kl::Encoder>(),
    entry::<super::autoencoder_kl::Decoder>(),
    entry::<super::rgbd_depth::RgbdDepth>(),
    entry::<super::depth_anything::DepthAnything>(),
    entry::<super::mirage::UnetPair>(),
    entry::<super::mirage::SmallUnet>(),
    entry::<super::omnisr::OmniSr>(),
    entry::<super::cugan::Cugan>(),
    entry::<super::mosr::MoSr>(),
    entry::<super::rcan::Rcan>(),
    entry::<super::spanf3::SpanF3>(),
    entry::<super::dncnn::DnCnn>(),
    entry::<super::drunet::DruNet>(),
    entry::<super::fbcnn::Fbcnn>(),
    entry::<super::scunet::ScuNet>(),
    entry::<super::nafnet::NafNet>(),
    entry::<super::kbnet_s::KbNetS>(),
    entry::<super::kbnet_l::KbNetL>(),
    entry::<super::gfpgan::Gfpgan>(),
    entry::<super::restoreformer::RestoreFormer>(),
    entry::<super::lama::LaMa>(),
    entry::<super::safmn::Safmn>(),
    entry::<super::swift_srgan::SwiftSrgan>(),
    entry::<super::seemore::SeemoRe>(),
    entry::<super::moesr::MoEsr>(),
    entry::<super::ditn::Ditn>(),
    entry::<super::fdat::Fdat>(),
    entry::<super::dctlsa::Dctlsa>(),
    entry::<super::craft::Craft>(),
    entry::<super::rrdbnet::RrdbNet>(),
    entry::<super::span::Span>(),
    entry::<super::plksr::Plksr>(),
    entry::<super::dat::Dat>(),
    entry::<super::rgt::Rgt>(),
    entry::<super::atd::Atd>(),
    entry::<super::srformer::SrFormer>(),
    entry::<super::swin2sr::Swin2Sr>(),
    entry::<super::grl::Grl>(),
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

    /// Whether a checkpoint has the names and the shapes of this architecture.
    pub fn fits(&self, keys: &Keys<'_>) -> bool {
        self.missing(keys).0.is_empty() && (self.shapes_fit)(keys)
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
/// No architecture fits ([`Error::details`] lists each candidate's missing names), several graphs can be made, the
/// hyperparameters cannot be determined, or a hint is for no hyperparameter of the architecture.
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
    let entries = complete(&keys, task);
    let entry = match entries.as_slice() {
        [] => return Err(unknown(checkpoint, &keys, task)),
        [entry] => entry,
        several => {
            let tasks = several.iter().map(|entry| entry.task).collect();
            return Err(Error::SeveralGraphs { path: path.to_owned(), tasks });
        }
    };
    let network = (entry.detect)(&keys).map_err(|Mismatch { reason, missing }| Error::Hyperparameters {
        path: path.to_owned(),
        architecture: entry.name,
        reason: bounded(reason),
        missing,
    })?;
    match keys.unused_hints().first() {
        Some(hint) => Err(Error::UnknownHyperparameter { architecture: entry.name, name: (*hint).to_owned() }),
        None => Ok(network),
    }
}

/// A graph that can be made of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphOf {
    /// A name that no other graph of the checkpoint has, such as "decoder" or "decoder_next".
    pub name: String,
    /// What it does.
    pub task: Task,
    /// The hyperparameters that select it, together with the caller's.
    pub hints: BTreeMap<String, String>,
}

/// All graphs that do a checkpoint's work together, such as the encoder and the decoder of an autoencoder. `hints` are
/// as for [`detect`]; hints that choose one of several graphs exclude the others.
///
/// # Errors
/// No architecture fits.
pub fn graphs_of(checkpoint: &Checkpoint, hints: &BTreeMap<String, String>) -> Result<Vec<GraphOf>> {
    let keys = Keys::new(checkpoint, hints);
    let entries = complete(&keys, None);
    if entries.is_empty() {
        return Err(unknown(checkpoint, &keys, None));
    }
    let mut graphs = Vec::new();
    for entry in entries {
        let name = match entry.task {
            Task::VaeEncoder => "encoder".to_owned(),
            Task::VaeDecoder => "decoder".to_owned(),
            task => task.to_string(),
        };
        let of = |name, hints| GraphOf { name, task: entry.task, hints };
        let mut variants = entry.variants.iter().filter(|(_, (key, _))| keys.hint(key).is_none()).peekable();
        if variants.peek().is_none() {
            graphs.push(of(name, hints.clone()));
            continue;
        }
        graphs.extend(variants.map(|(variant, (key, value))| {
            let mut hints = hints.clone();
            hints.insert((*key).to_owned(), (*value).to_owned());
            of(format!("{name}_{variant}"), hints)
        }));
    }
    Ok(graphs)
}

/// The architectures whose names and shapes a checkpoint has, one for each task. If the first one's checkpoints give a
/// single graph, only the first one is returned.
fn complete(keys: &Keys<'_>, task: Option<Task>) -> Vec<&'static Entry> {
    let mut entries: Vec<&Entry> = Vec::new();
    for entry in REGISTRY.iter().filter(|entry| task.is_none_or(|task| entry.task == task) && entry.fits(keys)) {
        let is_alone = entries.first().is_some_and(|first| first.task == Task::Upscale);
        if !is_alone && entries.iter().all(|other| other.task != entry.task) {
            entries.push(entry);
        }
    }
    entries
}

fn unknown(checkpoint: &Checkpoint, keys: &Keys<'_>, task: Option<Task>) -> Error {
    let entries = REGISTRY.iter().filter(|entry| task.is_none_or(|task| entry.task == task));
    let of = |entry: &Entry| {
        let (missing, names) = entry.missing(keys);
        Candidate { architecture: entry.name, names, missing }
    };
    let mut candidates: Vec<Candidate> = entries.map(of).collect();
    candidates.sort_by_key(|Candidate { missing, names, .. }| missing.len() * 100 / names.max(&1));
    Error::UnknownArchitecture {
        path: checkpoint.path().to_owned(),
        tensors: checkpoint.tensors().len(),
        candidates,
        found: checkpoint.tensors().keys().take(3).cloned().collect(),
    }
}
