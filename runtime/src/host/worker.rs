//! The thread of a stream: takes the next work, and runs it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tileforge_session::{Cancel, Notice};

use super::core::Core;
use super::group::Group;
use super::pool::SessionKey;
use super::queue::{FlowId, Item, Next, Taken};
use super::sessions::Lending;
use super::shared::Shared;
use super::sync::channel::unbounded;
use super::variants::Variant;
use super::work::{Grant, Made, Sample, Turn, Wanted, Work};
use crate::error::{Error, Result};

/// How long a stream waits before it checks again whether an engine lets it run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the work of a place until the host closes.
pub(super) fn work(shared: &Arc<Shared>, place: usize, stream: usize) {
    let mut number = 0;
    while let Some(taken) = next(shared, place, stream) {
        let Some((_, first)) = taken.first() else { continue };
        let core = first.work.core().clone();
        let worker = Worker { shared, core: &core, place, stream };
        // A panic drops the samples, which answers them with an error.
        let ran = catch_unwind(AssertUnwindSafe(|| worker.run(taken, &mut number)));
        shared.lock().counters.running -= 1;
        if ran.is_err() {
            tracing::error!("a stream panicked, and goes on with what is next");
        }
        // Work that could not run beside this run may run now.
        shared.wake(place);
    }
}

