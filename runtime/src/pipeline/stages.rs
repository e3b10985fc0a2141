//! The threads of one picture, and how they stop.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvError, SendError, Sender, bounded, unbounded};

use super::cut::{Cutter, TileInput};
use super::join::{Joiner, TileOutput};
use super::{Cancel, Progress, Routing, Seconds};
use crate::engine::manifest::Interface;
use crate::error::{Error, Result};
use crate::image::{Alpha, RowSink, RowSource};
use crate::session::{Session, Tensor};
use crate::tile::{Blend, Blender, RowBand, SampleEncoding, Tile, TilePlan};

/// Tiles that are cut ahead, and tiles that wait to be blended: two, so that the run stage never
/// waits for either neighbour as long as it is slower than each.
const AHEAD: usize = 2;

/// One picture's way through an engine.
pub(super) struct Job<'j> {
    pub(super) plan: TilePlan,
    pub(super) interface: &'j Interface,
    pub(super) blend: Blend,
    pub(super) alpha: Alpha,
    pub(super) cancel: &'j Cancel,
}

/// Why a stage ended before its work was done.
enum Stop {
    /// It failed, or was cancelled.
    Failed(Error),
    /// A neighbour ended, and has or will have the reason.
    Abandoned,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<T> From<SendError<T>> for Stop {
    fn from(_: SendError<T>) -> Self {
        Self::Abandoned
    }
}

impl From<RecvError> for Stop {
    fn from(_: RecvError) -> Self {
        Self::Abandoned
    }
}

type StageResult<T> = std::result::Result<T, Stop>;

/// The first error of all stages.
#[derive(Default)]
struct FirstError(Mutex<Option<Error>>);

impl FirstError {
    /// Runs a stage. Its channels close when it returns, which ends its neighbours.
    fn watch<T>(&self, stage: impl FnOnce() -> StageResult<T>) -> Option<T> {
        match stage() {
            Ok(result) => Some(result),
            Err(Stop::Abandoned) => None,
            Err(Stop::Failed(error)) => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                None
            }
        }
    }
}

/// A stopwatch that runs while a stage works, and not while it waits.
#[derive(Default)]
struct Busy(Duration);

impl Busy {
    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.0 += started.elapsed();
        result
    }

    fn seconds(self) -> f64 {
        self.0.as_secs_f64()
    }
}

struct RunTimes {
    run: f64,
    span: f64,
}

