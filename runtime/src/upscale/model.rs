//! What runs tiles of one size.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_contract::{Shapes, Upscale};
use tileforge_engine::Graph;
use tileforge_image::Size;
use tileforge_session::{Assigned, Cancel};

use super::limits::Limits;
use super::parts::Parts;
use super::tensors::{Pair, Spare};
use super::variant::{Opened, Variant};
use crate::error::{Error, Result};
use crate::tiling::Tiling;

/// Everything that runs tiles of one size.
pub(super) struct Model {
    pub(super) tile: Size,
    interface: Upscale,
    /// By batch, the smallest first; never empty. Other models may share them, if they take any size.
    variants: Vec<Arc<Variant>>,
    /// Of input and output, for the largest run.
    shapes: [Vec<usize>; 2],
    spare: Arc<Spare>,
    /// How tiles run since memory did not hold them.
    parts: Mutex<Option<Arc<InParts>>>,
}

/// How tiles run that memory does not hold.
struct InParts {
    parts: Parts,
    /// What runs the parts.
    model: Arc<Model>,
}

impl Model {
    /// Opens the first session, if it is not open, and makes the first tensors. `variants` take tiles of this size;
    /// used are those with at most the limit's images in a run, or the smallest if all have more, as far as memory
    /// holds them.
    pub(super) fn open(
        interface: &Upscale,
        tile: Size,
        mut variants: Vec<Arc<Variant>>,
        spare: Arc<Spare>,
        limits: Limits,
    ) -> Result<Self> {
        variants.sort_by_key(|variant| variant.shape.batch);
        let fitting = variants.iter().filter(|variant| variant.shape.batch <= limits.batch).count().max(1);
        variants.truncate(fitting);
        let graph = loop {
            let Some(largest) = variants.last() else { return Err(Error::internal("model")) };
            match largest.ready() {
                Err(error) if error.is_out_of_memory() && variants.len() > 1 => {
                    variants.pop();
                    let smaller = variants.last().map_or(1, |variant| variant.shape.batch);
                    tracing::warn!("out of memory: goes on with {smaller} images in a run");
                }
                ready => {
                    ready?;
                    break largest.graph_for(interface, tile)?;
                }
            }
        };
        let Graph { inputs, outputs, .. } = &graph;
        let shape = |shapes: &Shapes, name: &str| shapes.get(name).cloned().ok_or_else(|| Error::internal("model"));
        let shapes = [shape(inputs, &interface.input)?, shape(outputs, &interface.output)?];
        let (interface, parts) = (interface.clone(), Mutex::new(None));
        let model = Self { tile, interface, variants, shapes, spare, parts };
        model.spare.reserve(tile, || model.make(model.batch()))?;
        Ok(model)
    }

    /// Elements of one image's input and output.
    fn lengths(&self) -> [usize; 2] {
        self.shapes.each_ref().map(|shape| shape.iter().skip(1).product())
    }

    /// Tensors for the largest run; waits while all are in use, unless `cancelled`.
    pub(super) fn tensors(&self, cancelled: impl Fn() -> bool) -> Result<Pair> {
        self.spare.take(self.tile, || self.make(self.batch()), cancelled)
    }

    /// Takes tensors back.
    pub(super) fn give_back(&self, pair: Pair) {
        self.spare.give_back(self.tile, pair);
    }

    /// Tensors for a run of some images, which the caller keeps.
    pub(super) fn make(&self, batch: usize) -> Result<Pair> {
        let Some(largest) = self.variants.last() else { return Err(Error::internal("model")) };
        let shape = |shape: &Vec<usize>| [&[batch], &shape[1..]].concat();
        let [input, output] = self.shapes.each_ref().map(shape);
        largest.pair(&input, &output)
    }

    /// Images in the largest run.
    pub(super) fn batch(&self) -> usize {
        self.variants.last().map_or(1, |variant| variant.shape.batch)
    }

