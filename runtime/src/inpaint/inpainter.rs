//! An engine that is ready to fill in pictures.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tileforge_contract::{Inpaint, TensorSpec};
use tileforge_engine::Engine;
use tileforge_image::{Header, Limits, RowSink, RowSource, Size};
use tileforge_session::{Assigned, Location, Placement};

use super::picture::{Hole, Picture};
use super::place::{Area, Place, mirrored, place};
use crate::error::{Error, Result};
use crate::host::{Group, Host, Network, Reply, Task, Ticket, Values};
use crate::pixels::{PixelValues, Pixels};

/// How pictures are filled in.
#[derive(Clone, Debug, Default)]
pub struct InpaintOptions {
    /// Where the engine runs.
    pub placement: Placement,
}

/// A picture and its mask, both opened.
pub struct InpaintInput {
    /// The picture.
    pub picture: Box<dyn RowSource>,
    /// The mask, of the same size: white where the picture is filled in.
    pub mask: Box<dyn RowSource>,
    /// The limits of both files, because both are held whole in memory.
    pub limits: Limits,
}

impl std::fmt::Debug for InpaintInput {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("InpaintInput").finish_non_exhaustive()
    }
}

type Opener = Box<dyn FnOnce() -> Result<InpaintInput> + Send>;
type Creator = Box<dyn FnOnce(&Header) -> Result<Box<dyn RowSink>> + Send>;

/// A picture to fill in.
pub struct InpaintRequest {
    open: Opener,
    create: Creator,
}

impl InpaintRequest {
    /// A picture that `open` opens when its turn comes. `create` makes the sink of the result from its header. Both
    /// run on another thread.
    pub fn new(
        open: impl FnOnce() -> Result<InpaintInput> + Send + 'static,
        create: impl FnOnce(&Header) -> Result<Box<dyn RowSink>> + Send + 'static,
    ) -> Self {
        Self { open: Box::new(open), create: Box::new(create) }
    }
}

impl std::fmt::Debug for InpaintRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("InpaintRequest").finish_non_exhaustive()
    }
}

/// What a picture took.
#[derive(Clone, Debug, Serialize)]
pub struct InpaintStatistics {
    /// Size of the picture, and of the result.
    pub size: Size,
    /// Pixels that were regenerated.
    pub filled: usize,
    /// The part of the picture that the network received; `None` if the mask covers nothing.
    pub area: Option<Area>,
    /// The size of that part in the network.
    pub shown_size: Option<Size>,
    /// Size of the graph.
    pub network_size: Option<Size>,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// Seconds to read the picture and its mask.
    pub open_seconds: f64,
    /// Seconds in the network.
    pub run_seconds: f64,
    /// Seconds to convert and write the result.
    pub write_seconds: f64,
}

/// An engine that fills in pictures: the task of a [`Service`](crate::host::Service).
pub struct Inpainter {
    network: Network,
    interface: Inpaint,
    values: PixelValues,
    /// The sizes of the engine's graphs, each once.
    sizes: Vec<Size>,
    /// The group for each of these sizes.
    groups: Vec<Arc<Group>>,
}

