//! The sessions of an engine whose tasks run whole graphs.

use std::collections::BTreeMap;

use tileforge_contract::{Contract, Shapes, Sizes};
use tileforge_engine::{Engine, Graph};
use tileforge_session::{Assigned, Environment, Ladder, Placed, Placement, Session};

use crate::error::{Error, Result};

/// An engine's graphs, with the sizes of their tensors, and what opens sessions of them.
pub(crate) struct Sessions {
    ladder: Ladder,
    contract: Contract,
    /// The smallest first.
    graphs: Vec<(Graph, Sizes)>,
}

impl Sessions {
    /// Judges whether the engine fits this box; opens nothing yet.
    pub(crate) fn new(environment: &Environment, engine: &Engine, placement: Placement) -> Result<Self> {
        let contract = engine.manifest().contract.clone();
        let sized = |graph: &Graph| Ok((graph.clone(), graph.sizes(&contract)?));
        let mut graphs = engine.manifest().graphs.iter().map(sized).collect::<Result<Vec<_>>>()?;
        graphs.sort_by_key(|(_, sizes)| (sizes.height * sizes.width, sizes.frames, sizes.batch));
        Ok(Self { ladder: Ladder::new(environment, engine, placement)?, contract, graphs })
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The graphs, the smallest first.
    pub(crate) fn graphs(&self) -> &[(Graph, Sizes)] {
        &self.graphs
    }

    /// Where they run.
    pub(crate) fn placed(&self) -> Placed<'_> {
        self.ladder.placed()
    }

    /// Sessions that run at the same time.
    pub(crate) fn streams(&self) -> usize {
        self.ladder.streams()
    }

    /// Threads of each session on the CPU; `None`: those that ONNX Runtime takes for one session.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.ladder.threads()
    }

    /// The graph that takes inputs of these shapes: one of fixed sizes, else the smallest of any size.
    pub(crate) fn graph_for(&self, inputs: &Shapes) -> Result<usize> {
        let fixed = self.graphs.iter().position(|(graph, _)| graph.inputs == *inputs);
        let any_size = || self.graphs.iter().position(|(graph, _)| graph.for_inputs(&self.contract, inputs).is_some());
        fixed.or_else(any_size).ok_or_else(|| self.no_graph(shapes_text(inputs)))
    }

    /// That no graph takes what is wanted, with the shapes of those that there are.
    pub(crate) fn no_graph(&self, wanted: String) -> Error {
        Error::NoSuchShapes { wanted, known: self.graphs.iter().map(|(graph, _)| graph.inputs_text()).collect() }
    }

    /// What a worker keeps: its own sessions.
    pub(crate) fn worker(&self, stream: usize) -> Worker<'_> {
        Worker { sessions: self, stream, open: BTreeMap::new() }
    }
}

/// "image [1, 3, 64, 64], timestep [1]".
pub(crate) fn shapes_text(shapes: &Shapes) -> String {
    shapes.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect::<Vec<_>>().join(", ")
}

/// The sessions of one stream, opened when they are first needed, and kept.
pub(crate) struct Worker<'s> {
    sessions: &'s Sessions,
    stream: usize,
    open: BTreeMap<usize, Session>,
}

impl Worker<'_> {
    /// The session of one of [`Sessions::graphs`], opened again if the ladder has left its provider.
    pub(crate) fn session(&mut self, graph: usize) -> Result<&mut Session> {
        let provider = self.sessions.placed().provider;
        self.open.retain(|_, session| session.provider() == provider);
        match self.open.entry(graph) {
            std::collections::btree_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let (record, _) = self.sessions.graphs.get(graph).ok_or_else(|| Error::internal("session"))?;
                Ok(place.insert(self.sessions.ladder.session(record, self.stream)?))
            }
        }
    }

    /// The providers that took the nodes of the sessions so far.
    pub(crate) fn assigned(&self) -> Vec<Assigned> {
        self.open.values().next_back().map(|session| session.assigned().to_vec()).unwrap_or_default()
    }
}