    /// Which providers took the nodes of the session that was opened last.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.in_parts().map_or_else(
            || self.variants.last().map(|variant| variant.assigned()).unwrap_or_default(),
            |smaller| smaller.model.assigned(),
        )
    }

    fn in_parts(&self) -> Option<Arc<InParts>> {
        self.parts.lock().clone()
    }

    /// Whether the results are those of whole tiles, up to rounding.
    pub(super) fn is_exact(&self) -> bool {
        self.in_parts().is_none_or(|smaller| smaller.parts.is_exact())
    }

    /// From now on, tiles run in parts, which `model` runs.
    pub(super) fn run_in_parts(&self, model: Arc<Self>, tiling: Tiling) -> Result<()> {
        let parts = Parts::new(model.make(1)?, self.tile, tiling);
        *self.parts.lock() = Some(Arc::new(InParts { parts, model }));
        Ok(())
    }

    /// The size of what runs: the tile, or its parts.
    pub(super) fn run_size(&self) -> Size {
        self.in_parts().map_or(self.tile, |smaller| smaller.model.tile)
    }

    /// One image of a run's input, `[channels, height, width]`.
    pub(super) fn input<'p>(&self, pair: &'p mut Pair, image: usize) -> Result<&'p mut [f32]> {
        let [length, _] = self.lengths();
        Ok(&mut pair.input.as_mut_slice()?[image * length..][..length])
    }

    /// One image of a run's output, `[channels, height · scale, width · scale]`.
    pub(super) fn output<'p>(&self, pair: &'p Pair, image: usize) -> Result<&'p [f32]> {
        let [_, length] = self.lengths();
        Ok(&pair.output.as_slice()?[image * length..][..length])
    }

    /// Closes the sessions of a stream that has ended.
    pub(super) fn close(&self, stream: usize) {
        self.variants.iter().for_each(|variant| variant.close(stream));
    }

    /// Runs the first `count` images of a pair on a stream: at once if it is full, and otherwise in pieces of the sizes
    /// that there are graphs for, with at most `most` images each. Where memory does not hold a tile, each runs in its
    /// parts.
    pub(super) fn run(&self, pair: &mut Pair, count: usize, stream: usize, most: usize, cancel: &Cancel) -> Result<()> {
        if let Some(smaller) = self.in_parts() {
            let Pair { input, output } = pair;
            let (input, output) = (input.as_slice()?, output.as_mut_slice()?);
            let [given, made] = self.lengths();
            let images = input.chunks_exact(given).zip(output.chunks_exact_mut(made));
            let run = |part: &mut Pair| smaller.model.run(part, 1, stream, 1, cancel);
            return images.take(count).try_for_each(|(input, output)| smaller.parts.run(input, output, run));
        }
        let Some(largest) = self.variants.last() else { return Err(Error::internal("model")) };
        let most = most.max(self.variants[0].shape.batch);
        // What memory did not hold shall not take any.
        self.variants.iter().filter(|variant| variant.shape.batch > most).for_each(|variant| variant.close(stream));
        if count == largest.shape.batch && largest.shape.batch <= most {
            return largest.with_session(stream, |opened| self.run_session(opened, pair, cancel));
        }
        let mut position = 0;
        while position < count {
            let room = most.min(count - position);
            let variant =
                self.variants.iter().rev().find(|variant| variant.shape.batch <= room).unwrap_or(&self.variants[0]);
            let images = variant.shape.batch.min(count - position);
            self.run_piece(variant, stream, pair, position..position + images, cancel)?;
            position += images;
        }
        Ok(())
    }

    /// Runs some images of a batch on a graph for fewer, through tensors of that size.
    fn run_piece(
        &self,
        variant: &Variant,
        stream: usize,
        pair: &mut Pair,
        images: std::ops::Range<usize>,
        cancel: &Cancel,
    ) -> Result<()> {
        let [given, made] = self.lengths().map(|length| images.start * length..images.end * length);
        variant.with_session(stream, |opened| {
            // A piece of tiles of another size is of no use.
            let kept = opened.piece.take().filter(|(tile, _)| *tile == self.tile);
            let mut piece = kept.map_or_else(|| self.make(variant.shape.batch), |(_, piece)| Ok(piece))?;
            let given = &pair.input.as_slice::<f32>()?[given];
            let (filled, rest) = piece.input.as_mut_slice::<f32>()?.split_at_mut(given.len());
            filled.copy_from_slice(given);
            rest.fill(0.0);
            self.run_session(opened, &mut piece, cancel)?;
            let taken = &mut pair.output.as_mut_slice::<f32>()?[made];
            taken.copy_from_slice(&piece.output.as_slice()?[..taken.len()]);
            opened.piece = Some((self.tile, piece));
            Ok(())
        })
    }

    fn run_session(&self, opened: &mut Opened, Pair { input, output }: &mut Pair, cancel: &Cancel) -> Result<()> {
        let Upscale { input: given, output: made, .. } = &self.interface;
        Ok(opened.session.run_into(&[(given, input)], &mut [(made, output)], cancel)?)
    }

    /// Images in the largest run, where memory holds at most this many; if all graphs have more, the smallest graph's.
    pub(super) fn largest_run(&self, most: usize) -> usize {
        let batches = || self.variants.iter().map(|variant| variant.shape.batch);
        batches().filter(|batch| *batch <= most).max().or_else(|| batches().min()).unwrap_or(most)
    }

    /// The next smaller number of images in a run, if there is one.
    pub(super) fn smaller_than(&self, batch: usize) -> Option<usize> {
        self.variants.iter().rev().map(|variant| variant.shape.batch).find(|smaller| *smaller < batch)
    }
}
