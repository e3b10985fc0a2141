//! The log.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::verbosity::Verbosity;

/// Shows warnings on standard error; `-v` and the environment variable `RUST_LOG`, such as `RUST_LOG=debug`, show
/// more. The variable wins, because it is more specific.
///
/// The log has colours on a terminal, unless `NO_COLOR` is set. Call this once, at the start: it also applies
/// `verbosity` to all output of this crate.
pub fn start_log(verbosity: Verbosity) {
    verbosity.apply();
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(verbosity.log_filter("warn", "warn,tileforge=debug")));
    let colours = io::stderr().is_terminal() && colours_wanted(std::env::var_os("NO_COLOR").as_deref());
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .without_time()
        .try_init();
    // An error means that a log has already been started; it stays.
    drop(started);
}

/// An empty `NO_COLOR` does not count (<https://no-color.org>).
fn colours_wanted(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_turns_colours_off() {
        assert!(colours_wanted(None) && colours_wanted(Some(OsStr::new(""))));
        assert!(!colours_wanted(Some(OsStr::new("1"))));
    }

    #[test]
    fn a_second_start_does_no_harm() {
        start_log(Verbosity::default());
        start_log(Verbosity::default());
    }
}
