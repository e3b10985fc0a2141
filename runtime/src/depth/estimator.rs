//! An engine that is ready to give depth.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tileforge_contract::ChannelOrder;
use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_session::{Assigned, Location, Placement};

use super::estimate::{DepthKind, Estimate};
use super::fitting::{Fitted, INPUT_SIZE, fit, network_size};
use super::interface::Interface;
use super::map::DepthMap;
use crate::error::{Error, Result};
use crate::host::{Group, Host, Network, Reply, Task, Ticket, Values};
use crate::pixels::{Pixels, bilinear_with_corners, check_finite, nearest_as_opencv, nearest_as_pytorch};

/// How depth is computed.
#[derive(Clone, Debug, Default)]
pub struct DepthOptions {
    /// Where the engine runs.
    pub placement: Placement,
    /// The order in which the network gets the channels. `None`: blue, green, red for a network that takes a map, as
    /// in the reference's script; otherwise the contract's order.
    pub channel_order: Option<ChannelOrder>,
    /// The least length of the picture's shorter side in the network; `None`: it follows from the engine's graph that
    /// fits.
    pub input_size: Option<u32>,
}

/// A picture that has been opened.
#[derive(Clone, Debug)]
pub struct DepthInput {
    /// The picture.
    pub picture: Pixels,
    /// The rough map, for a network that takes one: of the same size.
    pub map: Option<DepthMap>,
}

type Opener = Box<dyn FnOnce() -> Result<DepthInput> + Send>;
type Writer = Box<dyn FnOnce(&Estimate) -> Result<()> + Send>;

/// A request for the depth of a picture.
pub struct DepthRequest {
    open: Opener,
    write: Writer,
}

impl DepthRequest {
    /// A picture that `open` opens when its turn comes. `write` receives its depth. Both run on another thread.
    pub fn new(
        open: impl FnOnce() -> Result<DepthInput> + Send + 'static,
        write: impl FnOnce(&Estimate) -> Result<()> + Send + 'static,
    ) -> Self {
        Self { open: Box::new(open), write: Box::new(write) }
    }
}

impl std::fmt::Debug for DepthRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DepthRequest").finish_non_exhaustive()
    }
}

/// What a picture took.
#[derive(Clone, Debug, Serialize)]
pub struct DepthStatistics {
    /// Size of the picture, and of the result.
    pub size: Size,
    /// Size in the network.
    pub network_size: Size,
    /// The engine has no graph for the picture's proportions, so the picture was stretched.
    pub stretched: bool,
    /// The size that the network would use if the engine had a graph for the picture's proportions.
    pub proportionate_size: Size,
    /// Pixels for which the network gives no depth.
    pub missing: usize,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// Seconds to read and convert the picture and its map.
    pub open_seconds: f64,
    /// Seconds in the network.
    pub run_seconds: f64,
    /// Seconds to convert and write the result.
    pub write_seconds: f64,
}

/// An engine that gives depth: the task of a [`Service`](crate::host::Service).
pub struct Estimator {
    network: Network,
    interface: Interface,
    /// The sizes that the picture may have in the network, each once.
    sizes: Vec<Size>,
    /// The group for each of these sizes.
    groups: Vec<Arc<Group>>,
    options: DepthOptions,
}

