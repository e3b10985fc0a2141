//! What an engine needs from a machine.

use std::collections::BTreeSet;

use tileforge_contract::{Precision, Provider, Sizes};

use crate::contents::Contents;
use crate::manifest::{Graph, Manifest};

/// What an engine needs from a machine. Its manifests are enough to judge whether it fits, without its other files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The engine's name.
    pub name: String,
    /// The profiles that it was built for: one, or several if parts have different profiles.
    pub profiles: BTreeSet<String>,
    /// The provider that it was built for; the best one if parts have different providers.
    pub provider: Provider,
    /// The precisions of its networks.
    pub precisions: BTreeSet<Precision>,
    /// The compute capabilities of the GPUs that it was built for, such as "8.9". With plans: the capabilities that
    /// every plan runs on. Empty for CPUs, and for GPUs of several capabilities without plans.
    pub compute_capabilities: BTreeSet<String>,
    /// The releases of TensorRT for RTX that its plans need, such as "1.7.1.116"; empty if it has no plans.
    pub releases: BTreeSet<String>,
    /// The first graph without a plan; `None` if every graph has one.
    pub without_plan: Option<String>,
    /// Whether nothing in the engine, or in one of its parts, is compiled.
    pub portable: bool,
    /// The shape of the first input of each graph, such as "1x3x256x256", with "any" for what is free. In a pipeline,
    /// the part's name comes first: "unet/2x4x64x64".
    pub shapes: Vec<String>,
    /// Bytes that the smallest graph needs at least, with the fewest samples that it takes: its plan's memory if known,
    /// otherwise [`Manifest::memory_at_least`]. For a pipeline, the bytes of the part that needs most.
    pub memory_bytes: u64,
}

impl Requirements {
    /// The requirements of an engine of one network.
    pub fn of(manifest: &Manifest) -> Self {
        let mut requirements = Self::of_parts(&manifest.name, std::slice::from_ref(manifest));
        requirements.shapes = shapes(manifest).collect();
        requirements
    }

    /// The requirements of an engine whose manifests have all been read.
    pub fn of_contents(contents: &Contents) -> Self {
        match contents.network() {
            Some(only) => Self::of(only),
            None => Self::of_parts(contents.name(), contents.networks()),
        }
    }

    fn of_parts(name: &str, parts: &[Manifest]) -> Self {
        let graphs = || parts.iter().flat_map(|part| &part.graphs);
        let plans = || graphs().filter_map(|graph| graph.plan.as_ref());
        let targets = || parts.iter().map(|part| &part.target);
        let compute_capabilities = match plans().map(|plan| capabilities(&plan.compute_capabilities)).reduce(common) {
            Some(every) => every,
            None => targets().filter_map(|target| target.compute_capability.clone()).collect(),
        };
        let named = |part: &Manifest| {
            let name = part.name.clone();
            shapes(part).map(move |shape| format!("{name}/{shape}")).collect::<Vec<_>>()
        };
        Self {
            name: name.to_owned(),
            profiles: targets().map(|target| target.profile.clone()).collect(),
            provider: targets().map(|target| target.provider).min().unwrap_or(Provider::Cpu),
            precisions: parts.iter().map(|part| part.precision).collect(),
            compute_capabilities,
            releases: plans().map(|plan| plan.library.clone()).collect(),
            without_plan: graphs().find(|graph| graph.plan.is_none()).map(|graph| graph.file.clone()),
            portable: targets().any(|target| target.portable),
            shapes: parts.iter().flat_map(named).collect(),
            memory_bytes: parts.iter().map(Manifest::least_memory).max().unwrap_or(0),
        }
    }
}

impl Manifest {
    /// Bytes of the weights in an open session, and of the values in a run of the graph. The values count as the
    /// builder measured or estimated them, but at least as the graph's inputs and outputs.
    pub fn memory_at_least(&self, graph: &Graph) -> u64 {
        let weights = self.files.iter().filter(|(name, _)| name.ends_with(".weights")).map(|(_, file)| file.bytes);
        let weights = weights.fold(0_u64, u64::saturating_add);
        // An open session holds the weights of these precisions in FP32.
        let widened = match self.precision {
            Precision::Fp16Weights => 2,
            Precision::Int8Weights => 4,
            _ => 1,
        };
        let weights = weights.saturating_mul(widened);
        let elements = |shape: &Vec<usize>| shape.iter().map(|&length| length as u64).product::<u64>();
        let values = graph.inputs.values().chain(graph.outputs.values()).map(elements).sum::<u64>();
        let values = graph.values_bytes.unwrap_or(0).max(4 * values);
        weights.saturating_add(graph.kernels_bytes).saturating_add(values)
    }

