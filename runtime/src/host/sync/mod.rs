//! The locks and threads of the host: those of the system; with the feature `interleavings`, those of a scheduler that
//! runs a test's threads in many orders, so that a wake-up that is lost in one of them shows (`scripts/interleavings.sh`).

#[cfg(feature = "interleavings")]
mod interleaved;
#[cfg(not(feature = "interleavings"))]
mod system;

#[cfg(feature = "interleavings")]
pub(super) use interleaved::{Condvar, Mutex, MutexGuard, atomic, thread};
#[cfg(not(feature = "interleavings"))]
pub(super) use system::{Condvar, Mutex, MutexGuard, atomic, thread};
