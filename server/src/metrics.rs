//! Metrics for Prometheus.

use std::time::{Duration, Instant};

use prometheus::core::Collector;
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use tileforge::Host;

use crate::failure::{Failure, Result};

/// The metrics. They have the names of Triton's metrics where these exist.
pub(crate) struct Metrics {
    registry: Registry,
    success: IntCounterVec,
    failure: IntCounterVec,
    samples: IntCounterVec,
    duration_us: IntCounterVec,
    seconds: HistogramVec,
    loads: IntCounterVec,
    requests: IntCounterVec,
    pub(crate) cancelled: IntCounter,
    pub(crate) connections: IntGaugeVec,
    in_flight: IntGauge,
    host: HostGauges,
}

/// Gauges of the host's state.
struct HostGauges {
    queued: IntGauge,
    running: IntGauge,
    runs: IntGauge,
    failed: IntGauge,
    seconds: GaugeVec,
    /// Requests by task.
    requests: IntGaugeVec,
    served: IntGaugeVec,
    request_seconds: GaugeVec,
    sessions: IntGaugeVec,
    bytes: IntGaugeVec,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        fn add<T: Collector + Clone + 'static>(registry: &Registry, metric: T) -> prometheus::Result<T> {
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        }
        let counter = |name: &str, help: &str, labels: &[&str]| {
            add(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauge = |name: &str, help: &str| add(&registry, IntGauge::new(name, help)?);
        let gauges =
            |name: &str, help: &str, labels: &[&str]| add(&registry, IntGaugeVec::new(Opts::new(name, help), labels)?);
        let times =
            |name: &str, help: &str, labels: &[&str]| add(&registry, GaugeVec::new(Opts::new(name, help), labels)?);
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 18)?;
        let seconds = HistogramOpts::new("tileforge_request_seconds", "Time from a request's head to its answer's")
            .buckets(buckets);
        Ok(Self {
            success: counter("nv_inference_request_success", "Requests that succeeded", &["model"])?,
            failure: counter("nv_inference_request_failure", "Requests that failed", &["model", "reason"])?,
            samples: counter("nv_inference_count", "Samples of requests that succeeded", &["model"])?,
            duration_us: counter("nv_inference_request_duration_us", "Time of all requests, in µs", &["model"])?,
            seconds: add(&registry, HistogramVec::new(seconds, &["model"])?)?,
            loads: counter("tileforge_model_loads", "How often an engine was opened", &["model"])?,
            requests: counter("tileforge_http_requests", "Answers by protocol and status", &["protocol", "status"])?,
            cancelled: add(
                &registry,
                IntCounter::new("tileforge_requests_cancelled", "Requests whose client went before the answer")?,
            )?,
            connections: gauges("tileforge_connections", "Connections that are open", &["protocol"])?,
            in_flight: gauge("nv_inference_pending_request_count", "Requests for work that are in the server")?,
            host: HostGauges {
                queued: gauge("tileforge_queued_samples", "Samples that wait for a device")?,
                running: gauge("tileforge_running", "Runs that are going on")?,
                runs: gauge("tileforge_runs", "Runs that have ended")?,
                failed: gauge("tileforge_runs_failed", "Runs that have failed")?,
                seconds: times("tileforge_seconds", "Time of all samples so far, and of opening sessions", &["in"])?,
                requests: gauges(
                    "tileforge_task_requests",
                    "Requests that wait for their turn, and that are served",
                    &["task", "state"],
                )?,
                served: gauges("tileforge_task_served", "Requests that were served", &["task"])?,
                request_seconds: times(
                    "tileforge_task_seconds",
                    "Time of all requests so far, by their stage",
                    &["task", "stage"],
                )?,
                sessions: gauges("tileforge_sessions", "Sessions that are open", &["memory"])?,
                bytes: gauges("tileforge_session_bytes", "Bytes that open sessions take at least", &["memory"])?,
            },
            registry,
        })
    }

    /// The registry, for further metrics.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Counts an ended request to a model.
    pub(crate) fn ended(&self, model: &str, samples: usize, took: Duration, failure: Option<&Failure>) {
        let labels = &[model];
        match failure {
            None => {
                self.success.with_label_values(labels).inc();
                self.samples.with_label_values(labels).inc_by(samples as u64);
                self.duration_us.with_label_values(labels).inc_by(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                self.seconds.with_label_values(labels).observe(took.as_secs_f64());
            }
            Some(failure) => {
                let reason = format!("{:?}", failure.kind);
                self.failure.with_label_values(&[model, reason.as_str()]).inc();
            }
        }
    }

    /// Runs work of a model, and counts its result.
    pub(crate) async fn counted<T>(
        &self,
        model: &str,
        samples: usize,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let result = work.await;
        self.ended(model, samples, began.elapsed(), result.as_ref().err());
        result
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, protocol: &str, status: u16) {
        self.requests.with_label_values(&[protocol, &status.to_string()]).inc();
    }

    /// Counts an opened engine.
    pub(crate) fn loaded(&self, model: &str) {
        self.loads.with_label_values(&[model]).inc();
    }

    /// All metrics as text, with the host's and the number of accepted requests.
    pub(crate) fn text(&self, host: &Host, in_flight: usize) -> Result<Vec<u8>> {
        let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let now = host.metrics();
        self.in_flight.set(number(in_flight));
        self.host.queued.set(number(now.queued));
        self.host.running.set(number(now.running));
        self.host.runs.set(i64::try_from(now.runs.values().sum::<u64>()).unwrap_or(i64::MAX));
        self.host.failed.set(i64::try_from(now.failed).unwrap_or(i64::MAX));
        self.host.seconds.with_label_values(&["queue"]).set(now.waiting_seconds);
        self.host.seconds.with_label_values(&["run"]).set(now.run_seconds);
        self.host.seconds.with_label_values(&["opening"]).set(now.opening_seconds);
        for (task, requests) in now.requests {
            let of = |label| [task, label];
            self.host.requests.with_label_values(&of("waiting")).set(number(requests.waiting));
            self.host.requests.with_label_values(&of("serving")).set(number(requests.serving));
            self.host.served.with_label_values(&[task]).set(i64::try_from(requests.served).unwrap_or(i64::MAX));
            for (stage, seconds) in [
                ("waiting", requests.waiting_seconds),
                ("preparing", requests.preparing_seconds),
                ("device", requests.device_seconds),
                ("finishing", requests.finishing_seconds),
            ] {
                self.host.request_seconds.with_label_values(&of(stage)).set(seconds);
            }
        }
        self.host.sessions.reset();
        self.host.bytes.reset();
        for sessions in now.sessions {
            let memory = format!("{:?}", sessions.memory).to_lowercase();
            self.host.sessions.with_label_values(&[&memory]).set(number(sessions.open));
            self.host.bytes.with_label_values(&[&memory]).set(i64::try_from(sessions.bytes).unwrap_or(i64::MAX));
        }
        let mut text = Vec::new();
        let failed = |error| Failure::internal(format!("metrics: {error}"));
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(failed)?;
        Ok(text)
    }
}
