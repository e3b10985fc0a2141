//! How much a program prints beside its results.

use std::sync::atomic::{AtomicU8, Ordering};

/// How much a program says beside its results and errors: an argument of every program.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbosity {
    /// Say more: what was looked at, and long messages whole; -vv: everything that libraries log
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Print results, warnings and errors alone: no progress, no remarks
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// The level of this process, because the log also has only one. 0 is quiet, 1 is usual.
static LEVEL: AtomicU8 = AtomicU8::new(1);

impl Verbosity {
    /// Applies this level to all output of this crate. Call it once, at the start.
    pub fn apply(self) {
        LEVEL.store(self.level(), Ordering::Relaxed);
    }

    fn level(self) -> u8 {
        if self.quiet { 0 } else { self.verbose.saturating_add(1) }
    }

    /// The log's filter in the syntax of `RUST_LOG`: `usual` by default, `verbose` with `-v`. With `--quiet` the log
    /// still shows warnings, because they report that a result differs from the request.
    pub fn log_filter(self, usual: &'static str, verbose: &'static str) -> &'static str {
        match self.level() {
            0 => "warn",
            1 => usual,
            2 => verbose,
            _ => "debug",
        }
    }
}

/// Whether the user wants only results and errors.
pub fn is_quiet() -> bool {
    LEVEL.load(Ordering::Relaxed) == 0
}

/// Whether the user wants more output than usual.
pub fn is_verbose() -> bool {
    LEVEL.load(Ordering::Relaxed) > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        verbosity: Verbosity,
    }

    fn parsed(line: &str) -> Option<Verbosity> {
        Program::try_parse_from(line.split_whitespace()).ok().map(|program| program.verbosity)
    }

    #[test]
    fn quiet_and_verbose_exclude_each_other() {
        let level = |line| parsed(line).map(Verbosity::level);
        assert_eq!(level("program"), Some(1));
        assert_eq!(level("program --quiet"), Some(0));
        assert_eq!(level("program -q"), Some(0));
        assert_eq!(level("program -v"), Some(2));
        assert_eq!(level("program -vv --verbose"), Some(4));
        assert_eq!(level("program -v -q"), None);
        let many = format!("program -{}", "v".repeat(300));
        assert!(level(&many).is_none_or(|level| level == u8::MAX));
        let filter = |line| parsed(line).unwrap().log_filter("usual", "verbose");
        assert_eq!([filter("program -q"), filter("program"), filter("program -v")], ["warn", "usual", "verbose"]);
        assert_eq!([filter("program -vv"), filter("program -vvv")], ["debug"; 2]);
    }
}
