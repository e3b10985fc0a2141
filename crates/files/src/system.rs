//! What systems do differently: one interface, and an implementation for each of Unix and Windows. They are chosen here
//! and nowhere else in this crate.
//!
//! | module | does |
//! |---|---|
//! | `opening` | opens regular files and folders, by paths and from opened folders |
//! | `standing` | says whose a file is, and who else may change it |
//! | `state` | tells one file from another, and one state of it from the next |
//! | `making` | makes files and folders for certain users, and gives the permissions of any new file |
//! | `locking` | locks what is unfinished |
//! | `placing` | second names of opened files, and exchanging two folders |
//! | `reading` | reads and copies parts of opened files |
//! | `own_folder` | a folder that no other user may change, and what is in it |
//! | `names` | names as bytes, and names that the system keeps for itself |

mod file_state;
mod not_opened;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

pub(crate) use file_state::FileState;
pub(crate) use not_opened::NotOpened;
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
