//! How a program ends.

use std::process::ExitCode;

/// How a program ends: the exit codes of all programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is done.
    Done = 0,
    /// Something failed.
    Failed = 1,
    /// The arguments are wrong or contradict each other. `clap` exits with this code, too.
    Usage = 2,
    /// The engine does not fit this machine.
    DoesNotFit = 3,
    /// A gate, a self-test or a comparison failed.
    Gate = 4,
    /// Stopped by Ctrl-C or a signal.
    Stopped = 130,
}

impl Exit {
    /// The section of `--help` about a program's exit codes.
    pub fn help(codes: &[Self]) -> String {
        let line = |exit: &Self| format!("\n  {:<5}{}", exit.code(), exit.meaning());
        ["Exit codes:".to_owned()].into_iter().chain(codes.iter().map(line)).collect()
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "wrong usage",
            Self::DoesNotFit => "the engine does not fit this machine",
            Self::Gate => "a gate, a self-test or a comparison failed",
            Self::Stopped => "stopped by Ctrl-C or a signal; no unfinished output is left",
        }
    }

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
    fn the_help_lists_the_codes_of_the_program() {
        let help = Exit::help(&[Exit::Done, Exit::Usage, Exit::Stopped]);
        let stopped = "  130  stopped by Ctrl-C or a signal; no unfinished output is left";
        assert_eq!(help, format!("Exit codes:\n  0    done\n  2    wrong usage\n{stopped}"));
    }
}
