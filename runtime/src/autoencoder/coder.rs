//! What both halves of an autoencoder share: tiles in space and chunks in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tileforge_contract::Contract;
use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_image::tile::{Blend, Overlap, TilePlan};
use tileforge_session::{Assigned, Location, Placement};

use super::chunks::{Chunk, Cut};
use super::interface::{Direction, Interface};
use crate::error::{Error, Result};
use crate::host::{Group, Host, Lease, Limit, Network, Ticket, Values};
use crate::tiling::{Tiling, cut};

/// Tiles of a picture that may wait in the queue for each place in a run.
const AHEAD: usize = 2;

/// How pictures and clips are coded.
#[derive(Clone, Debug, Default)]
pub struct CodingOptions {
    /// Where the engines run.
    pub placement: Placement,
    /// Overlap of tiles in pixels of the picture, if the picture is larger than the engine's graphs; `None`: a quarter
    /// of the tile, for clips an eighth.
    pub overlap: Option<u32>,
}

/// What a picture or clip took.
#[derive(Clone, Debug, Serialize)]
pub struct CodingStatistics {
    /// Width and height of the pixels.
    pub size: Size,
    /// Frames of pixels; 1 for a picture.
    pub frames: usize,
    /// Width and height of the latent.
    pub latent_size: Size,
    /// Latent frames; 1 for a picture.
    pub latent_frames: usize,
    /// Size of a tile, in pixels of the picture.
    pub tile: Size,
    /// Tiles of each chunk. With one tile, the result equals the result of the whole picture.
    pub tiles: u64,
    /// Chunks in time. Chunks do not change the result.
    pub chunks: usize,
    /// The picture was extended to the engine's size or to a multiple of the latent's pixels, and the result was
    /// cropped.
    pub padded: bool,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// Seconds in the network.
    pub run_seconds: f64,
    /// Seconds in total.
    pub seconds: f64,
}

/// One half of an autoencoder on this machine.
pub(super) struct Coder {
    pub(super) interface: Interface,
    pub(super) first: Network,
    /// The groups that run the tiles of pictures, by the number of their graph of batch 1. The tiles of all pictures
    /// share runs.
    groups: BTreeMap<usize, Arc<Group>>,
    /// The network for the later chunks of clips.
    next: Option<Network>,
    overlap: Option<u32>,
    /// How many of the graphs, from the smallest on, memory holds: fewer after one did not fit.
    held: Mutex<Limit>,
}

/// A graph and the size of its tile.
type Sized = (usize, Size);

/// How a caller follows work and stops it.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'w> {
    /// When the work began.
    pub(crate) began: Instant,
    /// The request in the host's queues.
    pub(crate) ticket: &'w Ticket,
    /// Receives the number of chunks that are done, and the total once it is known.
    pub(crate) progress: &'w dyn Fn(u64, Option<u64>),
}

