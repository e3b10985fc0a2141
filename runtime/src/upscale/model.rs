//! The sessions of one tile shape.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_contract::{Shapes, Upscale};
use tileforge_engine::Graph;
use tileforge_image::Size;
use tileforge_session::{Assigned, Ladder, Session};

use super::limits::Limits;
use super::parts::Parts;
use super::shape::TileShape;
use super::tensors::{Pair, Spare};
use crate::error::{Error, Result};

/// A graph of the model for some number of images, and a session of it for each stream.
struct Variant {
    graph: Graph,
    batch: usize,
    sessions: Vec<Mutex<Option<Opened>>>,
}

/// A session, and tensors for the pieces of larger batches that it runs.
struct Opened {
    session: Session,
    piece: Option<Pair>,
}

/// Everything that runs tiles of one shape.
pub(super) struct Model {
    pub(super) tile: Size,
    interface: Upscale,
    ladder: Arc<Ladder>,
    /// By batch, the smallest first; never empty.
    variants: Vec<Variant>,
    /// Of one image.
    input_length: usize,
    output_length: usize,
    pub(super) spare: Spare,
    /// Of the session that was opened last.
    assigned: Mutex<Vec<Assigned>>,
    /// How tiles run since memory did not hold them.
    parts: Mutex<Option<Arc<Parts>>>,
}

impl Model {
    /// Opens the first session. `graphs` are those of one tile shape; used are those with at most the limit's images in
    /// a run, or the smallest if all have more, as far as memory holds them.
    pub(super) fn open(
        ladder: Arc<Ladder>,
        interface: &Upscale,
        mut graphs: Vec<(Graph, TileShape)>,
        limits: Limits,
    ) -> Result<Self> {
        graphs.sort_by_key(|(_, shape)| shape.batch);
        let fitting = graphs.iter().filter(|(_, shape)| shape.batch <= limits.batch).count().max(1);
        graphs.truncate(fitting);
        let session = loop {
            let Some((largest, _)) = graphs.last() else { return Err(Error::internal("model")) };
            match ladder.session(largest, 0) {
                Err(error) if error.is_out_of_memory() && graphs.len() > 1 => {
                    graphs.pop();
                    let smaller = graphs.last().map_or(1, |(_, shape)| shape.batch);
                    tracing::warn!("out of memory: goes on with {smaller} images in a run");
                }
                opened => break opened?,
            }
        };
        let tile = graphs.first().map(|(_, shape)| shape.tile).ok_or_else(|| Error::internal("model"))?;
        let variant = |(graph, shape): (Graph, TileShape)| Variant {
            graph,
            batch: shape.batch,
            sessions: (0..limits.streams).map(|_| Mutex::new(None)).collect(),
        };
        let variants: Vec<Variant> = graphs.into_iter().map(variant).collect();
        let Some(largest) = variants.last() else { return Err(Error::internal("model")) };
        let shape = |shapes: &Shapes, name: &str| shapes.get(name).cloned().ok_or_else(|| Error::internal("model"));
        let shapes =
            [shape(&largest.graph.inputs, &interface.input)?, shape(&largest.graph.outputs, &interface.output)?];
        let length = |shape: &[usize]| shape.iter().skip(1).product::<usize>();
        let assigned = Mutex::new(session.assigned().to_vec());
        let (input_length, output_length) = (length(&shapes[0]), length(&shapes[1]));
        // One that is filled, one that waits and one that is blended, besides those that run.
        let spare = Spare::new(session.buffers()?, shapes, largest.batch, limits.streams + 3);
        *largest.sessions[0].lock() = Some(Opened { session, piece: None });
        let (interface, parts) = (interface.clone(), Mutex::new(None));
        Ok(Self { tile, interface, ladder, variants, input_length, output_length, spare, assigned, parts })
    }

    /// Images in the largest run.
    pub(super) fn batch(&self) -> usize {
        self.variants.last().map_or(1, |variant| variant.batch)
    }

