//! An engine that is ready for streams of frames.

use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_session::{Location, Placement};

use super::interface::Interface;
use super::pace::Pace;
use super::stages::{Shown, play};
use super::statistics::StreamStatistics;
use crate::error::{Error, Result};
use crate::frames::FrameStream;
use crate::host::{Host, Network, Reply, Task};

/// How frames are computed.
#[derive(Clone, Debug, Default)]
pub struct RealtimeOptions {
    /// Where the engine runs.
    pub placement: Placement,
    /// The network's size, one of the engine's; `None`: for each stream the size with the nearest proportions; of
    /// several, the largest.
    pub size: Option<Size>,
    /// The timesteps of each frame, one run for each; empty: the smallest timestep that the contract allows.
    pub timesteps: Vec<f32>,
    /// The rate at which frames are due; `None`: as fast as frames arrive and can be computed.
    pub pace: Option<Pace>,
}

/// A stream that is opened when its turn comes.
pub struct RealtimeRequest(Box<dyn FnOnce() -> Result<Box<dyn FrameStream>> + Send>);

impl RealtimeRequest {
    /// A stream that `open` opens on another thread.
    pub fn new(open: impl FnOnce() -> Result<Box<dyn FrameStream>> + Send + 'static) -> Self {
        Self(Box::new(open))
    }
}

impl std::fmt::Debug for RealtimeRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RealtimeRequest").finish_non_exhaustive()
    }
}

/// An engine that turns frames into frames: the task of a [`Service`](crate::host::Service). Each stream begins
/// with zeros as its previous output.
pub struct Player {
    engine: Network,
    interface: Interface,
    /// The sizes of the frames in the graphs for one frame, with the graphs' numbers.
    sizes: Vec<(Size, usize)>,
    timesteps: Vec<f32>,
    pace: Option<Pace>,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Player").field("timesteps", &self.timesteps).finish_non_exhaustive()
    }
}

impl Player {
    /// A player for an engine, on the best provider that fits this machine.
    ///
    /// # Errors
    /// As [`Ladder::new`](tileforge_session::Ladder::new); [`Error::Tensor`]: the contract has tensors that a player
    /// does not know, or does not allow a timestep; [`Error::NoSuchTile`]: the engine has no graph of the requested
    /// size.
    pub fn new(host: &Host, engine: &Engine, options: RealtimeOptions) -> Result<Self> {
        let interface = Interface::of(&engine.manifest().contract)?;
        let engine = Network::new(host, engine, options.placement)?;
        let [height, width] = interface.sides;
        let side = |step: usize, length: usize| u32::try_from(step * length).unwrap_or(u32::MAX);
        let sized = |(graph, (_, sizes)): (usize, &(_, tileforge_contract::Sizes))| {
            let size = Size { width: side(width.step, sizes.width), height: side(height.step, sizes.height) };
            (sizes.batch == 1).then_some((size, graph))
        };
        let mut sizes: Vec<(Size, usize)> = engine.graphs().iter().enumerate().filter_map(sized).collect();
        let known: Vec<Size> = sizes.iter().map(|(size, _)| *size).collect();
        if let Some(wanted) = options.size {
            sizes.retain(|(size, _)| *size == wanted);
            if sizes.is_empty() {
                return Err(Error::NoSuchTile { wanted, known });
            }
        }
        if sizes.is_empty() {
            return Err(engine.no_graph("one frame".into()));
        }
        let timesteps = timesteps(&interface, options.timesteps)?;
        Ok(Self { engine, interface, sizes, timesteps, pace: options.pace })
    }

    /// The graph for frames of a size: the same size, or the nearest proportions; of several, the largest.
    fn graph_for(&self, frame: Size) -> Option<(Size, usize)> {
        let proportion = |size: Size| (f64::from(size.width) / f64::from(size.height)).ln();
        let off = |size: Size| (proportion(size) - proportion(frame)).abs();
        let best = |one: &&(Size, usize), other: &&(Size, usize)| {
            let exact = (other.0 == frame).cmp(&(one.0 == frame));
            exact.then(off(one.0).total_cmp(&off(other.0))).then(other.0.pixels().cmp(&one.0.pixels()))
        };
        self.sizes.iter().min_by(best).copied()
    }

    /// Plays a stream to its end.
    fn play(&self, mut stream: Box<dyn FrameStream>, reply: &Reply<StreamStatistics>) -> Result<StreamStatistics> {
        let first = stream.next()?.ok_or(Error::NoFrames)?;
        let (size, graph) = self.graph_for(first.0.header().size).ok_or_else(|| Error::internal("realtime"))?;
        let lease = self.engine.lease(reply.ticket(), graph)?;
        let shown = Shown::new(lease, self.engine.assigned(), size, &self.interface, &self.timesteps);
        play(shown, stream, first, self.pace, reply)
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.engine.location()
    }
}

/// The timesteps of each frame: the requested ones, checked against the contract's range.
fn timesteps(interface: &Interface, asked: Vec<f32>) -> Result<Vec<f32>> {
    let wrong = |expected: String, found: String| {
        let tensor = interface.timestep.as_ref().map_or("timestep".into(), |(name, _)| name.clone());
        Error::Tensor { tensor, expected, found }
    };
    match (&interface.timestep, asked.as_slice()) {
        (None, []) => Ok(vec![0.0]),
        (None, _) => Err(wrong("no timestep: the network takes none".into(), format!("{asked:?}"))),
        (Some((_, [least, _])), []) => Ok(vec![*least]),
        (Some((_, [least, largest])), _) => match asked.iter().find(|step| !(*least..=*largest).contains(*step)) {
            Some(step) => Err(wrong(format!("timesteps from {least} to {largest}"), step.to_string())),
            None => Ok(asked),
        },
    }
}

impl Task for Player {
    const NAME: &'static str = "realtime";
    type Request = RealtimeRequest;
    type Output = StreamStatistics;

    fn concurrency(&self) -> usize {
        self.engine.streams()
    }

    fn serve(&self, request: RealtimeRequest, reply: &Reply<StreamStatistics>) -> Result<StreamStatistics> {
        self.play((request.0)()?, reply)
    }
}