impl Coder {
    pub(super) fn new(
        host: &Host,
        engine: &Engine,
        next: Option<&Engine>,
        direction: Direction,
        options: CodingOptions,
    ) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let interface = Interface::of(contract)?;
        let verb = |direction| if direction == Direction::Encode { "that encodes" } else { "that decodes" };
        if interface.direction != direction {
            return Err(Error::Tensor {
                tensor: interface.input,
                expected: format!("an engine {}", verb(direction)),
                found: format!("one {}", verb(interface.direction)),
            });
        }
        if let Some(next) = next {
            check_pair(contract, &next.manifest().contract)?;
        }
        if contract.inputs.len() > 1 {
            return Err(Error::Tensor {
                tensor: contract.inputs.last().map(|input| input.name.clone()).unwrap_or_default(),
                expected: "an engine for the first chunk of a clip".into(),
                found: "one for later chunks, which needs what the first one keeps".into(),
            });
        }
        let network = |engine| Network::new(host, engine, options.placement.clone());
        let (first, next) = (network(engine)?, next.map(network).transpose()?);
        let singles = first.graphs().iter().enumerate().filter(|(_, (_, sizes))| sizes.batch == 1);
        let group = |graph| Ok((graph, first.group(graph, |output| output.name == interface.output)?));
        let groups = singles.map(|(graph, _)| group(graph)).collect::<Result<BTreeMap<_, _>>>()?;
        let held = Mutex::new(Limit::new(groups.len()));
        Ok(Self { interface, first, groups, next, overlap: options.overlap, held })
    }

    /// How many pictures and clips are served at the same time. Clips share no runs.
    pub(super) fn concurrency(&self) -> usize {
        self.first.concurrency(self.groups.values().filter(|_| !self.is_clip()))
    }

    /// Closes the sessions, until they are needed again.
    pub(super) fn close_sessions(&self) {
        self.first.close_sessions();
        self.next.iter().for_each(Network::close_sessions);
    }

    pub(super) fn location(&self) -> Location<'_> {
        let first = self.first.location();
        let next = self.next.as_ref().map_or(Duration::ZERO, |next| next.location().opening);
        Location { opening: first.opening + next, ..first }
    }

    pub(super) fn is_clip(&self) -> bool {
        self.interface.frames.is_some()
    }

    /// The graphs for a latent of this size.
    fn plan_for(&self, latent: Size) -> Result<Plan> {
        self.plan_of(self.held.lock().now(), latent)
    }

    /// The graphs for a latent of this size, of the `held` smallest.
    fn plan_of(&self, held: usize, latent: Size) -> Result<Plan> {
        let chosen = chosen(&sized(&self.first), held, latent);
        let (first, tile) = chosen.ok_or_else(|| self.first.no_graph("one picture or clip at a time".into()))?;
        let next = match &self.next {
            Some(next) => {
                let same = sized(next).into_iter().find(|(_, size)| *size == tile).map(|(index, _)| index);
                Some(same.ok_or_else(|| next.no_graph(format!("later chunks of latents of {tile}")))?)
            }
            None => None,
        };
        Ok(Plan { first, next, tile, cut: self.cut_for(first, next), tiling: self.tiling(latent, tile)? })
    }

    /// How a clip is cut in time for these graphs; a picture is one chunk of one frame.
    fn cut_for(&self, first: usize, next: Option<usize>) -> Cut {
        let picture = tileforge_contract::Extent::multiple_of(1);
        let frames = |network: &Network, graph: usize| network.graphs().get(graph).map_or(1, |(_, sizes)| sizes.frames);
        let of = |network: &Network, graph: usize| {
            let extent = Interface::of(network.contract()).ok().and_then(|interface| interface.frames);
            (if extent.is_some() { frames(network, graph) } else { 1 }, extent.unwrap_or(picture))
        };
        Cut { first: of(&self.first, first), next: self.next.as_ref().zip(next).map(|(next, graph)| of(next, graph)) }
    }

    /// How a latent of this size is cut into these tiles.
    fn tiling(&self, latent: Size, tile: Size) -> Result<Tiling> {
        let factor = if self.interface.direction == Direction::Decode { self.interface.factor } else { 1 };
        let part = if self.is_clip() { 8 } else { 4 };
        let pixels = u32::try_from(self.interface.factor).unwrap_or(u32::MAX);
        let overlap = self.overlap.map_or(tile.width.min(tile.height) / part, |overlap| overlap.div_ceil(pixels));
        let overlap = Overlap::choose(Some(overlap), Some(0), None, tile)?;
        let factor = u32::try_from(factor).unwrap_or(u32::MAX);
        Ok(Tiling::new(TilePlan::new(latent, tile, overlap, factor, None)?, Blend::Cosine))
    }

    /// Memory did not hold tiles of this size: later pictures and clips get smaller ones, until enough of these went
    /// well. Returns how a latent is run with these; `None` if no smaller ones can run it.
    fn shrink(&self, tile: Size, latent: Size) -> Option<Plan> {
        let smaller = sized(&self.first).iter().filter(|(_, size)| size.pixels() < tile.pixels()).count();
        let plan = self.plan_of(smaller, latent).ok()?;
        self.held.lock().shrink(smaller);
        Some(plan)
    }

    /// A picture or clip in tiles of this size went well. It counts if these are the largest that are allowed now.
    fn succeeded(&self, tile: Size) {
        let mut held = self.held.lock();
        let up_to_this = sized(&self.first).iter().filter(|(_, size)| size.pixels() <= tile.pixels()).count();
        if up_to_this >= held.now() && held.succeed().is_some() {
            tracing::info!("memory sufficed for a while: tries larger tiles again");
        }
    }

    /// Begins a picture or clip whose latent has this size.
    pub(super) fn begin<'c>(&'c self, ticket: &'c Ticket, latent: Size) -> Result<Coding<'c>> {
        Ok(Coding {
            coder: self,
            plan: self.plan_for(latent)?,
            ticket,
            latent,
            later: Vec::new(),
            run_time: Duration::ZERO,
        })
    }
}

/// How a latent is run.
pub(super) struct Plan {
    /// The graph of pictures, and of the first chunks of clips.
    first: usize,
    /// The graph of later chunks.
    next: Option<usize>,
    tile: Size,
    pub(super) cut: Cut,
    tiling: Tiling,
}

/// The graphs of one sample.
fn sized(network: &Network) -> Vec<Sized> {
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let graphs = network.graphs().iter().enumerate().filter(|(_, (_, sizes))| sizes.batch == 1);
    graphs
        .map(|(index, (_, sizes))| (index, Size { width: length(sizes.width), height: length(sizes.height) }))
        .collect()
}

