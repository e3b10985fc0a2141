//! Requests of the system to a server, and states that the server reports to it.

/// A request of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    End,
    Reload,
}

/// A state of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Reloading,
    Stopping,
}
