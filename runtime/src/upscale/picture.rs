//! One picture in progress: one thread decodes and cuts, a second blends, a third encodes, so that none of this blocks
//! a device. Only the picture's tiles wait for the device, a few at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use tileforge_image::tile::{Blender, RowBand, SampleEncoding, Tile, TilePlan};
use tileforge_image::{RowSink, Size};

use super::clock::Clock;
use super::cut::Cutter;
use super::join::Joiner;
use super::models::Models;
use super::request::{OpenedPicture, UpscaleStatistics};
use super::routing::{Routing, Run};
use super::tiled::{TileMade, Tiled};
use crate::error::{Error, Result};
use crate::host::{Answer, AnswerSender, Answers, Reply, Values, answers};

/// Samples in flight for each sample of the streams' largest runs: one that runs, and one that waits.
const AHEAD: usize = 2;

/// A picture whose tiles go through a model.
pub(super) struct Picture<'p> {
    models: &'p Models,
    reply: &'p Reply<UpscaleStatistics>,
    clock: Clock,
    plan: TilePlan,
    tiled: Arc<Tiled>,
    routing: Routing,
    /// Size of a tile's output.
    output: Size,
}

/// One run of the model on one tile.
struct Slot {
    tile: Tile,
    run: Run,
    /// The tile's channel that bypasses the model; set on the tile's last run.
    around: Option<Vec<f32>>,
    /// No run of this tile follows.
    last: bool,
    /// The model's input, if memory does not hold the tile and it runs in parts.
    input: Option<Vec<f32>>,
}

/// The channels from the decoding thread to the blending thread, in the tiles' order.
struct Cut {
    slots: Sender<Slot>,
    answers: AnswerSender,
    /// Unused input buffers, one for each run that may be in flight.
    permits: Receiver<Vec<f32>>,
}

/// The channels of the blending thread.
struct Blended {
    slots: Receiver<Slot>,
    answers: Answers,
    permits: Sender<Vec<f32>>,
    bands: Sender<RowBand>,
    /// Written bands, for reuse.
    spare: Receiver<Vec<u8>>,
}

impl<'p> Picture<'p> {
    /// Takes a picture from its source to its sink.
    pub(super) fn make(
        models: &'p Models,
        open: impl FnOnce() -> Result<OpenedPicture>,
        reply: &'p Reply<UpscaleStatistics>,
    ) -> Result<UpscaleStatistics> {
        let clock = Clock::start();
        let OpenedPicture { source, sink } = clock.measure(|seconds| &mut seconds.decode, open)?;
        reply.go_on()?;
        let header = source.header().clone();
        let (plan, tiled) = models.planned(reply.ticket(), header.size)?;
        let interface = &models.interface;
        let routing = Routing::new(interface.channels, &header, models.options.alpha);
        let runs = plan.count().saturating_mul(routing.runs.len() as u64);
        let is_long = runs > (AHEAD * tiled.group.batch()) as u64;
        let _long = is_long.then(|| reply.wait_as_long()).transpose()?;
        let encoding = SampleEncoding { range: interface.range, depth: sink.header().depth };
        let blender = Blender::new(&plan, models.options.blend, routing.planes, encoding)?;
        let cutter = Cutter::new(source, interface.range, &plan)?;
        let output = plan.tile().scaled(plan.scale())?;
        Self { models, reply, clock, plan, tiled, routing, output }.go(cutter, blender, sink)
    }

