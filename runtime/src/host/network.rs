//! An engine on a host, as tasks use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tileforge_contract::{Contract, Meaning, Shapes, Sizes, TensorSpec};
use tileforge_engine::{Engine, Graph};
use tileforge_session::{Assigned, Bound, Buffer, Location, Placement, Session};

use super::core::Core;
use super::group::Group;
use super::host::Host;
use super::pool::{Pinned, SessionKey};
use super::queue::Key;
use super::shared::Shared;
use super::sync::channel::unbounded;
use super::ticket::Ticket;
use super::values::Values;
use super::work::{Answer, AnswerSender, Grant, Made, Turn, Wanted, Work, answers};
use super::worker;
use crate::error::{Error, Result};

/// What memory allows to run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Used {
    /// Sessions.
    pub streams: usize,
    /// Most samples in one run.
    pub batch: usize,
}

/// An engine on a host. Its sessions close when it is dropped.
pub(crate) struct Network {
    host: Host,
    core: Arc<Core>,
    device: usize,
}

impl Network {
    /// Judges whether the engine fits this machine; opens nothing yet.
    pub(crate) fn new(host: &Host, engine: &Engine, placement: Placement) -> Result<Self> {
        let shared = host.shared();
        let core = Arc::new(Core::new(shared.id(), &shared.environment, engine, placement)?);
        let device = shared.device(core.ladder.gpus(), core.ladder.streams(), worker::work)?;
        Ok(Self { host: host.clone(), core, device })
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.core.contract
    }

    /// The graphs, the smallest first.
    pub(crate) fn graphs(&self) -> &[(Graph, Sizes)] {
        &self.core.graphs
    }

