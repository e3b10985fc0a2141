//! The network that takes noise away, and what it is conditioned on.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_contract::{Axis, Embedding, Meaning, TensorSpec};
use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_session::{Assigned, Placed, Placement};

use super::error::Error;
use crate::error::{Error as RuntimeError, Result};
use crate::host::{Group, Host, Network, Ticket, Values};

/// What a network is conditioned on, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum On {
    /// The states of the text, `[tokens, width]`.
    States,
    /// The vector of the whole text.
    Pooled,
    /// Numbers about the picture.
    TimeIds,
}

/// What a network is conditioned on, for one row.
pub(super) type Condition = BTreeMap<On, Vec<f32>>;

/// What an input of the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Sample,
    Timestep,
    Condition(On),
}

/// A latent's size, and the tokens of its texts.
type Shape = (Size, usize);

/// The network, and which of its tensors is what.
pub(super) struct Denoiser {
    network: Network,
    /// In the contract's order.
    inputs: Vec<Input>,
    sample: String,
    output: String,
    /// Channels of the noisy latent, of the mask, and of the masked picture's latent.
    pub(super) channels: [usize; 3],
    /// What it is conditioned on, with the numbers of each: the width of a state or a vector, or how many there are.
    conditions: BTreeMap<On, usize>,
    groups: Mutex<BTreeMap<(u32, u32, usize), Arc<Group>>>,
}

impl Denoiser {
    pub(super) fn new(host: &Host, part: &str, engine: &Engine, placement: &Placement) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let unknown = || Error::Mismatch {
            part: part.to_owned(),
            expected: "a network that takes a noisy latent, a timestep and a text, and gives a prediction".into(),
            found: contract.task.to_string(),
        };
        let (mut inputs, mut conditions, mut noisy) = (Vec::new(), BTreeMap::new(), None);
        for spec in &contract.inputs {
            let input = match &spec.meaning {
                // A model that restores a picture needs its latent, which these pipelines do not make.
                Meaning::NoisyLatent { latent, condition: 0, mask, masked_image } => {
                    noisy = Some((spec.name.clone(), [*latent, *mask, *masked_image]));
                    Input::Sample
                }
                Meaning::Timestep { .. } => Input::Timestep,
                meaning => Input::Condition(on(meaning).ok_or_else(unknown)?),
            };
            if let Input::Condition(on) = input {
                conditions.insert(on, numbers(spec).ok_or_else(unknown)?);
            }
            if inputs.contains(&input) {
                return Err(unknown().into());
            }
            inputs.push(input);
        }
        // Pooled states and numbers about the picture come together.
        let is_whole = inputs.contains(&Input::Timestep)
            && conditions.contains_key(&On::States)
            && conditions.contains_key(&On::Pooled) == conditions.contains_key(&On::TimeIds);
        let (sample, channels) = noisy.filter(|_| is_whole).ok_or_else(unknown)?;
        let output = contract.outputs.iter().find(|output| matches!(output.meaning, Meaning::Prediction));
        let output = output.ok_or_else(unknown)?.name.clone();
        let network = Network::new(host, engine, placement.clone())?;
        Ok(Self { network, inputs, sample, output, channels, conditions, groups: Mutex::default() })
    }

    /// How many numbers each state of a text has.
    pub(super) fn width(&self) -> usize {
        self.conditions.get(&On::States).copied().unwrap_or(0)
    }

    /// How many numbers about the picture it takes; none for Stable Diffusion 1 and 2.
    pub(super) fn time_ids(&self) -> Option<usize> {
        self.conditions.get(&On::TimeIds).copied()
    }

    /// The width of the vector of the whole text.
    pub(super) fn pooled_width(&self) -> Option<usize> {
        self.conditions.get(&On::Pooled).copied()
    }

    /// Whether it is made to fill a masked part.
    pub(super) fn inpaints(&self) -> bool {
        self.channels[1] > 0
    }

    /// Where it runs.
    pub(super) fn placed(&self) -> Placed<'_> {
        self.network.placed()
    }

    /// The providers that took its nodes.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.network.assigned()
    }

    /// Threads of each session on the CPU.
    pub(super) fn threads(&self) -> Option<usize> {
        self.network.threads()
    }

    /// Rows that run at the same time.
    pub(super) fn rows(&self) -> usize {
        let batches = self.network.graphs().iter().map(|(_, sizes)| sizes.batch);
        self.network.streams() * batches.max().unwrap_or(1)
    }

    /// Closes its sessions, until they are needed again.
    pub(super) fn close_sessions(&self) {
        self.network.close_sessions();
    }

    /// Width and height of the latent of one graph, and the tokens of its texts.
    fn shape_of(&self, graph: usize) -> Option<Shape> {
        let (record, sizes) = self.network.graphs().get(graph)?;
        let [_, _, height, width] = *record.inputs.get(&self.sample)?.as_slice() else { return None };
        Some((Size { width: u32::try_from(width).ok()?, height: u32::try_from(height).ok()? }, sizes.tokens))
    }

    fn shapes(&self) -> impl Iterator<Item = (usize, Shape)> {
        (0..self.network.graphs().len()).filter_map(|graph| Some((graph, self.shape_of(graph)?)))
    }

    /// The sizes of latents that it takes, the smallest first.
    pub(super) fn latents(&self) -> Vec<Size> {
        let mut sizes: Vec<Size> = self.shapes().map(|(_, (size, _))| size).collect();
        sizes.sort_by_key(|size| (size.pixels(), size.width));
        sizes.dedup();
        sizes
    }

    /// Checks that there is a graph for a latent and texts of this many tokens.
    pub(super) fn check(&self, latent: Size, tokens: usize) -> Result<(), Error> {
        self.graph_for(latent, tokens).map(drop)
    }

    fn graph_for(&self, latent: Size, tokens: usize) -> Result<usize, Error> {
        let found = self.shapes().find(|(_, shape)| *shape == (latent, tokens));
        found.map(|(graph, _)| graph).ok_or_else(|| {
            let of_size = self.shapes().filter(|(_, (size, _))| *size == latent);
            let mut known: Vec<usize> = of_size.map(|(_, (_, tokens))| tokens).collect();
            known.sort_unstable();
            known.dedup();
            Error::NoSuchText { wanted: tokens, known }
        })
    }

    /// Begins the steps of some pictures: one row for each of `conditions`.
    pub(super) fn begin<'n>(
        &'n self,
        ticket: &'n Ticket,
        latent: Size,
        tokens: usize,
        conditions: Vec<Condition>,
    ) -> Result<Steps<'n>> {
        let graph = self.graph_for(latent, tokens)?;
        let group = match self.groups.lock().entry((latent.width, latent.height, tokens)) {
            std::collections::btree_map::Entry::Occupied(known) => known.get().clone(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(self.network.group(graph, |output| output.name == self.output)?).clone()
            }
        };
        Ok(Steps { denoiser: self, ticket, group, conditions })
    }
}

