//! Windows.

pub(crate) mod bus_error;
pub(crate) mod events;
pub(crate) mod places;
