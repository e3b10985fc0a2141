//! The sessions of one tile shape, and batches on their way through them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tileforge_contract::{DataType, Upscale};
use tileforge_engine::Graph;
use tileforge_image::Size;
use tileforge_image::tile::Tile;
use tileforge_session::{Assigned, Buffer, Buffers, Ladder, Session};

use super::TileShape;
use super::clock::Clock;
use super::routing::Run;
use crate::error::{Error, Result};

/// One picture, as the stages between its first and its last row see it.
pub(super) struct Ticket {
    /// Its place among all pictures.
    pub(super) number: usize,
    pub(super) clock: Clock,
    /// Nobody wants its tiles any more.
    pub(super) abandoned: AtomicBool,
}

impl Ticket {
    /// Gives the picture up, and returns whether nobody had: whoever did tells why.
    pub(super) fn abandon(&self) -> bool {
        !self.abandoned.swap(true, Ordering::SeqCst)
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }
}

/// One run of the model on one tile: a place in a batch.
pub(super) struct Slot {
    pub(super) ticket: Arc<Ticket>,
    pub(super) tile: Tile,
    pub(super) run: Run,
    /// The tile's channel that goes around the model, with the tile's last run.
    pub(super) around: Option<Vec<f32>>,
    /// No run of this tile follows.
    pub(super) last: bool,
}

/// Tiles that run together.
pub(super) struct Batch {
    /// Its place in the order of all batches.
    pub(super) number: u64,
    pub(super) model: Arc<Model>,
    pub(super) slots: Vec<Slot>,
    pub(super) tensors: Pair,
}

impl Batch {
    /// What the model gave for one slot, `[channels, height, width]`.
    pub(super) fn output(&self, slot: usize) -> Result<&[f32]> {
        let length = self.model.output_length;
        Ok(&self.tensors.output.as_slice()?[slot * length..][..length])
    }

    /// Where one slot's input goes, `[channels, height, width]`.
    pub(super) fn input(&mut self, slot: usize) -> Result<&mut [f32]> {
        let length = self.model.input_length;
        Ok(&mut self.tensors.input.as_mut_slice()?[slot * length..][..length])
    }
}

/// The input and the output of one run.
pub(super) struct Pair {
    input: Buffer,
    output: Buffer,
}

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
    spare: Spare,
    /// Of the session that was opened last.
    assigned: Mutex<Vec<Assigned>>,
}

/// Pairs of tensors that are not in use.
struct Spare {
    tensors: Mutex<Buffers>,
    pairs: Mutex<Pairs>,
    returned: Condvar,
    shapes: [Vec<usize>; 2],
}

