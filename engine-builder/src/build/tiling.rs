//! How well an engine's tiles join: measured on the network, so that the runtime can choose tiles.
//!
//! A transformer divides a tile into other windows than the whole picture, and attends only to the tile. A deep
//! convolution network sees further than tiles can overlap. So tiled results differ from the result of the whole
//! picture, most for small tiles. This module compares every smaller tile with tiles of 256×256 that overlap by 32:
//! both against the network's result for a whole picture of two such tiles.

use std::path::Path;

use tileforge_contract::Upscale;
use tileforge_engine::manifest::{MeasuredTile, Tiling as Figures};
use tileforge_graph::Model;
use tileforge_image::Size;
use tileforge_image::tile::{Blend, Overlap, TilePlan};
use tileforge_runtime::tiling::{Tiling, cut, joins_exactly, mirrored, reference_tile};
use tileforge_session::{Cancel, Environment, Session, SessionOptions, Tensor};

use super::memory::check_memory;
use crate::CalibrationBudget;
use crate::gate::EXACT_DB;
use crate::precision::Job;
use crate::{Error, Result, Source, Tile};

/// The overlap of the reference tile.
const OVERLAP: u32 = 32;

/// The overlaps to try, the largest first, in eighths of a tile's shorter side.
const EIGHTHS: [u32; 4] = [4, 3, 2, 1];

/// Tiles along each side of the part of the picture that small tiles are measured in.
const ACROSS: u32 = 3;

/// The least number of mirrored rows, for a picture that is a little smaller than the tile.
const LEAST_FILLED: u32 = 8;

/// The number of the test picture. The gates measure on other pictures.
const PICTURE: usize = 1;

/// Measures the tiles of an engine's graphs that are smaller than the reference tile. `None` if there is nothing to
/// compare: tiles join exactly, the engine lacks the reference tile or smaller tiles, the graph has one size, or the
/// calibration budget or this machine's memory does not allow it.
pub(super) fn measure_tiling(
    source: &Source,
    job: &Job<'_>,
    graphs: &[Model],
    scratch: &Path,
) -> Result<Option<Figures>> {
    let Ok(interface) = Upscale::of(job.contract) else { return Ok(None) };
    let multiple = side(interface.size_multiple.max(1));
    let radius = interface.receptive_field.radius();
    let reference = reference_tile(&interface);
    let mut tiles: Vec<Size> = graphs.iter().filter_map(|graph| tile_of(graph, &interface)).collect();
    // Without the reference tile, measuring could not improve the choice: the runtime takes the largest tile.
    let has_reference = tiles.contains(&reference);
    tiles.retain(|tile| tile.width < reference.width || tile.height < reference.height);
    tiles.dedup();
    if joins_exactly(&interface, reference) || !has_reference || tiles.is_empty() {
        return Ok(None);
    }
    let shared = OVERLAP.next_multiple_of(multiple);
    let whole = Size { width: 2 * reference.width - shared, ..reference };
    let graph = |size: Size| {
        let tile = Tile { height: size.height as usize, width: size.width as usize };
        source.graph_of_tile(tile)
    };
    let (Some(whole_graph), Some(reference_graph)) = (graph(whole)?, graph(reference)?) else { return Ok(None) };
    tiles.retain(|tile| tile.width <= whole.width && tile.height <= whole.height);
    if !is_affordable(&[&[&whole_graph][..], &[&reference_graph; 5]].concat(), job.options.budget) {
        return Ok(None);
    }
    if check_memory(source, &whole_graph).is_err() {
        tracing::warn!("how tiles join is not measured: this machine has too little memory for a picture of {whole}");
        return Ok(None);
    }
    job.progress.begin("measuring how tiles join", 3 + tiles.len());
    let network = Network { environment: job.environment, interface: &interface, radius, multiple, scratch };
    let mut picture = crate::samples::sample(job.contract, &whole_graph, PICTURE)?;
    let made = network.open(&whole_graph)?.run(&crate::samples::views(&picture), &Cancel::new())?;
    job.progress.step();
    let [given, made] = [picture.swap_remove(0).1, made.into_iter().next().map_or_else(missing, |(_, made)| Ok(made))?]
        .map(|tensor| tensor.into_f32().map(|values| values.into_iter().collect::<Vec<f32>>()));
    let whole = Whole { size: whole, given: given?, made: made? };
    let floor_db = network.psnr_db(&whole, &reference_graph, reference, Overlap { pixels: shared, margin: 0 })?;
    job.progress.step();
    let filled = |picture: Size, tile: Size, graph: &Model| network.filled_db(source, job, picture, tile, graph);
    let nearly = Size { height: reference.height - LEAST_FILLED.next_multiple_of(multiple), ..reference };
    let filled_db = filled(nearly, reference, &reference_graph)?;
    job.progress.step();
    let mut measured = Vec::new();
    for tile in tiles {
        if let Some(graph) = graph(tile)? {
            let thumbnail = Size {
                width: (tile.width * 5 / 8).next_multiple_of(multiple),
                height: (tile.height * 3 / 8).next_multiple_of(multiple),
            };
            let fills = filled(thumbnail, tile, &graph)? >= filled(thumbnail, reference, &reference_graph)?;
            measured.extend(network.overlaps(&whole, &graph, tile, floor_db.min(filled_db), fills)?);
        }
        job.progress.step();
    }
    Ok(Some(Figures { floor_db, filled_db, tiles: measured }))
}

