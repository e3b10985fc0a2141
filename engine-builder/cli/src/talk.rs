//! Progress on the terminal.

use tileforge_engine_builder::Progress;
use tileforge_terminal::{Unit, report};

/// Shows the stages of a build.
#[derive(Default)]
pub(super) struct Shown(tileforge_terminal::Progress);

impl Shown {
    /// Removes the progress bar.
    pub(super) fn finish(&self) {
        self.0.finish();
    }
}

impl Progress for Shown {
    fn begin(&self, stage: &str, steps: usize) {
        self.0.begin(stage, Some(steps as u64), Unit::Count("steps"));
    }

    fn step(&self) {
        self.0.add(1);
    }

    fn note(&self, text: &str) {
        report(text);
    }
}

/// Shows only notes, when several engines are built at the same time.
pub(super) struct Noted;

impl Progress for Noted {
    fn begin(&self, _: &str, _: usize) {}

    fn step(&self) {}

    fn note(&self, text: &str) {
        report(text);
    }
}
