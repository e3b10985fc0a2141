//! Which of several engines of one model fits this machine best.

use std::cmp::Reverse;
use std::path::PathBuf;

use tileforge_contract::Provider;
use tileforge_engine::signature::PublicKey;
use tileforge_engine::{EngineSource, Requirements};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::verdict::{Fit, Verdict};

/// One of several engines, judged.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its index in the list that was judged.
    pub index: usize,
    /// Whether and how it runs here.
    pub verdict: Verdict,
    /// Whether it is not a fallback: it runs at once on the provider that it was built for, and this is not the CPU if
    /// the machine has a GPU.
    pub is_exact: bool,
}

/// Judges engines, which may not be on this machine yet, and sorts them, best first: on the best provider; without a
/// step down; without compiling; built for this very GPU; larger memory needs. Equal ones keep their order.
pub fn ranked(engines: &[Requirements], environment: &Environment, placement: &Placement) -> Vec<Candidate> {
    let gpus = &environment.probe().gpus;
    let device = placement.gpus().first().copied().unwrap_or(0);
    let gpu = gpus.get(device as usize).map(|gpu| words(&gpu.name));
    let candidate = |(index, requirements): (usize, &Requirements)| {
        let verdict = Verdict::in_advance(requirements, environment, placement);
        let is_exact = verdict.is_exact() && (verdict.target != Provider::Cpu || gpus.is_empty());
        Candidate { index, verdict, is_exact }
    };
    let mut all: Vec<Candidate> = engines.iter().enumerate().map(candidate).collect();
    all.sort_by_key(|candidate| {
        let requirements = &engines[candidate.index];
        let chosen = candidate.verdict.steps.iter().enumerate().find(|(_, step)| !matches!(step.fit, Fit::Refused(_)));
        // `Provider` sorts in the order of the ladder.
        let how = chosen.map(|(place, step)| (step.provider, place > 0, matches!(step.fit, Fit::AfterCompiling(_))));
        let names = requirements.profiles.iter().filter(|name| gpu.as_deref().is_some_and(|gpu| names(gpu, name)));
        // For an RTX 4090, `rtx4090` is a better match than `rtx`.
        let named = names.map(String::len).max();
        (how.is_none(), how, Reverse(named), Reverse(requirements.memory_bytes))
    });
    all
}

/// The best of [`ranked`] engines.
///
/// # Errors
/// [`Error::NoneFits`] with the reasons against all; [`Error::NotExact`] if `exact` is set and every fitting engine is
/// a fallback.
pub fn best(ranked: &[Candidate], exact: bool) -> Result<&Candidate> {
    let fitting = ranked.iter().find(|candidate| !candidate.verdict.providers().is_empty());
    let all = || ranked.iter().map(|candidate| candidate.verdict.clone()).collect();
    let best = fitting.ok_or_else(|| Error::NoneFits { verdicts: all() })?;
    if !exact || best.is_exact {
        return Ok(best);
    }
    // The best one may need compiling here, while a later one runs at once.
    ranked.iter().find(|candidate| candidate.is_exact).ok_or_else(|| Error::NotExact { verdicts: all() })
}

/// The directory of the engine that fits this machine best, out of several engines of one name, with its verdict.
/// Engines with unreadable manifests are skipped, and with a key also engines that this key did not sign. If no engine
/// is left, the first directory is returned, so that opening it reports the error. A single engine is not judged and
/// has no verdict.
///
/// # Errors
/// As [`best`].
pub fn of_directories(
    directories: &[PathBuf],
    key: Option<&PublicKey>,
    environment: &Environment,
) -> Result<(PathBuf, Option<Verdict>)> {
    let open = |directory: &PathBuf| EngineSource::open_of(directory, key).ok();
    let readable: Vec<EngineSource> = directories.iter().filter_map(open).collect();
    let Some(only) = readable.first() else { return Ok((directories.first().cloned().unwrap_or_default(), None)) };
    if let [_] = readable.as_slice() {
        return Ok((only.directory().to_owned(), None));
    }
    let needs: Vec<_> = readable.iter().map(|source| Requirements::of_contents(source.contents())).collect();
    let ranked = ranked(&needs, environment, &Placement::default());
    let candidate = best(&ranked, false)?;
    Ok((readable[candidate.index].directory().to_owned(), Some(candidate.verdict.clone())))
}