    /// The devices and providers it is placed on.
    pub(crate) fn location(&self) -> Location<'_> {
        self.core.ladder.location()
    }

    /// Sessions that run at the same time if memory holds them.
    pub(crate) fn streams(&self) -> usize {
        self.core.ladder.streams()
    }

    /// How many requests of one sample are served at the same time: enough to fill the largest run of these groups on
    /// each stream, plus one that is being prepared.
    pub(crate) fn concurrency<'g>(&self, groups: impl IntoIterator<Item = &'g Arc<Group>>) -> usize {
        let batch = groups.into_iter().map(|group| group.batch()).max().unwrap_or(1);
        self.streams() * batch + 1
    }

    /// Threads of each session on the CPU; `None`: ONNX Runtime's default for one session.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.core.ladder.threads()
    }

    /// Whether memory may hold a session of this graph.
    pub(crate) fn may_hold(&self, graph: &Graph) -> bool {
        self.core.ladder.may_hold(graph)
    }

    /// What memory allows now.
    pub(crate) fn used(&self) -> Used {
        Used { streams: self.core.streams(), batch: self.core.batch() }
    }

    /// The providers that took the nodes of the session that was opened last.
    pub(crate) fn assigned(&self) -> Vec<Assigned> {
        self.core.assigned()
    }

    /// The graph that takes inputs of these shapes: one of exactly these sizes, else the smallest whose free sizes
    /// allow them.
    pub(crate) fn graph_for(&self, inputs: &Shapes) -> Result<usize> {
        let fixed = self.graphs().iter().position(|(graph, _)| graph.inputs == *inputs);
        let free = || self.graphs().iter().position(|(graph, _)| graph.for_inputs(self.contract(), inputs).is_some());
        fixed.or_else(free).ok_or_else(|| self.no_graph(shapes_text(inputs)))
    }

    /// The error that no graph takes the wanted shapes; it lists the shapes of the existing graphs.
    pub(crate) fn no_graph(&self, wanted: String) -> Error {
        Error::NoSuchShapes { wanted, known: self.graphs().iter().map(|(graph, _)| graph.inputs_text()).collect() }
    }

    /// The graphs that differ from one of [`Network::graphs`] only in the number of samples. Only outputs that
    /// `wanted` accepts are read.
    pub(crate) fn group(&self, graph: usize, wanted: impl Fn(&TensorSpec) -> bool) -> Result<Arc<Group>> {
        let (record, _) = self.graphs().get(graph).ok_or_else(|| Error::internal("network"))?;
        self.group_of(record, usize::MAX, wanted)
    }

    /// The graphs that take the inputs of `record`, with at most `most` samples in a run.
    pub(crate) fn group_of(
        &self,
        record: &Graph,
        most: usize,
        wanted: impl Fn(&TensorSpec) -> bool,
    ) -> Result<Arc<Group>> {
        Ok(Arc::new(Group::new(self.shared().id(), &self.core, record, most, wanted)?))
    }

    /// Adds a sample to the queue; its answer carries `number`.
    pub(crate) fn submit(
        &self,
        ticket: &Ticket,
        group: &Arc<Group>,
        number: u64,
        inputs: Vec<Values>,
        answer: &AnswerSender,
    ) -> Result<()> {
        ticket.submit(self.device, group, vec![(number, inputs)], answer)
    }

    /// Announces that more samples of a group will come soon, so that queued samples wait for them. Holds until the
    /// returned guard is dropped.
    pub(crate) fn announce<'t>(&self, ticket: &'t Ticket, group: &Group) -> Announced<'t> {
        let (device, key) = (self.device, group.key(&[]));
        ticket.announce(device, &key, true);
        Announced { ticket, device, key }
    }

    /// Runs samples, waits for all of them, and returns their results in order.
    pub(crate) fn run(&self, ticket: &Ticket, group: &Arc<Group>, samples: Vec<Vec<Values>>) -> Result<Vec<Made>> {
        let (answer, answers) = answers();
        let count = samples.len();
        ticket.submit(self.device, group, (0..).zip(samples).collect(), &answer)?;
        drop(answer);
        let mut made: Vec<Option<Made>> = (0..count).map(|_| None).collect();
        for Answer { number, made: result, .. } in answers {
            let place = usize::try_from(number).ok().and_then(|number| made.get_mut(number));
            *place.ok_or_else(|| Error::internal("network"))? = Some(result?);
        }
        made.into_iter().map(|made| made.ok_or_else(|| Error::internal("stream"))).collect()
    }

    /// Opens the session with the group's largest batch that memory holds, and allocates its tensors.
    pub(crate) fn ready(&self, ticket: &Ticket, group: &Arc<Group>) -> Result<()> {
        self.turn(ticket, Some(Wanted::LargestOf(group.clone()))).map(drop)
    }

    /// Calls `work` with a session of a graph when its turn comes. Calls it again after it ran out of memory, if other
    /// sessions could be closed.
    pub(crate) fn call<T>(
        &self,
        ticket: &Ticket,
        graph: usize,
        mut work: impl FnMut(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let mut grant = self.turn(ticket, Some(Wanted::Graph(graph)))?;
        let lending = grant.lending.as_mut().ok_or_else(|| Error::internal("network"))?;
        let room = self.room(lending.key);
        let session = &mut lending.lent()?.session;
        let samples = self.graphs().get(graph).map_or(1, |(_, sizes)| sizes.batch.max(1));
        room.run(samples, || work(session)).map(|(made, _)| made)
    }

    /// Binds the tensors of a graph, for runs that carry state to the next run. The session's memory counts as used as
    /// long as they are bound.
    pub(crate) fn lease(&self, ticket: &Ticket, graph: usize) -> Result<Lease> {
        let mut grant = self.turn(ticket, Some(Wanted::Graph(graph)))?;
        let lending = grant.lending.as_mut().ok_or_else(|| Error::internal("network"))?;
        let (key, session) = (lending.key, &lending.lent()?.session);
        let room = self.room(key);
        let bound = room.retry(|| Ok(session.bind_contract(self.contract())?))?;
        let pin = Pin::new(room);
        let named = |spec: &TensorSpec| Some((spec.name.clone(), session.buffer(&spec.name).ok()?));
        // Carried state stays on the device.
        let own = |spec: &&TensorSpec| !matches!(spec.meaning, Meaning::Carried { .. } | Meaning::Cache);
        let specs = self.contract().inputs.iter().chain(&self.contract().outputs).filter(own);
        let buffers = specs.filter_map(named).collect();
        Ok(Lease { bound, buffers, pin, device: self.device, id: self.shared().id() })
    }

    fn room(&self, key: SessionKey) -> Room {
        Room { shared: self.shared().clone(), core: self.core.clone(), key }
    }

    /// Closes the sessions that are idle. They are opened again when they are needed.
    pub(crate) fn close_sessions(&self) {
        self.shared().sessions.close_idle(|key, _| key.engine == self.core.id);
    }

    fn turn(&self, ticket: &Ticket, session: Option<Wanted>) -> Result<Grant> {
        turn(ticket, self.device, &self.core, session, self.shared().id())
    }

    fn shared(&self) -> &Arc<Shared> {
        self.host.shared()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.core.retire();
        self.close_sessions();
    }
}

/// The announcement of more samples, until it is dropped.
pub(crate) struct Announced<'t> {
    ticket: &'t Ticket,
    device: usize,
    key: Key,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.ticket.announce(self.device, &self.key, false);
    }
}

/// Waits for exclusive use of a stream.
fn turn(ticket: &Ticket, device: usize, core: &Arc<Core>, session: Option<Wanted>, id: u64) -> Result<Grant> {
    let (granted, grants) = unbounded();
    let key = Key { group: id, shared: Vec::new() };
    let (core, cancel, visit) = (core.clone(), ticket.cancel().clone(), ticket.stages().visit());
    ticket.push(device, vec![(key, false, Work::Turn(Turn { core, session, cancel, visit, granted }))])?;
    grants.recv().unwrap_or_else(|_| Err(Error::internal("stream")))
}

