//! What systems do differently: one interface, and an implementation for each of Unix and Windows. They are chosen here
//! and nowhere else in this crate.
//!
//! | module | does |
//! |---|---|
//! | `heap` | says when freed blocks of memory go back to the system |
//! | `libraries` | the names of shared libraries, where the loader looks for those that they link to, and which it lacks |
//! | `memory` | how much memory this process can get, and has had |
//! | `processors` | physical cores, and the processor's model |

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
