//! Events of the console. There is no signal to reload the configuration, and no service manager is notified.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

use super::states::{Command, State};

/// Opens a file to append to it. A new file inherits the rights of its folder.
pub(crate) fn append_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

pub(crate) fn tell(_state: State) {}

/// The events that a server handles.
pub(crate) struct Signals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
    }

    pub(crate) async fn next(&mut self) -> Command {
        tokio::select! {
            _ = self.interrupt.recv() => Command::End,
            _ = self.stop.recv() => Command::End,
            _ = self.close.recv() => Command::End,
            _ = self.shutdown.recv() => Command::End,
        }
    }
}