    /// Bytes of an open session of the graph's plan, and of a run: as the plan itself states them, else as
    /// [`Manifest::memory_at_least`].
    pub fn memory_of_plan(&self, graph: &Graph) -> u64 {
        let figures = graph.plan.as_ref().and_then(|plan| plan.figures);
        figures.map_or_else(|| self.memory_at_least(graph), |figures| figures.memory_bytes())
    }

    /// The memory of the graph that needs least, with the fewest samples that it takes.
    fn least_memory(&self) -> u64 {
        let least = |graph: &Graph| {
            let sizes = graph.sizes(&self.contract);
            let of_one = sizes.and_then(|sizes| graph.resized(&self.contract, Sizes { batch: 1, ..sizes }));
            self.memory_of_plan(of_one.as_ref().unwrap_or(graph))
        };
        self.graphs.iter().map(least).min().unwrap_or(0)
    }
}

fn capabilities(listed: &[String]) -> BTreeSet<String> {
    listed.iter().cloned().collect()
}

fn common(one: BTreeSet<String>, other: BTreeSet<String>) -> BTreeSet<String> {
    one.intersection(&other).cloned().collect()
}

/// The shape of the first input of each graph.
fn shapes(manifest: &Manifest) -> impl Iterator<Item = String> {
    let input = manifest.contract.inputs.first().map(|input| input.name.as_str()).unwrap_or_default();
    manifest.graphs.iter().map(move |graph| {
        let shape = graph.inputs.get(input).map_or(&[][..], Vec::as_slice);
        graph.lengths_text(shape).join("x")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Plan, PlanFigures};
    use crate::validate::tests::manifest;

    fn plan(library: &str, capabilities: &[&str]) -> Option<Plan> {
        Some(Plan {
            context: "tensorrt-rtx/x.onnx".into(),
            file: "tensorrt-rtx/x.plan".into(),
            library: library.into(),
            compute_capabilities: capabilities.iter().map(|&text| text.into()).collect(),
            figures: None,
        })
    }

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|&text| text.into()).collect()
    }

    #[test]
    fn they_follow_from_the_manifest() {
        let mut manifest = manifest(&[(64, 64), (256, 128)]);
        let cpu = Requirements::of(&manifest);
        assert_eq!(
            (cpu.provider, cpu.profiles, cpu.without_plan),
            (Provider::Cpu, set(&["cpu"]), Some("64x64.onnx".into()))
        );
        assert_eq!((cpu.shapes, cpu.releases), (vec!["1x3x64x64".to_owned(), "1x3x128x256".into()], set(&[])));
        assert_eq!(cpu.memory_bytes, 4 * (3 * 64 * 64 + 3 * 256 * 256));

        manifest.graphs[0].plan = plan("1.7.1.116", &["8.6", "8.9"]);
        manifest.graphs[1].plan = plan("1.7.1.116", &["8.9", "12.0"]);
        manifest.target.provider = Provider::TensorRtRtx;
        let rtx = Requirements::of(&manifest);
        assert_eq!((rtx.compute_capabilities, rtx.releases), (set(&["8.9"]), set(&["1.7.1.116"])));
        assert_eq!((rtx.provider, rtx.without_plan), (Provider::TensorRtRtx, None));
        // A plan's own figures count where they are known.
        let figures = PlanFigures {
            kernels: 1,
            moved_bytes: 1,
            multiply_adds: 1,
            activation_bytes: 5,
            weight_bytes: 2,
            least_microseconds: None,
        };
        manifest.graphs[1].plan.as_mut().unwrap().figures = Some(figures);
        assert_eq!(
            [0, 1].map(|graph| manifest.memory_of_plan(&manifest.graphs[graph])),
            [4 * 3 * (64 * 64 + 256 * 256), 7]
        );
        assert_eq!(Requirements::of(&manifest).memory_bytes, 7);

        manifest.graphs[0].plan = None;
        manifest.graphs[1].plan = None;
        manifest.graphs[1].any_size = true;
        manifest.target.compute_capability = Some("8.0".into());
        let portable = Requirements::of(&manifest);
        assert_eq!((portable.compute_capabilities, &*portable.shapes[1]), (set(&["8.0"]), "1x3xanyxany"));
    }
}
