//! The log of a server: one line for each event, as JSON for machines or as text for people.

use std::io;

use clap::ValueEnum;
use tileforge_terminal::Verbosity;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::traces::Traces;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object for each line.
    #[default]
    Json,
    /// One line of text.
    Text,
}

/// Writes the log to standard error: as much as the environment variable `RUST_LOG` says, or else `verbosity`. Spans
/// go to `traces`.
pub(crate) fn start(verbosity: Verbosity, format: LogFormat, traces: Option<&Traces>) {
    verbosity.apply();
    let (usual, verbose) = ("warn,request=info,tileforge_server=info", "warn,request=info,tileforge=debug");
    let filter = verbosity.log_filter(usual, verbose);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match format {
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).with_filter(filter).boxed()
        }
        LogFormat::Text => lines.with_ansi(false).with_filter(filter).boxed(),
    };
    // This fails if a log was started before; that log stays.
    drop(tracing_subscriber::registry().with(lines).with(traces.map(Traces::layer)).try_init());
}
