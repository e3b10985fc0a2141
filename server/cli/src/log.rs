//! The log of a server: one line for each event, as JSON for machines or as text for people.

use std::io;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object for each line.
    #[default]
    Json,
    /// One line of text.
    Text,
}

/// Writes the log to standard error. The environment variable `RUST_LOG` says how much.
pub(crate) fn start(format: LogFormat) {
    let usual = "warn,request=info,tileforge_server=info";
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
    // Whoever has started a log before has one.
    drop(started);
}
