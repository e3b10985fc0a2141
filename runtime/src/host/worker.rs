//! The thread of a stream: takes the next work, and runs it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tileforge_session::{Cancel, Notice};

use super::core::Core;
use super::group::Group;
use super::pool::SessionKey;
use super::queue::{Charge, Item, Next, Taken, TakenItem};
use super::sessions::Lending;
use super::shared::Shared;
use super::sync::channel::unbounded;
use super::variants::Variant;
use super::work::{Grant, Made, Sample, Turn, Wanted, Work};
use crate::error::{Error, Result};

/// How long a stream waits before it checks again whether an engine lets it run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the work of a device until the host closes.
pub(super) fn work(shared: &Arc<Shared>, device: usize, stream: usize) {
    let mut number = 0;
    while let Some(taken) = next(shared, device, stream) {
        let Some(first) = taken.first() else { continue };
        let core = first.item.work.core().clone();
        let worker = Worker { shared, core: &core, device, stream };
        // A panic drops the samples, which answers them with an error.
        let ran = catch_unwind(AssertUnwindSafe(|| worker.run(taken, &mut number)));
        shared.lock().counters.running -= 1;
        if ran.is_err() {
            tracing::error!("a stream panicked, and goes on with what is next");
        }
        // Work that could not run beside this run may run now.
        shared.wake(device);
    }
}

/// Waits for the next work; `None` once the host is closed.
fn next(shared: &Shared, device: usize, stream: usize) -> Option<Taken<Work>> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        let own = state.devices.get_mut(device)?;
        let now = Instant::now();
        let news = own.news.clone();
        match own.queue.take(now, |item| room(item, stream)) {
            Next::Work(taken) => {
                state.counters.running += 1;
                state.counters.waited += taken.iter().map(|taken| now - taken.item.since).sum::<Duration>();
                return Some(taken);
            }
            Next::NotBefore(until) => drop(news.wait_until(&mut state, until)),
            // The work may become runnable when an engine allows more streams again.
            Next::Nothing if !own.queue.is_empty() => drop(news.wait_for(&mut state, POLL_INTERVAL)),
            Next::Nothing => news.wait(&mut state),
        }
    }
}

/// How many samples a stream may run together now.
fn room(item: &Item<Work>, stream: usize) -> Option<usize> {
    let core = item.work.core();
    if !core.may_run(stream) {
        return None;
    }
    Some(match &item.work {
        Work::Sample(sample) => sample.group.allowed(),
        Work::Turn(_) => 1,
    })
}

struct Worker<'w> {
    shared: &'w Arc<Shared>,
    core: &'w Arc<Core>,
    device: usize,
    stream: usize,
}

/// How the attempt to run samples ended.
enum Attempt {
    /// All samples are answered.
    Answered,
    /// Those without an answer wait in the queue again, for fewer streams.
    PutBack,
    /// A run failed. The samples without an answer are left.
    Failed(Error),
}

