//! Whether an engine fits this machine. Decided from the engine's manifest, the GPU and the libraries, before a
//! session exists.

use std::collections::BTreeSet;

use tileforge_contract::{Precision, Provider};
use tileforge_engine::{Engine, Requirements};

use crate::compiled;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::provider::Gpu;
use crate::releases::{self, OtherRelease};
use crate::verdict::{Fit, Step, Verdict};

impl Verdict {
    /// Judges an engine: on the requested provider, or on every provider from the one that it was built for down to
    /// the CPU. The engine has to fit all GPUs in use.
    pub fn of(engine: &Engine, environment: &Environment, placement: &Placement) -> Self {
        let requirements = Requirements::of(engine.manifest());
        let with_tensorrt = |device: u32, gpu: &Gpu, version: &str| {
            if is_compiled(engine, environment, device) {
                return Fit::Fits;
            }
            let built_for = engine.manifest().target.compute_capability.as_deref();
            after_compiling(&requirements, built_for, releases::of_compiled(engine, version), gpu, version)
        };
        Self::judge(&requirements, environment, placement, with_tensorrt)
    }

    /// Judges an engine that is not on this machine yet, in the same way, from its requirements. It may be one of
    /// several for different machines, so the verdict also names its profile. Its compiled TensorRT graphs are assumed
    /// to fit every GPU of the compute capability that it was built for.
    pub fn in_advance(requirements: &Requirements, environment: &Environment, placement: &Placement) -> Self {
        let with_tensorrt = |_, gpu: &Gpu, version: &str| {
            let built_for = requirements.compute_capabilities.first().map(String::as_str);
            let compiled = requirements.provider == Provider::TensorRt && !requirements.portable;
            if compiled && built_for == Some(&*gpu.compute_capability) {
                return Fit::Fits;
            }
            after_compiling(requirements, built_for, None, gpu, version)
        };
        let engine = format!("{} for {}", requirements.name, listed(&requirements.profiles));
        Self { engine, ..Self::judge(requirements, environment, placement, with_tensorrt) }
    }

    fn judge(
        requirements: &Requirements,
        environment: &Environment,
        placement: &Placement,
        with_tensorrt: impl Fn(u32, &Gpu, &str) -> Fit,
    ) -> Self {
        let from = Provider::LADDER.iter().position(|provider| *provider == requirements.provider).unwrap_or(0);
        // OpenVINO runs engines that were built for it, and others only on request: it opens a graph more slowly than
        // ONNX Runtime, and is not faster with graphs that were written for ONNX Runtime.
        let all = Provider::LADDER[from..].iter().copied();
        let all = all.filter(|provider| *provider != Provider::OpenVino || requirements.provider == *provider);
        let ladder: Vec<Provider> = placement.provider.map_or_else(|| all.collect(), |only| vec![only]);
        let worst = |provider| {
            let mut fits: Vec<Fit> = placement
                .gpus()
                .iter()
                .map(|device| fit(requirements, environment, provider, *device, &with_tensorrt))
                .collect();
            let (refused, after) =
                (|fit: &Fit| matches!(fit, Fit::Refused(_)), |fit: &Fit| matches!(fit, Fit::AfterCompiling(_)));
            let worst = fits.iter().position(refused).or_else(|| fits.iter().position(after)).unwrap_or(0);
            fits.swap_remove(worst)
        };
        let steps = ladder.into_iter().map(|provider| Step { provider, fit: worst(provider) }).collect();
        Self { engine: requirements.name.clone(), target: requirements.provider, steps }
    }

    /// The best provider that can run the engine.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with the reasons against all providers.
    pub fn chosen(&self) -> Result<Provider> {
        self.providers().first().copied().ok_or_else(|| Error::DoesNotFit { verdict: Box::new(self.clone()) })
    }
}

fn fit(
    requirements: &Requirements,
    environment: &Environment,
    provider: Provider,
    device: u32,
    with_tensorrt: impl Fn(u32, &Gpu, &str) -> Fit,
) -> Fit {
    if provider == Provider::Cpu {
        return on_cpu(requirements);
    }
    if provider == Provider::OpenVino {
        return on_openvino(requirements, environment);
    }
    if requirements.provider.is_on_processor() {
        let profiles = listed(&requirements.profiles);
        return Fit::Refused(format!("it was built for processors ({profiles}); build it for the profile of this GPU"));
    }
    let probe = environment.probe();
    let missing = probe.reason_against(provider);
    if !missing.is_empty() {
        return Fit::Refused(missing);
    }
    let Some(gpu) = probe.gpus.get(device as usize) else {
        let count = probe.gpus.len();
        return Fit::Refused(format!("expected a GPU number below {count}, found {device}"));
    };
    if let Some(reason) = against_gpu(requirements, gpu) {
        return Fit::Refused(reason);
    }
    match provider {
        Provider::TensorRtRtx => on_tensorrt_rtx(requirements, gpu, probe.tensorrt_rtx_version.as_deref()),
        Provider::TensorRt => match &probe.tensorrt_version {
            None => Fit::Refused("the TensorRT library does not report its version".into()),
            Some(version) => with_tensorrt(device, gpu, version),
        },
        Provider::Cuda | Provider::OpenVino | Provider::Cpu => Fit::Fits,
    }
}

