//! Whether an engine fits this machine. Decided from its manifest, the GPU and the libraries, before a session exists.

use std::fmt;

use serde::Serialize;

use tileforge_contract::Provider;
use tileforge_engine::{Engine, Graph, Manifest};

use crate::compiled;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::provider::Gpu;
use crate::releases;

/// Whether one provider can run the engine on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Fit {
    /// Yes, at once.
    Fits,
    /// Yes, after its graphs have been compiled for this GPU, for this reason.
    AfterCompiling(String),
    /// No, for this reason.
    Refused(String),
}

/// One provider of the ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The provider.
    pub provider: Provider,
    /// Whether it can run the engine.
    #[serde(flatten)]
    pub fit: Fit,
}

/// How an engine can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The engine's name.
    pub engine: String,
    /// The provider that it was built for.
    pub target: Provider,
    /// The providers that come into question, the best first.
    pub steps: Vec<Step>,
}

impl Verdict {
    /// Judges an engine: on the provider that is asked for, or on all from the one that it was built for down to the
    /// CPU. The engine has to fit all GPUs in use.
    pub fn of(engine: &Engine, environment: &Environment, placement: &Placement) -> Self {
        let manifest = engine.manifest();
        let from = Provider::LADDER.iter().position(|provider| *provider == manifest.target.provider).unwrap_or(0);
        let ladder = placement.provider.map_or_else(|| Provider::LADDER[from..].to_vec(), |only| vec![only]);
        let worst = |provider| {
            let mut fits: Vec<Fit> =
                placement.gpus().iter().map(|device| fit(engine, environment, provider, *device)).collect();
            let (refused, after) =
                (|fit: &Fit| matches!(fit, Fit::Refused(_)), |fit: &Fit| matches!(fit, Fit::AfterCompiling(_)));
            let worst = fits.iter().position(refused).or_else(|| fits.iter().position(after)).unwrap_or(0);
            fits.swap_remove(worst)
        };
        let steps = ladder.into_iter().map(|provider| Step { provider, fit: worst(provider) }).collect();
        Self { engine: manifest.name.clone(), target: manifest.target.provider, steps }
    }

    /// The providers that can run the engine, the best first.
    pub fn rungs(&self) -> Vec<Provider> {
        let fits = |step: &&Step| !matches!(step.fit, Fit::Refused(_));
        self.steps.iter().filter(fits).map(|step| step.provider).collect()
    }

    /// The best provider that can run the engine.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with the reasons against all providers.
    pub fn chosen(&self) -> Result<Provider> {
        self.rungs().first().copied().ok_or_else(|| Error::DoesNotFit { verdict: Box::new(self.clone()) })
    }
}

impl fmt::Display for Verdict {
    /// `fits …`, `fits … after compiling here: …`, `falls back to cpu, because …` or `refused, because …`, with every
    /// reason on the way.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusals = self.steps.iter().map_while(|step| match &step.fit {
            Fit::Refused(reason) => Some(format!("{}: {reason}", step.provider)),
            _ => None,
        });
        let refusals: Vec<String> = refusals.collect();
        let because = refusals.join("; ");
        match self.steps.get(refusals.len()) {
            None => write!(formatter, "{}: refused, because {because}", self.engine),
            Some(Step { provider, fit }) => {
                let how = match fit {
                    Fit::AfterCompiling(reason) => format!(" after compiling here: {reason}"),
                    _ => String::new(),
                };
                if refusals.is_empty() {
                    write!(formatter, "{}: fits {provider}{how}", self.engine)
                } else {
                    write!(formatter, "{}: falls back to {provider}{how}, because {because}", self.engine)
                }
            }
        }
    }
}