/// The words of a GPU's name in lower case: "NVIDIA GeForce RTX 4090" has four.
fn words(name: &str) -> Vec<String> {
    let words = name.split(|sign: char| !sign.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

/// Whether a profile is named after a GPU with these words: `rtx4090` after "RTX 4090", but `l4` not after "L40S".
fn names(gpu: &[String], profile: &str) -> bool {
    let wanted = words(profile).concat();
    (0..gpu.len()).any(|start| (start..gpu.len()).any(|end| gpu[start..=end].concat() == wanted))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tileforge_contract::Precision;

    use super::*;
    use crate::onnxruntime::{self, Search};
    use crate::provider::{Gpu, Probe, ProviderStatus};

    const RELEASE: &str = "1.7.1.116";

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|&text| text.into()).collect()
    }

    fn engine(profile: &str, provider: Provider, capability: &[&str], precision: Precision) -> Requirements {
        let has_plans = provider == Provider::TensorRtRtx;
        Requirements {
            name: "x4".into(),
            profiles: set(&[profile]),
            provider,
            precisions: BTreeSet::from([precision]),
            compute_capabilities: set(capability),
            releases: set(if has_plans { &[RELEASE] } else { &[] }),
            without_plan: (!has_plans).then(|| "a.onnx".into()),
            portable: provider == Provider::TensorRt,
            shapes: Vec::new(),
            memory_bytes: 1 << 20,
        }
    }

    /// What an index of one model offers.
    fn offer() -> Vec<Requirements> {
        vec![
            engine("cpu", Provider::Cpu, &[], Precision::Int8),
            engine("rtx", Provider::TensorRtRtx, &["8.6", "8.9"], Precision::Fp16),
            engine("rtx4090", Provider::TensorRtRtx, &["8.9"], Precision::Fp16),
            engine("rtx5090", Provider::TensorRtRtx, &["12.0"], Precision::Fp8),
            engine("t4", Provider::TensorRt, &["7.5"], Precision::Fp16),
            engine("a100", Provider::TensorRt, &["8.0"], Precision::Bf16),
        ]
    }

    /// A machine with this GPU, and the libraries of these providers.
    fn machine(gpu: Option<(&str, &str)>, usable: &[Provider]) -> Environment {
        let status = |&provider: &Provider| ProviderStatus {
            provider,
            compiled_in: true,
            usable: provider == Provider::Cpu || usable.contains(&provider),
            reason: "not here".into(),
        };
        let gpus = gpu.map(|(name, capability)| Gpu {
            name: name.into(),
            compute_capability: capability.into(),
            memory_bytes: 16 << 30,
        });
        let probe = Probe {
            providers: Provider::LADDER.iter().map(status).collect(),
            driver_cuda_version: gpus.as_ref().map(|_| "13.0".into()),
            driver_problem: None,
            tensorrt_version: usable.contains(&Provider::TensorRt).then(|| "10.14.1".into()),
            tensorrt_rtx_version: usable.contains(&Provider::TensorRtRtx).then(|| RELEASE.into()),
            gpus: gpus.into_iter().collect(),
            ..Probe::default()
        };
        Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap()).with_probe(probe)
    }

    /// The profile of the best variant and whether it is exact, for a machine.
    fn chosen(offer: &[Requirements], machine: &Environment) -> Option<(String, bool)> {
        let ranked = ranked(offer, machine, &Placement::default());
        let best = best(&ranked, false).ok()?;
        Some((offer[best.index].profiles.first()?.clone(), best.is_exact))
    }

    const ALL: &[Provider] = Provider::LADDER;

    #[test]
    fn five_machines_get_the_variant_that_fits() {
        for (gpu, usable, expected) in [
            (Some(("NVIDIA GeForce RTX 4090", "8.9")), ALL, ("rtx4090", true)),
            (Some(("NVIDIA GeForce RTX 5090", "12.0")), ALL, ("rtx5090", true)),
            // TensorRT compiles on the machine itself.
            (Some(("NVIDIA A100-SXM4-80GB", "8.0")), ALL, ("a100", false)),
            (Some(("Tesla T4", "7.5")), ALL, ("t4", false)),
            (None, &[], ("cpu", true)),
        ] {
            let found = chosen(&offer(), &machine(gpu, usable));
            assert_eq!(found, Some((expected.0.into(), expected.1)), "{gpu:?}");
        }
    }

    #[test]
    fn a_gpu_without_its_own_variant_gets_the_nearest() {
        let rtx3080 = machine(Some(("NVIDIA GeForce RTX 3080", "8.6")), ALL);
        assert_eq!(chosen(&offer(), &rtx3080), Some(("rtx".into(), true)));
        // The plans for the 4090 and for the family run equally well here; the engine with the larger memory need is
        // taken.
        let l40s = machine(Some(("NVIDIA L40S", "8.9")), ALL);
        let mut offer = offer();
        offer[1].memory_bytes += 1;
        assert_eq!(chosen(&offer, &l40s), Some(("rtx".into(), true)));
        // Without the libraries of its GPU, a machine computes on its processor, with the engine for processors.
        let bare = machine(Some(("NVIDIA GeForce RTX 4090", "8.9")), &[]);
        assert_eq!(chosen(&offer, &bare), Some(("cpu".into(), false)));
        let cuda = machine(Some(("NVIDIA GeForce RTX 4090", "8.9")), &[Provider::Cuda]);
        assert_eq!(chosen(&offer, &cuda), Some(("rtx4090".into(), false)));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_every_reason() {
        let only: Vec<_> = offer().into_iter().filter(|engine| engine.profiles.contains("rtx5090")).collect();
        let none = machine(None, &[]);
        let ranked_here = ranked(&only, &none, &Placement::default());
        let error = best(&ranked_here, false).unwrap_err();
        assert!(error.does_not_fit() && error.to_string().contains("fp8"), "{error}");
        let t4 = machine(Some(("Tesla T4", "7.5")), ALL);
        let offer = offer();
        let ranked_there = ranked(&offer, &t4, &Placement::default());
        let error = best(&ranked_there, true).unwrap_err();
        assert!(
            matches!(error, Error::NotExact { .. }) && error.to_string().contains("after compiling here"),
            "{error}"
        );
        assert!(error.does_not_fit());
    }

    #[test]
    fn profiles_are_named_after_gpus() {
        let is_named = |gpu: &str, profile: &str| names(&words(gpu), profile);
        for (gpu, profile) in [
            ("NVIDIA GeForce RTX 4090", "rtx4090"),
            ("NVIDIA GeForce RTX 5070 Ti", "rtx5070ti"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("Tesla T4", "t4"),
        ] {
            assert!(is_named(gpu, profile), "{gpu} {profile}");
        }
        for (gpu, profile) in [("NVIDIA L40S", "l4"), ("NVIDIA GeForce RTX 4090", "rtx40"), ("NVIDIA A10G", "a1")] {
            assert!(!is_named(gpu, profile), "{gpu} {profile}");
        }
    }
}