struct Pairs {
    unused: VecDeque<Pair>,
    made: usize,
    limit: usize,
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
            let Some((largest, _)) = graphs.last() else { return Err(Error::Internal("model")) };
            match ladder.session(largest, 0) {
                Err(error) if error.is_out_of_memory() && graphs.len() > 1 => {
                    graphs.pop();
                    let smaller = graphs.last().map_or(1, |(_, shape)| shape.batch);
                    tracing::warn!("out of memory: goes on with {smaller} images in a run");
                }
                opened => break opened?,
            }
        };
        let tile = graphs.first().map(|(_, shape)| shape.tile).ok_or(Error::Internal("model"))?;
        let variant = |(graph, shape): (Graph, TileShape)| Variant {
            graph,
            batch: shape.batch,
            sessions: (0..limits.streams).map(|_| Mutex::new(None)).collect(),
        };
        let variants: Vec<Variant> = graphs.into_iter().map(variant).collect();
        let Some(largest) = variants.last() else { return Err(Error::Internal("model")) };
        let shape = |shapes: &std::collections::BTreeMap<String, Vec<usize>>, name: &str| {
            shapes.get(name).cloned().unwrap_or_default()
        };
        let shapes = [shape(&largest.graph.inputs, &interface.input), shape(&largest.graph.outputs, &interface.output)];
        let length = |shape: &[usize]| shape.iter().skip(1).product::<usize>();
        let (assigned, tensors) = (Mutex::new(session.assigned().to_vec()), Mutex::new(session.buffers()?));
        *largest.sessions[0].lock() = Some(Opened { session, piece: None });
        // One that is filled, one that waits and one that is blended, besides those that run.
        let pairs = Pairs { unused: VecDeque::new(), made: 0, limit: limits.streams + 3 };
        let spare = Spare { tensors, pairs: Mutex::new(pairs), returned: Condvar::new(), shapes: shapes.clone() };
        let (input_length, output_length) = (length(&shapes[0]), length(&shapes[1]));
        Ok(Self { tile, interface: interface.clone(), ladder, variants, input_length, output_length, spare, assigned })
    }

    /// Images in the largest run.
    pub(super) fn batch(&self) -> usize {
        self.variants.last().map_or(1, |variant| variant.batch)
    }

    /// Which providers took the nodes of the session that was opened last.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.assigned.lock().clone()
    }

    /// Tensors for the largest run; waits while all are in use, unless `cancelled`.
    pub(super) fn pair(&self, cancelled: impl Fn() -> bool) -> Result<Pair> {
        let mut pairs = self.spare.pairs.lock();
        loop {
            if let Some(pair) = pairs.unused.pop_front() {
                return Ok(pair);
            }
            if pairs.made < pairs.limit {
                match self.spare.make(self.batch()) {
                    // Fewer on their way at the same time are slower, and enough.
                    Err(error) if error.is_out_of_memory() && pairs.made > 0 => pairs.limit = pairs.made,
                    made => {
                        pairs.made += 1;
                        return made;
                    }
                }
            }
            if cancelled() {
                return Err(Error::Cancelled);
            }
            self.spare.returned.wait_for(&mut pairs, super::PATIENCE);
        }
    }

    /// Takes tensors back.
    pub(super) fn recycle(&self, pair: Pair) {
        self.spare.pairs.lock().unused.push_back(pair);
        self.spare.returned.notify_one();
    }

    /// Closes the sessions of a stream that has ended.
    pub(super) fn close(&self, stream: usize) {
        self.variants.iter().for_each(|variant| *variant.sessions[stream].lock() = None);
    }

    /// Runs a batch on a stream: at once if it is full, and otherwise in pieces of the sizes that there are graphs for,
    /// with at most `most` images each.
    pub(super) fn run(&self, batch: &mut Batch, stream: usize, most: usize) -> Result<()> {
        let Some(largest) = self.variants.last() else { return Err(Error::Internal("model")) };
        let count = batch.slots.len();
        let most = most.max(self.variants[0].batch);
        // What memory did not hold shall not take any.
        self.variants
            .iter()
            .filter(|variant| variant.batch > most)
            .for_each(|variant| *variant.sessions[stream].lock() = None);
        let started = Instant::now();
        if count == largest.batch && largest.batch <= most {
            self.with_session(largest, stream, |opened| self.run_session(&mut opened.session, &mut batch.tensors))?;
        } else {
            let mut position = 0;
            while position < count {
                let room = most.min(count - position);
                let variant =
                    self.variants.iter().rev().find(|variant| variant.batch <= room).unwrap_or(&self.variants[0]);
                let images = variant.batch.min(count - position);
                self.run_piece(variant, stream, &mut batch.tensors, position..position + images)?;
                position += images;
            }
        }
        let ended = Instant::now();
        batch.slots.iter().for_each(|slot| slot.ticket.clock.ran(started, ended, 1.0 / count as f64));
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

impl Spare {
    /// Tensors for a run of some images.
    fn make(&self, batch: usize) -> Result<Pair> {
        let tensors = self.tensors.lock();
        let zeros = |shape: &[usize]| tensors.zeros(DataType::F32, &[&[batch], &shape[1..]].concat());
        Ok(Pair { input: zeros(&self.shapes[0])?, output: zeros(&self.shapes[1])? })
    }
}

/// How much runs at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) streams: usize,
    pub(super) batch: usize,
}
