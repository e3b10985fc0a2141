//! The engine of every card and model.

use super::candidate::{Candidate, Maker, usable_bytes};
use crate::build::file_names;
use crate::profile::Profile;
use crate::request::PreparedBuild;
use crate::rtx::PlanBuilder;
use crate::{Error, Progress, Result, Source};
use serde::Serialize;
use std::path::Path;
use tileforge_contract::{Precision, Provider, Task};
use tileforge_graph::Model;

/// A network's possible engines for a card.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// The card's profile.
    pub card: String,
    /// Bytes of the card's memory that engines can use.
    pub usable_bytes: u64,
    /// The model as the caller names it.
    pub model: String,
    /// The part of the engine, for an engine of several parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The network's task.
    pub task: Task,
    /// Graphs that do not fit in the card's memory.
    pub too_large: Vec<String>,
    /// Engines that fit in the card's memory, all of the same size. The first is in the precision that `build` would
    /// choose.
    pub candidates: Vec<Candidate>,
    /// The precision of the engine to build; `None` if no engine fits in the card's memory.
    pub chosen: Option<Precision>,
    /// For each supported precision without a candidate, the builder's refusal.
    pub refused: Vec<String>,
}

impl Entry {
    /// The model, and the part's name for an engine of several parts.
    pub fn name(&self) -> String {
        let part = self.part.as_ref().map_or(String::new(), |part| format!("/{part}"));
        format!("{}{part}", self.model)
    }

    /// The candidate to build.
    pub fn choice(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| Some(candidate.precision) == self.chosen)
    }
}

/// Precisions that an engine may have instead of 16 bits.
const IN_8_BITS: [Precision; 2] = [Precision::Int8, Precision::Fp8];

/// The entry of `model` for each profile in `prepared`. Without a builder, or for GPUs that compile engines
/// themselves, the figures are estimates. `scratch` is an empty folder.
///
/// # Errors
/// A profile is not for a GPU; a graph cannot be made. A refusal of the builder is not an error: the entry records it.
pub fn assess(
    model: &str,
    prepared: &PreparedBuild,
    builder: Option<&PlanBuilder>,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Entry>> {
    let mut maker = Maker::new(builder, scratch);
    let mut entries = Vec::new();
    for target in prepared.targets() {
        for (part, source, profile) in prepared.parts(target) {
            let Some(device) = &profile.device else {
                let reason = "expected the profile of a GPU, with its memory";
                return Err(Error::input(Path::new(&profile.name), reason));
            };
            let mut entry = Entry {
                card: profile.name.clone(),
                usable_bytes: usable_bytes(device),
                model: model.to_owned(),
                part: part.map(str::to_owned),
                task: source.task(),
                too_large: Vec::new(),
                candidates: Vec::new(),
                chosen: None,
                refused: Vec::new(),
            };
            progress.begin(&format!("{}: {}", entry.card, entry.name()), 1);
            // A precision in a model file was chosen for a reason, so no other one is tried.
            let is_free = profile.precision == target.stated_precision();
            entry.assess(&mut maker, source, profile, is_free)?;
            progress.step();
            entries.push(entry);
        }
    }
    Ok(entries)
}

impl Entry {
    /// Tries the largest size that fits, in the profile's precision and then in 8 bits: one sample at a time, but of a
    /// denoiser the most, because guidance needs a second one.
    fn assess(&mut self, maker: &mut Maker<'_>, source: &Source, profile: &Profile, is_free: bool) -> Result<()> {
        let graphs = source.graphs(profile)?.fixed;
        let names = file_names(&graphs)?;
        let network = self.name();
        let batches = graphs.iter().filter_map(batch);
        let samples = if self.task == Task::Unet { batches.max() } else { batches.min() };
        let sizes = graphs.iter().zip(names.iter().map(String::as_str)).rev();
        for size in sizes.filter(|(model, _)| batch(model) == samples) {
            let Some(first) = maker.make(&network, size, profile, &mut self.refused)? else { return Ok(()) };
            if !first.fits(self.usable_bytes) {
                self.too_large.push(first.graph);
                continue;
            }
            self.candidates.push(first);
            for precision in IN_8_BITS.into_iter().filter(|_| is_free && profile.provider == Provider::TensorRtRtx) {
                let mut other = profile.clone();
                if precision != profile.precision && other.set_precision(precision).is_ok() {
                    let made = maker.make(&network, size, &other, &mut self.refused)?;
                    self.candidates.extend(made.filter(|made| made.fits(self.usable_bytes)));
                }
            }
            break;
        }
        self.chosen = fastest(&self.candidates).map(|candidate| candidate.precision);
        Ok(())
    }
}

/// The first axis of the first input.
fn batch(model: &Model) -> Option<usize> {
    model.inputs.first()?.ty.dims.first()?.fixed()
}

/// The candidate that could be fastest. The first one stays unless another one is known to be faster.
fn fastest(candidates: &[Candidate]) -> Option<&Candidate> {
    let mut best = candidates.first()?;
    for candidate in &candidates[1..] {
        if candidate.is_faster_than(best) {
            best = candidate;
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::super::Evidence;
    use super::*;
    use tileforge_engine::manifest::PlanFigures;

    #[test]
    fn fewer_bits_are_chosen_only_where_they_can_be_faster() {
        let of = |precision, [least_microseconds, uncached_microseconds]: [Option<u64>; 2]| Candidate {
            uncached_microseconds,
            precision,
            graph: "model-1x3x64x64.onnx".into(),
            evidence: Evidence::Built,
            memory_bytes: 1,
            plan_bytes: Some(1),
            figures: Some(PlanFigures {
                kernels: 1,
                moved_bytes: 1,
                multiply_adds: 1,
                activation_bytes: 1,
                weight_bytes: 1,
                least_microseconds,
            }),
        };
        let chosen = |[half, int8, fp8]: [[u64; 2]; 3]| {
            let [half, int8, fp8] = [half, int8, fp8].map(|times| times.map(Some));
            let all = [of(Precision::Fp16, half), of(Precision::Int8, int8), of(Precision::Fp8, fp8)];
            fastest(&all).unwrap().precision
        };
        assert_eq!(chosen([[10, 20], [9, 19], [9, 18]]), Precision::Int8);
        assert_eq!(chosen([[10, 20], [12, 19], [8, 18]]), Precision::Fp8);
        // Faster only if everything fits in the cache, or only if nothing does.
        assert_eq!(chosen([[10, 20], [5, 21], [11, 12]]), Precision::Fp16);
        let unknown = [of(Precision::Fp16, [None; 2]), of(Precision::Int8, [Some(1); 2])];
        assert_eq!(fastest(&unknown).unwrap().precision, Precision::Fp16);
        assert!(fastest(&[]).is_none());
    }
}
