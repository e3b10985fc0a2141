//! Metrics of jobs.

use std::time::Instant;

use prometheus::core::Collector;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::broker::Depth;

/// Metrics of jobs.
#[derive(Debug)]
pub(super) struct Figures {
    jobs: IntCounterVec,
    running: IntGauge,
    queue: IntGaugeVec,
    connected: IntGauge,
}

impl Figures {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        fn add<T: Collector + Clone + 'static>(registry: &Registry, metric: T) -> prometheus::Result<T> {
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        }
        let outcomes = Opts::new("tileforge_jobs", "Deliveries of jobs by what became of them");
        let queue = Opts::new("tileforge_queue_jobs", "Jobs of the queue, by state");
        Ok(Self {
            jobs: add(registry, IntCounterVec::new(outcomes, &["outcome"])?)?,
            running: add(registry, IntGauge::new("tileforge_jobs_running", "Jobs that this worker works on")?)?,
            queue: add(registry, IntGaugeVec::new(queue, &["state"])?)?,
            connected: add(registry, IntGauge::new("tileforge_broker_connected", "1 if the broker answers")?)?,
        })
    }

    /// Counts a running job until the result is dropped.
    pub(super) fn runs(&self) -> Running {
        self.running.inc();
        Running { gauge: self.running.clone(), began: Instant::now() }
    }

    /// Counts the outcome of a delivery.
    pub(super) fn ended(&self, outcome: &str) {
        self.jobs.with_label_values(&[outcome]).inc();
    }

    /// Sets the depth of the queue; `None` if the broker does not answer.
    pub(super) fn queue(&self, depth: Option<Depth>) {
        self.connected.set(depth.is_some().into());
        let Some(Depth { waiting, taken }) = depth else { return };
        for (state, number) in [("waiting", waiting), ("taken", taken)] {
            self.queue.with_label_values(&[state]).set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }
}

/// A running job.
#[derive(Debug)]
pub(super) struct Running {
    gauge: IntGauge,
    pub(super) began: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
