//! Reading, running and writing the frames of a stream, each on its thread.

use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use tileforge_image::{Limits, RowSink, Size};
use tileforge_session::Assigned;

use super::interface::Interface;
use super::pace::{Pace, Schedule};
use super::statistics::StreamStatistics;
use crate::error::{Error, Result};
use crate::frames::{FrameAndPlace, FrameStream};
use crate::host::{Lease, Reply, Ticket};
use crate::percentiles::percentile;
use crate::pixels::Pixels;

/// Frames that wait between two stages.
const AHEAD: usize = 2;

/// A frame that has been read.
struct Read {
    size: Size,
    /// In the network's size.
    frame: Pixels,
    sink: Box<dyn RowSink>,
}

/// A result that is to be written: a new one, or the last one again.
struct Made {
    size: Size,
    shown: Option<Pixels>,
    sink: Box<dyn RowSink>,
}

/// What the run stage counts.
#[derive(Default)]
struct Counts {
    frames: u64,
    dropped: u64,
    late: u64,
    milliseconds: Vec<f64>,
}

/// Plays a stream, of which the first frame has been read, to its end.
pub(super) fn play(
    mut network: Shown<'_>,
    mut stream: Box<dyn FrameStream>,
    first: FrameAndPlace,
    pace: Option<Pace>,
    reply: &Reply<StreamStatistics>,
) -> Result<StreamStatistics> {
    let (size, network_size) = (first.0.header().size, network.size);
    let started = Instant::now();
    let schedule = pace.map(|pace| Schedule::new(pace, started));
    let (sender, read) = bounded(AHEAD);
    let (made, to_write) = bounded(AHEAD);
    let mut counts = thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(stream.as_mut(), first, network_size, schedule, sender, reply));
        let writing = scope.spawn(move || write_all(&to_write));
        let ran = run_all(&mut network, &read, made, schedule, reply);
        // Unblocks the reading thread if it waits for room in the channel.
        drop(read);
        let stopped = |_| Err(Error::internal("realtime"));
        let written = writing.join().unwrap_or_else(stopped);
        let result = reading.join().unwrap_or_else(stopped);
        // The first stage with an error caused the others to end.
        result.and(ran.and_then(|counts| written.map(|()| counts)))
    })?;
    stream.finish()?;
    let seconds = started.elapsed().as_secs_f64();
    counts.milliseconds.sort_by(f64::total_cmp);
    let computed = counts.milliseconds.len();
    Ok(StreamStatistics {
        size,
        network_size,
        frames: counts.frames,
        dropped: counts.dropped,
        late: counts.late,
        runs_per_frame: network.timesteps.len(),
        frames_per_second: computed as f64 / seconds,
        p50_ms: percentile(&counts.milliseconds, 0.5),
        p95_ms: percentile(&counts.milliseconds, 0.95),
        p99_ms: percentile(&counts.milliseconds, 0.99),
        assigned: network.assigned,
        seconds,
    })
}

/// Reads frames, none before it is due, and resizes them to the network's size.
fn read_all(
    stream: &mut dyn FrameStream,
    first: FrameAndPlace,
    network_size: Size,
    schedule: Option<Schedule>,
    frames: Sender<Read>,
    reply: &Reply<StreamStatistics>,
) -> Result<()> {
    let mut next = Some(first);
    let mut number = 0;
    while let Some((mut source, sink)) = next {
        reply.go_on()?;
        let pixels = Pixels::read(&mut *source, &Limits::default())?;
        let read = Read { size: pixels.size, frame: pixels.resized(network_size)?, sink };
        if let Some(schedule) = schedule {
            thread::sleep(schedule.due(number).saturating_duration_since(Instant::now()));
        }
        if frames.send(read).is_err() {
            // The run stage reports why.
            return Ok(());
        }
        number += 1;
        next = stream.next()?;
    }
    Ok(())
}

/// Writes results in the size of their frames.
fn write_all(results: &Receiver<Made>) -> Result<()> {
    let mut last: Option<Pixels> = None;
    for Made { size, shown, sink } in results {
        last = shown.or(last);
        let shown = last.as_ref().ok_or_else(|| Error::internal("realtime"))?;
        shown.resized(size)?.write(sink)?;
    }
    Ok(())
}

fn run_all(
    network: &mut Shown<'_>,
    frames: &Receiver<Read>,
    results: Sender<Made>,
    schedule: Option<Schedule>,
    reply: &Reply<StreamStatistics>,
) -> Result<Counts> {
    let mut counts = Counts::default();
    for Read { size, frame, sink } in frames {
        reply.go_on()?;
        let number = counts.frames;
        reply.progress(number, None);
        counts.frames += 1;
        let shown = if schedule.is_some_and(|schedule| schedule.drops(number, Instant::now())) {
            counts.dropped += 1;
            None
        } else {
            let began = Instant::now();
            let shown = network.show(&frame, reply.ticket())?;
            counts.milliseconds.push(began.elapsed().as_secs_f64() * 1e3);
            counts.late += u64::from(schedule.is_some_and(|schedule| schedule.is_late(number, Instant::now())));
            Some(shown)
        };
        if results.send(Made { size, shown, sink }).is_err() {
            // The write stage reports why.
            break;
        }
    }
    Ok(counts)
}

/// A network whose tensors stay on the device, for one stream.
pub(super) struct Shown<'n> {
    lease: Lease,
    /// The providers that run its nodes.
    assigned: Vec<Assigned>,
    size: Size,
    interface: &'n Interface,
    timesteps: &'n [f32],
}

impl<'n> Shown<'n> {
    pub(super) fn new(
        lease: Lease,
        assigned: Vec<Assigned>,
        size: Size,
        interface: &'n Interface,
        timesteps: &'n [f32],
    ) -> Self {
        Self { lease, assigned, size, interface, timesteps }
    }

    /// The network's result for a frame: one run for each timestep, each with the output of the previous run.
    fn show(&mut self, frame: &Pixels, ticket: &Ticket) -> Result<Pixels> {
        let interface = self.interface;
        interface.frame_values.encode(frame, self.lease.buffer(&interface.frame)?.as_mut_slice()?);
        for step in self.timesteps {
            if let Some((name, _)) = &interface.timestep {
                self.lease.buffer(name)?.as_mut_slice::<f32>()?.fill(*step);
            }
            self.lease.run(ticket)?;
        }
        interface.shown_values.decode(self.lease.buffer(&interface.shown)?.as_slice()?, self.size)
    }
}
