//! Progress of a build.

/// Receives the progress of long work. One stage follows the other.
pub trait Progress: Sync {
    /// A stage begins: its name, and its number of steps.
    fn begin(&self, stage: &str, steps: usize);

    /// One step of the stage is done.
    fn step(&self);

    /// A remark about an unexpected decision, as a line for the user.
    fn note(&self, _: &str) {}
}

/// Discards all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: usize) {}

    fn step(&self) {}
}