fn missing<T>() -> Result<T> {
    Err(tileforge_graph::Error::Graph("expected an output".into()).into())
}

fn side(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Tiling may use half of the calibration budget, in addition to the whole budget of calibration and gates.
fn is_affordable(graphs: &[&Model], budget: CalibrationBudget) -> bool {
    let operations = graphs.iter().map(|graph| graph.operations()).fold(0, u64::saturating_add);
    operations <= budget.operations() / 2
}

/// The tile of a graph.
fn tile_of(graph: &Model, interface: &Upscale) -> Option<Size> {
    let port = graph.inputs.iter().find(|port| port.name == interface.input)?;
    match port.ty.fixed_dims()?[..] {
        [.., height, width] => Some(Size { width: side(width), height: side(height) }),
        _ => None,
    }
}

/// A picture that the network processed in one run.
struct Whole {
    size: Size,
    /// `[channels, height, width]`.
    given: Vec<f32>,
    /// `[channels, height · scale, width · scale]`.
    made: Vec<f32>,
}

/// What runs tiles.
struct Network<'n> {
    environment: &'n Environment,
    interface: &'n Upscale,
    radius: Option<u32>,
    /// Tiles start at multiples of this many pixels.
    multiple: u32,
    scratch: &'n Path,
}

impl Network<'_> {
    /// A session of a graph. The graph's file is not needed afterwards.
    fn open(&self, graph: &Model) -> Result<Session> {
        let folder = tempfile::Builder::new().prefix("tiling-").tempdir_in(self.scratch);
        let folder = folder.map_err(|e| Error::file(self.scratch, "write to", e))?;
        let path = folder.path().join("model.onnx");
        tileforge_graph::save_sharing_weights(&[(graph, &path)], &folder.path().join("weights"))?;
        Ok(Session::open(self.environment, &path, &SessionOptions::default())?)
    }

    /// Measures the overlaps of a tile, the largest first, until one misses the floor. That overlap is included.
    fn overlaps(
        &self,
        whole: &Whole,
        graph: &Model,
        tile: Size,
        floor_db: f64,
        fills: bool,
    ) -> Result<Vec<MeasuredTile>> {
        let least = tile.width.min(tile.height);
        let mut found = Vec::new();
        let mut overlaps: Vec<u32> = EIGHTHS.map(|eighths| least * eighths / 8 / self.multiple * self.multiple).into();
        overlaps.dedup();
        for pixels in overlaps.into_iter().filter(|pixels| *pixels > 0) {
            let margin = if self.radius.is_some() { pixels / 3 } else { 0 };
            let psnr_db = self.psnr_db(whole, graph, tile, Overlap { pixels, margin })?;
            found.push(MeasuredTile {
                width: tile.width,
                height: tile.height,
                overlap: pixels,
                margin,
                psnr_db,
                fills,
            });
            if psnr_db < floor_db {
                break;
            }
        }
        Ok(found)
    }

    /// PSNR in dB of one tile that is larger than a picture: mirrored pixels fill the rest of the tile.
    fn filled_db(&self, source: &Source, job: &Job<'_>, size: Size, tile: Size, graph: &Model) -> Result<f64> {
        let of = Tile { height: size.height as usize, width: size.width as usize };
        let Some(whole) = source.graph_of_tile(of)? else { return missing() };
        let mut picture = crate::samples::sample(job.contract, &whole, PICTURE)?;
        let (_, made) = self
            .open(&whole)?
            .run(&crate::samples::views(&picture), &Cancel::new())?
            .into_iter()
            .next()
            .map_or_else(missing, Ok)?;
        let given = picture.swap_remove(0).1.into_f32()?;
        let [_, channels, height, width] = given.shape()[..] else { return missing() };
        let shape = vec![1, channels, tile.height as usize, tile.width as usize];
        let filled = ndarray::ArrayD::from_shape_fn(shape, |at| {
            given[&[0, at[1], mirrored(at[2], height), mirrored(at[3], width)][..]]
        });
        let found = self.open(graph)?.run(&[(self.interface.input.as_str(), &Tensor::from(filled))], &Cancel::new())?;
        let found = found.into_iter().next().map_or_else(missing, Ok)?.1.into_f32()?;
        let scale = self.interface.scale;
        let part: Vec<f32> = (0..channels * height * scale * width * scale)
            .map(|at| {
                let (row, column) = (at / (width * scale) % (height * scale), at % (width * scale));
                found[&[0, at / (height * scale * width * scale), row, column][..]]
            })
            .collect();
        let axis = |length: u32| Part { start: 0, length, left_out: 0 };
        let whole = Whole { size, given: Vec::new(), made: made.into_f32()?.into_iter().collect() };
        Ok(difference_db(&whole, &part, channels, side(scale), &axis(size.width), &axis(size.height)))
    }

    /// PSNR in dB of tiles against the whole picture. Small tiles are measured in the middle of the picture, between
    /// the centres of the outer tiles of [`ACROSS`] · [`ACROSS`]: the rest of the picture would give similar values.
    fn psnr_db(&self, whole: &Whole, graph: &Model, tile: Size, overlap: Overlap) -> Result<f64> {
        let [columns, rows] = [(tile.width, whole.size.width), (tile.height, whole.size.height)]
            .map(|(tile, length)| Part::new(tile, length, overlap.pixels, self.multiple));
        let part = Size { width: columns.length, height: rows.length };
        let scale = side(self.interface.scale);
        let plan = TilePlan::new(part, tile, overlap, scale, self.radius)?;
        let tiling = Tiling::new(plan.for_sides(1, self.multiple), Blend::default());
        let mut session = self.open(graph)?;
        let channels = self.interface.channels;
        let mut canvas = tiling.canvas(channels);
        let mut given = vec![0.0; channels * tile.pixels() as usize];
        for place in tiling.plan().tiles() {
            let (x, y) = (columns.start + place.x, rows.start + place.y);
            cut(&whole.given, whole.size, x as usize, y as usize, tile, &mut given);
            let shape = vec![1, channels, tile.height as usize, tile.width as usize];
            let tensor = ndarray::ArrayD::from_shape_vec(shape, given.clone());
            let tensor: Tensor = tensor.map_err(|e| tileforge_graph::Error::Graph(e.to_string()))?.into();
            let made = session.run(&[(self.interface.input.as_str(), &tensor)], &Cancel::new())?;
            let (_, made) = made.into_iter().next().map_or_else(missing, Ok)?;
            let values: Vec<f32> = made.into_f32()?.into_iter().collect();
            tiling.add(place, &values, &mut canvas);
        }
        Ok(difference_db(whole, &canvas, channels, scale, &columns, &rows))
    }
}

