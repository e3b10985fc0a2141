//! An engine that a card could have.

use crate::profile::{Device, Profile};
use crate::rtx::{BuiltPlan, PlanBuilder, build_plan, figures, microseconds, with_nodes};
use crate::{Result, precision};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use tileforge_contract::{Precision, Provider};
use tileforge_engine::manifest::PlanFigures;
use tileforge_graph::Model;
use tileforge_tensorrt::{Gpu, Program};

/// Bytes of a card's memory that are not for engines: CUDA's context, the provider's kernels, a desktop.
const RESERVED: u64 = 1 << 30;

/// An engine in one precision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The precision of its network.
    pub precision: Precision,
    /// The file of its largest graph that the card holds, which has the shape of the first input in its name.
    pub graph: String,
    /// How the figures are known.
    pub evidence: Evidence,
    /// Bytes of the card's memory that one session takes: weights, activations, inputs and outputs.
    pub memory_bytes: u64,
    /// Bytes of the plan's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_bytes: Option<u64>,
    /// What a run of the plan takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<PlanFigures>,
    /// Microseconds that a run takes at least if nothing stays in the card's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncached_microseconds: Option<u64>,
}

/// How figures are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// NVIDIA's builder built the plan, and they are read from it.
    Built,
    /// They follow from the graph's shapes. TensorRT compiles it on the card itself.
    Estimated,
}

impl Candidate {
    /// Microseconds that a run takes at least; `None` where the card's rates or the plan's program are not known.
    pub fn least_microseconds(&self) -> Option<u64> {
        self.figures.and_then(|figures| figures.least_microseconds)
    }

    /// Whether it must be expected to be faster than another one: both where the cache holds all that it can, and where
    /// nothing stays in it.
    pub(super) fn is_faster_than(&self, other: &Self) -> bool {
        let is_less = |own: Option<u64>, others: Option<u64>| own.zip(others).is_some_and(|(own, others)| own < others);
        is_less(self.least_microseconds(), other.least_microseconds())
            && is_less(self.uncached_microseconds, other.uncached_microseconds)
    }

    /// Whether a card holds it.
    pub(super) fn fits(&self, device: &Device) -> bool {
        self.memory_bytes.saturating_add(RESERVED) <= device.memory.bytes
    }
}

/// Makes candidates. A plan that several cards share is built once.
pub(super) struct Maker<'m> {
    /// `None`: no plan can be built, so figures are estimated.
    pub(super) builder: Option<&'m PlanBuilder>,
    /// A folder for what is needed meanwhile.
    pub(super) scratch: &'m Path,
    built: HashMap<String, (u64, Option<Program>)>,
}

impl<'m> Maker<'m> {
    pub(super) fn new(builder: Option<&'m PlanBuilder>, scratch: &'m Path) -> Self {
        Self { builder, scratch, built: HashMap::new() }
    }

    /// The candidate of the graph `file`, as it was exported, in the precision of a profile. `network` tells networks
    /// apart. `None` if the network has no layer for that precision.
    pub(super) fn make(
        &mut self,
        network: &str,
        (model, file): (&Model, &str),
        profile: &Profile,
    ) -> Result<Option<Candidate>> {
        let Some(mut converted) = precision::uncalibrated(model, profile.precision, profile.provider)? else {
            return Ok(None);
        };
        let ports = model.inputs.iter().chain(&model.outputs);
        let ports = ports.filter_map(|port| port.ty.byte_length()).fold(0, u64::saturating_add);
        let candidate = |evidence, memory: u64| Candidate {
            precision: profile.precision,
            graph: file.to_owned(),
            evidence,
            memory_bytes: memory,
            plan_bytes: None,
            figures: None,
            uncached_microseconds: None,
        };
        let Some(builder) = self.builder.filter(|_| profile.provider == Provider::TensorRtRtx) else {
            let weights = converted.weights.values().map(|weight| weight.byte_length());
            let values = converted.with_leaves_last().peak().map_or(ports, |(_, bytes)| bytes);
            return Ok(Some(candidate(Evidence::Estimated, weights.sum::<u64>().saturating_add(values))));
        };
        let (capabilities, options) = (profile.plan_capabilities(), profile.plan_options());
        let key = format!("{network} {file} {} {capabilities:?} {options:?}", profile.precision);
        let (bytes, program) = match self.built.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let folder = self.scratch.join("plan");
                fs::create_dir(&folder).map_err(|error| crate::Error::file(&folder, "create", error))?;
                let mut quiet = |_: &_| ControlFlow::Continue(());
                let plan = folder.join("plan");
                let order = (builder, capabilities.as_slice(), &options);
                let built = build_plan(order, &mut converted, file, &folder, &plan, &mut quiet);
                let BuiltPlan { report, program } = built.map_err(|error| with_nodes(error, &converted))?;
                fs::remove_dir_all(&folder).map_err(|error| crate::Error::file(&folder, "remove", error))?;
                free.insert((report.bytes, program.ok()))
            }
        };
        let gpu: Option<Gpu> = profile.device.as_ref().and_then(Device::limits);
        let figures = program.as_ref().map(|program| figures(program, gpu.as_ref()));
        let uncached = program.as_ref().zip(gpu).map(|(program, gpu)| microseconds(&gpu.without_cache(), program));
        let memory = figures.map_or(*bytes, |figures| figures.memory_bytes()).saturating_add(ports);
        let candidate = candidate(Evidence::Built, memory);
        Ok(Some(Candidate { plan_bytes: Some(*bytes), figures, uncached_microseconds: uncached, ..candidate }))
    }
}