    fn go(self, cutter: Cutter, blender: Blender, sink: Box<dyn RowSink>) -> Result<UpscaleStatistics> {
        let size = sink.written();
        let in_flight = AHEAD * self.models.network.streams() * self.tiled.group.batch() + 1;
        let (given, permits) = bounded(in_flight);
        let length = self.models.interface.channels * self.plan.tile().pixels() as usize;
        for _ in 0..in_flight {
            // The channel has room for all of them.
            let _ = given.send(Vec::new());
        }
        let ((slots, cut), (answer, answers)) = (unbounded(), answers());
        // One row of tiles may finish while the one before it is still being encoded.
        let ((bands, to_write), (written, spare)) = (bounded(blender.bands_of_a_row()), unbounded());
        self.reply.progress(0, self.plan.count());
        let (decoded, blended, encoded) = thread::scope(|scope| {
            let picture = &self;
            let spawn = |name: &'static str| thread::Builder::new().name(name.into());
            let to_cut = Cut { slots, answers: answer, permits };
            let decoding = spawn("decode").spawn_scoped(scope, move || picture.decode(cutter, &to_cut, length));
            let encoding = spawn("encode").spawn_scoped(scope, move || picture.encode(sink, &to_write, &written));
            let ways = Blended { slots: cut, answers, permits: given, bands, spare };
            let blended = picture.blend(blender, &ways);
            // Unblocks threads that wait for room in a channel.
            drop(ways);
            let ended = |name: &'static str, thread: std::io::Result<thread::ScopedJoinHandle<'_, Result<bool>>>| {
                let thread = thread.map_err(|source| Error::Thread { name, source })?;
                thread.join().unwrap_or_else(|_| Err(Error::internal(name)))
            };
            (ended("decode", decoding), blended, ended("encode", encoding))
        });
        // The stage that failed first caused the others to end.
        let written = encoded?;
        decoded?;
        let exact = blended?;
        self.reply.go_on()?;
        if !written {
            return Err(Error::internal("blend"));
        }
        if self.tiled.in_parts().is_none() {
            self.models.succeeded();
        }
        Ok(UpscaleStatistics {
            size,
            tiles: self.plan.count(),
            tile: self.plan.tile(),
            overlap: self.plan.overlap(),
            exact: exact && self.plan.is_exact(),
            tiling_psnr_db: self.models.tiling_psnr_db(&self.plan),
            assigned: self.models.network.assigned(),
            seconds: self.clock.stop(),
        })
    }

