//! The stage that blends what comes out of the streams, in the order in which it went in.

use std::collections::{BTreeMap, VecDeque};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use tileforge_image::tile::RowBand;

use super::batch::{Batch, Slot, Ticket};
use super::clock::Seconds;
use super::encoding::Rows;
use super::order::{Begun, Order};
use super::request::Statistics;
use crate::error::{Error, Result};
use crate::executor::{Closed, Failure, StageResult};

/// Blends what comes out of the streams, in the order in which it went in.
pub(super) struct Blending<'b> {
    failure: &'b Failure,
    /// Pictures that have begun, in their order.
    active: VecDeque<Active>,
    finished: Receiver<Batch>,
    /// Batches that came before their turn.
    early: BTreeMap<u64, Batch>,
    next: u64,
    written: Sender<Rows>,
}

struct Active {
    begun: Begun,
    done: u64,
    bands: Option<(Sender<RowBand>, Receiver<Vec<u8>>)>,
}

impl<'b> Blending<'b> {
    pub(super) fn new(failure: &'b Failure, finished: Receiver<Batch>, written: Sender<Rows>) -> Self {
        Self { failure, active: VecDeque::new(), finished, early: BTreeMap::new(), next: 0, written }
    }

    pub(super) fn run(&mut self, orders: &Receiver<Order>) -> StageResult<()> {
        for order in orders {
            match order {
                Order::Begin(begun) => {
                    begun.ticket.reply.progress(0, begun.plan.count());
                    self.active.push_back(Active { begun: *begun, done: 0, bands: None });
                }
                Order::Batch => {
                    let batch = self.next_batch()?;
                    self.blend(batch)?;
                }
                Order::Failed(ticket, error) => self.give_up(&ticket, error),
            }
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
        for (place, slot) in std::mem::take(&mut batch.slots).into_iter().enumerate() {
            if let Some(error) = &batch.failed {
                self.give_up(&slot.ticket, Error::Shared(error.clone()));
            } else if slot.ticket.reply.is_cancelled() {
                self.give_up(&slot.ticket, Error::Cancelled);
            } else {
                self.blend_one(&batch, place, slot)?;
            }
        }
        batch.model.give_back(batch.tensors);
        Ok(())
    }

    fn blend_one(&mut self, batch: &Batch, place: usize, mut slot: Slot) -> StageResult<()> {
        let around = slot.around.take();
        let is_its = |active: &&mut Active| active.begun.ticket.number == slot.ticket.number;
        let Some(active) = self.active.iter_mut().find(is_its) else { return Ok(()) };
        if slot.ticket.reply.is_over() {
            // Its encoding failed, which has been told.
            self.forget(&slot.ticket);
            return Ok(());
        }
        let mut finished = Vec::new();
        let blended = slot
            .ticket
            .clock
            .measure(|seconds| &mut seconds.blend, || active.add(&slot, around, batch.output(place)?, &mut finished));
        if let Err(error) = blended {
            self.give_up(&slot.ticket, error);
            return Ok(());
        }
        if !slot.last {
            return Ok(());
        }
        if !finished.is_empty() {
            active.hand_on(finished, &self.written, self.failure)?;
        }
        active.done += 1;
        slot.ticket.reply.progress(active.done, active.begun.plan.count());
        if active.begun.blender.is_complete() {
            self.forget(&slot.ticket);
        }
        Ok(())
    }

    /// Ends the picture's bands, and with them its encoding.
    fn forget(&mut self, ticket: &Ticket) {
        self.active.retain(|active| active.begun.ticket.number != ticket.number);
    }

    fn give_up(&mut self, ticket: &Ticket, error: Error) {
        // Before anybody hears of it, so that the output is no longer written.
        self.forget(ticket);
        ticket.reply.finish(Err(error));
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
    fn hand_on(&mut self, finished: Vec<RowBand>, written: &Sender<Rows>, failure: &Failure) -> StageResult<()> {
        if let Some(sink) = self.begun.sink.take() {
            // One row of tiles may finish while the one before it is still being encoded.
            let (bands, to_write) = bounded(self.begun.blender.bands_of_a_row());
            let (spare, to_fill) = unbounded();
            let Begun { ticket, model, plan, tiling_psnr_db, .. } = &self.begun;
            let statistics = Statistics {
                size: sink.written(),
                tiles: plan.count(),
                tile: plan.tile(),
                overlap: plan.overlap(),
                exact: plan.is_exact(),
                tiling_psnr_db: *tiling_psnr_db,
                assigned: model.assigned(),
                seconds: Seconds::default(),
            };
            failure.send(written, Rows { ticket: ticket.clone(), sink, bands: to_write, spare, statistics })?;
            self.bands = Some((bands, to_fill));
        }
        if let Some((bands, _)) = &self.bands {
            for band in finished {
                if failure.send(bands, band).is_err() {
                    if failure.is_set() {
                        return Err(Closed);
                    }
                    // Nobody listens when the encoding stage has given this picture up, which it tells itself.
                    break;
                }
            }
        }
        Ok(())
    }
}
