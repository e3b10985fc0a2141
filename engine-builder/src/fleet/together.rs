//! What the parts of a pipeline take of a card together.

use super::Entry;
use serde::Serialize;
use std::collections::BTreeMap;
use tileforge_contract::Task;

/// What the chosen engines of a pipeline's parts take of a card together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Together {
    /// The card's profile.
    pub card: String,
    /// The model as the caller names it.
    pub model: String,
    /// Bytes of the card's memory while one session of each part is open.
    pub memory_bytes: u64,
    /// The same if parts of different tasks are never open at the same time, as with `runtime generate --low-memory`.
    /// `None` for pipelines of other commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_memory_bytes: Option<u64>,
    /// Bytes of the plans' files; `None` if there are no plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_bytes: Option<u64>,
    /// Bytes of the card's memory that engines can use.
    pub usable_bytes: u64,
}

impl Together {
    /// The sum for each pipeline and card, in the order of the entries. A pipeline with a part that has no engine for
    /// a card is left out.
    pub fn of(entries: &[Entry]) -> Vec<Self> {
        let is_same = |one: &Entry, other: &Entry| (&one.card, &one.model) == (&other.card, &other.model);
        // `Fleet` names each card and model once.
        let pipelines = entries.chunk_by(is_same).filter(|parts| parts.iter().all(|entry| entry.part.is_some()));
        pipelines.filter_map(Self::of_parts).collect()
    }

    fn of_parts(parts: &[Entry]) -> Option<Self> {
        let first = parts.first()?;
        let chosen = parts.iter().map(|part| Some((part.task, part.choice()?))).collect::<Option<Vec<_>>>()?;
        let mut by_task: BTreeMap<Task, u64> = BTreeMap::new();
        for (task, candidate) in &chosen {
            let bytes = by_task.entry(*task).or_default();
            *bytes = bytes.saturating_add(candidate.memory_bytes);
        }
        let is_diffusion = by_task.contains_key(&Task::Unet);
        Some(Self {
            card: first.card.clone(),
            model: first.model.clone(),
            memory_bytes: by_task.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            low_memory_bytes: by_task.values().copied().max().filter(|_| is_diffusion),
            plan_bytes: chosen.iter().map(|(_, candidate)| candidate.plan_bytes).sum(),
            usable_bytes: first.usable_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Candidate, Evidence};
    use super::*;
    use tileforge_contract::Precision;

    fn entry(model: &str, part: Option<&str>, task: Task, memory_bytes: u64) -> Entry {
        let candidate = Candidate {
            precision: Precision::Fp16,
            graph: "model.onnx".into(),
            evidence: Evidence::Built,
            memory_bytes,
            plan_bytes: Some(memory_bytes / 2),
            figures: None,
            uncached_microseconds: None,
        };
        Entry {
            card: "card".into(),
            usable_bytes: 100,
            model: model.into(),
            part: part.map(str::to_owned),
            task,
            too_large: Vec::new(),
            candidates: vec![candidate],
            chosen: Some(Precision::Fp16),
            refused: Vec::new(),
        }
    }

    #[test]
    fn parts_add_up_and_with_low_memory_those_of_each_task() {
        let mut entries = vec![
            entry("upscaler", None, Task::Upscale, 7),
            entry("sdxl", Some("text_encoder"), Task::TextEncoder, 10),
            entry("sdxl", Some("text_encoder_2"), Task::TextEncoder, 40),
            entry("sdxl", Some("unet"), Task::Unet, 48),
            entry("sdxl", Some("vae_decoder"), Task::VaeDecoder, 20),
            entry("vae", Some("decoder"), Task::VaeDecoder, 20),
        ];
        let found = Together::of(&entries);
        let of = |model: &str, memory_bytes, low_memory_bytes, plan_bytes| Together {
            card: "card".into(),
            model: model.into(),
            memory_bytes,
            low_memory_bytes,
            plan_bytes: Some(plan_bytes),
            usable_bytes: 100,
        };
        assert_eq!(found, [of("sdxl", 118, Some(50), 59), of("vae", 20, None, 10)]);
        entries[3].chosen = None;
        assert_eq!(Together::of(&entries), [of("vae", 20, None, 10)]);
    }
}