impl std::fmt::Debug for Inpainter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inpainter").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl Inpainter {
    /// An inpainter for an engine, on the best provider that fits this machine.
    ///
    /// # Errors
    /// As [`Ladder::new`](tileforge_session::Ladder::new); [`Error::Contract`]: the engine is for another task.
    pub fn new(host: &Host, engine: &Engine, options: InpaintOptions) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let interface = Inpaint::of(contract)?;
        let values = contract.input(&interface.image).and_then(PixelValues::of);
        let values = values.ok_or_else(|| Error::internal("inpaint"))?;
        let network = Network::new(host, engine, options.placement)?;
        let side = |length: usize| u32::try_from(length * interface.size_multiple).unwrap_or(u32::MAX);
        let (mut sizes, mut groups) = (Vec::new(), Vec::new());
        for (graph, (_, of_graph)) in network.graphs().iter().enumerate() {
            let size = Size { width: side(of_graph.width), height: side(of_graph.height) };
            if !sizes.contains(&size) {
                sizes.push(size);
                groups.push(network.group(graph, |output: &TensorSpec| output.name == interface.output)?);
            }
        }
        Ok(Self { network, interface, values, sizes, groups })
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.network.location()
    }

    /// How many pictures run at the same time.
    pub fn streams(&self) -> usize {
        self.network.streams()
    }

    fn fill(&self, ticket: &Ticket, InpaintRequest { open, create }: InpaintRequest) -> Result<InpaintStatistics> {
        let started = Instant::now();
        let InpaintInput { mut picture, mut mask, limits } = open()?;
        let (size, of_mask) = (picture.header().size, mask.header().size);
        if size != of_mask {
            return Err(Error::MaskSize { picture: size, mask: of_mask });
        }
        let hole = Hole::new(&Pixels::read(&mut *mask, &limits)?);
        let picture = Picture::read(&mut *picture, &limits)?;
        let sink = create(picture.header())?;
        let opened = Instant::now();
        let filled = match hole.bounds() {
            Some(bounds) => {
                let place = place(size, bounds, &self.sizes).ok_or_else(|| Error::internal("inpaint"))?;
                Some((self.run(ticket, &picture.pixels, &hole, place)?, place))
            }
            None => None,
        };
        let ran = Instant::now();
        let made = filled.as_ref().map(|((made, _), place)| (made, place.area));
        picture.write(&hole, made, sink)?;
        let place = filled.as_ref().map(|(_, place)| place);
        Ok(InpaintStatistics {
            size,
            filled: hole.count(),
            area: place.map(|place| place.area),
            shown_size: place.map(|place| place.shown),
            network_size: place.map(|place| self.sizes[place.graph]),
            assigned: self.network.assigned(),
            open_seconds: (opened - started).as_secs_f64(),
            run_seconds: filled.as_ref().map_or(0.0, |((_, seconds), _)| *seconds),
            write_seconds: ran.elapsed().as_secs_f64(),
        })
    }

    /// The network's result for a part of the picture, in the part's size, and the seconds that the network took.
    fn run(&self, ticket: &Ticket, picture: &Pixels, hole: &Hole, place: Place) -> Result<(Pixels, f64)> {
        let Place { graph, area, shown } = place;
        let size = self.sizes[graph];
        let part = picture.part(area.left, area.top, area.size).resized(shown)?;
        let mut planes = vec![0.0; self.values.channels() * shown.pixels() as usize];
        self.values.encode(&part, &mut planes);
        let image = mirrored(&planes, shown, size);
        let mask = mirrored(&hole.shown(area, shown), shown, size);
        let (mut image, mut mask) = (Some(image), Some(mask));
        let inputs = self.network.contract().inputs.iter().map(|input| {
            let values = if input.name == self.interface.image { image.take() } else { mask.take() };
            values.map(Values::F32).ok_or_else(|| Error::internal("inpaint"))
        });
        let inputs = inputs.collect::<Result<Vec<Values>>>()?;
        let made = self.network.run(ticket, &self.groups[graph], vec![inputs])?.pop();
        let made = made.ok_or_else(|| Error::internal("inpaint"))?;
        let seconds = (made.ended - made.began).as_secs_f64();
        let values = made.outputs.into_iter().next().ok_or_else(|| Error::internal("inpaint"))?;
        let made = self.values.decode(&values.into_f32()?, size)?.part(0, 0, shown);
        Ok((made.resized(area.size)?, seconds))
    }
}

impl Task for Inpainter {
    const NAME: &'static str = "inpaint";
    type Request = InpaintRequest;
    type Output = InpaintStatistics;

    fn concurrency(&self) -> usize {
        self.network.concurrency(&self.groups)
    }

    fn serve(&self, request: InpaintRequest, reply: &Reply<InpaintStatistics>) -> Result<InpaintStatistics> {
        self.fill(reply.ticket(), request)
    }
}