/// The part of an axis that is cut into tiles, and the pixels of it that count.
struct Part {
    /// Its first pixel.
    start: u32,
    length: u32,
    /// Pixels at each end that do not count, because fewer tiles than usual cover them.
    left_out: u32,
}

impl Part {
    fn new(tile: u32, whole: u32, overlap: u32, multiple: u32) -> Self {
        let step = tile.saturating_sub(overlap) / multiple * multiple;
        let length = tile.saturating_add(step.saturating_mul(ACROSS - 1));
        if tile >= whole || length >= whole {
            return Self { start: 0, length: whole, left_out: 0 };
        }
        Self { start: (whole - length) / 2 / multiple * multiple, length, left_out: tile / 2 }
    }

    /// The pixels that count, from the part's first one.
    fn counted(&self) -> std::ops::Range<usize> {
        self.left_out as usize..(self.length - self.left_out) as usize
    }
}

/// PSNR in dB of the tiled part of the picture, rounded so that other machines get the same figure.
fn difference_db(whole: &Whole, found: &[f32], channels: usize, scale: u32, columns: &Part, rows: &Part) -> f64 {
    let scale = scale as usize;
    let [width, height] = [whole.size.width, whole.size.height].map(|length| length as usize * scale);
    let [part_width, part_height] = [columns.length, rows.length].map(|length| length as usize * scale);
    let [across, down] = [columns.counted(), rows.counted()].map(|range| range.start * scale..range.end * scale);
    let (x, y) = (columns.start as usize * scale, rows.start as usize * scale);
    let mut squares = 0.0;
    for channel in 0..channels {
        for row in down.clone() {
            let found = &found[(channel * part_height + row) * part_width..][across.clone()];
            let expected = &whole.made[(channel * height + y + row) * width + x..][across.clone()];
            let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
            squares += found.iter().zip(expected).map(square).sum::<f64>();
        }
    }
    let (low, high) =
        whole.made.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
    let range = f64::from(high - low).max(f64::from(f32::EPSILON));
    let mean = squares / (channels * across.len() * down.len()).max(1) as f64;
    let psnr_db = 10.0 * (range * range / mean).log10();
    // NaN counts as 0 dB; the gates refuse a network that gives NaN.
    if psnr_db.is_nan() { 0.0 } else { (psnr_db.min(EXACT_DB) * 100.0).round() / 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_tiles_are_measured_in_the_middle_and_large_ones_everywhere() {
        let part = |tile, whole, overlap| {
            let part = Part::new(tile, whole, overlap, 8);
            (part.start, part.length, part.counted())
        };
        assert_eq!(part(64, 480, 32), (176, 128, 32..96));
        assert_eq!(part(256, 480, 32), (0, 480, 0..480));
        assert_eq!(part(256, 256, 32), (0, 256, 0..256));
    }

    #[test]
    fn the_ratio_is_that_of_range_and_error_in_what_counts() {
        let (size, tile) = (Size { width: 4, height: 1 }, |left_out| Part { start: 1, length: 3, left_out });
        let whole = Whole { size, given: Vec::new(), made: vec![0.0, 1.0, 2.0, 1.0] };
        let row = Part { start: 0, length: 1, left_out: 0 };
        let of = |found: &[f32], left_out| difference_db(&whole, found, 1, 1, &tile(left_out), &row);
        assert_eq!(of(&[1.0, 2.0, 1.0], 0), EXACT_DB);
        assert_eq!(of(&[9.0, 1.98, 9.0], 1), 40.0);
        assert_eq!(of(&[f32::NAN, 2.0, 1.0], 0), 0.0);
    }
}
