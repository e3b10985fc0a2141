//! The time that deadlines are compared with.

use std::time::Instant;

/// The time that deadlines are compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Clock {
    #[default]
    System,
    /// A test says how it goes on.
    #[cfg(test)]
    #[cfg(not(feature = "interleavings"))]
    Stopped(Instant),
}

impl Clock {
    pub(super) fn now(self) -> Instant {
        match self {
            Self::System => Instant::now(),
            #[cfg(test)]
            #[cfg(not(feature = "interleavings"))]
            Self::Stopped(at) => at,
        }
    }

    /// Whether it goes on by itself.
    pub(super) fn runs(self) -> bool {
        matches!(self, Self::System)
    }
}
