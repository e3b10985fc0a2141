//! Decides when frames are due, and which are dropped.

use std::str::FromStr;
use std::time::{Duration, Instant};

/// What happens to a late frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// It is not computed: the previous result is shown again.
    #[default]
    Drop,
    /// It is computed, and all later frames wait.
    Wait,
}

impl FromStr for Late {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "drop" => Ok(Self::Drop),
            "wait" => Ok(Self::Wait),
            _ => Err("expected drop or wait".into()),
        }
    }
}

/// The rate at which frames are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Frames per second.
    pub frames_per_second: f64,
    /// What happens to a late frame.
    pub late: Late,
}

/// The times of a stream's frames.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    pace: Pace,
    start: Instant,
}

impl Schedule {
    /// The first frame is due at `start`.
    pub(super) fn new(pace: Pace, start: Instant) -> Self {
        Self { pace, start }
    }

    fn period(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.pace.frames_per_second).unwrap_or(Duration::MAX)
    }

    /// When a frame is due, numbered from 0. It is late when the next one is due.
    pub(super) fn due(&self, number: u64) -> Instant {
        let after = Duration::try_from_secs_f64(number as f64 / self.pace.frames_per_second);
        after.ok().and_then(|after| self.start.checked_add(after)).unwrap_or(self.start)
    }

    pub(super) fn is_late(&self, number: u64, now: Instant) -> bool {
        now.saturating_duration_since(self.due(number)) >= self.period()
    }

    /// Whether a frame is dropped at this time. The first frame never is, because there is nothing to show instead.
    pub(super) fn drops(&self, number: u64, now: Instant) -> bool {
        self.pace.late == Late::Drop && number > 0 && self.is_late(number, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_late_when_the_next_one_is_due() {
        let start = Instant::now();
        let schedule = |late| Schedule::new(Pace { frames_per_second: 10.0, late }, start);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(schedule(Late::Drop).due(3), at(300));
        assert!(!schedule(Late::Drop).drops(3, at(399)));
        assert!(schedule(Late::Drop).drops(3, at(400)));
        assert!(!schedule(Late::Wait).drops(3, at(900)) && schedule(Late::Wait).is_late(3, at(900)));
        assert!(!schedule(Late::Drop).drops(0, at(5000)));
        assert!(!schedule(Late::Drop).drops(9, start));
    }
}
