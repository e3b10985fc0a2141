//! Progress without a terminal: a line now and then.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::unit::Unit;

/// Reports progress from a separate thread, because long work may send no update for minutes.
pub(crate) struct Lines {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    stage: Option<Stage>,
    ended: bool,
}

/// The present stage of the work and its progress.
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
    pub(crate) unit: Unit,
    pub(crate) started: Instant,
}

impl Lines {
    /// Starts the thread. The first line comes after `first`, and further lines come at intervals of `every`.
    pub(crate) fn start(first: Duration, every: Duration, say: impl Fn(&str) + Send + 'static) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), ended: Condvar::new() });
        let of_thread = shared.clone();
        // If the thread cannot be started, there are no lines, and the work goes on.
        let thread = thread::Builder::new().name("progress".into()).spawn(move || of_thread.talk(first, every, say));
        Self { shared, thread: thread.ok() }
    }

    pub(crate) fn begin(&self, stage: Stage) {
        self.shared.state().stage = Some(stage);
    }

    /// Changes the stage's amount of done work.
    pub(crate) fn change(&self, change: impl FnOnce(u64) -> u64) {
        if let Some(stage) = &mut self.shared.state().stage {
            stage.done = change(stage.done);
        }
    }

    pub(crate) fn rename(&self, name: String) {
        if let Some(stage) = &mut self.shared.state().stage {
            stage.name = name;
        }
    }

    pub(crate) fn set_total(&self, total: u64) {
        if let Some(stage) = &mut self.shared.state().stage {
            stage.total = Some(total);
        }
    }

    /// Reports nothing until the next stage begins.
    pub(crate) fn rest(&self) {
        self.shared.state().stage = None;
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its panic message has already been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every statement, so a poisoned lock can still be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn talk(&self, first: Duration, every: Duration, say: impl Fn(&str)) {
        let mut wait = first;
        let mut state = self.state();
        loop {
            let waited = self.ended.wait_timeout_while(state, wait, |state| !state.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.ended {
                return;
            }
            if let Some(line) = state.stage.as_ref().map(|stage| stage.line(stage.started.elapsed())) {
                drop(state);
                say(&line);
                state = self.state();
            }
            wait = every;
        }
    }
}

impl Stage {
    /// "compile: 3 of 8 graphs, 1:20 so far, about 2:13 left".
    fn line(&self, elapsed: Duration) -> String {
        let Self { name, done, total, unit, .. } = self;
        let so_far = clock(elapsed);
        let left = || {
            let total = (*total).filter(|total| (1..*total).contains(done))?;
            let left = elapsed.as_secs_f64() * (total - done) as f64 / *done as f64;
            Some(format!(", about {} left", clock(Duration::try_from_secs_f64(left).ok()?)))
        };
        let rate = unit.rate(*done, elapsed);
        match total {
            Some(total) => {
                let left = left().unwrap_or_default();
                format!("{name}: {}{rate}, {so_far} so far{left}", unit.part(*done, *total))
            }
            None if *done == 0 => format!("{name}: {so_far} so far"),
            None => format!("{name}: {}{rate}, {so_far} so far", unit.amount(*done)),
        }
    }
}

/// "0:07", "12:30", "1:02:03".
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn stage(done: u64, total: Option<u64>, unit: Unit) -> Stage {
        Stage { name: "compile".into(), done, total, unit, started: Instant::now() }
    }

    #[test]
    fn a_line_says_stage_part_and_time() {
        let line = |done, total, unit, seconds| stage(done, total, unit).line(Duration::from_secs(seconds));
        let graphs = Unit::Count("graphs");
        assert_eq!(line(3, Some(8), graphs, 80), "compile: 3 of 8 graphs, 1:20 so far, about 2:13 left");
        assert_eq!(line(0, Some(8), graphs, 10), "compile: 0 of 8 graphs, 0:10 so far");
        assert_eq!(line(8, Some(8), graphs, 10), "compile: 8 of 8 graphs, 0:10 so far");
        assert_eq!(line(0, None, graphs, 3723), "compile: 1:02:03 so far");
        assert_eq!(line(5, None, graphs, 10), "compile: 5 graphs, 0:10 so far");
        let pictures = Unit::Count("pictures");
        assert_eq!(line(12, Some(1000), pictures, 12), "compile: 12 of 1,000 pictures, 0:12 so far, about 16:28 left");
        let frames = Unit::Rate("frames");
        assert_eq!(
            line(32, Some(64), frames, 10),
            "compile: 32 of 64 frames, 3.2 frames a second, 0:10 so far, about 0:10 left"
        );
        assert_eq!(line(32, None, frames, 10), "compile: 32 frames, 3.2 frames a second, 0:10 so far");
        assert_eq!(line(0, Some(1), frames, 10), "compile: 0 of 1 frame, 0:10 so far");
        assert_eq!(
            line(1_500_000, Some(3_000_000), Unit::Bytes, 1),
            "compile: 1.5 of 3.0 MB, 0:01 so far, about 0:01 left"
        );
    }

    #[test]
    fn lines_come_although_the_work_says_nothing_and_end_with_it() {
        let (sender, lines) = mpsc::channel();
        let short = Duration::from_millis(5);
        let talk = Lines::start(short, short, move |line| sender.send(line.to_owned()).unwrap());
        talk.begin(stage(0, Some(2), Unit::Count("graphs")));
        talk.change(|done| done + 1);
        let patience = Duration::from_secs(20);
        while !lines.recv_timeout(patience).unwrap().starts_with("compile: 1 of 2 graphs") {}
        talk.rest();
        drop(talk);
        assert!(lines.iter().all(|line| line.starts_with("compile: 1 of 2 graphs")), "the sender is gone");
    }

    #[test]
    fn short_work_says_nothing() {
        let (sender, lines) = mpsc::channel::<String>();
        let long = Duration::from_secs(600);
        let talk = Lines::start(long, long, move |line| sender.send(line.to_owned()).unwrap());
        talk.begin(stage(0, None, Unit::Bytes));
        drop(talk);
        assert!(lines.recv().is_err());
    }
}
