//! Differences between systems for a server: signals to end or to reload, reports of its state to a service manager,
//! and private files.

mod states;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

pub(crate) use states::{Command, State};