impl Job<'_> {
    pub(super) fn run(
        &self,
        reader: impl RowSource,
        writer: impl RowSink,
        session: &mut Session,
        progress: impl Fn(Progress),
    ) -> Result<Seconds> {
        let header = reader.header().clone();
        let routing = Routing::new(self.interface.channels, &header, self.alpha);
        let tile = self.plan.tile();
        let encoding = SampleEncoding { range: self.interface.range, depth: writer.header().depth };
        let blender = Blender::new(&self.plan, self.blend, routing.output_channels(&header), encoding)?;
        let joiner = Joiner::new(routing, tile, tile.scaled(self.plan.scale())?);
        let cutter = Cutter::new(reader, routing, self.interface.range, &self.plan)?;

        // Buffers of inputs go around: one is being run, the others are filled or wait.
        let (spare_inputs, inputs_to_fill) = unbounded();
        for _ in 0..=AHEAD {
            let input = TileInput::new(session, routing, self.interface.channels, tile)?;
            // Cannot fail: the receiver is right here.
            let _ = spare_inputs.send(input);
        }
        let (filled_inputs, inputs) = bounded(AHEAD);
        let (finished_outputs, outputs) = bounded(AHEAD);
        // One row of tiles may finish while the one before it is still being encoded.
        let (finished_bands, bands) = bounded(blender.bands_of_a_row());
        let (spare_bands, bands_to_fill) = unbounded();

        let first_error = FirstError::default();
        let (decode, run, blend, encode) = thread::scope(|scope| {
            let decode = scope.spawn(|| first_error.watch(|| self.cut(cutter, inputs_to_fill, filled_inputs)));
            let run = scope.spawn(|| first_error.watch(|| self.execute(session, inputs, spare_inputs, finished_outputs)));
            let encode = scope.spawn(|| first_error.watch(|| encode(writer, bands, spare_bands)));
            let blend = first_error.watch(|| self.blend(blender, joiner, outputs, finished_bands, bands_to_fill, progress));
            (finished("decode", decode), finished("run", run), Ok(blend), finished("encode", encode))
        });
        if let Some(error) = first_error.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let (Some(decode), Some(run), Some(blend), Some(encode)) = (decode?, run?, blend?, encode?) else {
            return Err(Error::Internal("pipeline"));
        };
        Ok(Seconds { decode, run: run.run, blend, encode, total: 0.0, span_first_to_last_tile: run.span })
    }

    fn cut(&self, mut cutter: Cutter<impl RowSource>, spare: Receiver<TileInput>, filled: Sender<(Tile, TileInput)>) -> StageResult<f64> {
        let mut busy = Busy::default();
        for tile in self.plan.tiles() {
            let mut input = spare.recv()?;
            busy.measure(|| cutter.cut(tile, &mut input))?;
            filled.send((tile, input))?;
        }
        Ok(busy.seconds())
    }

    /// Does nothing but run, so that the engine is never kept waiting.
    fn execute(
        &self,
        session: &mut Session,
        inputs: Receiver<(Tile, TileInput)>,
        spare: Sender<TileInput>,
        finished: Sender<TileOutput>,
    ) -> StageResult<RunTimes> {
        let mut busy = Busy::default();
        let (mut first, mut last) = (None, Instant::now());
        for (tile, mut input) in inputs {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled.into());
            }
            first.get_or_insert_with(Instant::now);
            let run = |tensor: &Tensor| session.run_one((&self.interface.input, tensor), &self.interface.output);
            let runs = busy.measure(|| input.runs.iter().map(run).collect::<Result<Vec<_>>>())?;
            last = Instant::now();
            let alpha = std::mem::take(&mut input.alpha);
            finished.send(TileOutput { tile, runs, alpha })?;
            // The cutter is gone after the last tile, and needs no buffer then.
            let _ = spare.send(input);
        }
        let span = first.map_or(0.0, |first| (last - first).as_secs_f64());
        Ok(RunTimes { run: busy.seconds(), span })
    }

    fn blend(
        &self,
        mut blender: Blender,
        mut joiner: Joiner,
        outputs: Receiver<TileOutput>,
        bands: Sender<RowBand>,
        spare: Receiver<Vec<u8>>,
        progress: impl Fn(Progress),
    ) -> StageResult<f64> {
        let mut busy = Busy::default();
        let (mut done, total) = (0, self.plan.count());
        progress(Progress { done, total });
        for mut output in outputs {
            spare.try_iter().for_each(|bytes| blender.recycle(bytes));
            let mut finished = Vec::new();
            busy.measure(|| {
                let tile = output.tile;
                let planes = joiner.planes(&mut output)?;
                blender.push(tile, &planes, |band| {
                    finished.push(band);
                    Ok::<_, Error>(())
                })
            })?;
            // The tensors go back to ONNX Runtime before this stage may have to wait.
            drop(output);
            finished.into_iter().try_for_each(|band| bands.send(band))?;
            done += 1;
            progress(Progress { done, total });
        }
        if blender.is_complete() { Ok(busy.seconds()) } else { Err(Stop::Abandoned) }
    }
}

fn encode(mut writer: impl RowSink, bands: Receiver<RowBand>, spare: Sender<Vec<u8>>) -> StageResult<f64> {
    let mut busy = Busy::default();
    let mut rows_left = writer.header().size.height as usize;
    let row_bytes = writer.header().row_bytes().unwrap_or(usize::MAX);
    for band in bands {
        busy.measure(|| writer.write_rows(&band.bytes))?;
        rows_left = rows_left.saturating_sub(band.bytes.len() / row_bytes);
        // The blender is gone after the last row, and needs no buffer then.
        let _ = spare.send(band.bytes);
    }
    if rows_left > 0 {
        return Err(Stop::Abandoned);
    }
    busy.measure(|| writer.finish())?;
    Ok(busy.seconds())
}

fn finished<T>(stage: &'static str, handle: ScopedJoinHandle<'_, Option<T>>) -> Result<Option<T>> {
    handle.join().map_err(|_| Error::Internal(stage))
}