impl Worker<'_> {
    fn run(&self, mut taken: Taken<Work>, number: &mut u64) {
        if taken.iter().any(|taken| matches!(taken.item.work, Work::Turn(_))) {
            for TakenItem { item, charge } in taken {
                if let Work::Turn(turn) = item.work {
                    let held = self.give_turn(turn);
                    self.settle(&[charge], held);
                }
            }
            return;
        }
        let batch = *number;
        *number += 1;
        tracing::trace!("stream {} begins batch {batch}", self.stream);
        let samples = taken.len();
        match self.run_all(&mut taken) {
            Attempt::Answered => tracing::debug!("stream {} ran batch {batch} of {samples} samples", self.stream),
            Attempt::PutBack => {}
            Attempt::Failed(error) => self.run_apart(taken, error),
        }
    }

    /// Runs samples of one group: fewer at a time, or on fewer streams, if memory does not hold them.
    fn run_all(&self, taken: &mut Taken<Work>) -> Attempt {
        let Some(group) = taken.first().and_then(of).map(|sample| sample.group.clone()) else {
            return Attempt::Answered;
        };
        let mut has_made_room = false;
        loop {
            let running = self.core.running();
            // Another stream may lower both while this one runs.
            let (streams, allowed) = (running.streams, group.allowed());
            let ran = self.run_pieces(&group, taken);
            drop(running);
            let Err(error) = ran else { return Attempt::Answered };
            if !error.is_out_of_memory() {
                return Attempt::Failed(error);
            }
            let tried = allowed.min(taken.len().max(group.variants.least()));
            let graph = group.variants.largest(tried).graph;
            let own = self.core.memory(graph, self.stream);
            let others = |key: &SessionKey, memory| memory == own && (key.engine != self.core.id || key.graph != graph);
            if self.shared.sessions.close_idle(others) && !has_made_room {
                // Once: others may open their sessions again meanwhile.
                has_made_room = true;
                continue;
            }
            if let Some(smaller) = group.variants.smaller_than(tried) {
                self.core.shrink_batch(smaller);
                // Sessions of larger batches, which memory did not hold, must not keep memory.
                let core = self.core;
                self.shared
                    .sessions
                    .close_idle(|key, _| key.engine == core.id && group.variants.is_larger(key.graph, smaller));
            } else if self.core.halve_streams(streams) {
                let core = self.core;
                self.shared.sessions.close_idle(|key, _| key.engine == core.id && key.number >= core.streams());
                self.put_back(taken);
                return Attempt::PutBack;
            } else {
                return Attempt::Failed(error);
            }
        }
    }

    /// Puts samples back into the queue, for a stream that may still run.
    fn put_back(&self, taken: &mut Taken<Work>) {
        let lost = {
            let mut state = self.shared.lock();
            let device = state.devices.get_mut(self.device);
            device.map(|device| device.queue.put_back(std::mem::take(taken), Instant::now())).unwrap_or_default()
        };
        lost.into_iter().for_each(|item| item.work.refuse(Error::Cancelled));
    }

    /// Charges the requests of work the measured time of each piece.
    fn settle(&self, charges: &[Charge], each: Duration) {
        let mut state = self.shared.lock();
        if let Some(device) = state.devices.get_mut(self.device) {
            charges.iter().for_each(|charge| device.queue.settle(*charge, each.as_secs_f64()));
        }
    }

    /// Answers samples whose run failed. If they belong to several requests, each request's samples run again alone,
    /// so that only the faulty request fails.
    fn run_apart(&self, mut taken: Taken<Work>, error: Error) {
        let flow_of = |taken: &TakenItem<Work>| taken.charge.flow;
        let several = taken.iter().any(|one| Some(flow_of(one)) != taken.first().map(flow_of));
        let is_cancelled = matches!(error, Error::Cancelled);
        if !is_cancelled {
            self.shared.record_failure();
        }
        if !several || is_cancelled || error.is_out_of_memory() {
            return refuse(taken, error);
        }
        while let Some(flow) = taken.first().map(flow_of) {
            let (mut own, rest): (Taken<Work>, Taken<Work>) = taken.into_iter().partition(|one| flow_of(one) == flow);
            taken = rest;
            if let Attempt::Failed(error) = self.run_all(&mut own) {
                refuse(own, error);
            }
        }
    }

    /// Splits samples into runs of the batch sizes that graphs exist for, and answers the samples of each run.
    fn run_pieces(&self, group: &Group, taken: &mut Taken<Work>) -> Result<()> {
        for (variant, count) in group.variants.runs_of(taken.len(), self.core.batch()) {
            let samples: Vec<&Sample> = taken.iter().take(count).filter_map(of).collect();
            let (made, took) = self.run_piece(group, variant, &samples)?;
            self.core.succeeded(count >= group.allowed());
            let charges: Vec<Charge> = taken.iter().take(count).map(|taken| taken.charge).collect();
            self.settle(&charges, took / u32::try_from(count).unwrap_or(u32::MAX));
            for (TakenItem { item, .. }, made) in taken.drain(..count).zip(made) {
                if let Work::Sample(sample) = item.work {
                    sample.answer(Ok(made));
                }
            }
        }
        Ok(())
    }

    /// Runs samples together. Returns their results and how long the run took.
    fn run_piece(&self, group: &Group, variant: Variant, samples: &[&Sample]) -> Result<(Vec<Made>, Duration)> {
        let (cancel, _notices) = cancel_of(samples);
        let mut lending = self.shared.sessions.lend(
            self.core,
            variant.graph,
            self.stream,
            &|memory| group.bytes(variant, memory),
            &cancel,
        )?;
        let lent = lending.lent()?;
        let mut tensors = group.tensors(&lent.session, variant.batch, lent.tensors.take())?;
        group.write(&mut tensors, samples.iter().map(|sample| sample.inputs.as_slice()))?;
        let began = Instant::now();
        group.run(&mut lent.session, &mut tensors, &cancel)?;
        let ended = Instant::now();
        let share = 1.0 / samples.len() as f64;
        let read = |place| Ok(Made { outputs: group.read(&tensors, place)?, began, ended, share });
        let made = (0..samples.len()).map(read).collect::<Result<Vec<_>>>()?;
        lent.tensors = Some(tensors);
        drop(lending);
        self.shared.record_run(self.core, samples.len(), ended - began);
        Ok((made, ended - began))
    }

    /// Lends the stream to the caller, and waits until the caller is done. Returns how long the caller had it.
    fn give_turn(&self, turn: Turn) -> Duration {
        let _running = self.core.running();
        let Turn { session, cancel, visit, granted, .. } = turn;
        let lending = match session {
            Some(wanted) => match self.session_for(&wanted, &cancel) {
                Ok(lending) => Some(lending),
                Err(error) => {
                    // The caller may have dropped the receiver.
                    drop(granted.send(Err(error)));
                    return Duration::ZERO;
                }
            },
            None => None,
        };
        let (until, done) = unbounded::<()>();
        let began = Instant::now();
        // The caller may have dropped the receiver. Then the grant is dropped here, which closes `done`.
        let _ = granted.send(Ok(Grant { lending, _visit: visit, _until: until }));
        let _ = done.recv();
        began.elapsed()
    }

    /// Opens the wanted session; closes other idle sessions if memory does not hold it.
    fn session_for(&self, wanted: &Wanted, cancel: &Cancel) -> Result<Lending> {
        loop {
            let variant = match wanted {
                Wanted::Graph(graph) => Variant { graph: *graph, batch: 1 },
                Wanted::LargestOf(group) => group.variants.largest(self.core.batch()),
            };
            let Variant { graph, batch } = variant;
            let bytes = |memory| match wanted {
                Wanted::Graph(graph) => self.core.bytes(*graph, memory),
                Wanted::LargestOf(group) => group.bytes(variant, memory),
            };
            let lent = self.shared.sessions.lend(self.core, graph, self.stream, &bytes, cancel);
            let mut key = SessionKey { engine: self.core.id, graph, number: self.stream };
            let opened = lent.and_then(|mut lending| {
                key = lending.key;
                if let Wanted::LargestOf(group) = wanted {
                    let lent = lending.lent()?;
                    let tensors = group.tensors(&lent.session, batch, lent.tensors.take());
                    lent.tensors = Some(tensors?);
                }
                Ok(lending)
            });
            let error = match opened {
                Err(error) if error.is_out_of_memory() => error,
                opened => return opened,
            };
            if self.shared.sessions.close_beside(self.core.memory(graph, self.stream), key) {
                continue;
            }
            match wanted {
                Wanted::LargestOf(group) => match group.variants.smaller_than(batch) {
                    Some(smaller) => self.core.shrink_batch(smaller),
                    None => return Err(error),
                },
                Wanted::Graph(_) => return Err(error),
            }
        }
    }
}

