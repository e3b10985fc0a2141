//! How much runs at the same time: less after a run did not fit into memory, more again after enough good runs.

use std::time::Duration;

/// Seconds that a sample is charged before its engine has run. Low, because a flow that is charged too much waits.
const COST_BEFORE: f64 = 1e-3;

/// The initial number of good runs before more is tried again.
const GOOD_RUNS: u64 = 100;

/// A number that shrinks and recovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    most: usize,
    now: usize,
    good: u64,
    needed: u64,
}

impl Limit {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, now: most, good: 0, needed: GOOD_RUNS }
    }

    /// As much as is allowed now.
    pub(crate) fn now(&self) -> usize {
        self.now
    }

    /// Lowers the limit to `to` after memory did not suffice. Each time, more good runs are needed before more is
    /// tried.
    pub(crate) fn shrink(&mut self, to: usize) {
        if to < self.now && (self.now < self.most || self.needed > GOOD_RUNS) {
            self.needed = self.needed.saturating_mul(2);
        }
        if to <= self.now {
            (self.now, self.good) = (to.max(1), 0);
        }
    }

    /// Records a good run at the limit. Returns the new limit if it grows: up to twice the old one.
    pub(crate) fn succeed(&mut self) -> Option<usize> {
        if self.now >= self.most {
            return None;
        }
        self.good += 1;
        if self.good < self.needed {
            return None;
        }
        // Doubled already now: the next failure will come from this larger limit.
        self.needed = self.needed.saturating_mul(2);
        (self.good, self.now) = (0, self.now.saturating_mul(2).min(self.most));
        Some(self.now)
    }
}

/// How much of an engine runs at the same time, and what a sample of it costs.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    batch: Limit,
    streams: Limit,
    running: usize,
    /// Average seconds of one sample; `None` before the first run.
    seconds: Option<f64>,
}

impl Limits {
    pub(super) fn new(batch: usize, streams: usize) -> Self {
        Self { batch: Limit::new(batch), streams: Limit::new(streams), running: 0, seconds: None }
    }

    /// Most samples in a run.
    pub(super) fn batch(&self) -> usize {
        self.batch.now()
    }

    /// Streams that may run the engine.
    pub(super) fn streams(&self) -> usize {
        self.streams.now()
    }

    /// Whether a stream may run the engine now.
    pub(super) fn may_run(&self, stream: usize) -> bool {
        stream < self.streams() && self.running < self.streams()
    }

    pub(super) fn begin(&mut self) {
        self.running += 1;
    }

    pub(super) fn end(&mut self) {
        self.running -= 1;
    }

    /// Seconds that one sample is charged: the average of the engine's runs so far.
    pub(super) fn cost(&self) -> f64 {
        self.seconds.unwrap_or(COST_BEFORE)
    }

    /// Records how long a run of so many samples took.
    pub(super) fn record_run(&mut self, samples: usize, took: Duration) {
        let each = took.as_secs_f64() / samples.max(1) as f64;
        let average = self.seconds.map_or(each, |seconds| 0.9 * seconds + 0.1 * each);
        self.seconds = Some(average.max(1e-6));
    }

    /// Records a good run, and whether it was full: no graph for more samples is allowed. Only full runs count towards
    /// the batch limit. Returns the new limits of samples and of streams, where they grow.
    pub(super) fn succeed(&mut self, is_full: bool) -> (Option<usize>, Option<usize>) {
        let batch = if is_full { self.batch.succeed() } else { None };
        (batch, self.streams.succeed())
    }

    /// Memory did not hold a run. Later runs have at most `to` samples. Returns whether that is fewer than before.
    pub(super) fn shrink_batch(&mut self, to: usize) -> bool {
        let shrinks = to < self.batch();
        if shrinks {
            self.batch.shrink(to);
        }
        shrinks
    }

    /// Memory did not hold a run while `of` streams were allowed. Fewer are allowed from now on, unless another stream
    /// has lowered the number meanwhile. Returns whether fewer than `of` are allowed now.
    pub(super) fn halve_streams(&mut self, of: usize) -> bool {
        if self.streams() == of && of > 1 {
            self.streams.shrink(of / 2);
        }
        self.streams() < of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_costs_the_average_of_runs() {
        let mut limits = Limits::new(4, 1);
        assert_eq!(limits.cost(), COST_BEFORE);
        limits.record_run(2, Duration::from_secs(8));
        assert_eq!(limits.cost(), 4.0);
        limits.record_run(1, Duration::from_secs(14));
        assert!((limits.cost() - 5.0).abs() < 1e-9, "{}", limits.cost());
        let mut fast = Limits::new(1, 1);
        fast.record_run(0, Duration::ZERO);
        assert_eq!(fast.cost(), 1e-6);
    }

    #[test]
    fn as_many_streams_run_as_memory_allows() {
        let mut limits = Limits::new(1, 4);
        assert!(limits.may_run(3) && !limits.may_run(4));
        (0..3).for_each(|_| limits.begin());
        assert!(limits.may_run(3));
        assert!(limits.halve_streams(4), "four become two");
        assert!(!limits.may_run(0), "three run");
        assert!(limits.halve_streams(4) && limits.streams() == 2, "another stream has halved it");
        (0..2).for_each(|_| limits.end());
        assert!(limits.may_run(1) && !limits.may_run(2));
        assert!(limits.halve_streams(2) && limits.streams() == 1);
        assert!(!limits.halve_streams(1), "one stream is the least");
        assert_eq!(limits.streams(), 1);
    }

    #[test]
    fn only_full_runs_make_batches_grow() {
        let mut limits = Limits::new(4, 2);
        assert!(limits.shrink_batch(2) && !limits.shrink_batch(2) && !limits.shrink_batch(3));
        assert_eq!(limits.batch(), 2);
        assert!((0..1000).all(|_| limits.succeed(false) == (None, None)), "smaller than allowed");
        let grown = (1..1000).find_map(|number| limits.succeed(true).0.map(|batch| (number, batch)));
        assert_eq!(grown, Some((GOOD_RUNS, 4)));
        // A failure of a run with as many as allowed does not count again.
        assert!(limits.shrink_batch(1));
        assert!((1..2 * GOOD_RUNS).all(|_| limits.succeed(true).0.is_none()));
        assert!(!limits.shrink_batch(1), "nothing begins anew");
        let more = (0..).find(|_| limits.succeed(true).0.is_some());
        assert!(more.is_some_and(|more| more < 8 * GOOD_RUNS), "{more:?}");
        limits.halve_streams(2);
        let streams = (0..1000).find_map(|_| limits.succeed(false).1);
        assert_eq!(streams, Some(2));
    }

    #[test]
    fn it_shrinks_at_once_and_recovers_slowly_and_each_time_more_slowly() {
        let mut limit = Limit::new(8);
        assert_eq!(limit.succeed(), None);
        limit.shrink(2);
        let grows = |limit: &mut Limit| (1..10_000).find(|_| limit.succeed().is_some());
        assert_eq!((grows(&mut limit), limit.now()), (Some(100), 4));
        limit.shrink(2);
        let again = grows(&mut limit).unwrap();
        assert!(again > 100, "{again}");
        assert!(grows(&mut limit).is_some() && limit.now() == 8);
        assert_eq!(grows(&mut limit), None);
        limit.shrink(0);
        assert_eq!(limit.now(), 1);
        // A failure with the least begins the count anew.
        let mut least = Limit::new(2);
        least.shrink(1);
        assert!((0..99).all(|_| least.succeed().is_none()));
        least.shrink(1);
        assert_eq!(grows(&mut least), Some(100));
    }
}
