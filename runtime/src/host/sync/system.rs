//! Locks and threads of the system.

pub(in super::super) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(in super::super) use std::sync::atomic;
pub(in super::super) use std::thread;
