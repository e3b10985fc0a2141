//! What a host has done, and what it does.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::pool::Memory;

/// What a host has done since it was made, and what it does now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Samples, such as tiles, that wait for a device now.
    pub queued: usize,
    /// Runs that are going on now.
    pub running: usize,
    /// Runs that have ended, by the number of samples in them.
    pub runs: BTreeMap<usize, u64>,
    /// Runs that have failed.
    pub failed: u64,
    /// Seconds that samples waited for a device, all together.
    pub waiting_seconds: f64,
    /// Seconds within networks, over all streams.
    pub run_seconds: f64,
    /// The sessions that are open, by the memory that they take.
    pub sessions: Vec<Sessions>,
}

/// Sessions of one memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sessions {
    /// Where they are.
    pub memory: Memory,
    /// How many are open.
    pub open: usize,
    /// Bytes that they take at least.
    pub bytes: u64,
}

/// What is counted.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) running: usize,
    pub(super) runs: BTreeMap<usize, u64>,
    pub(super) failed: u64,
    pub(super) waited: Duration,
    pub(super) ran: Duration,
}
