//! An engine's graphs, and what runs tiles of the sizes that pictures have needed.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_contract::Upscale;
use tileforge_engine::{Engine, Graph};
use tileforge_image::tile::{AnySize, Overlap, TilePlan};
use tileforge_image::{Alpha, Header, Size};

use super::floor::Floor;
use super::options::UpscaleOptions;
use super::shape::TileShape;
use super::tiled::Tiled;
use super::tiles::{HeldTiles, Tiles, tiles};
use super::variant::Variant;
use crate::error::{Error, Result};
use crate::host::{Host, Network, Ticket, Used};
use crate::throughput::Throughput;
use crate::tiling::Tiling;

/// An engine's graphs, and what runs tiles of the sizes that pictures have needed.
pub(super) struct Models {
    pub(super) interface: Upscale,
    pub(super) options: UpscaleOptions,
    pub(super) network: Network,
    /// Output pixels per input pixel, along each axis.
    scale: u32,
    variants: Vec<Variant>,
    /// The most tiles in a run; the request can limit it.
    most: usize,
    /// The tiles that pictures may be cut into: the requested ones, or all that memory may hold. Decided once, so that
    /// all pictures have the same choice; only tiles that memory turns out not to hold are left out for a while.
    tiles: Mutex<HeldTiles>,
    /// Decides which plans may be chosen for their speed.
    floor: Floor,
    /// The measured times; they choose between tiles if all were measured.
    throughput: Throughput,
    /// What runs tiles of the sizes that pictures have needed so far.
    open: Mutex<Vec<Arc<Tiled>>>,
    /// Held by the request that makes tiles smaller, so that other requests that failed at the same time do not shrink
    /// them again.
    shrinking: Mutex<()>,
}

/// Limits the height of tiles of any size: one row of tiles has at most about this many samples in the output. The
/// finished samples of two rows of tiles are kept.
const ROWS_BYTES: u64 = 128 << 20;

/// The least height of tiles of any size: lower tiles would overlap too much.
const ROWS_MINIMUM: u32 = 256;

impl Models {
    pub(super) fn new(host: &Host, engine: &Engine, options: UpscaleOptions) -> Result<Self> {
        let manifest = engine.manifest();
        let interface = Upscale::of(&manifest.contract)?;
        let network = Network::new(host, engine, options.placement.clone())?;
        let variant = |graph: &Graph| Ok(Variant { graph: graph.clone(), shape: TileShape::of(graph, &interface)? });
        let variants = manifest.graphs.iter().map(variant).collect::<Result<Vec<_>>>()?;
        let tiles = tiles(&network, &variants, &interface, options.tile, options.batch)?;
        let floor = Floor::new(&interface, manifest.tiling.as_ref(), variants.iter().map(|variant| variant.shape.tile));
        if let (Tiles::Fixed(tiles), None, None) = (&tiles, options.tile, options.batch)
            && !floor.is_reached_by(tiles)
        {
            tracing::warn!("memory does not hold the engine's larger tiles: where smaller ones meet may show");
        }
        let device = options.placement.gpus()[0];
        Ok(Self {
            scale: u32::try_from(interface.scale).unwrap_or(u32::MAX),
            variants,
            interface,
            most: options.batch.unwrap_or(usize::MAX).max(1),
            options,
            network,
            tiles: Mutex::new(HeldTiles::new(tiles)),
            floor,
            throughput: Throughput::load(host.environment(), engine, device),
            open: Mutex::default(),
            shrinking: Mutex::default(),
        })
    }

    /// Most tiles in one run.
    pub(super) fn batch(&self) -> usize {
        let batches = self.variants.iter().map(|variant| variant.shape.batch);
        batches.filter(|batch| *batch <= self.most).max().unwrap_or(1)
    }

    pub(super) fn output_of(&self, input: &Header) -> Result<Header> {
        self.check_size(input.size)?;
        let size = input.size.scaled(self.scale)?;
        let colour = if self.options.alpha == Alpha::Drop { input.colour.without_alpha() } else { input.colour };
        Ok(Header { size, colour, ..input.clone() })
    }

    /// Refuses a picture of the wrong size if the network takes only one size.
    fn check_size(&self, found: Size) -> Result<()> {
        let only = self.interface.only_size.and_then(|side| u32::try_from(side).ok());
        match only.map(|side| Size { width: side, height: side }) {
            Some(expected) if expected != found => Err(Error::OnlySize { expected, found }),
            _ => Ok(()),
        }
    }

