//! The jobs of a server, with results that are kept for a limited time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::caller::Caller;
use crate::failure::{Failure, FailureKind, Result};
use crate::watcher::Seen;

/// The jobs of a server.
#[derive(Debug)]
pub(crate) struct Jobs {
    entries: Mutex<HashMap<String, Arc<Job>>>,
    limits: Keep,
}

/// Limits of what is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// Jobs, whether they run or not.
    pub(crate) jobs: usize,
    /// Bytes of all results together.
    pub(crate) bytes: u64,
    /// How long a job is kept after its end.
    pub(crate) time: Duration,
}

/// A job. Its id cannot be guessed, and only the caller that made the job can access it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) kind: &'static str,
    caller: Caller,
    pub(super) seen: watch::Receiver<Seen>,
    pub(super) outcome: watch::Sender<Outcome>,
    ended: Mutex<Option<Instant>>,
    running: Mutex<Option<AbortHandle>>,
}

/// A result.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) media: &'static str,
    pub(crate) bytes: Bytes,
}

/// The outcome of a job.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It waits or runs.
    Open,
    Done(File),
    Failed(Failure),
    Cancelled,
}

impl Outcome {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Done(file) => file.bytes.len() as u64,
            _ => 0,
        }
    }
}

impl Job {
    /// Sets the outcome. A job ends once.
    fn end(&self, outcome: Outcome) {
        let mut ended = self.ended.lock();
        if ended.is_none() {
            *ended = Some(Instant::now());
            self.outcome.send_replace(outcome);
        }
    }

    /// When it ended.
    fn ended(&self) -> Option<Instant> {
        *self.ended.lock()
    }

    /// Cancels the job, unless it has ended. Its running work is dropped.
    pub(super) fn cancel(&self) {
        self.end(Outcome::Cancelled);
        if let Some(running) = self.running.lock().take() {
            running.abort();
        }
    }
}

impl Jobs {
    pub(crate) fn new(limits: Keep) -> Self {
        Self { entries: Mutex::default(), limits }
    }

    /// Adds a waiting job. The oldest ended jobs make room for it.
    ///
    /// # Errors
    /// All kept jobs are open, or the system gives no random numbers.
    pub(super) fn add(&self, kind: &'static str, caller: Caller, seen: watch::Receiver<Seen>) -> Result<Arc<Job>> {
        let id = new_id()?;
        let outcome = watch::Sender::new(Outcome::Open);
        let job = Arc::new(Job {
            id: id.clone(),
            kind,
            caller,
            seen,
            outcome,
            ended: Mutex::default(),
            running: Mutex::default(),
        });
        let mut entries = self.entries.lock();
        self.remove_old(&mut entries);
        if entries.len() >= self.limits.jobs && !remove_oldest(&mut entries) {
            let message = format!("{} jobs wait or run, and no more are taken; send it again later", entries.len());
            return Err(Failure::new(FailureKind::Busy, message));
        }
        entries.insert(id, job.clone());
        Ok(job)
    }

    /// Registers a job's running work. If the job was cancelled meanwhile, the work is aborted.
    pub(super) fn runs(&self, job: &Job, running: AbortHandle) {
        *job.running.lock() = Some(running.clone());
        if job.ended().is_some() {
            running.abort();
        }
    }

    /// Stores a job's result or failure. The oldest results make room for it.
    pub(super) fn end(&self, job: &Job, result: Result<File>) {
        let outcome = match result {
            Ok(file) if file.bytes.len() as u64 > self.limits.bytes => {
                let most = self.limits.bytes;
                Outcome::Failed(Failure::new(
                    FailureKind::DoesNotFit,
                    format!("the result has more bytes than are kept, {most}"),
                ))
            }
            Ok(file) => Outcome::Done(file),
            Err(failure) => Outcome::Failed(failure),
        };
        let mut entries = self.entries.lock();
        self.remove_old(&mut entries);
        let held = |entries: &HashMap<String, Arc<Job>>| -> u64 {
            entries.values().map(|job| job.outcome.borrow().bytes()).sum()
        };
        while held(&entries) + outcome.bytes() > self.limits.bytes && remove_oldest(&mut entries) {}
        job.end(outcome);
    }