/// Of the `held` smallest graphs the smallest that holds the latent, or else the largest.
fn chosen(graphs: &[Sized], held: usize, latent: Size) -> Option<Sized> {
    let mut graphs = graphs.to_vec();
    graphs.sort_by_key(|(_, size)| size.pixels());
    graphs.truncate(held);
    let holds = |(_, size): &&Sized| size.width >= latent.width && size.height >= latent.height;
    graphs.iter().find(holds).or(graphs.last()).copied()
}

/// Checks that the engine for later chunks takes the caches that the first engine outputs.
fn check_pair(first: &Contract, next: &Contract) -> Result<()> {
    let wrong = |tensor: &str, expected: &str, found: &str| {
        Err(Error::Tensor { tensor: tensor.into(), expected: expected.into(), found: found.into() })
    };
    if next.carried().next().is_none() {
        return wrong("caches", "an engine for later chunks, which takes caches", "one that takes none");
    }
    for (input, kept) in next.carried() {
        match first.output(&kept.name) {
            Some(output) if output.axes == input.axes => {}
            Some(_) => return wrong(&kept.name, "the axes of the engine for later chunks", "other axes"),
            None => return wrong(&kept.name, "a cache that the first engine keeps", "none; is it another network?"),
        }
    }
    let (one, two) = (Interface::of(first)?, Interface::of(next)?);
    if (one.direction, one.latent_channels, one.factor) != (two.direction, two.latent_channels, two.factor) {
        return wrong("caches", "two engines of one half of an autoencoder", "halves or networks that differ");
    }
    Ok(())
}

/// One chunk of a picture or clip, as it goes into the network.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) chunk: &'p Chunk,
    /// Its number; the first is 0.
    pub(super) number: usize,
    pub(super) is_last: bool,
    /// `[channels, frames, height, width]` of the input size.
    pub(super) planes: &'p [f32],
    /// Width and height of the planes.
    pub(super) size: Size,
}

/// A picture or clip on its way, chunk by chunk.
pub(super) struct Coding<'c> {
    coder: &'c Coder,
    pub(super) plan: Plan,
    ticket: &'c Ticket,
    latent: Size,
    /// For each tile, the lease with the caches for its next chunk.
    later: Vec<Lease>,
    run_time: Duration,
}

