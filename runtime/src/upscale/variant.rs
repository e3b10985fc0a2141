//! A graph of the model, and its sessions.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_contract::{DataType, Sizes, Upscale};
use tileforge_engine::Graph;
use tileforge_image::Size;
use tileforge_session::{Assigned, Buffers, Ladder, Session};

use super::shape::TileShape;
use super::tensors::Pair;
use crate::error::Result;

/// A graph of the model for some number of images, and a session of it for each stream.
pub(super) struct Variant {
    graph: Graph,
    /// The tile that it takes, or its largest.
    pub(super) shape: TileShape,
    ladder: Arc<Ladder>,
    sessions: Vec<Mutex<Option<Opened>>>,
    /// What is known since the first session was opened.
    known: Mutex<Option<Known>>,
}

/// A session, and tensors for the pieces of larger batches that it runs.
pub(super) struct Opened {
    pub(super) session: Session,
    /// With the size of their tiles.
    pub(super) piece: Option<(Size, Pair)>,
}

/// What a session tells of itself.
struct Known {
    /// What makes tensors for all sessions.
    buffers: Buffers,
    /// Of the session that was opened last.
    assigned: Vec<Assigned>,
}

impl Variant {
    /// One of an engine's graphs; opens nothing yet.
    pub(super) fn new(graph: Graph, shape: TileShape, ladder: Arc<Ladder>, streams: usize) -> Self {
        let sessions = (0..streams).map(|_| Mutex::new(None)).collect();
        Self { graph, shape, ladder, sessions, known: Mutex::new(None) }
    }

    /// The graph's record for tiles of a size, of which it is one if the graph takes no other.
    pub(super) fn graph_for(&self, interface: &Upscale, tile: Size) -> Result<Graph> {
        if self.shape.tile == tile {
            return Ok(self.graph.clone());
        }
        let units = |side: u32| side as usize / interface.size_multiple.max(1);
        let sizes = Sizes { height: units(tile.height), width: units(tile.width), ..Sizes::default() };
        Ok(self.graph.resized(&interface.contract(), sizes)?)
    }

    /// Whether memory may hold tiles of a size.
    pub(super) fn may_hold(&self, interface: &Upscale, tile: Size) -> bool {
        self.graph_for(interface, tile).is_ok_and(|graph| self.ladder.may_hold(&graph))
    }

    /// Opens the first stream's session, unless one was opened before.
    pub(super) fn ready(&self) -> Result<()> {
        if self.known.lock().is_some() { Ok(()) } else { self.with_session(0, |_| Ok(())) }
    }

    /// Which providers took the nodes of the session that was opened last.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.known.lock().as_ref().map(|known| known.assigned.clone()).unwrap_or_default()
    }

    /// Zeros for the input and the output of one run.
    pub(super) fn pair(&self, input: &[usize], output: &[usize]) -> Result<Pair> {
        self.ready()?;
        let known = self.known.lock();
        let Some(Known { buffers, .. }) = &*known else { return Err(crate::Error::internal("variant")) };
        Ok(Pair { input: buffers.zeros(DataType::F32, input)?, output: buffers.zeros(DataType::F32, output)? })
    }

    /// Closes the session of a stream.
    pub(super) fn close(&self, stream: usize) {
        *self.sessions[stream].lock() = None;
    }

    /// Does something with a stream's session, which is opened if it is not, and again if it is of a provider that the
    /// ladder has left: all streams run on one.
    pub(super) fn with_session(&self, stream: usize, work: impl FnOnce(&mut Opened) -> Result<()>) -> Result<()> {
        let mut place = self.sessions[stream].lock();
        if place.as_ref().is_some_and(|opened| opened.session.provider() != self.ladder.provider()) {
            *place = None;
        }
        let opened = match &mut *place {
            Some(opened) => opened,
            empty => {
                let session = self.ladder.session(&self.graph, stream)?;
                let assigned = session.assigned().to_vec();
                let mut known = self.known.lock();
                match &mut *known {
                    Some(known) => known.assigned = assigned,
                    none => *none = Some(Known { buffers: session.buffers()?, assigned }),
                }
                empty.insert(Opened { session, piece: None })
            }
        };
        work(opened)
    }
}
