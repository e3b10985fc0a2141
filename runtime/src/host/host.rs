//! Devices with their memory, for any number of engines and callers.

use std::sync::Arc;

use tileforge_session::Environment;

use super::deadlines::Deadlines;
use super::metrics::{Metrics, Sessions};
use super::pool::Memory;
use super::shared::Shared;

/// How much a host may use.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Bytes of this machine's memory that sessions may take; `None`: idle sessions close until what is free, within
    /// the limits of the process's control groups, suffices for the next one; then it is opened.
    pub memory: Option<u64>,
    /// Bytes of GPUs' memory that sessions may take, by the GPU's number. A GPU that is not listed is as a machine
    /// without a budget: the driver says what is free.
    pub gpu_memory: Vec<(u32, u64)>,
}

/// The devices of a process, with their memory, for any number of engines and callers. Clones share it.
///
/// Sessions of all engines on a host share its budgets: the least recently used idle ones close to make room. A host
/// has one queue for each device, and one thread for each stream. It lives as long as any clone of it, or any engine
/// that was opened on it.
#[derive(Clone)]
pub struct Host(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    deadlines: Deadlines,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Host").field(&self.metrics()).finish()
    }
}

impl Host {
    /// A host on this machine.
    pub fn new(environment: &Environment, options: HostOptions) -> Self {
        let machine = options.memory.map(|bytes| (Memory::Machine, bytes));
        let gpus = options.gpu_memory.into_iter().map(|(gpu, bytes)| (Memory::Gpu(gpu), bytes));
        let shared = Arc::new(Shared::new(environment, machine.into_iter().chain(gpus)));
        Self(Arc::new(Owner { shared, deadlines: Deadlines::default() }))
    }

    /// The environment of its sessions.
    pub fn environment(&self) -> &Environment {
        &self.0.shared.environment
    }

    /// What the host has done, and what it does now.
    pub fn metrics(&self) -> Metrics {
        let (open, opening) = self.0.shared.sessions.summary();
        let state = self.0.shared.lock();
        let sessions = |(memory, (open, bytes))| Sessions { memory, open, bytes };
        Metrics {
            queued: state.devices.iter().map(|device| device.queue.waiting()).sum(),
            running: state.counters.running,
            runs: state.counters.runs.clone(),
            failed: state.counters.failed,
            waiting_seconds: state.counters.waited.as_secs_f64(),
            run_seconds: state.counters.ran.as_secs_f64(),
            opening_seconds: opening.as_secs_f64(),
            requests: state.counters.tasks.iter().map(|(name, counters)| (*name, (*counters).into())).collect(),
            sessions: open.into_iter().map(sessions).collect(),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn deadlines(&self) -> &Deadlines {
        &self.0.deadlines
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.deadlines.close();
        self.shared.close();
    }
}
