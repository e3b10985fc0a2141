//! The locks and threads of the host: those of the system. With the feature `interleavings` they are those of a
//! scheduler that runs a test's threads in many orders, and finds those in which one waits for ever
//! (`scripts/interleavings.sh`).

#[cfg(feature = "interleavings")]
mod interleaved;
#[cfg(not(feature = "interleavings"))]
mod system;

#[cfg(feature = "interleavings")]
pub(super) use interleaved::{Condvar, Mutex, MutexGuard, atomic, thread};
#[cfg(not(feature = "interleavings"))]
pub(super) use system::{Condvar, Mutex, MutexGuard, atomic, thread};
