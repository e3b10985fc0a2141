//! The loop over deliveries: how many at once, and the outcome of each.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::Instrument;

use super::attempt;
use super::broker::{Broker, Delivery, Error};
use super::celery::Celery;
use super::figures::Figures;
use super::job::Job;
use super::marker::Done;
use super::nats::Nats;
use super::stores::Stores;
use crate::app::App;
use crate::connections::Stage;
use crate::failure::{Failure, FailureKind, Result};
use crate::settings::WorkSettings;
use crate::traces;

/// The longest time until a job is tried again.
const DELAY_MAXIMUM: Duration = Duration::from_secs(300);

/// The shortest lease.
const LEASE_MINIMUM: Duration = Duration::from_secs(1);

/// How long the worker waits for a broker that does not answer.
const AWAY: Duration = Duration::from_secs(1);

/// How often the end of a job is reported to the broker, if that fails.
const TELLS: u32 = 5;

/// Takes jobs from a broker.
#[derive(Debug)]
pub(crate) struct Lane {
    app: Arc<App>,
    broker: Box<dyn Broker>,
    stores: Stores,
    figures: Figures,
    settings: WorkSettings,
}

/// Why a worker does not start.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The name of the queue.
    Queue,
    /// The broker's URL.
    Broker(String),
    /// A prefix, and what is wrong with it.
    Store(String, String),
    Figures(prometheus::Error),
}

/// The outcome of a delivery.
enum Outcome {
    Done(Done),
    GiveBack(Duration, String),
    DeadLetter(String),
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::GiveBack(..) => "given_back",
            Self::DeadLetter(_) => "dead_letter",
        }
    }
}

impl Lane {
    pub(crate) fn open(app: Arc<App>, settings: WorkSettings) -> Result<Self, OpenError> {
        let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if settings.queue.is_empty() || !settings.queue.bytes().all(is_sound) {
            return Err(OpenError::Queue);
        }
        // A lease is renewed three times during its time, so it must not be too short.
        let settings = WorkSettings { lease: settings.lease.max(LEASE_MINIMUM), ..settings };
        let scheme = settings.broker.split_once("://").map(|(scheme, _)| scheme);
        let broker: Box<dyn Broker> = match scheme {
            Some("nats" | "tls") => Box::new(Nats::open(&settings).map_err(OpenError::Broker)?),
            Some("redis" | "rediss") => Box::new(Celery::open(&settings).map_err(OpenError::Broker)?),
            _ => return Err(OpenError::Broker("expected nats://, tls://, redis:// or rediss://".into())),
        };
        let stores = Stores::open(&settings.stores, &settings.store_options, settings.store_patience)
            .map_err(|(prefix, problem)| OpenError::Store(prefix, problem))?;
        let figures = Figures::new(app.metrics.registry()).map_err(OpenError::Figures)?;
        Ok(Self { app, broker, stores, figures, settings })
    }

    /// Takes jobs until the server ends, and then waits for its running jobs.
    pub(crate) async fn serve(self, stages: watch::Receiver<Stage>) {
        let lane = Arc::new(self);
        let mut stages = stages;
        let watching = tokio::spawn(watch_queue(lane.clone()));
        let slots = Arc::new(Semaphore::new(lane.settings.at_once.max(1)));
        let mut running = JoinSet::new();
        let mut away = false;
        loop {
            let slot = tokio::select! {
                biased;
                _ = stages.wait_for(|stage| *stage != Stage::Serving) => break,
                slot = slots.clone().acquire_owned() => slot,
            };
            let Ok(slot) = slot else { break };
            while running.try_join_next().is_some() {}
            // Not cancelled when the server ends: a message may be on its way.
            match lane.broker.receive().await {
                Ok(received) => {
                    if std::mem::take(&mut away) {
                        tracing::info!("the broker answers again");
                    }
                    let Some(delivery) = received else { continue };
                    let (lane, stages) = (lane.clone(), stages.clone());
                    running.spawn(async move {
                        lane.handle(delivery, stages).await;
                        drop(slot);
                    });
                }
                Err(Error(error)) => {
                    if !std::mem::replace(&mut away, true) {
                        tracing::error!(error, "the broker does not answer; it is asked again");
                    }
                    tokio::select! {
                        _ = stages.wait_for(|stage| *stage != Stage::Serving) => break,
                        () = sleep(AWAY) => {}
                    }
                }
            }
        }
        while running.join_next().await.is_some() {}
        watching.abort();
    }

    /// Handles one delivery.
    async fn handle(&self, delivery: Delivery, stages: watch::Receiver<Stage>) {
        let running = self.figures.runs();
        let (id, kind) = delivery.job.as_ref().map_or(("", ""), |job| (job.id.as_str(), job.kind));
        let tries = delivery.lease.tries;
        let queue = &self.settings.queue;
        let span = traces::delivery((self.broker.system(), queue), (id, kind), tries, &delivery.trace);
        let outcome = self.kept(&delivery, self.outcome(&delivery, &stages)).instrument(span.clone()).await;
        let name = outcome.name();
        let milliseconds = running.began.elapsed().as_secs_f64() * 1e3;
        let trace_id = traces::trace_id(&span);
        span.record("tileforge.job.outcome", name);
        match &outcome {
            Outcome::Done(_) => {
                tracing::info!(target: "request", job = id, kind, tries, milliseconds, trace_id, outcome = name);
            }
            Outcome::GiveBack(_, reason) | Outcome::DeadLetter(reason) => {
                traces::failed(&span, name);
                tracing::warn!(
                    target: "request", job = id, kind, tries, milliseconds, trace_id, outcome = name, reason
                );
            }
        }
        if self.tell(&delivery, &outcome).await {
            self.figures.ended(name);
        }
    }

