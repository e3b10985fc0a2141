//! Windows.

mod calls;
pub(crate) mod locking;
pub(crate) mod making;
pub(crate) mod mapping;
pub(crate) mod names;
pub(crate) mod opening;
pub(crate) mod own_folder;
pub(crate) mod placing;
pub(crate) mod reading;
pub(crate) mod standing;
pub(crate) mod state;
