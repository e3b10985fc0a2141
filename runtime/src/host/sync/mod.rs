//! The locks, threads and channels of the host: the system's. With the feature `interleavings`, a test's scheduler provides
//! them. It runs the threads in many orders, and finds the orders in which a thread waits for ever
//! (`scripts/interleavings.sh`).

#[cfg(feature = "interleavings")]
mod interleaved;
#[cfg(not(feature = "interleavings"))]
mod system;

#[cfg(feature = "interleavings")]
pub(super) use interleaved::{Condvar, Mutex, MutexGuard, atomic, channel, thread};
#[cfg(not(feature = "interleavings"))]
pub(super) use system::{Condvar, Mutex, MutexGuard, atomic, channel, thread};