/// What a meaning conditions on.
fn on(meaning: &Meaning) -> Option<On> {
    match meaning {
        Meaning::Embedding { from: Embedding::Context } => Some(On::States),
        Meaning::Embedding { from: Embedding::Projected } => Some(On::Pooled),
        Meaning::TimeIds => Some(On::TimeIds),
        _ => None,
    }
}

/// How many numbers a state, a vector or a list has.
fn numbers(spec: &TensorSpec) -> Option<usize> {
    let fixed = |axis: &Axis| if let Axis::Fixed(count) = axis { Some(*count) } else { None };
    spec.channels().or_else(|| spec.axes.iter().find_map(fixed))
}

/// The steps of some pictures.
pub(super) struct Steps<'n> {
    denoiser: &'n Denoiser,
    ticket: &'n Ticket,
    group: Arc<Group>,
    conditions: Vec<Condition>,
}

impl Steps<'_> {
    /// The prediction for each row: `rows` gives the values of a row's sample.
    pub(super) fn run<'r>(&self, timestep: f32, rows: impl Fn(usize) -> Vec<&'r [f32]>) -> Result<Vec<Vec<f32>>> {
        let sample = |(row, condition): (usize, &Condition)| {
            let input = |input: &Input| match input {
                Input::Sample => Ok(Values::F32(rows(row).concat())),
                Input::Timestep => Ok(Values::F32(vec![timestep])),
                Input::Condition(on) => {
                    let values = condition.get(on).cloned();
                    values.map(Values::F32).ok_or_else(|| RuntimeError::internal("denoiser"))
                }
            };
            self.denoiser.inputs.iter().map(input).collect::<Result<Vec<_>>>()
        };
        let samples = self.conditions.iter().enumerate().map(sample).collect::<Result<Vec<_>>>()?;
        let made = self.denoiser.network.run(self.ticket, &self.group, samples)?;
        let prediction = |made: crate::host::Made| {
            made.outputs.into_iter().next().ok_or_else(|| RuntimeError::internal("denoiser"))?.into_f32()
        };
        made.into_iter().map(prediction).collect()
    }

    /// How many runs a step takes alone.
    pub(super) fn runs(&self) -> usize {
        self.group.runs(self.conditions.len())
    }
}
