//! What a server hears of its system, and what it tells it.

/// What is asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    End,
    Reload,
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Ready,
    Reloading,
    Stopping,
}
