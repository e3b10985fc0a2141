//! Two threads of this package: one calls Python when requests are finished, one drops what takes time to drop. Each
//! starts when it is needed.

use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Whether this is one of these threads.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// A thread that runs jobs one after the other.
struct Worker {
    name: &'static str,
    running: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
}

static CALLS: Worker = Worker { name: "tileforge-calls", running: Mutex::new(None) };
static DROPS: Worker = Worker { name: "tileforge-drops", running: Mutex::new(None) };

impl Worker {
    /// Passes a job to the thread. If no thread can be started, the job runs here.
    fn give(&self, job: Job) {
        let mut running = self.running.lock();
        if running.is_none() {
            let (sender, jobs) = channel::<Job>();
            let work = move || {
                IS_OWN.set(true);
                jobs.into_iter().for_each(|job| job());
            };
            let thread = Builder::new().name(self.name.into()).spawn(work);
            *running = thread.ok().map(|thread| (sender, thread));
        }
        let refused = match running.as_ref() {
            Some((sender, _)) => sender.send(job).err().map(|refused| refused.0),
            None => Some(job),
        };
        drop(running);
        if let Some(job) = refused {
            job();
        }
    }

    /// Waits for all its jobs.
    fn end(&self) {
        let running = self.running.lock().take();
        if let Some((sender, thread)) = running {
            drop(sender);
            // A job that panicked has ended the thread.
            let _ = thread.join();
        }
    }
}

/// Whether this is one of these threads, for which the end of the interpreter waits.
pub(crate) fn is_own_thread() -> bool {
    IS_OWN.get()
}

/// Runs a job that calls Python, on the thread for such calls.
pub(crate) fn call(job: impl FnOnce() + Send + 'static) {
    CALLS.give(Box::new(job));
}

/// Runs a job that drops a value, on the thread for such jobs.
pub(crate) fn later(job: impl FnOnce() + Send + 'static) {
    DROPS.give(Box::new(job));
}

/// Waits until all jobs of both threads are done.
pub(crate) fn end() {
    CALLS.end();
    DROPS.end();
}
