//! The threads of a run, and how they stop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, RecvError, SendError, Sender, bounded, unbounded};
use parking_lot::Mutex;

use super::clock::Clock;
use super::cut::Cutter;
use super::join::Joiner;
use super::model::{Batch, Limits, Model, Slot, Ticket};
use super::routing::Routing;
use super::run::Streams;
use super::{Cancel, Event, Models, Next, Open, Pictures, Progress, Statistics};
use crate::error::{Error, Result};
use tileforge_image::RowSink;
use tileforge_image::Size;
use tileforge_image::tile::{Blender, RowBand, SampleEncoding, TilePlan};

/// Batches that are cut ahead: one that is being filled and one that waits, so that no stream waits as long as cutting
/// is faster.
const AHEAD: usize = 1;

/// Why a stage ended before its work was done.
pub(super) enum Ended {
    /// It failed, or was cancelled.
    Failed(Error),
    /// A neighbour ended, and has or will have the reason.
    Abandoned,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<T> From<SendError<T>> for Ended {
    fn from(_: SendError<T>) -> Self {
        Self::Abandoned
    }
}

impl From<RecvError> for Ended {
    fn from(_: RecvError) -> Self {
        Self::Abandoned
    }
}

pub(super) type StageResult<T> = std::result::Result<T, Ended>;

/// The first error that ends all stages.
#[derive(Default)]
pub(super) struct Stop {
    set: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Runs a stage. Its channels close when it returns, which ends its neighbours.
    fn watch(&self, stage: impl FnOnce() -> StageResult<()>) {
        /// Streams wait for each other, so that one that panics must tell.
        struct Watched<'s>(&'s Stop);
        impl Drop for Watched<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.set.store(true, Ordering::SeqCst);
                }
            }
        }
        let _watched = Watched(self);
        if let Err(ended) = stage() {
            if let Ended::Failed(error) = ended {
                self.error.lock().get_or_insert(error);
            }
            self.set.store(true, Ordering::SeqCst);
        }
    }
}

/// What the decoding stage tells the blending stage, in the order in which pictures are blended.
enum Order {
    Begin(Box<Begun>),
    /// The batch of this number comes next.
    Batch,
    Failed(Arc<Ticket>, Error),
}

/// A picture of which tiles are on their way.
struct Begun {
    ticket: Arc<Ticket>,
    model: Arc<Model>,
    plan: TilePlan,
    routing: Routing,
    blender: Blender,
    joiner: Joiner,
    /// Until the first rows are finished.
    sink: Option<Box<dyn RowSink>>,
    size: Size,
    output: Size,
}

/// A picture whose rows are on their way to its sink.
struct Rows {
    ticket: Arc<Ticket>,
    sink: Box<dyn RowSink>,
    bands: Receiver<RowBand>,
    spare: Sender<Vec<u8>>,
    statistics: Statistics,
}

/// Sends pictures through an engine, and tells the calling thread about them.
pub(super) fn run(
    models: &Models,
    limits: Limits,
    pictures: impl Pictures,
    mut events: impl FnMut(Event),
    cancel: &Cancel,
) -> Result<Limits> {
    let stop = Stop::default();
    let streams = Streams::new(limits, cancel, &stop, models);
    let (orders, ordered) = unbounded();
    let (filled, batches) = bounded(AHEAD);
    // Bounded by the tensors that there are.
    let (ran, finished) = unbounded();
    let (written, to_write) = bounded(1);
    let (told, heard) = unbounded();

    let panicked = thread::scope(|scope| {
        let decoding = scope.spawn(|| {
            stop.watch(|| {
                Decoding { models, cancel, stop: &stop, orders, filled, pending: None, batches: 0 }.run(pictures)
            });
        });
        let mut stages = vec![("decode", decoding)];
        for stream in 0..limits.streams {
            let (streams, stop, batches, ran) = (&streams, &stop, batches.clone(), ran.clone());
            stages.push(("run", scope.spawn(move || stop.watch(|| streams.work(stream, &batches, &ran)))));
        }
        drop((batches, ran));
        stages.push(("encode", scope.spawn(|| stop.watch(|| encode(to_write, told)))));
        let blending = Blending {
            active: VecDeque::new(),
            finished,
            early: BTreeMap::new(),
            next: 0,
            written,
            heard: heard.clone(),
            events: &mut events,
        };
        stop.watch(|| blending.run(ordered));
        stages.into_iter().filter_map(|(name, stage)| stage.join().is_err().then_some(name)).next()
    });
    heard.try_iter().for_each(&mut events);
    let error = stop.error.lock().take();
    match (error, panicked) {
        // What the others say then only follows from it.
        (_, Some(stage)) => Err(Error::Internal(stage)),
        (Some(error), None) => Err(error),
        (None, None) if stop.is_set() => Err(Error::Internal("pipeline")),
        (None, None) => Ok(streams.limits()),
    }
}

