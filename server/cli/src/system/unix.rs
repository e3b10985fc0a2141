//! Signals, systemd, and modes of files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::states::{Command, State};

/// Opens a file to append to it. A new file is readable only for its user.
pub(crate) fn append_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Notifies systemd, if it has started this program.
pub(crate) fn tell(state: State) {
    let states = match state {
        State::Ready => vec![NotifyState::Ready],
        // systemd also requires the time at which a reload began.
        State::Reloading => {
            [Ok(NotifyState::Reloading), NotifyState::monotonic_usec_now()].into_iter().flatten().collect()
        }
        State::Stopping => vec![NotifyState::Stopping],
    };
    if let Err(error) = sd_notify::notify(false, &states) {
        tracing::warn!(error = error.to_string(), "systemd cannot be told");
    }
}

/// The signals that a server handles.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Command {
        tokio::select! {
            _ = self.terminate.recv() => Command::End,
            _ = self.interrupt.recv() => Command::End,
            _ = self.hang_up.recv() => Command::Reload,
        }
    }
}