fn of(taken: &TakenItem<Work>) -> Option<&Sample> {
    if let Work::Sample(sample) = &taken.item.work { Some(sample) } else { None }
}

/// Answers work with an error.
fn refuse(taken: Taken<Work>, error: Error) {
    let error = Arc::new(error);
    taken.into_iter().for_each(|taken| taken.item.work.refuse(Error::shared(&error)));
}

/// The flag that cancels a run: its request's flag; for several requests, a flag that is set once all of theirs are.
/// Also returns the listeners that set it.
fn cancel_of(samples: &[&Sample]) -> (Cancel, Vec<Notice>) {
    let mut flags: Vec<Cancel> = Vec::new();
    for sample in samples {
        if !flags.iter().any(|flag| flag.is_same(&sample.cancel)) {
            flags.push(sample.cancel.clone());
        }
    }
    if let [only] = flags.as_slice() {
        return (only.clone(), Vec::new());
    }
    let (run, all) = (Cancel::new(), Arc::new(flags));
    let listen = |flag: &Cancel| {
        let (run, all) = (run.clone(), all.clone());
        flag.notify(move || {
            if all.iter().all(Cancel::is_cancelled) {
                run.cancel();
            }
        })
    };
    let notices = all.iter().map(listen).collect();
    (run, notices)
}