fn fit(engine: &Engine, environment: &Environment, provider: Provider, device: u32) -> Fit {
    let manifest = engine.manifest();
    if provider == Provider::Cpu {
        return on_cpu(manifest);
    }
    if manifest.target.provider == Provider::Cpu {
        return Fit::Refused(format!(
            "it was built for the CPU ({}); build it for the profile of this GPU",
            manifest.target.profile
        ));
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
    if let Some(reason) = against_gpu(manifest, gpu) {
        return Fit::Refused(reason);
    }
    match provider {
        Provider::TensorRtRtx => on_tensorrt_rtx(manifest, gpu, probe.tensorrt_rtx_version.as_deref()),
        Provider::TensorRt => on_tensorrt(engine, environment, gpu, device),
        Provider::Cuda | Provider::Cpu => Fit::Fits,
    }
}

fn on_cpu(manifest: &Manifest) -> Fit {
    let precision = manifest.precision;
    if precision.runs_on_cpu() {
        return Fit::Fits;
    }
    Fit::Refused(format!(
        "ONNX Runtime's CPU kernels cannot compute in {precision}; build an fp32 or int8 engine for the CPU"
    ))
}

fn against_gpu(manifest: &Manifest, gpu: &Gpu) -> Option<String> {
    let capability = gpu.capability();
    let needs = manifest.precision.least_capability();
    if capability < needs {
        let (major, minor) = needs;
        return Some(format!(
            "{} needs compute capability {major}.{minor} or newer, {} has {}",
            manifest.precision, gpu.name, gpu.compute_capability
        ));
    }
    let needed = manifest.graphs.iter().map(|graph| memory_at_least(manifest, graph)).min().unwrap_or(0);
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

/// Bytes of the weights and of a graph's inputs and outputs. Activations need more.
pub(crate) fn memory_at_least(manifest: &Manifest, graph: &Graph) -> u64 {
    let weights =
        manifest.files.iter().filter(|(name, _)| name.ends_with(".weights")).map(|(_, file)| file.bytes).sum::<u64>();
    let elements = |shape: &Vec<usize>| shape.iter().map(|&length| length as u64).product::<u64>();
    weights + 4 * graph.inputs.values().chain(graph.outputs.values()).map(elements).sum::<u64>()
}

/// Whether the plans are for this GPU and this release of the library. Nothing is compiled here: plans come with the
/// engine.
fn on_tensorrt_rtx(manifest: &Manifest, gpu: &Gpu, release: Option<&str>) -> Fit {
    let Some(release) = release else {
        return Fit::Refused("the library of TensorRT for RTX does not tell its release".into());
    };
    if let Some(other) = releases::of_plans(manifest, release) {
        return Fit::Refused(other.to_string());
    }
    for graph in &manifest.graphs {
        let Some(plan) = &graph.plan else {
            return Fit::Refused(format!(
                "it has no plan of {}; build it where TensorRT for RTX is installed",
                graph.file
            ));
        };
        if !plan.compute_capabilities.contains(&gpu.compute_capability) {
            let built = plan.compute_capabilities.join(", ");
            return Fit::Refused(format!(
                "its plans are for compute capability {built}, {} has {}",
                gpu.name, gpu.compute_capability
            ));
        }
    }
    Fit::Fits
}

fn on_tensorrt(engine: &Engine, environment: &Environment, gpu: &Gpu, device: u32) -> Fit {
    let manifest = engine.manifest();
    let Some(version) = &environment.probe().tensorrt_version else {
        return Fit::Refused("the TensorRT library does not tell its version".into());
    };
    let missing = manifest.graphs.iter().any(|graph| {
        let facts = compiled::facts(manifest, graph, &manifest.target.tensorrt, environment, device);
        facts.is_none_or(|facts| compiled::is_missing(engine, environment, &facts))
    });
    if !missing {
        return Fit::Fits;
    }
    let built_for = manifest.target.compute_capability.as_deref().unwrap_or("no GPU");
    let why = if let Some(other) = releases::of_compiled(engine, version) {
        format!("it was compiled by TensorRT {}", other.made_with)
    } else if manifest.graphs.iter().all(|graph| graph.plan.is_some()) {
        "its plans are for TensorRT for RTX".to_owned()
    } else if manifest.target.portable {
        "it is portable".to_owned()
    } else {
        format!("it was compiled for compute capability {built_for}")
    };
    Fit::AfterCompiling(format!("{why}, and this is {} ({}) with TensorRT {version}", gpu.name, gpu.compute_capability))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_contract::{Padding, Precision, ReceptiveField, Upscale};
    use tileforge_engine::manifest::{BuiltWith, Graph, Model, Plan, SCHEMA, SelfTest, Target};

    fn manifest() -> Manifest {
        let upscale = Upscale {
            input: "input".into(),
            output: "output".into(),
            scale: 4,
            channels: 3,
            range: [0.0, 1.0],
            size_multiple: 1,
            size_minimum: 1,
            padding: Padding::Reflect,
            receptive_field: ReceptiveField::Radius(18),
            safe_precisions: vec![Precision::Fp32],
        };
        let shapes = |name: &str, side: usize| [(name.to_owned(), vec![1, 3, side, side])].into();
        Manifest {
            schema: SCHEMA,
            name: "x".into(),
            producer: "test".into(),
            recipe: None,
            model: Model {
                architecture: "compact".into(),
                licence: None,
                checkpoint_sha256: None,
                graph_sha256: String::new(),
                parameters: 1,
            },
            contract: upscale.contract(),
            precision: Precision::Fp32,
            islands: Vec::new(),
            calibration: None,
            left_out: None,
            target: Target {
                profile: "cpu".into(),
                provider: Provider::Cpu,
                compute_capability: None,
                portable: false,
                streams: 1,
                tensorrt_rtx: Default::default(),
                tensorrt: Default::default(),
                cuda: Default::default(),
            },
            built_with: BuiltWith {
                onnxruntime: String::new(),
                operating_system: String::new(),
                processor: String::new(),
            },
            graphs: vec![Graph {
                file: "model.onnx".into(),
                inputs: shapes("input", 64),
                outputs: shapes("output", 256),
                optimised: false,
                any_size: false,
                plan: None,
            }],
            gates: Vec::new(),
            selftest: SelfTest { file: "selftest.safetensors".into(), graph: "model.onnx".into(), tolerance: 0.0 },
            files: Default::default(),
        }
    }

    fn gpu(capability: &str, memory_bytes: u64) -> Gpu {
        Gpu { name: "a GPU".into(), compute_capability: capability.into(), memory_bytes }
    }

    #[test]
    fn a_gpu_must_have_the_arithmetic_and_the_memory() {
        let of = |precision, gpu: &Gpu| against_gpu(&Manifest { precision, ..manifest() }, gpu);
        let large = 1 << 40;
        assert_eq!(of(Precision::Fp16, &gpu("7.5", large)), None);
        assert!(of(Precision::Fp16, &gpu("7.0", large)).unwrap().contains("needs compute capability 7.5 or newer"));
        assert!(of(Precision::Bf16, &gpu("7.5", large)).unwrap().contains("8.0"));
        assert!(of(Precision::Fp8, &gpu("8.6", large)).unwrap().contains("8.9"));
        assert_eq!(of(Precision::Fp8, &gpu("12.0", large)), None);
        assert!(of(Precision::Fp32, &gpu("9.0", 1000)).unwrap().contains("GiB"));
    }

    #[test]
    fn a_plan_is_for_one_release_and_for_the_gpus_that_it_names() {
        let plan = Plan {
            context: "tensorrt-rtx/model.onnx".into(),
            file: "tensorrt-rtx/model.plan".into(),
            library: "1.7.1.116".into(),
            compute_capabilities: vec!["8.6".into(), "8.9".into()],
        };
        let mut manifest = manifest();
        let none = on_tensorrt_rtx(&manifest, &gpu("8.9", 1), Some("1.7.1.116"));
        assert!(matches!(none, Fit::Refused(reason) if reason.contains("no plan of model.onnx")));
        manifest.graphs[0].plan = Some(plan);
        let of = |capability: &str, release| on_tensorrt_rtx(&manifest, &gpu(capability, 1), release);
        assert_eq!((of("8.6", Some("1.7.1.116")), of("8.9", Some("1.7.1.116"))), (Fit::Fits, Fit::Fits));
        for (capability, release, words) in [
            ("12.0", Some("1.7.1.116"), "for compute capability 8.6, 8.9, a GPU has 12.0"),
            ("8.9", Some("1.7.2.1"), "need TensorRT for RTX 1.7.1.116, and 1.7.2.1 is here"),
            ("8.9", None, "does not tell its release"),
        ] {
            let fit = of(capability, release);
            assert!(matches!(&fit, Fit::Refused(reason) if reason.contains(words)), "{fit:?}");
        }
    }

    #[test]
    fn the_cpu_lacks_two_precisions() {
        let of = |precision| on_cpu(&Manifest { precision, ..manifest() });
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
        let fallen = verdict(&[no(), no(), Fit::Fits]);
        assert_eq!(fallen.to_string(), "x: falls back to cpu, because tensorrt: no GPU; cuda: no GPU");
        assert_eq!(fallen.chosen().unwrap(), Provider::Cpu);
        let refused = verdict(&[no()]);
        assert_eq!(refused.to_string(), "x: refused, because tensorrt: no GPU");
        assert!(matches!(refused.chosen(), Err(Error::DoesNotFit { .. })));
    }
}