    /// The job with an id, for the caller that made it.
    pub(super) fn get(&self, id: &str, caller: Caller) -> Result<Arc<Job>> {
        let mut entries = self.entries.lock();
        self.remove_old(&mut entries);
        entries.get(id).filter(|job| job.caller == caller).cloned().ok_or_else(unknown)
    }

    /// Removes a job with its result. Its running work is dropped.
    pub(super) fn remove(&self, id: &str, caller: Caller) -> Result<Arc<Job>> {
        let job = self.get(id, caller)?;
        self.entries.lock().remove(id);
        job.cancel();
        Ok(job)
    }

    /// Removes expired jobs.
    pub(crate) fn tidy(&self) {
        self.remove_old(&mut self.entries.lock());
    }

    fn remove_old(&self, entries: &mut HashMap<String, Arc<Job>>) {
        entries.retain(|_, job| job.ended().is_none_or(|ended| ended.elapsed() < self.limits.time));
    }
}

/// Removes the job that ended first. False if no job has ended.
fn remove_oldest(entries: &mut HashMap<String, Arc<Job>>) -> bool {
    let ended = entries.values().filter_map(|job| Some((job.ended()?, job.id.clone())));
    let oldest = ended.min().map(|(_, id)| id);
    oldest.is_some_and(|id| entries.remove(&id).is_some())
}

/// 128 random bits.
fn new_id() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::internal(format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The failure for an id that is unknown to a caller.
pub(super) fn unknown() -> Failure {
    Failure::new(FailureKind::NotFound, "there is no such job, or its time is over")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

    use super::*;

    const KEEP: Keep = Keep { jobs: 3, bytes: 100, time: Duration::from_secs(60) };

    fn add(jobs: &Jobs, caller: u64) -> Arc<Job> {
        jobs.add("upscale", Caller(caller), watch::Sender::new(Seen::default()).subscribe()).unwrap()
    }

    fn file(bytes: usize) -> Result<File> {
        Ok(File { media: "image/png", bytes: vec![0; bytes].into() })
    }

    #[test]
    fn results_are_kept_within_their_limits() {
        let jobs = Jobs::new(KEEP);
        let [one, two, three] = [(); 3].map(|()| add(&jobs, 1));
        let refused = jobs.add("upscale", Caller(1), watch::Sender::new(Seen::default()).subscribe());
        assert_eq!(refused.unwrap_err().kind, FailureKind::Busy);
        // Bytes: the oldest result makes room.
        jobs.end(&one, file(60));
        jobs.end(&two, file(60));
        assert!(jobs.get(&one.id, Caller(1)).is_err() && jobs.get(&two.id, Caller(1)).is_ok());
        // Number: the oldest ended job makes room; no open one does.
        let [four, _five] = [(); 2].map(|()| add(&jobs, 1));
        assert!(jobs.get(&two.id, Caller(1)).is_err());
        assert!(
            [&three, &four].into_iter().all(|job| jobs.get(&job.id, Caller(1)).unwrap().outcome.borrow().is_open())
        );
        // A result that is larger than the whole limit fails, and removes no other.
        jobs.end(&three, file(40));
        jobs.end(&four, file(101));
        assert!(matches!(&*four.outcome.borrow(), Outcome::Failed(failure) if failure.kind == FailureKind::DoesNotFit));
        assert!(jobs.get(&three.id, Caller(1)).is_ok());
    }

    #[test]
    fn a_job_is_its_callers_ends_once_and_expires() {
        let jobs = Jobs::new(KEEP);
        let job = add(&jobs, 1);
        assert_eq!(job.id.len(), 32);
        assert_eq!(jobs.get(&job.id, Caller(2)).unwrap_err().kind, FailureKind::NotFound);
        assert_eq!(jobs.remove(&job.id, Caller(2)).unwrap_err().kind, FailureKind::NotFound);
        job.cancel();
        jobs.end(&job, file(1));
        assert!(matches!(*job.outcome.borrow(), Outcome::Cancelled));
        let short = Jobs::new(Keep { time: Duration::ZERO, ..KEEP });
        let [open, ended] = [(); 2].map(|()| add(&short, 1));
        short.end(&ended, file(1));
        assert!(short.get(&open.id, Caller(1)).is_ok() && short.get(&ended.id, Caller(1)).is_err());
    }
}
