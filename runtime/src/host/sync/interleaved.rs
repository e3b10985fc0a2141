//! Locks, threads and channels whose order a test's scheduler chooses, with the interface of the system's.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub(in super::super) use shuttle::sync::atomic;
pub(in super::super) use shuttle::thread;

/// Channels of any number of messages.
pub(in super::super) mod channel {
    pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, channel as unbounded};
}

/// A lock.
#[derive(Debug, Default)]
pub(in super::super) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(in super::super) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(in super::super) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.held()) }
    }

    fn held(&self) -> shuttle::sync::MutexGuard<'_, T> {
        // A panic while it is held changes nothing, as with the system's.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that is held.
pub(in super::super) struct MutexGuard<'m, T> {
    mutex: &'m Mutex<T>,
    /// `None` within the functions below.
    held: Option<shuttle::sync::MutexGuard<'m, T>>,
}

impl<T> MutexGuard<'_, T> {
    pub(in super::super) fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> R {
        guard.held = None;
        let made = work();
        guard.held = Some(guard.mutex.held());
        made
    }
}

#[allow(clippy::expect_used)] // held outside of the functions of this module
impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("it is held")
    }
}

#[allow(clippy::expect_used)] // held outside of the functions of this module
impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("it is held")
    }
}

/// What threads wait for.
#[derive(Debug, Default)]
pub(in super::super) struct Condvar(shuttle::sync::Condvar);

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(in super::super) fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(in super::super) fn new() -> Self {
        Self::default()
    }

    pub(in super::super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(in super::super) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(in super::super) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// There is no clock: the time is over when the scheduler comes back to this thread.
    pub(in super::super) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        MutexGuard::unlocked(guard, thread::yield_now);
        WaitTimeoutResult(true)
    }

    pub(in super::super) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, Duration::ZERO)
    }
}
