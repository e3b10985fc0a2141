//! An engine that a card could have.

use crate::profile::{Device, Profile};
use crate::rtx::{BuiltPlan, PlanBuilder, PlanJob, build_plan, figures, microseconds};
use crate::{Error, Result, precision};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::path::Path;
use tileforge_contract::{Precision, Provider};
use tileforge_engine::exchange;
use tileforge_engine::manifest::PlanFigures;
use tileforge_graph::Model;
use tileforge_tensorrt::{LeastTimes, Program};

/// Bytes of a card's memory that engines cannot use: CUDA's context, the provider's kernels, a desktop.
const RESERVED: u64 = 1 << 30;

/// Bytes of a card's memory that engines can use.
pub(super) fn usable_bytes(device: &Device) -> u64 {
    device.memory.bytes.saturating_sub(RESERVED)
}

/// An engine in one precision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The precision of its network.
    pub precision: Precision,
    /// The file of its largest graph that fits on the card. Its name has the shape of the first input.
    pub graph: String,
    /// The source of the figures.
    pub evidence: Evidence,
    /// Bytes of the card's memory that one session takes: weights, activations, inputs and outputs.
    pub memory_bytes: u64,
    /// Bytes of the plan's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_bytes: Option<u64>,
    /// Figures of one run of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<PlanFigures>,
    /// The least microseconds of a run if the card's cache holds nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncached_microseconds: Option<u64>,
}

/// The source of a candidate's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// NVIDIA's builder built the plan; the figures are read from the plan.
    Built,
    /// The figures follow from the graph's shapes. TensorRT compiles the graph on the card itself.
    Estimated,
}

impl Candidate {
    /// The least microseconds of a run; `None` where the card's rates or the plan's program are not known.
    pub fn least_microseconds(&self) -> Option<u64> {
        self.figures.and_then(|figures| figures.least_microseconds)
    }

    /// Whether it is expected to be faster than another candidate, by the card's rates.
    pub(super) fn is_faster_than(&self, other: &Self) -> bool {
        self.least_times().zip(other.least_times()).is_some_and(|(own, other)| own.speed_over(&other) > 1.0)
    }

    fn least_times(&self) -> Option<LeastTimes> {
        let [cached, uncached] =
            [self.least_microseconds()?, self.uncached_microseconds?].map(|time| time as f64 / 1e6);
        Some(LeastTimes { cached, uncached })
    }

    /// Whether it fits in the memory of a card that engines can use.
    pub(super) fn fits(&self, usable_bytes: u64) -> bool {
        self.memory_bytes <= usable_bytes
    }
}

/// The builder's result for a graph in a precision.
enum Outcome {
    Plan {
        bytes: u64,
        program: Option<Program>,
    },
    /// The network has no layer that can use the precision.
    NoLayer,
    /// The builder refuses the graph.
    Refused(String),
}

/// Makes candidates. A plan that suits several cards is built once.
pub(super) struct Maker<'m> {
    /// `None`: no plan can be built, so figures are estimated.
    builder: Option<&'m PlanBuilder>,
    /// A folder for temporary files.
    scratch: &'m Path,
    outcomes: HashMap<String, Outcome>,
}

impl<'m> Maker<'m> {
    pub(super) fn new(builder: Option<&'m PlanBuilder>, scratch: &'m Path) -> Self {
        Self { builder, scratch, outcomes: HashMap::new() }
    }

    /// The candidate of the exported graph `file` in the precision of a profile. `network` distinguishes networks.
    /// `None` if the network has no layer for that precision, or if the builder refuses it; the refusal is added to
    /// `refused`.
    pub(super) fn make(
        &mut self,
        network: &str,
        (model, file): (&Model, &str),
        profile: &Profile,
        refused: &mut Vec<String>,
    ) -> Result<Option<Candidate>> {
        let ports = model.inputs.iter().chain(&model.outputs);
        let ports = ports.filter_map(|port| port.ty.byte_length()).fold(0, u64::saturating_add);
        let candidate = |evidence, memory_bytes| Candidate {
            precision: profile.precision,
            graph: file.to_owned(),
            evidence,
            memory_bytes,
            plan_bytes: None,
            figures: None,
            uncached_microseconds: None,
        };
        let Some(builder) = self.builder.filter(|_| profile.provider == Provider::TensorRtRtx) else {
            let estimated = precision::uncalibrated(model, profile.precision, profile.provider)?;
            return Ok(estimated.map(|model| candidate(Evidence::Estimated, estimate(&model, ports))));
        };
        let (capabilities, options) = (profile.plan_capabilities(), profile.plan_options());
        let gpu = profile.device.as_ref().and_then(Device::limits);
        let job = PlanJob { builder, capabilities: &capabilities, options: &options, gpu, jobs: 1 };
        let key = format!("{network} {file} {} {capabilities:?} {options:?}", profile.precision);
        let outcome = match self.outcomes.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(outcome(&job, model, file, profile, self.scratch)?),
        };
        let (bytes, program) = match outcome {
            Outcome::Plan { bytes, program } => (*bytes, program),
            Outcome::NoLayer => return Ok(None),
            Outcome::Refused(reason) => {
                refused.push(format!("{}: {reason}", profile.precision));
                return Ok(None);
            }
        };
        let least = program.as_ref().zip(gpu).map(|(program, gpu)| gpu.least_times(program));
        let figures = program.as_ref().map(|program| figures(program, least));
        let memory = figures.map_or(bytes, |figures| figures.memory_bytes()).saturating_add(ports);
        Ok(Some(Candidate {
            plan_bytes: Some(bytes),
            figures,
            uncached_microseconds: least.map(|least| microseconds(least.uncached)),
            ..candidate(Evidence::Built, memory)
        }))
    }
}

/// Bytes of the weights and of the values that a run holds at once.
fn estimate(model: &Model, ports: u64) -> u64 {
    let weights = model.weights.values().map(|weight| weight.byte_length()).fold(0, u64::saturating_add);
    let values = model.with_leaves_last().peak().map_or(ports, |(_, bytes)| bytes);
    weights.saturating_add(values)
}

/// Builds a plan and returns its size and program.
fn outcome(job: &PlanJob<'_>, model: &Model, file: &str, profile: &Profile, scratch: &Path) -> Result<Outcome> {
    let Some(mut converted) = precision::uncalibrated(model, profile.precision, profile.provider)? else {
        return Ok(Outcome::NoLayer);
    };
    let folder = exchange::temporary(scratch)?;
    let plan = folder.path().join("plan");
    let mut quiet = |_: &_| ControlFlow::Continue(());
    match build_plan(job, &mut converted, file, folder.path(), &plan, &mut quiet) {
        Ok(BuiltPlan { report, program }) => Ok(Outcome::Plan { bytes: report.bytes, program: program.ok() }),
        Err(error @ (Error::Plan(_) | Error::PlanProcess { .. })) => Ok(Outcome::Refused(error.to_string())),
        Err(error) => Err(error),
    }
}
