//! The places where systems keep the configuration of Docker and Podman: one interface, with one implementation each
//! for Unix and Windows. Only this module of the crate chooses between them.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