/// "image [1, 3, 64, 64], timestep [1]".
pub(crate) fn shapes_text(shapes: &Shapes) -> String {
    shapes.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect::<Vec<_>>().join(", ")
}

/// Tensors that are bound to a graph, for runs that carry state to the next run.
pub(crate) struct Lease {
    bound: Bound,
    /// The host-side buffers of the inputs and outputs that are not carried, by name.
    buffers: std::collections::BTreeMap<String, Buffer>,
    pin: Pin,
    device: usize,
    id: u64,
}

impl Lease {
    /// The buffer of an input or output.
    pub(crate) fn buffer(&mut self, name: &str) -> Result<&mut Buffer> {
        self.buffers.get_mut(name).ok_or_else(|| Error::internal("lease"))
    }

    /// Takes over the carried state of another lease of the same network.
    pub(crate) fn receive(&mut self, from: &Self) -> Result<()> {
        Ok(self.bound.receive(&from.bound)?)
    }

    /// Runs the graph when its turn comes: reads the input buffers, fills the output buffers. Returns the time of the
    /// run.
    pub(crate) fn run(&mut self, ticket: &Ticket) -> Result<Duration> {
        let Self { bound, buffers, pin: Pin { room, .. }, device, id } = self;
        let _grant = turn(ticket, *device, &room.core, None, *id)?;
        let own = |specs: &[TensorSpec]| -> Vec<String> {
            specs.iter().map(|spec| spec.name.clone()).filter(|name| buffers.contains_key(name)).collect()
        };
        let (inputs, outputs) = (own(&room.core.contract.inputs), own(&room.core.contract.outputs));
        for name in &inputs {
            if let Some(buffer) = buffers.get(name) {
                bound.write(name, buffer)?;
            }
        }
        // A failed run does not change the carried state, so that it can run again.
        let ((), took) = room.run(1, || Ok(bound.run(ticket.cancel())?))?;
        for name in &outputs {
            if let Some(buffer) = buffers.get_mut(name) {
                bound.read(name, buffer)?;
            }
        }
        Ok(took)
    }
}

/// The memory around a session.
struct Room {
    shared: Arc<Shared>,
    core: Arc<Core>,
    key: SessionKey,
}

impl Room {
    /// Calls `work`, and again after it ran out of memory if idle sessions beside this one could be closed.
    fn retry<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        let sessions = &self.shared.sessions;
        retry(work, || sessions.memory_of(self.key).is_some_and(|memory| sessions.close_beside(memory, self.key)))
    }

    /// Calls `work` as [`Room::retry`], counts it as a run of so many samples, and also returns how long it took.
    fn run<T>(&self, samples: usize, work: impl FnMut() -> Result<T>) -> Result<(T, Duration)> {
        let began = Instant::now();
        let made = self.retry(work).inspect_err(|_| self.shared.record_failure())?;
        let took = began.elapsed();
        self.shared.record_run(&self.core, samples, took);
        Ok((made, took))
    }
}

/// Calls `work` again as long as it runs out of memory and `make_room` frees some.
fn retry<T>(mut work: impl FnMut() -> Result<T>, mut make_room: impl FnMut() -> bool) -> Result<T> {
    loop {
        match work() {
            Err(error) if error.is_out_of_memory() && make_room() => {}
            done => return done,
        }
    }
}

/// Keeps a session's memory counted.
struct Pin {
    room: Room,
    pinned: Option<Pinned>,
}

impl Pin {
    fn new(room: Room) -> Self {
        let pinned = room.shared.sessions.pin(room.key);
        Self { room, pinned }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            self.room.shared.sessions.unpin(pinned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memory_does_not_hold_is_done_again_while_more_can_be_had() {
        let full = || Error::Session(tileforge_session::Error::OutOfMemory { shape: vec![9], reason: "full".into() });
        // Fails `failures` times before it succeeds; room can be made `rooms` times.
        let attempts = |failures: usize, rooms: usize, other: bool| {
            let (mut tried, mut made) = (0, 0);
            let work = || {
                tried += 1;
                let error = || if other { Error::Cancelled } else { full() };
                if tried > failures { Ok(tried) } else { Err(error()) }
            };
            let result = retry(work, || {
                made += 1;
                made <= rooms
            });
            (result.is_ok(), tried)
        };
        assert_eq!(attempts(0, 0, false), (true, 1));
        assert_eq!(attempts(2, 2, false), (true, 3));
        assert_eq!(attempts(3, 2, false), (false, 3));
        assert_eq!(attempts(1, 9, true), (false, 1));
    }
}
