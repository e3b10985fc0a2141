//! The denoising network and its conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_engine::{Engine, Roles};
use tileforge_image::Size;
use tileforge_session::{Assigned, Location, Placement};

use super::error::Error;
use super::interface::{Input, Interface};
use crate::error::{Error as RuntimeError, Result};
use crate::host::{Group, Host, Network, Ticket, Values};

/// The values of each condition for one row, by the input's name.
pub(super) type Conditioned = BTreeMap<String, Values>;

/// A latent's size, and the tokens of its texts.
type Shape = (Size, usize);

/// The network, and the roles of its tensors.
pub(super) struct Denoiser {
    network: Network,
    pub(super) interface: Interface,
    groups: Mutex<BTreeMap<usize, Arc<Group>>>,
}

impl Denoiser {
    pub(super) fn new(host: &Host, roles: &Roles, engine: &Engine, placement: &Placement) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let interface = Interface::of(contract, roles).ok_or_else(|| Error::Mismatch {
            part: roles.denoiser.clone(),
            expected: "a network that takes a noisy latent, a timestep and a text, and gives a prediction".into(),
            found: contract.task.to_string(),
        })?;
        let network = Network::new(host, engine, placement.clone())?;
        Ok(Self { network, interface, groups: Mutex::default() })
    }

    /// Whether it is made to fill a masked part.
    pub(super) fn inpaints(&self) -> bool {
        self.interface.channels[1] > 0
    }

    /// The devices and providers it is placed on.
    pub(super) fn location(&self) -> Location<'_> {
        self.network.location()
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
        let [_, _, height, width] = *record.inputs.get(&self.interface.sample)?.as_slice() else { return None };
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

    /// Checks that there is a graph for a latent and texts of this many tokens. `None`: it takes no other number of
    /// tokens than its own.
    pub(super) fn check(&self, latent: Size, tokens: Option<usize>) -> Result<(), Error> {
        self.graph_for(latent, tokens).map(drop)
    }

    fn graph_for(&self, latent: Size, tokens: Option<usize>) -> Result<usize, Error> {
        let fits = |(size, of_text): Shape| size == latent && tokens.is_none_or(|tokens| of_text == tokens);
        let found = self.shapes().find(|(_, shape)| fits(*shape));
        found.map(|(graph, _)| graph).ok_or_else(|| {
            let of_size = self.shapes().filter(|(_, (size, _))| *size == latent);
            let mut known: Vec<usize> = of_size.map(|(_, (_, tokens))| tokens).collect();
            known.sort_unstable();
            known.dedup();
            Error::NoSuchText { wanted: tokens.unwrap_or_default(), known }
        })
    }

    /// Begins the steps of some pictures: one row for each of `conditions`.
    pub(super) fn begin<'n>(
        &'n self,
        ticket: &'n Ticket,
        latent: Size,
        tokens: Option<usize>,
        conditions: Vec<Conditioned>,
    ) -> Result<Steps<'n>> {
        let graph = self.graph_for(latent, tokens)?;
        let group = match self.groups.lock().entry(graph) {
            std::collections::btree_map::Entry::Occupied(known) => known.get().clone(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(self.network.group(graph, |output| output.name == self.interface.output)?).clone()
            }
        };
        Ok(Steps { denoiser: self, ticket, group, conditions })
    }
}

/// The steps of some pictures.
pub(super) struct Steps<'n> {
    denoiser: &'n Denoiser,
    ticket: &'n Ticket,
    group: Arc<Group>,
    conditions: Vec<Conditioned>,
}

impl Steps<'_> {
    /// The prediction for each row: `rows` gives the values of a row's sample.
    pub(super) fn run<'r>(&self, timestep: f32, rows: impl Fn(usize) -> Vec<&'r [f32]>) -> Result<Vec<Vec<f32>>> {
        let sample = |(row, conditioned): (usize, &Conditioned)| {
            let input = |input: &Input| match input {
                Input::Sample => Ok(Values::F32(rows(row).concat())),
                Input::Timestep => Ok(Values::F32(vec![timestep])),
                Input::Condition(condition) => {
                    let values = conditioned.get(&condition.input).cloned();
                    values.ok_or_else(|| RuntimeError::internal("denoiser"))
                }
            };
            self.denoiser.interface.inputs.iter().map(input).collect::<Result<Vec<_>>>()
        };
        let samples = self.conditions.iter().enumerate().map(sample).collect::<Result<Vec<_>>>()?;
        let made = self.denoiser.network.run(self.ticket, &self.group, samples)?;
        let prediction = |made: crate::host::Made| {
            made.outputs.into_iter().next().ok_or_else(|| RuntimeError::internal("denoiser"))?.into_f32()
        };
        made.into_iter().map(prediction).collect()
    }

    /// How many runs a step needs if no other request shares them.
    pub(super) fn runs(&self) -> usize {
        self.group.runs(self.conditions.len())
    }
}