impl std::fmt::Debug for Estimator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Estimator").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Estimator {
    /// An estimator for an engine, on the best provider that fits this machine.
    ///
    /// # Errors
    /// As [`Ladder::new`](tileforge_session::Ladder::new); [`Error::Tensor`]: the contract has tensors that an
    /// estimator does not know.
    pub fn new(host: &Host, engine: &Engine, options: DepthOptions) -> Result<Self> {
        let interface = Interface::of(&engine.manifest().contract)?;
        let network = Network::new(host, engine, options.placement.clone())?;
        let side = |length: usize| u32::try_from(length * interface.side.step).unwrap_or(u32::MAX);
        let size = |sizes: &tileforge_contract::Sizes| Size { width: side(sizes.width), height: side(sizes.height) };
        let (mut sizes, mut groups) = (Vec::new(), Vec::new());
        for (graph, (_, of_graph)) in network.graphs().iter().enumerate() {
            let size = size(of_graph);
            if !sizes.contains(&size) {
                sizes.push(size);
                groups.push(network.group(graph, |output| output.name == interface.depth)?);
            }
        }
        Ok(Self { network, interface, sizes, groups, options })
    }

    /// Whether it needs a rough map beside each picture.
    pub fn takes_map(&self) -> bool {
        self.interface.map.is_some()
    }

    /// What the values of its estimates are.
    pub fn kind(&self) -> DepthKind {
        self.interface.kind
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.network.location()
    }

    /// How many pictures run at the same time.
    pub fn streams(&self) -> usize {
        self.network.streams()
    }

    fn estimate(&self, ticket: &Ticket, request: DepthRequest) -> Result<DepthStatistics> {
        let started = Instant::now();
        let DepthInput { picture, map } = (request.open)()?;
        let size = picture.size;
        let fitted = self.fitted(size)?;
        let in_network = self.sizes[fitted.index];
        let inputs = self.inputs(&picture, map.as_ref(), in_network)?;
        drop((picture, map));
        let opened = Instant::now();
        let made = self.network.run(ticket, &self.groups[fitted.index], vec![inputs])?.pop();
        let made = made.ok_or_else(|| Error::internal("depth"))?;
        let ran = Instant::now();
        let values = made.outputs.into_iter().next().ok_or_else(|| Error::internal("depth"))?;
        let estimate = self.output(&values.into_f32()?, in_network, size)?;
        (request.write)(&estimate)?;
        let (written, missing) = (Instant::now(), estimate.missing());
        Ok(DepthStatistics {
            size,
            network_size: in_network,
            stretched: fitted.stretched,
            proportionate_size: network_size(size, INPUT_SIZE, self.interface.side),
            missing,
            assigned: self.network.assigned(),
            open_seconds: (opened - started).as_secs_f64(),
            run_seconds: (made.ended - made.began).as_secs_f64(),
            write_seconds: (written - ran).as_secs_f64(),
        })
    }

    fn fitted(&self, picture: Size) -> Result<Fitted> {
        let side = self.interface.side;
        let input_size = self.options.input_size.unwrap_or(INPUT_SIZE);
        fit(picture, &self.sizes, self.options.input_size, side).ok_or_else(|| Error::NoSuchInputSize {
            picture,
            input_size,
            wanted: network_size(picture, input_size, side),
            known: self.sizes.clone(),
        })
    }

    /// The network's inputs, in the contract's order.
    fn inputs(&self, picture: &Pixels, map: Option<&DepthMap>, size: Size) -> Result<Vec<Values>> {
        let Interface { picture: name, values, map: takes, .. } = &self.interface;
        let order = self.options.channel_order.or(takes.is_some().then_some(ChannelOrder::Bgr));
        let values = match order.filter(|_| values.channels() == 3) {
            Some(order) => values.in_order(order),
            None => *values,
        };
        let mut planes = vec![0.0; values.channels() * size.pixels() as usize];
        values.encode(&picture.cubic_as_opencv(size), &mut planes);
        let mut inverse = None;
        match (takes, map) {
            (Some((name, missing)), Some(map)) => {
                if map.size != picture.size {
                    return Err(Error::MapSize { picture: picture.size, map: map.size });
                }
                inverse = Some((name, nearest_as_opencv(&map.inverse(*missing), map.size, size)));
            }
            (None, None) => {}
            (Some((name, _)), None) => {
                let (expected, found) = ("a depth map beside the picture".into(), "none".into());
                return Err(Error::Tensor { tensor: name.clone(), expected, found });
            }
            (None, Some(_)) => {
                let (tensor, expected) = ("depth map".into(), "no map: the engine takes pictures alone".into());
                return Err(Error::Tensor { tensor, expected, found: "one".into() });
            }
        }
        let mut planes = Some(planes);
        let inputs = self.network.contract().inputs.iter().map(|input| match &mut inverse {
            _ if input.name == *name => planes.take(),
            Some((map, values)) if input.name == **map => Some(std::mem::take(values)),
            _ => None,
        });
        inputs.map(|values| values.map(Values::F32).ok_or_else(|| Error::internal("depth"))).collect()
    }

    fn output(&self, values: &[f32], network_size: Size, size: Size) -> Result<Estimate> {
        let Interface { kind, .. } = &self.interface;
        check_finite(values, network_size)?;
        let values = match kind {
            DepthKind::Metres => {
                // The reciprocal of a tiny value overflows to infinity: no depth, as in the reference.
                let metres = |inverse: f32| Some(1.0 / inverse).filter(|_| inverse > 0.0);
                let metres = |inverse| metres(inverse).filter(|metres| metres.is_finite()).unwrap_or(0.0);
                nearest_as_pytorch(values, network_size, size).into_iter().map(metres).collect()
            }
            DepthKind::RelativeInverse => bilinear_with_corners(values, network_size, size),
        };
        Ok(Estimate { size, kind: *kind, values })
    }
}

impl Task for Estimator {
    const NAME: &'static str = "depth";
    type Request = DepthRequest;
    type Output = DepthStatistics;

    fn concurrency(&self) -> usize {
        self.network.concurrency(&self.groups)
    }

    fn serve(&self, request: DepthRequest, reply: &Reply<DepthStatistics>) -> Result<DepthStatistics> {
        self.estimate(reply.ticket(), request)
    }
}