fn on_cpu(requirements: &Requirements) -> Fit {
    match requirements.precisions.iter().find(|precision| !precision.runs_on_cpu()) {
        None => Fit::Fits,
        Some(precision) => Fit::Refused(format!(
            "ONNX Runtime's CPU kernels cannot compute in {precision}; build an fp32 or int8 engine for the CPU"
        )),
    }
}

fn on_openvino(requirements: &Requirements, environment: &Environment) -> Fit {
    let missing = environment.probe().reason_against(Provider::OpenVino);
    if !missing.is_empty() {
        return Fit::Refused(missing);
    }
    if requirements.precisions.contains(&Precision::Fp8) {
        return Fit::Refused("no processor computes in fp8; build an engine for the profile openvino".into());
    }
    if !requirements.precisions.contains(&Precision::Bf16) {
        return Fit::Fits;
    }
    match environment.library().computes_bf16() {
        Ok(true) => Fit::Fits,
        Ok(false) => Fit::Refused(
            "this processor does not compute in bf16 (AVX-512 BF16, AMX); build an fp32 or int8 engine".into(),
        ),
        Err(problem) => Fit::Refused(problem),
    }
}

fn against_gpu(requirements: &Requirements, gpu: &Gpu) -> Option<String> {
    let capability = gpu.capability();
    let most = |precision: &&Precision| precision.least_capability();
    if let Some(precision) = requirements.precisions.iter().max_by_key(most)
        && capability < precision.least_capability()
    {
        let (major, minor) = precision.least_capability();
        return Some(format!(
            "{precision} needs compute capability {major}.{minor} or newer, {} has {}",
            gpu.name, gpu.compute_capability
        ));
    }
    let needed = requirements.memory_bytes;
    (needed > gpu.memory_bytes).then(|| {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        format!(
            "its weights and tensors alone need {:.1} GiB, {} has {:.1} GiB",
            gib(needed),
            gpu.name,
            gib(gpu.memory_bytes)
        )
    })
}

/// Whether the plans fit this GPU and this release of the library. Nothing is compiled on this machine: plans come
/// with the engine.
fn on_tensorrt_rtx(requirements: &Requirements, gpu: &Gpu, release: Option<&str>) -> Fit {
    let Some(release) = release else {
        return Fit::Refused("the library of TensorRT for RTX does not report its release".into());
    };
    if let Some(graph) = &requirements.without_plan {
        return Fit::Refused(format!("it has no plan of {graph}; build it where TensorRT for RTX is installed"));
    }
    if let Some(other) = releases::of_plans(requirements.releases.iter().map(String::as_str), release) {
        return Fit::Refused(other.to_string());
    }
    if !requirements.compute_capabilities.contains(&gpu.compute_capability) {
        let built = listed(&requirements.compute_capabilities);
        return Fit::Refused(format!(
            "its plans are for compute capability {built}, {} has {}",
            gpu.name, gpu.compute_capability
        ));
    }
    Fit::Fits
}

/// Whether all graphs of the engine are already compiled by TensorRT for this device.
fn is_compiled(engine: &Engine, environment: &Environment, device: u32) -> bool {
    let manifest = engine.manifest();
    manifest.graphs.iter().all(|graph| {
        let facts = compiled::facts(manifest, graph, &manifest.target.tensorrt, environment, device);
        facts.is_some_and(|facts| !compiled::is_missing(engine, environment, &facts))
    })
}

/// `other` is the release of TensorRT that compiled the engine, if it differs from this machine's.
fn after_compiling(
    requirements: &Requirements,
    built_for: Option<&str>,
    other: Option<OtherRelease>,
    gpu: &Gpu,
    version: &str,
) -> Fit {
    let why = if let Some(other) = other {
        format!("it was compiled by TensorRT {}", other.made_with)
    } else if requirements.without_plan.is_none() {
        "its plans are for TensorRT for RTX".to_owned()
    } else if requirements.portable {
        "it is portable".to_owned()
    } else {
        format!("it was compiled for compute capability {}", built_for.unwrap_or("no GPU"))
    };
    Fit::AfterCompiling(format!("{why}, and this is {} ({}) with TensorRT {version}", gpu.name, gpu.compute_capability))
}

