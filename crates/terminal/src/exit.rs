//! How a program ends.

use std::process::ExitCode;

/// How a program ends: the exit codes of all programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is done.
    Done = 0,
    /// Something failed.
    Failed = 1,
    /// The arguments are wrong or do not go together. `clap` exits with this code, too.
    Usage = 2,
    /// The engine does not fit this box.
    DoesNotFit = 3,
    /// A gate or a self-test was missed.
    Gate = 4,
    /// Stopped by Ctrl-C or a signal.
    Stopped = 130,
}

impl Exit {
    /// What `--help` says about exit codes.
    pub const HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    wrong usage
  3    the engine does not fit this box
  4    a gate or a self-test failed
  130  stopped by Ctrl-C or a signal; no unfinished output is left";

    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_code() {
        use Exit::{DoesNotFit, Done, Failed, Gate, Stopped, Usage};
        let listed: Vec<_> = Exit::HELP.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
        let codes = [Done, Failed, Usage, DoesNotFit, Gate, Stopped].map(|exit| exit.code().to_string());
        assert_eq!(listed, codes);
    }
}