/// A picture that is being cut.
struct Cutting {
    cutter: Cutter,
    plan: TilePlan,
    model: Arc<Model>,
    routing: Routing,
}

/// Opens pictures, and cuts them into batches.
struct Decoding<'d> {
    models: &'d Models,
    cancel: &'d Cancel,
    stop: &'d Stop,
    orders: Sender<Order>,
    filled: Sender<Batch>,
    /// A batch that is not full yet.
    pending: Option<Batch>,
    /// Those that have gone.
    batches: u64,
}

impl Decoding<'_> {
    fn run(mut self, mut pictures: impl Pictures) -> StageResult<()> {
        let mut number = 0;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled.into());
            }
            if self.stop.is_set() {
                return Err(Ended::Abandoned);
            }
            let ticket = Arc::new(Ticket { number, clock: Clock::start(), abandoned: AtomicBool::new(false) });
            let opened = match ticket
                .clock
                .measure(|seconds| &mut seconds.decode, || pictures.next(&|header| self.models.output_of(header)))
            {
                Next::Picture(opened) => opened,
                Next::NotYet => {
                    self.dispatch()?;
                    continue;
                }
                Next::End => return self.dispatch(),
            };
            number += 1;
            if let Err(error) = self.make(opened, &ticket)? {
                self.orders.send(Order::Failed(ticket, error))?;
            }
        }
    }

    /// One picture; the inner error is that of the picture alone.
    fn make(&mut self, opened: Result<Open>, ticket: &Arc<Ticket>) -> StageResult<Result<()>> {
        let planned = opened.and_then(|open| Ok((self.models.plan(open.source.header().size)?, open)));
        let (plan, open) = match planned {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let model = self.models.of_tile(plan.tile())?;
        match self.begin(open, plan, model, ticket) {
            Ok(cutting) => self.cut(cutting, ticket),
            Err(error) => Ok(Err(error)),
        }
    }

    fn begin(&mut self, open: Open, plan: TilePlan, model: Arc<Model>, ticket: &Arc<Ticket>) -> Result<Cutting> {
        let Open { source, sink } = open;
        let header = source.header().clone();
        let interface = self.models.interface();
        let routing = Routing::new(interface.channels, &header, self.models.options().alpha);
        let encoding = SampleEncoding { range: interface.range, depth: sink.header().depth };
        let blender = Blender::new(&plan, self.models.options().blend, routing.planes, encoding)?;
        let output = plan.tile().scaled(plan.scale())?;
        let joiner = Joiner::new(plan.tile(), output);
        let size = sink.header().size;
        let cutter = Cutter::new(source, interface.range, &plan)?;
        let begun = Begun {
            ticket: ticket.clone(),
            model: model.clone(),
            plan,
            routing: routing.clone(),
            blender,
            joiner,
            sink: Some(sink),
            size,
            output,
        };
        // Cannot fail as long as the blending stage is there, and matters to nobody afterwards.
        let _ = self.orders.send(Order::Begin(Box::new(begun)));
        Ok(Cutting { cutter, plan, model, routing })
    }

    /// Cuts one picture; the inner error is that of the picture alone.
    fn cut(&mut self, cutting: Cutting, ticket: &Arc<Ticket>) -> StageResult<Result<()>> {
        let Cutting { mut cutter, plan, model, routing } = cutting;
        for tile in plan.tiles() {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled.into());
            }
            if ticket.is_abandoned() {
                break;
            }
            if let Err(error) = ticket.clock.measure(|seconds| &mut seconds.decode, || cutter.advance(tile)) {
                return Ok(Err(error));
            }
            for (position, run) in routing.runs.iter().enumerate() {
                let last = position + 1 == routing.runs.len();
                let mut batch = self.batch_of(&model)?;
                ticket.clock.measure(
                    |seconds| &mut seconds.decode,
                    || -> Result<()> {
                        let place = batch.slots.len();
                        cutter.fill(tile, run, batch.input(place)?);
                        let around = routing.around.filter(|_| last).map(|channel| cutter.channel(tile, channel));
                        batch.slots.push(Slot { ticket: ticket.clone(), tile, run: run.clone(), around, last });
                        Ok(())
                    },
                )?;
                let full = batch.slots.len() >= model.batch();
                self.pending = Some(batch);
                if full {
                    self.dispatch()?;
                }
            }
        }
        Ok(Ok(()))
    }

    /// The batch that is being filled, if it is one of this model, or another.
    fn batch_of(&mut self, model: &Arc<Model>) -> StageResult<Batch> {
        match self.pending.take() {
            Some(batch) if Arc::ptr_eq(&batch.model, model) => Ok(batch),
            other => {
                self.pending = other;
                self.dispatch()?;
                let tensors = model.pair(|| self.cancel.is_cancelled() || self.stop.is_set())?;
                Ok(Batch { number: self.batches, model: model.clone(), slots: Vec::new(), tensors })
            }
        }
    }

    fn dispatch(&mut self) -> StageResult<()> {
        let Some(batch) = self.pending.take() else { return Ok(()) };
        self.batches += 1;
        self.orders.send(Order::Batch)?;
        Ok(self.filled.send(batch)?)
    }
}