    pub(super) fn plan(&self, size: Size) -> Result<TilePlan> {
        self.check_size(size)?;
        let tiles = match self.tiles.lock().now() {
            Tiles::AnySize(sides) => return Ok(self.plan_fitted(size, *sides)?),
            Tiles::Fixed(tiles) => tiles.clone(),
        };
        let seconds = self.throughput.of(&tiles, self.network.location().provider);
        let plans = tiles.iter().enumerate().flat_map(|(at, tile)| {
            let seconds = seconds.as_ref().map(|seconds| seconds[at]);
            self.overlaps(*tile).into_iter().map(move |overlap| (self.plan_with(size, *tile, overlap), seconds))
        });
        let reference = self.floor.reference().and_then(|tile| self.plan_in(size, tile).ok());
        let (mut good, others): (Vec<_>, Vec<_>) =
            plans.partition(|(plan, _)| plan.as_ref().is_ok_and(|plan| self.floor.holds(plan, reference.as_ref())));
        if !good.is_empty() {
            if reference.is_some() {
                leave_filled(&mut good);
            }
            return Ok(TilePlan::best(good)?);
        }
        // Without measured times, quality decides: the largest tile has the most of the picture around each pixel.
        let context = |plan: &tileforge_image::Result<TilePlan>| {
            plan.as_ref().map_or((0, 0, 0), |plan| {
                let (tile, shared) = (plan.tile(), plan.overlap().pixels);
                (tile.width.min(tile.height), tile.pixels(), shared)
            })
        };
        let largest = others.into_iter().max_by_key(|(plan, _)| context(plan));
        Ok(TilePlan::best(largest)?)
    }

    /// The PSNR of a plan's tiles in dB, measured when the engine was built; `None` if it was not measured, or if the
    /// picture is one tile.
    pub(super) fn tiling_psnr_db(&self, plan: &TilePlan) -> Option<f64> {
        self.floor.psnr_db(plan)
    }

    /// How tiles of this size may overlap, the largest overlap first; never empty.
    fn overlaps(&self, tile: Size) -> Vec<tileforge_image::Result<Overlap>> {
        let radius = self.interface.receptive_field.radius();
        match (self.options.overlap, self.options.margin) {
            (None, None) => self.floor.overlaps(tile).into_iter().map(Ok).collect(),
            (pixels, margin) => vec![Overlap::choose(pixels, margin, radius, tile)],
        }
    }

    /// The largest of these overlaps.
    fn overlap(&self, tile: Size) -> tileforge_image::Result<Overlap> {
        let radius = self.interface.receptive_field.radius();
        self.overlaps(tile).into_iter().next().unwrap_or_else(|| Ok(Overlap::automatic(radius, tile)))
    }

    /// How a picture is cut into tiles of this size.
    fn plan_in(&self, size: Size, tile: Size) -> tileforge_image::Result<TilePlan> {
        self.plan_with(size, tile, self.overlap(tile))
    }

    fn plan_with(
        &self,
        size: Size,
        tile: Size,
        overlap: tileforge_image::Result<Overlap>,
    ) -> tileforge_image::Result<TilePlan> {
        let radius = self.interface.receptive_field.radius();
        let plan = TilePlan::new(size, tile, overlap?, self.scale, radius)?;
        let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Ok(plan.for_sides(side(self.interface.size_minimum), side(self.interface.size_multiple)))
    }

    /// How a picture is cut into tiles of a size that suits it.
    fn plan_fitted(&self, size: Size, sides: AnySize) -> tileforge_image::Result<TilePlan> {
        let radius = self.interface.receptive_field.radius();
        let row = u64::from(size.width) * u64::from(self.scale).pow(2) * self.interface.channels as u64;
        let overlap = self.overlap(sides.square())?;
        let height = u32::try_from(ROWS_BYTES / row.max(1)).unwrap_or(u32::MAX);
        let height = height.max(ROWS_MINIMUM).max(overlap.pixels.saturating_mul(2));
        TilePlan::fitted(size, AnySize { height, ..sides }, overlap, self.scale, radius)
    }

    /// Records a picture made of whole tiles. After enough of them, tiles that memory did not hold are tried again.
    pub(super) fn succeeded(&self) {
        if self.tiles.lock().succeed() {
            self.open.lock().retain(|tiled| tiled.in_parts().is_none());
            tracing::debug!("tries larger tiles again, which memory did not hold before");
        }
    }

    /// Leaves out tiles of this size for a while, because memory does not hold them. False if there are no smaller
    /// ones, or if a size was requested.
    pub(super) fn leave_tile(&self, tile: Size) -> bool {
        self.options.tile.is_none() && self.tiles.lock().leave(tile)
    }

    /// The best plan for a picture that memory holds, and what runs its tiles.
    pub(super) fn planned(&self, ticket: &Ticket, size: Size) -> Result<(TilePlan, Arc<Tiled>)> {
        loop {
            let plan = self.plan(size)?;
            let error = match self.of_tile(ticket, plan.tile()) {
                Err(error) if error.is_out_of_memory() => error,
                opened => return Ok((plan, opened?)),
            };
            let _alone = self.shrinking.lock();
            // Another request may have made them smaller meanwhile.
            if self.plan(size)?.tile() != plan.tile() {
                continue;
            }
            if !self.leave_tile(plan.tile()) {
                return Err(error);
            }
            tracing::warn!("out of memory: goes on with smaller tiles than {}", plan.tile());
        }
    }