impl Coding<'_> {
    pub(super) fn tiles(&self) -> u64 {
        self.plan.tiling.plan().count()
    }

    pub(super) fn run_seconds(&self) -> f64 {
        self.run_time.as_secs_f64()
    }

    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.coder.first.assigned()
    }

    /// Runs one chunk of a picture or clip, in smaller tiles if memory does not hold these. The result is `[planes,
    /// frames, height, width]` of the output size. Chunks come in order; after the last one, no state is kept.
    pub(super) fn run(&mut self, part: Part<'_>) -> Result<Vec<f32>> {
        loop {
            let ran = if self.coder.is_clip() { self.run_chunk(part) } else { self.run_tiles(part) };
            match ran {
                Err(error) if error.is_out_of_memory() && self.shrink(part.number) => {}
                ran => {
                    if ran.is_ok() && part.is_last {
                        self.coder.succeeded(self.plan.tile);
                    }
                    return ran;
                }
            }
        }
    }

    /// Memory did not hold the tiles of this chunk: goes on with smaller ones. False if there are none, or if it is too
    /// late for this clip: each tile needs what it has kept of the first chunk. Then only later clips have them.
    fn shrink(&mut self, number: usize) -> bool {
        let tile = self.plan.tile;
        let Some(smaller) = self.coder.shrink(tile, self.latent) else { return false };
        let goes_on = number == 0 && smaller.cut == self.plan.cut;
        let what = if goes_on { "goes on" } else { "later ones go on" };
        tracing::warn!("out of memory: {what} with tiles smaller than {tile}");
        if goes_on {
            self.later.clear();
            self.plan = smaller;
        }
        goes_on
    }

    /// Runs one chunk of a clip.
    fn run_chunk(&mut self, Part { chunk, number, is_last, planes, size }: Part<'_>) -> Result<Vec<f32>> {
        let interface = &self.coder.interface;
        let factor = interface.factor;
        let encodes = interface.direction == Direction::Encode;
        let area = if encodes { pixels_of(self.plan.tile, factor) } else { self.plan.tile };
        let frames = if encodes { chunk.latents.len() } else { chunk.frames.len() };
        let mut canvas = self.plan.tiling.canvas(interface.planes() * frames);
        for (index, tile) in self.plan.tiling.plan().tiles().enumerate() {
            let place = |at: u32| if encodes { at as usize * factor } else { at as usize };
            let (x, y) = (place(tile.x), place(tile.y));
            if number == 0 {
                let mut lease = self.coder.first.lease(self.ticket, self.plan.first)?;
                cut(planes, size, x, y, area, lease.buffer(&interface.input)?.as_mut_slice()?);
                self.run_time += lease.run(self.ticket)?;
                self.plan.tiling.add(tile, lease.buffer(&interface.output)?.as_slice()?, &mut canvas);
                if let (Some(next), Some(graph), false) = (&self.coder.next, self.plan.next, is_last) {
                    let mut later = next.lease(self.ticket, graph)?;
                    later.receive(&lease)?;
                    self.later.push(later);
                }
            } else {
                let lease = self.later.get_mut(index).ok_or_else(|| Error::internal("autoencoder"))?;
                cut(planes, size, x, y, area, lease.buffer(&interface.input)?.as_mut_slice()?);
                self.run_time += lease.run(self.ticket)?;
                self.plan.tiling.add(tile, lease.buffer(&interface.output)?.as_slice()?, &mut canvas);
            }
        }
        Ok(canvas)
    }

    /// Runs a picture, whose tiles are independent: one part of it goes into the network for each tile.
    fn run_tiles(&mut self, Part { planes, size, .. }: Part<'_>) -> Result<Vec<f32>> {
        let interface = &self.coder.interface;
        let encodes = interface.direction == Direction::Encode;
        let area = if encodes { pixels_of(self.plan.tile, interface.factor) } else { self.plan.tile };
        let group = self.coder.groups.get(&self.plan.first).ok_or_else(|| Error::internal("autoencoder"))?;
        let mut canvas = self.plan.tiling.canvas(interface.planes());
        let tiles: Vec<_> = self.plan.tiling.plan().tiles().collect();
        let channels = planes.len() / size.pixels().max(1) as usize;
        let window = AHEAD * group.batch() * self.coder.first.streams();
        for tiles in tiles.chunks(window.max(1)) {
            let sample = |tile: &tileforge_image::tile::Tile| {
                let place = |at: u32| if encodes { at as usize * interface.factor } else { at as usize };
                let mut values = vec![0.0; channels * area.pixels() as usize];
                cut(planes, size, place(tile.x), place(tile.y), area, &mut values);
                vec![Values::F32(values)]
            };
            let made = self.coder.first.run(self.ticket, group, tiles.iter().map(sample).collect())?;
            for (tile, made) in tiles.iter().zip(made) {
                self.run_time += (made.ended - made.began).mul_f64(made.share);
                let values = made.outputs.into_iter().next().ok_or_else(|| Error::internal("autoencoder"))?;
                self.plan.tiling.add(*tile, &values.into_f32()?, &mut canvas);
            }
        }
        Ok(canvas)
    }

    /// The statistics of a picture or clip of this size.
    pub(super) fn statistics(
        &self,
        size: Size,
        frames: usize,
        latents: usize,
        chunks: usize,
        began: Instant,
    ) -> CodingStatistics {
        let tile = pixels_of(self.plan.tile, self.coder.interface.factor);
        let whole = pixels_of(self.latent, self.coder.interface.factor);
        CodingStatistics {
            size,
            frames,
            latent_size: self.latent,
            latent_frames: latents,
            tile,
            tiles: self.tiles(),
            chunks,
            padded: whole != size || tile.width > size.width || tile.height > size.height,
            assigned: self.assigned(),
            run_seconds: self.run_seconds(),
            seconds: began.elapsed().as_secs_f64(),
        }
    }
}

/// The pixels of a latent of this size.
pub(crate) fn pixels_of(latent: Size, factor: usize) -> Size {
    let factor = u32::try_from(factor).unwrap_or(u32::MAX);
    Size { width: latent.width.saturating_mul(factor), height: latent.height.saturating_mul(factor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latent_gets_the_smallest_graph_that_holds_it_of_those_that_memory_holds() {
        let size = |width, height| Size { width, height };
        let graphs = [(0, size(64, 64)), (1, size(16, 16)), (2, size(64, 32))];
        let chosen = |held, latent| chosen(&graphs, held, latent).map(|(graph, _)| graph);
        assert_eq!(chosen(3, size(9, 16)), Some(1));
        assert_eq!(chosen(3, size(17, 16)), Some(2));
        assert_eq!(chosen(3, size(17, 33)), Some(0));
        assert_eq!(chosen(3, size(900, 9)), Some(0), "in tiles of the largest");
        assert_eq!(chosen(2, size(17, 33)), Some(2), "the largest is too large");
        assert_eq!(chosen(1, size(64, 64)), Some(1));
        assert_eq!(super::chosen(&[], 1, size(1, 1)), None);
    }
}
