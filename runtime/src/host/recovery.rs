//! How much runs at the same time: less after a run did not fit into memory, more again after enough good runs.

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

#[cfg(test)]
mod tests {
    use super::*;

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
