//! What a host has done, and what it does.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::pool::Memory;
use super::stages::Took;

/// What a host has done since it was made, and what it does now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Samples, such as tiles, that wait for a device now.
    pub queued: usize,
    /// Runs in progress.
    pub running: usize,
    /// Successful runs, by the number of samples in them.
    pub runs: BTreeMap<usize, u64>,
    /// Runs that have failed.
    pub failed: u64,
    /// Seconds that samples waited for a device, in total.
    pub waiting_seconds: f64,
    /// Seconds that networks ran, over all streams.
    pub run_seconds: f64,
    /// Seconds spent opening sessions.
    pub opening_seconds: f64,
    /// The requests of each task, by its name.
    pub requests: BTreeMap<&'static str, Requests>,
    /// The sessions that are open, by the memory that they take.
    pub sessions: Vec<Sessions>,
}

/// Requests of one task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Requests {
    /// Requests that wait for their turn now.
    pub waiting: usize,
    /// Requests whose turn has come, and whose work has not ended.
    pub serving: usize,
    /// Requests whose work has ended, successfully or with an error.
    pub served: u64,
    /// Seconds that requests waited for their turn, in total.
    pub waiting_seconds: f64,
    /// Seconds from the turn to the first work for a device, in total; with the time that a long request waits for the
    /// long ones before it. A request without such work only prepares.
    pub preparing_seconds: f64,
    /// Seconds from there to the end of the last work for a device, in total: waiting for it, running, and what is
    /// prepared and finished meanwhile.
    pub device_seconds: f64,
    /// Seconds from there to the end of the request's work, in total.
    pub finishing_seconds: f64,
}

/// Sessions of one memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sessions {
    /// The memory.
    pub memory: Memory,
    /// Open sessions.
    pub open: usize,
    /// Bytes that they take, a lower bound.
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
    pub(super) tasks: BTreeMap<&'static str, TaskCounters>,
}

/// What is counted of one task's requests.
#[derive(Clone, Copy, Default)]
pub(super) struct TaskCounters {
    pub(super) waiting: usize,
    pub(super) serving: usize,
    pub(super) served: u64,
    pub(super) waited: Duration,
    pub(super) took: Took,
}

impl From<TaskCounters> for Requests {
    fn from(counters: TaskCounters) -> Self {
        let TaskCounters { waiting, serving, served, waited, took } = counters;
        Self {
            waiting,
            serving,
            served,
            waiting_seconds: waited.as_secs_f64(),
            preparing_seconds: took.preparing.as_secs_f64(),
            device_seconds: took.on_device.as_secs_f64(),
            finishing_seconds: took.finishing.as_secs_f64(),
        }
    }
}