/// Waits for the next work; `None` once the host is closed.
fn next(shared: &Shared, place: usize, stream: usize) -> Option<Taken<Work>> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        let own = state.places.get_mut(place)?;
        let now = Instant::now();
        let news = own.news.clone();
        match own.queue.take(now, |item| room(item, stream)) {
            Next::Work(taken) => {
                state.counters.running += 1;
                state.counters.waited += taken.iter().map(|(_, item)| now - item.since).sum::<Duration>();
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
    place: usize,
    stream: usize,
}

/// A taken item, and the flow to put it back to.
type Given = (FlowId, Item<Work>);

impl Worker<'_> {
    fn run(&self, mut taken: Taken<Work>, number: &mut u64) {
        let is_turn = |(_, item): &Given| matches!(item.work, Work::Turn(_));
        if taken.iter().any(is_turn) {
            for (_, item) in taken {
                if let Work::Turn(turn) = item.work {
                    self.give_turn(turn);
                }
            }
            return;
        }
        let batch = *number;
        *number += 1;
        tracing::trace!("stream {} begins batch {batch}", self.stream);
        let samples = taken.len();
        match self.run_all(&mut taken) {
            Some(error) => self.run_apart(taken, error),
            None => tracing::debug!("stream {} ran batch {batch} of {samples} samples", self.stream),
        }
    }

    /// Runs samples of one group. Returns the error of a failed run; `taken` then holds the samples without an answer.
    fn run_all(&self, taken: &mut Taken<Work>) -> Option<Error> {
        loop {
            let running = self.core.running();
            let streams = running.streams;
            let error = self.run_pieces(taken);
            drop(running);
            let Err(error) = error else { return None };
            if !error.is_out_of_memory() {
                return Some(error);
            }
            let group = taken.first().and_then(|(_, item)| of(item)).map(|sample| sample.group.clone())?;
            let tried = group.allowed().min(taken.len().max(group.variants.least()));
            let graph = group.variants.largest(tried).graph;
            let own = self.core.memory(graph, self.stream);
            let others = |key: &SessionKey, memory| {
                memory == own && (key.engine != self.core.id || (key.stream == self.stream && key.graph != graph))
            };
            self.shared.sessions.close_idle(others);
            if let Some(smaller) = group.variants.smaller_than(tried) {
                self.core.shrink_batch(smaller);
                // Sessions of larger batches, which memory did not hold, must not keep memory.
                let core = self.core;
                self.shared.sessions.close_idle(|key, _| {
                    key.engine == core.id && key.stream == self.stream && group.variants.is_larger(key.graph, smaller)
                });
            } else if self.core.halve_streams(streams) {
                let core = self.core;
                self.shared.sessions.close_idle(|key, _| key.engine == core.id && key.stream >= core.streams());
                self.put_back(taken);
                return None;
            } else {
                return Some(error);
            }
        }
    }

    /// Puts samples back into the queue, for a stream that may still run.
    fn put_back(&self, taken: &mut Taken<Work>) {
        let lost = {
            let mut state = self.shared.lock();
            let place = state.places.get_mut(self.place);
            place.map(|place| place.queue.put_back(std::mem::take(taken))).unwrap_or_default()
        };
        lost.into_iter().for_each(|item| item.work.refuse(Error::Cancelled));
    }

    /// Answers samples whose run failed. If they belong to several requests, each request's samples run again alone,
    /// so that only the faulty request fails.
    fn run_apart(&self, mut taken: Taken<Work>, error: Error) {
        let several = taken.first().is_some_and(|(first, _)| taken.iter().any(|(flow, _)| flow != first));
        self.shared.lock().counters.failed += 1;
        if !several || matches!(error, Error::Cancelled) || error.is_out_of_memory() {
            let error = Arc::new(error);
            taken.into_iter().for_each(|(_, item)| item.work.refuse(Error::shared(&error)));
            return;
        }
        while let Some((flow, _)) = taken.first() {
            let flow = *flow;
            let (mut own, rest): (Taken<Work>, Taken<Work>) = taken.into_iter().partition(|(other, _)| *other == flow);
            taken = rest;
            if let Some(error) = self.run_all(&mut own) {
                let error = Arc::new(error);
                own.into_iter().for_each(|(_, item)| item.work.refuse(Error::shared(&error)));
            }
        }
    }

    /// Splits samples into runs of the batch sizes that graphs exist for, and answers the samples of each run.
    fn run_pieces(&self, taken: &mut Taken<Work>) -> Result<()> {
        let Some(group) = taken.first().and_then(|(_, item)| of(item)).map(|sample| sample.group.clone()) else {
            return Ok(());
        };
        for (variant, count) in group.variants.runs_of(taken.len(), self.core.batch()) {
            let samples: Vec<&Sample> = taken.iter().take(count).filter_map(|(_, item)| of(item)).collect();
            let made = self.run_piece(&group, variant, &samples)?;
            self.core.succeeded(count >= group.allowed());
            for ((_, item), made) in taken.drain(..count).zip(made) {
                if let Work::Sample(sample) = item.work {
                    sample.answer(Ok(made));
                }
            }
        }
        Ok(())
    }

    fn run_piece(&self, group: &Group, variant: Variant, samples: &[&Sample]) -> Result<Vec<Made>> {
        let mut lending = self.shared.sessions.lend(self.core, variant.graph, self.stream)?;
        let lent = lending.lent()?;
        let mut tensors = group.tensors(&lent.session, variant.batch, lent.tensors.take())?;
        group.write(&mut tensors, samples.iter().map(|sample| sample.inputs.as_slice()))?;
        let (cancel, _notices) = cancel_of(samples);
        let began = Instant::now();
        group.run(&mut lent.session, &mut tensors, &cancel)?;
        let ended = Instant::now();
        let share = 1.0 / samples.len() as f64;
        let read = |place| Ok(Made { outputs: group.read(&tensors, place)?, began, ended, share });
        let made = (0..samples.len()).map(read).collect::<Result<Vec<_>>>()?;
        lent.tensors = Some(tensors);
        drop(lending);
        self.core.record_run(samples.len(), ended - began);
        let mut state = self.shared.lock();
        *state.counters.runs.entry(samples.len()).or_default() += 1;
        state.counters.ran += ended - began;
        Ok(made)
    }

    /// Lends the stream to the caller, and waits until the caller is done.
    fn give_turn(&self, turn: Turn) {
        let _running = self.core.running();
        let Turn { session, granted, .. } = turn;
        let lending = match session {
            Some(wanted) => match self.session_for(&wanted) {
                Ok(lending) => Some(lending),
                Err(error) => return drop(granted.send(Err(error))),
            },
            None => None,
        };
        let (until, done) = unbounded::<()>();
        // The caller may have dropped the receiver. Then the grant is dropped here, which closes `done`.
        let _ = granted.send(Ok(Grant { lending, _until: until }));
        let _ = done.recv();
    }

    /// Opens the wanted session; closes other idle sessions if memory does not hold it.
    fn session_for(&self, wanted: &Wanted) -> Result<Lending> {
        loop {
            let (graph, batch) = match wanted {
                Wanted::Graph(graph) => (*graph, 1),
                Wanted::LargestOf(group) => {
                    let variant = group.variants.largest(self.core.batch());
                    (variant.graph, variant.batch)
                }
            };
            let opened = self.shared.sessions.lend(self.core, graph, self.stream).and_then(|mut lending| {
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
            let key = SessionKey { engine: self.core.id, graph, stream: self.stream };
            if self.shared.sessions.close_beside(self.core, key) {
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

fn of(item: &Item<Work>) -> Option<&Sample> {
    if let Work::Sample(sample) = &item.work { Some(sample) } else { None }
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