    /// Makes tiles that memory does not hold run in parts: the engine's next smaller tiles. `failed` is the size that
    /// did not run; if tiles already run in smaller parts, nothing changes.
    ///
    /// # Errors
    /// `error`, if there are no smaller tiles.
    pub(super) fn run_in_parts(&self, ticket: &Ticket, tiled: &Tiled, failed: Size, error: Error) -> Result<()> {
        let _alone = self.shrinking.lock();
        if tiled.run_size().pixels() < failed.pixels() {
            return Ok(());
        }
        while self.leave_tile(tiled.run_size()) {
            let Some(plan) = self.plan_of_parts(tiled) else { return Err(error) };
            match self.of_tile(ticket, plan.tile()) {
                Err(error) if error.is_out_of_memory() && self.leave_tile(plan.tile()) => {}
                part => {
                    tiled.run_in_parts(part?, Tiling::new(plan, self.options.blend));
                    tracing::warn!("out of memory: goes on with tiles of {}", plan.tile());
                    return Ok(());
                }
            }
        }
        Err(error)
    }

    /// How a tile is cut into smaller parts than now.
    fn plan_of_parts(&self, tiled: &Tiled) -> Option<TilePlan> {
        let running = tiled.run_size();
        // A requested overlap may not fit a small tile.
        let mut smaller = match self.tiles.lock().now() {
            Tiles::AnySize(sides) => return self.plan_fitted(tiled.tile, *sides).ok(),
            Tiles::Fixed(tiles) => tiles.clone(),
        };
        smaller.retain(|tile| tile.width <= running.width && tile.height <= running.height && *tile != running);
        smaller.sort_by_key(|tile| tile.pixels());
        smaller.into_iter().rev().find_map(|tile| self.plan_in(tiled.tile, tile).ok())
    }

    /// What runs tiles of a size. The first call opens the session, so that it is known before the first tile whether
    /// memory holds it.
    fn of_tile(&self, ticket: &Ticket, tile: Size) -> Result<Arc<Tiled>> {
        if let Some(tiled) = self.open.lock().iter().find(|tiled| tiled.tile == tile) {
            return Ok(tiled.clone());
        }
        let variant =
            self.variants.iter().find(|variant| variant.takes(tile)).ok_or_else(|| Error::internal("tiles"))?;
        let record = variant.graph_for(&self.interface, tile)?;
        let group = self.network.group_of(&record, self.most, |output| output.name == self.interface.output)?;
        self.network.ready(ticket, &group)?;
        let mut open = self.open.lock();
        if let Some(tiled) = open.iter().find(|tiled| tiled.tile == tile) {
            return Ok(tiled.clone());
        }
        // With tiles of any size, many sizes occur, so unused ones are dropped. Their sessions stay open.
        if matches!(self.tiles.lock().now(), Tiles::AnySize(_)) {
            open.retain(|tiled| Arc::strong_count(tiled) > 1);
        }
        let tiled = Arc::new(Tiled::new(tile, group));
        open.push(tiled.clone());
        Ok(tiled)
    }

    /// What memory allows now.
    pub(super) fn used(&self) -> Used {
        let used = self.network.used();
        let largest = self.open.lock().iter().map(|tiled| tiled.group.allowed()).max();
        Used { batch: largest.unwrap_or(used.batch.min(self.batch())), ..used }
    }
}

/// A plan or its error, with the seconds that one of its tiles takes.
type Candidate = (tileforge_image::Result<TilePlan>, Option<f64>);

/// Leaves out plans with padded tiles if a good plan without padding takes no longer: it is nearer to the whole
/// picture.
fn leave_filled(good: &mut Vec<Candidate>) {
    let is_filled =
        |(plan, _): &Candidate| plan.as_ref().is_ok_and(|plan| plan.columns().is_filled() || plan.rows().is_filled());
    let cost = |(plan, seconds): &Candidate| {
        plan.as_ref()
            .map_or(f64::INFINITY, |plan| seconds.map_or(plan.pixels() as f64, |seconds| plan.count() as f64 * seconds))
    };
    let others = good.iter().filter(|candidate| !is_filled(candidate));
    let cheapest = others.map(cost).fold(f64::INFINITY, f64::min);
    good.retain(|candidate| !is_filled(candidate) || cost(candidate) < cheapest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_that_is_filled_up_is_left_where_others_take_no_longer() {
        let plan = |picture: u32, tile: u32, seconds: Option<f64>| {
            let (picture, tile) = (Size { width: picture, height: picture }, Size { width: tile, height: tile });
            (TilePlan::new(picture, tile, Overlap { pixels: 16, margin: 0 }, 4, None), seconds)
        };
        let left = |mut good: Vec<Candidate>| {
            leave_filled(&mut good);
            good.into_iter().map(|(plan, _)| plan.unwrap().tile().width).collect::<Vec<_>>()
        };
        assert_eq!(left(vec![plan(100, 256, None), plan(100, 64, None)]), [64]);
        // 25 small tiles, or one padded tile.
        assert_eq!(left(vec![plan(250, 256, None), plan(250, 64, None)]), [256, 64]);
        assert_eq!(left(vec![plan(250, 256, Some(30.0)), plan(250, 64, Some(1.0))]), [64]);
        // The only plan stays.
        assert_eq!(left(vec![plan(100, 256, None)]), [256]);
    }
}
