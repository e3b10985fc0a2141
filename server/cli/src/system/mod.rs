//! What systems do differently with a server: what asks it to end or to read its configuration again, who is told how
//! far it is, and files for its user alone.

mod states;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

pub(crate) use states::{Heard, Told};