/// Blends what comes out of the streams, in the order in which it went in.
struct Blending<'b, E> {
    /// Pictures that have begun, in their order.
    active: VecDeque<Active>,
    finished: Receiver<Batch>,
    /// Batches that came before their turn.
    early: BTreeMap<u64, Batch>,
    next: u64,
    written: Sender<Rows>,
    heard: Receiver<Event>,
    events: &'b mut E,
}

struct Active {
    begun: Begun,
    done: u64,
    bands: Option<(Sender<RowBand>, Receiver<Vec<u8>>)>,
}

impl<E: FnMut(Event)> Blending<'_, E> {
    fn run(mut self, orders: Receiver<Order>) -> StageResult<()> {
        for order in orders {
            match order {
                Order::Begin(begun) => {
                    (self.events)(Event::Progress(Progress {
                        picture: begun.ticket.number,
                        done: 0,
                        total: begun.plan.count(),
                    }));
                    self.active.push_back(Active { begun: *begun, done: 0, bands: None });
                }
                Order::Batch => {
                    let batch = self.next_batch()?;
                    self.blend(batch)?;
                }
                Order::Failed(ticket, error) => self.give_up(&ticket, error),
            }
            self.heard.try_iter().for_each(&mut self.events);
        }
        Ok(())
    }

    fn next_batch(&mut self) -> StageResult<Batch> {
        let number = self.next;
        self.next += 1;
        loop {
            if let Some(batch) = self.early.remove(&number) {
                return Ok(batch);
            }
            let batch = self.finished.recv()?;
            self.early.insert(batch.number, batch);
        }
    }

    fn blend(&mut self, mut batch: Batch) -> StageResult<()> {
        for (place, mut slot) in std::mem::take(&mut batch.slots).into_iter().enumerate() {
            let around = slot.around.take();
            let Some(active) = self.active.iter_mut().find(|active| active.begun.ticket.number == slot.ticket.number)
            else {
                continue;
            };
            if slot.ticket.is_abandoned() {
                // Its encoding failed, which has been told.
                self.forget(&slot.ticket);
                continue;
            }
            let mut finished = Vec::new();
            let blended = slot.ticket.clock.measure(
                |seconds| &mut seconds.blend,
                || active.add(&slot, around, batch.output(place)?, &mut finished),
            );
            if let Err(error) = blended {
                self.give_up(&slot.ticket, error);
                continue;
            }
            if !slot.last {
                continue;
            }
            if !finished.is_empty() {
                active.hand_on(finished, &self.written)?;
            }
            active.done += 1;
            let progress =
                Progress { picture: slot.ticket.number, done: active.done, total: active.begun.plan.count() };
            (self.events)(Event::Progress(progress));
            if active.begun.blender.is_complete() {
                self.forget(&slot.ticket);
            }
        }
        batch.model.recycle(batch.tensors);
        Ok(())
    }

    /// Ends the picture's bands, and with them its encoding.
    fn forget(&mut self, ticket: &Ticket) {
        self.active.retain(|active| active.begun.ticket.number != ticket.number);
    }

    fn give_up(&mut self, ticket: &Ticket, error: Error) {
        self.forget(ticket);
        if ticket.abandon() {
            (self.events)(Event::Finished(ticket.number, Err(error)));
        }
    }
}