    /// Which providers took the nodes of the session that was opened last.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.parts().map_or_else(|| self.assigned.lock().clone(), |parts| parts.model().assigned())
    }

    /// How tiles run since memory did not hold them.
    pub(super) fn parts(&self) -> Option<Arc<Parts>> {
        self.parts.lock().clone()
    }

    /// From now on, tiles run in parts.
    pub(super) fn run_in_parts(&self, parts: Parts) {
        *self.parts.lock() = Some(Arc::new(parts));
    }

    /// The size of what runs: the tile, or its parts.
    pub(super) fn run_size(&self) -> Size {
        self.parts().map_or(self.tile, |parts| parts.model().tile)
    }

    /// One image of a run's input, `[channels, height, width]`.
    pub(super) fn input<'p>(&self, pair: &'p mut Pair, image: usize) -> Result<&'p mut [f32]> {
        Ok(&mut pair.input.as_mut_slice()?[image * self.input_length..][..self.input_length])
    }

    /// One image of a run's output, `[channels, height · scale, width · scale]`.
    pub(super) fn output<'p>(&self, pair: &'p Pair, image: usize) -> Result<&'p [f32]> {
        Ok(&pair.output.as_slice()?[image * self.output_length..][..self.output_length])
    }

    /// Closes the sessions of a stream that has ended.
    pub(super) fn close(&self, stream: usize) {
        self.variants.iter().for_each(|variant| *variant.sessions[stream].lock() = None);
    }

    /// Runs the first `count` images of a pair on a stream: at once if it is full, and otherwise in pieces of the sizes
    /// that there are graphs for, with at most `most` images each. Where memory does not hold a tile, each runs in its
    /// parts.
    pub(super) fn run(&self, pair: &mut Pair, count: usize, stream: usize, most: usize) -> Result<()> {
        if let Some(parts) = self.parts() {
            let Pair { input, output } = pair;
            let (input, output) = (input.as_slice()?, output.as_mut_slice()?);
            let images = input.chunks_exact(self.input_length).zip(output.chunks_exact_mut(self.output_length));
            return images.take(count).try_for_each(|(input, output)| parts.run(stream, input, output));
        }
        let Some(largest) = self.variants.last() else { return Err(Error::internal("model")) };
        let most = most.max(self.variants[0].batch);
        // What memory did not hold shall not take any.
        self.variants
            .iter()
            .filter(|variant| variant.batch > most)
            .for_each(|variant| *variant.sessions[stream].lock() = None);
        if count == largest.batch && largest.batch <= most {
            return self.with_session(largest, stream, |opened| self.run_session(&mut opened.session, pair));
        }
        let mut position = 0;
        while position < count {
            let room = most.min(count - position);
            let variant = self.variants.iter().rev().find(|variant| variant.batch <= room).unwrap_or(&self.variants[0]);
            let images = variant.batch.min(count - position);
            self.run_piece(variant, stream, pair, position..position + images)?;
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
    ) -> Result<()> {
        let range = |length: usize| images.start * length..images.end * length;
        self.with_session(variant, stream, |Opened { session, piece }| {
            let piece = match piece {
                Some(piece) => piece,
                none => none.insert(self.spare.make(variant.batch)?),
            };
            let given = &pair.input.as_slice::<f32>()?[range(self.input_length)];
            let (filled, rest) = piece.input.as_mut_slice::<f32>()?.split_at_mut(given.len());
            filled.copy_from_slice(given);
            rest.fill(0.0);
            self.run_session(session, piece)?;
            let taken = &mut pair.output.as_mut_slice::<f32>()?[range(self.output_length)];
            taken.copy_from_slice(&piece.output.as_slice()?[..taken.len()]);
            Ok(())
        })
    }

    fn run_session(&self, session: &mut Session, Pair { input, output }: &mut Pair) -> Result<()> {
        Ok(session.run_into(&[(&self.interface.input, input)], &mut [(&self.interface.output, output)])?)
    }

    /// Does something with a stream's session, which is opened if it is not, and again if it is of a provider that the
    /// ladder has left: all streams run on one.
    fn with_session(
        &self,
        variant: &Variant,
        stream: usize,
        work: impl FnOnce(&mut Opened) -> Result<()>,
    ) -> Result<()> {
        let mut place = variant.sessions[stream].lock();
        if place.as_ref().is_some_and(|opened| opened.session.provider() != self.ladder.provider()) {
            *place = None;
        }
        let opened = match &mut *place {
            Some(opened) => opened,
            empty => {
                let session = self.ladder.session(&variant.graph, stream)?;
                *self.assigned.lock() = session.assigned().to_vec();
                empty.insert(Opened { session, piece: None })
            }
        };
        work(opened)
    }

    /// Images in the largest run, where memory holds at most this many; if all graphs have more, the smallest graph's.
    pub(super) fn largest_run(&self, most: usize) -> usize {
        let batches = || self.variants.iter().map(|variant| variant.batch);
        batches().filter(|batch| *batch <= most).max().or_else(|| batches().min()).unwrap_or(most)
    }

    /// The next smaller number of images in a run, if there is one.
    pub(super) fn smaller_than(&self, batch: usize) -> Option<usize> {
        self.variants.iter().rev().map(|variant| variant.batch).find(|smaller| *smaller < batch)
    }
}