    async fn outcome(&self, delivery: &Delivery, stages: &watch::Receiver<Stage>) -> Outcome {
        let job = match &delivery.job {
            Ok(job) => job,
            Err(failure) => return Outcome::DeadLetter(failure.message.clone()),
        };
        let (tries, most) = (delivery.lease.tries, self.settings.tries);
        if *stages.borrow() != Stage::Serving {
            return Outcome::GiveBack(Duration::ZERO, "the worker ends".into());
        }
        let result = if tries > most {
            let message = format!("it was delivered {} times, and no worker came to its end", tries - 1);
            Err(Failure::invalid(message))
        } else {
            self.result(job).await
        };
        let failure = match result {
            Ok(done) => return Outcome::Done(done),
            Err(failure) => failure,
        };
        if self.app.cancel.is_cancelled() {
            return Outcome::GiveBack(Duration::ZERO, "the worker ends".into());
        }
        if may_pass(failure.kind) && tries < most {
            return Outcome::GiveBack(self.delay(tries), failure.message);
        }
        if let Err(failure) = attempt::give_up(&self.stores, job).await {
            tracing::warn!(job = job.id, reason = failure.message, "the output is not given up");
        }
        Outcome::DeadLetter(failure.message)
    }

    /// Waits for the outcome of a delivery, and renews its lease meanwhile.
    async fn kept(&self, delivery: &Delivery, outcome: impl Future<Output = Outcome>) -> Outcome {
        let mut outcome = std::pin::pin!(outcome);
        let mut period = interval(self.settings.lease / 3);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        period.tick().await;
        loop {
            tokio::select! {
                outcome = &mut outcome => return outcome,
                _ = period.tick() => {
                    if let Err(Error(error)) = self.broker.progress(&delivery.lease).await {
                        tracing::warn!(error, "the broker cannot be told that a job goes on");
                    }
                }
            }
        }
    }

    /// Works on a job.
    async fn result(&self, job: &Job) -> Result<Done> {
        // A time limit for the whole attempt: a store that sends a byte now and then must not occupy a slot for ever.
        let most = self.app.limits.request_time + self.settings.store_patience * 4;
        let attempt = AssertUnwindSafe(attempt::run(&self.app, &self.stores, job)).catch_unwind();
        tokio::select! {
            result = timeout(most, attempt) => match result {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(Failure::internal("the job failed here")),
                Err(_) => Err(Failure::new(FailureKind::Deadline, "the job's time is over")),
            },
            () = cancelled(&self.app) => Err(Failure::new(FailureKind::NotReady, "the worker ends")),
        }
    }

    /// Reports the outcome of a delivery to the broker. If that fails, the broker delivers the message again.
    async fn tell(&self, delivery: &Delivery, outcome: &Outcome) -> bool {
        let mut wait = Duration::from_millis(200);
        for _ in 0..TELLS {
            let told = match outcome {
                Outcome::Done(done) => self.broker.done(&delivery.lease, done).await,
                Outcome::GiveBack(after, _) => self.broker.give_back(&delivery.lease, *after).await,
                Outcome::DeadLetter(reason) => self.broker.dead_letter(delivery, reason).await,
            };
            let Err(Error(error)) = told else { return true };
            tracing::warn!(outcome = outcome.name(), error, "the broker cannot be told of a job");
            sleep(wait).await;
            wait *= 2;
        }
        false
    }

    /// The time until the next try.
    fn delay(&self, tries: u64) -> Duration {
        let doubled = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
        self.settings.retry_delay.saturating_mul(1 << doubled).min(DELAY_MAXIMUM)
    }
}

/// Waits until the grace time is over, also while a job waits for a store.
async fn cancelled(app: &App) {
    while !app.cancel.is_cancelled() {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether the same job may succeed later, or elsewhere.
fn may_pass(kind: FailureKind) -> bool {
    match kind {
        FailureKind::NotFound
        | FailureKind::Busy
        | FailureKind::NotReady
        | FailureKind::Deadline
        | FailureKind::SlowClient
        | FailureKind::DoesNotFit
        | FailureKind::Internal => true,
        FailureKind::Invalid
        | FailureKind::Unauthenticated
        | FailureKind::Forbidden
        | FailureKind::Method
        | FailureKind::Conflict
        | FailureKind::TooLarge
        | FailureKind::MediaType
        | FailureKind::NotAcceptable => false,
    }
}

/// Polls the depth of the queue.
async fn watch_queue(lane: Arc<Lane>) {
    loop {
        lane.figures.queue(lane.broker.depth().await.ok());
        sleep(AWAY).await;
    }
}