impl Active {
    /// Adds the output of one slot; with the last run of a tile, that is blended.
    fn add(
        &mut self,
        slot: &Slot,
        around: Option<Vec<f32>>,
        output: &[f32],
        finished: &mut Vec<RowBand>,
    ) -> Result<()> {
        let Begun { blender, joiner, routing, output: size, .. } = &mut self.begun;
        if let Some((_, spare)) = &self.bands {
            spare.try_iter().for_each(|bytes| blender.recycle(bytes));
        }
        let mut keep = |band| {
            finished.push(band);
            Ok::<_, Error>(())
        };
        if routing.runs.len() == 1 && routing.around.is_none() && routing.planes == slot.run.channels.len() {
            // The model's output is the tile.
            let area = output.len() / routing.planes;
            return blender.push(slot.tile, &output.chunks_exact(area).collect::<Vec<_>>(), &mut keep);
        }
        joiner.add(&slot.run, output);
        if let Some(channel) = around {
            joiner.enlarge(&channel, *size)?;
        }
        if slot.last { blender.push(slot.tile, &joiner.take(), &mut keep) } else { Ok(()) }
    }

    /// Gives finished rows to the encoding stage.
    fn hand_on(&mut self, finished: Vec<RowBand>, written: &Sender<Rows>) -> StageResult<()> {
        if let Some(sink) = self.begun.sink.take() {
            // One row of tiles may finish while the one before it is still being encoded.
            let (bands, to_write) = bounded(self.begun.blender.bands_of_a_row());
            let (spare, to_fill) = unbounded();
            let Begun { ticket, model, plan, size, .. } = &self.begun;
            let statistics = Statistics {
                size: *size,
                tiles: plan.count(),
                tile: plan.tile(),
                overlap: plan.overlap(),
                exact: plan.is_exact(),
                assigned: model.assigned(),
                seconds: super::Seconds::default(),
            };
            written.send(Rows { ticket: ticket.clone(), sink, bands: to_write, spare, statistics })?;
            self.bands = Some((bands, to_fill));
        }
        if let Some((bands, _)) = &self.bands {
            for band in finished {
                // Nobody listens when the encoding stage has given this picture up, which it tells itself.
                if bands.send(band).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Writes pictures one after the other.
fn encode(pictures: Receiver<Rows>, told: Sender<Event>) -> StageResult<()> {
    for Rows { ticket, mut sink, bands, spare, mut statistics } in pictures {
        let row_bytes = sink.header().row_bytes().unwrap_or(usize::MAX);
        let mut rows_left = sink.header().size.height as usize;
        let write = || -> Result<()> {
            for band in bands {
                ticket.clock.measure(|seconds| &mut seconds.encode, || sink.write_rows(&band.bytes))?;
                rows_left = rows_left.saturating_sub(band.bytes.len() / row_bytes);
                // The blender is gone after the last row, and needs no buffer then.
                let _ = spare.send(band.bytes);
            }
            Ok(())
        };
        let result = match write() {
            // The picture was given up on the way; whoever did that tells.
            Ok(()) if rows_left > 0 => continue,
            Ok(()) => ticket.clock.measure(|seconds| &mut seconds.encode, || Ok(sink.finish()?)),
            Err(error) => Err(error),
        };
        if result.is_err() && !ticket.abandon() {
            continue;
        }
        statistics.seconds = ticket.clock.stop();
        // The caller has gone if nobody listens.
        let _ = told.send(Event::Finished(ticket.number, result.map(|()| statistics)));
    }
    Ok(())
}
