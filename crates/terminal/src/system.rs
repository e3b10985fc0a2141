//! What systems do differently: one interface, and an implementation for each of Unix and Windows. They are chosen here
//! and nowhere else in this crate.
//!
//! | module | does |
//! |---|---|
//! | `bus_error` | says which mapped file was cut |
//! | `events` | listens to Ctrl-C, and to what else asks a process to end |
//! | `places` | where users keep caches and data |

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
