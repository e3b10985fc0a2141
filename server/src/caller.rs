//! Callers.

/// The sender of a request. Callers share the devices in equal parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caller(pub(crate) u64);
