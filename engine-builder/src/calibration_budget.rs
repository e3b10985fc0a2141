//! The time limit for calibration and gates.

/// Operations that a minute of the budget stands for. One run of SDXL's UNet for 64² latents has a little more, and
/// takes 36 seconds of a server's CPU time (docs/benchmarks.md). Loading graphs and counting values takes the rest.
const OPERATIONS_PER_MINUTE: u64 = 3_000_000_000_000;

/// What calibration and gates of one network may run, in minutes of a small machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalibrationBudget {
    /// The minutes. Each stands for the same number of operations on every machine.
    pub minutes: u32,
}

impl CalibrationBudget {
    pub(crate) fn operations(self) -> u64 {
        u64::from(self.minutes) * OPERATIONS_PER_MINUTE
    }
}

impl Default for CalibrationBudget {
    /// Ten minutes: networks of up to 470 GFLOP in their smallest graph keep all of 32 samples.
    fn default() -> Self {
        Self { minutes: 10 }
    }
}
