//! Locks, threads and channels of the system.

pub(in super::super) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(in super::super) use std::sync::atomic;
pub(in super::super) use std::thread;

/// Channels of any number of messages.
pub(in super::super) mod channel {
    pub(crate) use crossbeam_channel::{Receiver, Sender, unbounded};
}