    /// Cuts the picture, and submits its tiles. False if the blending thread has ended.
    fn decode(&self, mut cutter: Cutter, to: &Cut, length: usize) -> Result<bool> {
        let (network, ticket) = (&self.models.network, self.reply.ticket());
        let mut number = 0;
        let mut announced = Some(network.announce(ticket, &self.tiled.group));
        for tile in self.plan.tiles() {
            self.reply.go_on()?;
            self.clock.measure(|seconds| &mut seconds.decode, || cutter.advance(tile))?;
            for (position, run) in self.routing.runs.iter().enumerate() {
                let last = position + 1 == self.routing.runs.len();
                let Ok(mut input) = to.permits.recv() else { return Ok(false) };
                let around = self.clock.measure(
                    |seconds| &mut seconds.decode,
                    || {
                        input.resize(length, 0.0);
                        cutter.fill(tile, run, &mut input);
                        self.routing.around.filter(|_| last).map(|channel| cutter.channel(tile, channel))
                    },
                );
                let mut slot = Slot { tile, run: run.clone(), around, last, input: None };
                if self.tiled.in_parts().is_some() {
                    // What waits in the queue is not joined by this tile, and must not wait for it.
                    drop(announced.take());
                    slot.input = Some(input);
                } else {
                    let sample = vec![Values::F32(input)];
                    network.submit(ticket, &self.tiled.group, number, sample, &to.answers)?;
                }
                number += 1;
                if to.slots.send(slot).is_err() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Blends the model's outputs in the tiles' order. Returns whether all results equal those of whole tiles.
    fn blend(&self, mut blender: Blender, from: &Blended) -> Result<bool> {
        let mut joiner = Joiner::new(self.plan.tile(), self.output);
        let mut early: BTreeMap<u64, Answer> = BTreeMap::new();
        let (mut done, mut exact) = (0, true);
        for (number, mut slot) in (0..).zip(&from.slots) {
            let (input, made) = match slot.input.take() {
                Some(input) => {
                    let made = self.in_parts(&input)?;
                    (input, made)
                }
                None => self.whole(next(number, &mut early, &from.answers)?)?,
            };
            // The decoding thread has ended, and needs no room.
            let _ = from.permits.send(input);
            exact &= made.exact;
            made.runs.iter().for_each(|run| self.clock.ran(run.began, run.ended, run.share));
            self.reply.go_on()?;
            let mut finished = Vec::new();
            self.clock.measure(
                |seconds| &mut seconds.blend,
                || {
                    from.spare.try_iter().for_each(|bytes| blender.recycle(bytes));
                    self.add(&mut blender, &mut joiner, &slot, &made.output, &mut finished)
                },
            )?;
            for band in finished {
                // The encoding thread reports why it ended.
                if from.bands.send(band).is_err() {
                    return Ok(exact);
                }
            }
            if slot.last {
                done += 1;
                self.reply.progress(done, self.plan.count());
            }
        }
        Ok(exact)
    }

    /// The input and the output of a run. A tile that memory does not hold runs in parts.
    fn whole(&self, Answer { inputs, made, .. }: Answer) -> Result<(Vec<f32>, TileMade)> {
        let input = || inputs.into_iter().next().ok_or_else(|| Error::internal("blend"))?.into_f32();
        match made {
            Ok(mut made) => {
                let output = std::mem::take(&mut made.outputs).pop().ok_or_else(|| Error::internal("blend"))?;
                let made = TileMade { output: output.into_f32()?, runs: vec![made], exact: true };
                Ok((input()?, made))
            }
            Err(error) if error.is_out_of_memory() => {
                let input = input()?;
                let made = self.models.run_in_parts(self.reply.ticket(), &self.tiled, self.tiled.tile, error);
                made.and_then(|()| self.in_parts(&input)).map(|made| (input, made))
            }
            Err(error) => Err(error),
        }
    }

    /// Runs a tile in parts, which get smaller as long as memory does not hold them.
    fn in_parts(&self, input: &[f32]) -> Result<TileMade> {
        let (models, ticket) = (self.models, self.reply.ticket());
        loop {
            let parts = self.tiled.in_parts().ok_or_else(|| Error::internal("parts"))?;
            match parts.run(&models.network, ticket, self.tiled.tile, input, models.interface.channels) {
                Err(error) if error.is_out_of_memory() => {
                    models.run_in_parts(ticket, &self.tiled, parts.size(), error)?;
                }
                made => return made,
            }
        }
    }

    /// Adds the output of one run; after the last run of a tile, blends the tile.
    fn add(
        &self,
        blender: &mut Blender,
        joiner: &mut Joiner,
        slot: &Slot,
        output: &[f32],
        finished: &mut Vec<RowBand>,
    ) -> Result<()> {
        let mut keep = |band| {
            finished.push(band);
            Ok::<_, Error>(())
        };
        let routing = &self.routing;
        if routing.runs.len() == 1 && routing.around.is_none() && routing.planes == slot.run.channels.len() {
            // The model's output is the tile.
            let area = output.len() / routing.planes;
            return blender.push(slot.tile, &output.chunks_exact(area).collect::<Vec<_>>(), &mut keep);
        }
        joiner.add(&slot.run, output);
        if let Some(channel) = &slot.around {
            joiner.enlarge(channel, self.output)?;
        }
        if slot.last { blender.push(slot.tile, &joiner.take(), &mut keep) } else { Ok(()) }
    }

    /// Writes all rows that arrive, and finishes the sink; false if rows are missing.
    fn encode(&self, mut sink: Box<dyn RowSink>, bands: &Receiver<RowBand>, spare: &Sender<Vec<u8>>) -> Result<bool> {
        let header = sink.header();
        let row_bytes = header.row_bytes().unwrap_or(usize::MAX);
        let mut rows_left = header.size.height as usize;
        for band in bands {
            self.reply.go_on()?;
            let written = self.clock.measure(|seconds| &mut seconds.encode, || sink.write_rows(&band.bytes));
            written?;
            rows_left = rows_left.saturating_sub(band.bytes.len() / row_bytes);
            // After the last row, the blender has ended and needs no buffer.
            let _ = spare.send(band.bytes);
        }
        if rows_left > 0 {
            return Ok(false);
        }
        self.reply.go_on()?;
        self.clock.measure(|seconds| &mut seconds.encode, || sink.finish())?;
        Ok(true)
    }
}

/// The answer of this number; earlier arrivals of other numbers are kept in `early`.
fn next(number: u64, early: &mut BTreeMap<u64, Answer>, answers: &Answers) -> Result<Answer> {
    loop {
        if let Some(answer) = early.remove(&number) {
            return Ok(answer);
        }
        let answer = answers.recv().map_err(|_| Error::internal("stream"))?;
        early.insert(answer.number, answer);
    }
}