fn listed(texts: &BTreeSet<String>) -> String {
    texts.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tileforge_engine::manifest::Plan;
    use tileforge_engine::{Manifest, testing};

    use super::*;

    fn manifest() -> Manifest {
        let graphs = vec![testing::graph("model.onnx", &[1, 3, 64, 64], &[1, 3, 256, 256])];
        let value = testing::manifest("x", &testing::upscale(4, 3).contract(), graphs, json!({}));
        serde_json::from_value(value).unwrap()
    }

    fn gpu(capability: &str, memory_bytes: u64) -> Gpu {
        Gpu { name: "a GPU".into(), compute_capability: capability.into(), memory_bytes }
    }

    #[test]
    fn a_gpu_must_have_the_arithmetic_and_the_memory() {
        let of = |precision, gpu: &Gpu| against_gpu(&Requirements::of(&Manifest { precision, ..manifest() }), gpu);
        let large = 1 << 40;
        assert_eq!(of(Precision::Fp16, &gpu("7.5", large)), None);
        assert!(of(Precision::Fp16, &gpu("7.0", large)).unwrap().contains("needs compute capability 7.5 or newer"));
        assert!(of(Precision::Bf16, &gpu("7.5", large)).unwrap().contains("8.0"));
        assert!(of(Precision::Fp8, &gpu("8.6", large)).unwrap().contains("8.9"));
        assert_eq!(of(Precision::Fp8, &gpu("12.0", large)), None);
        let needs = Requirements { memory_bytes: 3 << 29, ..Requirements::of(&manifest()) };
        let refused = against_gpu(&needs, &gpu("9.0", 1 << 30)).unwrap();
        assert!(refused.contains("need 1.5 GiB, a GPU has 1.0 GiB"), "{refused}");
        assert_eq!(against_gpu(&needs, &gpu("9.0", 3 << 29)), None);
    }

    #[test]
    fn a_plan_is_for_one_release_and_for_the_gpus_that_it_names() {
        let plan = Plan {
            context: "tensorrt-rtx/model.onnx".into(),
            file: "tensorrt-rtx/model.plan".into(),
            library: "1.7.1.116".into(),
            compute_capabilities: vec!["8.6".into(), "8.9".into()],
            figures: None,
        };
        let mut manifest = manifest();
        let none = on_tensorrt_rtx(&Requirements::of(&manifest), &gpu("8.9", 1), Some("1.7.1.116"));
        assert!(matches!(none, Fit::Refused(reason) if reason.contains("no plan of model.onnx")));
        manifest.graphs[0].plan = Some(plan);
        let requirements = Requirements::of(&manifest);
        let of = |capability: &str, release| on_tensorrt_rtx(&requirements, &gpu(capability, 1), release);
        assert_eq!((of("8.6", Some("1.7.1.116")), of("8.9", Some("1.7.1.116"))), (Fit::Fits, Fit::Fits));
        for (capability, release, words) in [
            ("12.0", Some("1.7.1.116"), "for compute capability 8.6, 8.9, a GPU has 12.0"),
            ("8.9", Some("1.7.2.1"), "need TensorRT for RTX 1.7.1.116, and 1.7.2.1 is here"),
            ("8.9", None, "does not report its release"),
        ] {
            let fit = of(capability, release);
            assert!(matches!(&fit, Fit::Refused(reason) if reason.contains(words)), "{fit:?}");
        }
    }

    #[test]
    fn the_cpu_lacks_two_precisions() {
        let of = |precision| on_cpu(&Requirements::of(&Manifest { precision, ..manifest() }));
        assert_eq!(of(Precision::Fp16), Fit::Fits);
        assert!(matches!(of(Precision::Bf16), Fit::Refused(reason) if reason.contains("bf16")));
    }

    #[test]
    fn the_text_says_what_happens_and_why() {
        let verdict = |fits: &[Fit]| {
            let ladder = Provider::LADDER.iter().copied().skip_while(|provider| *provider != Provider::TensorRt);
            let steps = ladder.zip(fits.iter().cloned());
            Verdict {
                engine: "x".into(),
                target: Provider::TensorRt,
                steps: steps.map(|(provider, fit)| Step { provider, fit }).collect(),
            }
        };
        let no = || Fit::Refused("no GPU".into());
        assert_eq!(verdict(&[Fit::Fits, no(), Fit::Fits]).to_string(), "x: fits tensorrt");
        assert_eq!(
            verdict(&[Fit::AfterCompiling("portable".into())]).to_string(),
            "x: fits tensorrt after compiling here: portable"
        );
        let on_openvino = verdict(&[no(), no(), Fit::Fits, Fit::Fits]);
        assert_eq!(on_openvino.to_string(), "x: falls back to openvino, because tensorrt: no GPU; cuda: no GPU");
        let fallen = verdict(&[no(), no(), Fit::Refused("missing".into()), Fit::Fits]);
        let because = "tensorrt: no GPU; cuda: no GPU; openvino: missing";
        assert_eq!(fallen.to_string(), format!("x: falls back to cpu, because {because}"));
        assert_eq!(fallen.chosen().unwrap(), Provider::Cpu);
        let refused = verdict(&[no()]);
        assert_eq!(refused.to_string(), "x: refused, because tensorrt: no GPU");
        assert!(matches!(refused.chosen(), Err(Error::DoesNotFit { .. })));
    }
}
