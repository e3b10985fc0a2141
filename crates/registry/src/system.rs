//! Where systems keep what Docker and Podman read: one interface, and an implementation for each of Unix and Windows.
//! They are chosen here and nowhere else in this crate.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
