//! The time that each stage of a picture took.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

/// Time that each stage was at work on a picture, in seconds. Stages run at the same time, so the parts sum to more
/// than the total. A run for several pictures counts for each picture by its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Decoding rows and cutting tiles.
    pub decode: f64,
    /// Within ONNX Runtime, over all streams.
    pub run: f64,
    /// Blending tiles to rows.
    pub blend: f64,
    /// Encoding and writing.
    pub encode: f64,
    /// From the picture's opening to the complete file. For the first picture, it includes the opening of sessions.
    pub total: f64,
    /// From the start of the first tile's run to the end of the last one's.
    pub span_first_to_last_tile: f64,
}

/// Collects [`Seconds`] from all stages.
pub(super) struct Clock(Mutex<State>);

struct State {
    started: Instant,
    seconds: Seconds,
    runs: Option<(Instant, Instant)>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self(Mutex::new(State { started: Instant::now(), seconds: Seconds::default(), runs: None }))
    }

    /// Does `work` and adds its time to a stage.
    pub(super) fn measure<T>(&self, stage: impl Fn(&mut Seconds) -> &mut f64, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        *stage(&mut self.0.lock().seconds) += started.elapsed().as_secs_f64();
        result
    }

    /// Counts a share of a run of the model.
    pub(super) fn ran(&self, from: Instant, to: Instant, share: f64) {
        let mut state = self.0.lock();
        state.seconds.run += (to - from).as_secs_f64() * share;
        let (first, last) = state.runs.unwrap_or((from, to));
        state.runs = Some((first.min(from), last.max(to)));
    }

    pub(super) fn stop(&self) -> Seconds {
        let state = self.0.lock();
        let span = state.runs.map_or(Duration::ZERO, |(first, last)| last - first);
        Seconds {
            total: state.started.elapsed().as_secs_f64(),
            span_first_to_last_tile: span.as_secs_f64(),
            ..state.seconds
        }
    }
}
