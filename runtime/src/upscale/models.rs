//! An engine's tile shapes, and those that have been opened.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tileforge_contract::Upscale;
use tileforge_engine::{Engine, Graph};
use tileforge_image::tile::{Overlap, TilePlan};
use tileforge_image::{Alpha, Header, Size};
use tileforge_session::{Environment, Ladder};

use super::limits::{Allowed, Limits, Used};
use super::model::Model;
use super::options::Options;
use super::parts::Parts;
use super::shape::{TileShape, tiles};
use crate::error::Result;
use crate::throughput::Throughput;
use crate::tiling::Tiling;

/// An engine's tile shapes, and those that have been opened.
pub(super) struct Models {
    pub(super) interface: Upscale,
    pub(super) options: Options,
    pub(super) ladder: Arc<Ladder>,
    /// What may still run at the same time.
    pub(super) allowed: Allowed,
    /// What could run at the same time at the start.
    pub(super) limits: Limits,
    /// Output pixels for each input pixel, along each axis.
    scale: u32,
    /// The engine's graphs, each with its tile and batch.
    shapes: Vec<(Graph, TileShape)>,
    /// Those that pictures may be cut into: the one that was asked for, or all that memory may hold. Decided once, so
    /// that it is the same for all pictures; only those leave that memory turns out not to hold.
    tiles: Mutex<Vec<Size>>,
    /// By which tiles are chosen, where all were measured.
    throughput: Throughput,
    open: Mutex<Vec<Arc<Model>>>,
}

impl Models {
    pub(super) fn new(environment: &Environment, engine: &Engine, options: Options) -> Result<Self> {
        let manifest = engine.manifest();
        let interface = Upscale::of(&manifest.contract)?;
        let shapes = manifest.graphs.iter().map(|graph| Ok((graph.clone(), TileShape::of(graph, &interface)?)));
        let shapes = shapes.collect::<Result<Vec<_>>>()?;
        let largest = shapes.iter().map(|(_, shape)| shape.batch).max().unwrap_or(1);
        let ladder = Arc::new(Ladder::new(environment, engine, options.placement.clone())?);
        let limits = Limits { streams: ladder.streams(), batch: options.batch.unwrap_or(largest).max(1) };
        let tiles = tiles(&shapes, options.tile, options.batch, &ladder)?;
        let device = options.placement.gpus()[0];
        Ok(Self {
            scale: u32::try_from(interface.scale).unwrap_or(u32::MAX),
            shapes,
            interface,
            options,
            allowed: Allowed::new(limits),
            limits,
            ladder,
            tiles: Mutex::new(tiles),
            throughput: Throughput::load(environment, engine, device),
            open: Mutex::default(),
        })
    }

    /// Those that have sessions.
    pub(super) fn opened(&self) -> MutexGuard<'_, Vec<Arc<Model>>> {
        self.open.lock()
    }

    pub(super) fn output_of(&self, input: &Header) -> Result<Header> {
        let size = input.size.scaled(self.scale)?;
        let colour = if self.options.alpha == Alpha::Drop { input.colour.without_alpha() } else { input.colour };
        Ok(Header { size, colour, ..input.clone() })
    }

    pub(super) fn plan(&self, size: Size) -> Result<TilePlan> {
        let tiles = self.tiles.lock().clone();
        let plan = |tile: &Size| self.plan_in(size, *tile);
        let seconds = self.throughput.of(&tiles, self.ladder.provider());
        let seconds = (0..tiles.len()).map(|tile| seconds.as_ref().map(|seconds| seconds[tile]));
        Ok(TilePlan::best(tiles.iter().map(plan).zip(seconds))?)
    }

    /// How a picture is cut into tiles of this size.
    fn plan_in(&self, size: Size, tile: Size) -> tileforge_image::Result<TilePlan> {
        let radius = self.interface.receptive_field.radius();
        let overlap = Overlap::choose(self.options.overlap, self.options.margin, radius, tile)?;
        let plan = TilePlan::new(size, tile, overlap, self.scale, radius)?;
        let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Ok(plan.for_sides(side(self.interface.size_minimum), side(self.interface.size_multiple)))
    }

    /// Memory does not hold tiles of this size: no other picture is cut into them. False if there are no smaller ones,
    /// or this one was asked for.
    pub(super) fn leave_tile(&self, tile: Size) -> bool {
        let mut tiles = self.tiles.lock();
        if self.options.tile.is_some() || !tiles.iter().any(|other| other.pixels() < tile.pixels()) {
            return false;
        }
        tiles.retain(|other| *other != tile);
        true
    }

    /// From now on, the tiles of a model that memory does not hold run in parts: the engine's next smaller tiles. Gives
    /// their size; `None` if there are none.
    pub(super) fn run_in_parts(&self, model: &Model, stream: usize) -> Result<Option<Size>> {
        while self.leave_tile(model.run_size()) {
            let running = model.run_size();
            let fits = |tile: &Size| tile.width <= running.width && tile.height <= running.height && *tile != running;
            let mut smaller: Vec<Size> = self.tiles.lock().iter().copied().filter(fits).collect();
            smaller.sort_by_key(|tile| tile.pixels());
            // An overlap that was asked for may not go with a small tile.
            let plan = |tile: Size| self.plan_in(model.tile, tile).ok();
            let Some(plan) = smaller.into_iter().rev().find_map(plan) else { return Ok(None) };
            model.close(stream);
            let parts = self
                .of_tile(plan.tile())
                .and_then(|part| Parts::new(part, model.tile, Tiling::new(plan, self.options.blend)));
            match parts {
                Err(error) if error.is_out_of_memory() && self.leave_tile(plan.tile()) => {}
                parts => {
                    model.run_in_parts(parts?);
                    return Ok(Some(plan.tile()));
                }
            }
        }
        Ok(None)
    }

    /// What runs tiles of a size, opened if it has not been.
    pub(super) fn of_tile(&self, tile: Size) -> Result<Arc<Model>> {
        let mut open = self.opened();
        if let Some(model) = open.iter().find(|model| model.tile == tile) {
            return Ok(model.clone());
        }
        let graphs = self.shapes.iter().filter(|(_, shape)| shape.tile == tile).cloned().collect();
        let model = Arc::new(Model::open(self.ladder.clone(), &self.interface, graphs, self.limits)?);
        open.push(model.clone());
        Ok(model)
    }

    /// What memory allows now.
    pub(super) fn used(&self) -> Used {
        let most = self.allowed.batch();
        let largest = self.opened().iter().map(|model| model.largest_run(most)).max();
        Used { streams: self.allowed.streams(), batch: largest.unwrap_or(most) }
    }
}
