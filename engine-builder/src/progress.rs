//! How far a build has come.

/// Hears how far long work has come. Stages follow each other.
pub trait Progress: Sync {
    /// A stage begins: what it does, and of how many steps it is.
    fn begin(&self, stage: &str, steps: usize);

    /// One step of the stage is done.
    fn step(&self);
}

/// Nobody hears.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: usize) {}

    fn step(&self) {}
}
