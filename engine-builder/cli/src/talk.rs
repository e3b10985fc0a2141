//! Progress on the terminal.

use tileforge_engine_builder::Progress;
use tileforge_terminal::Unit;

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
}
