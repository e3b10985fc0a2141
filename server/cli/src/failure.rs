//! Why a command failed.

use std::path::PathBuf;

use tileforge_terminal::PrintError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server does not start.
    #[error(transparent)]
    Server(#[from] tileforge_server::Error),
    /// There is no host on this machine.
    #[error(transparent)]
    Host(#[from] tileforge::Error),
    /// The configuration cannot be read.
    #[error("{}: cannot read the configuration", path.display())]
    Configuration { path: PathBuf, source: std::io::Error },
    /// The configuration is not as it should be.
    #[error("{}: not a configuration", path.display())]
    NotConfiguration { path: PathBuf, source: Box<toml::de::Error> },
    /// What it says of a model is neither a source nor a table with one.
    #[error("{}: models.{name}: expected a source, or a table with `source` and where it runs", path.display())]
    NotModel { path: PathBuf, name: String, source: Box<toml::de::Error> },
    /// There is no such key.
    #[error("no key: {0}")]
    Key(String),
    /// The file of keys cannot be written.
    #[error("{}: cannot add the key", path.display())]
    Keys { path: PathBuf, source: std::io::Error },
    /// Traces cannot be sent to this place.
    #[error("--traces: expected the URL of a collector, such as http://127.0.0.1:4318: {0}")]
    Traces(String),
    /// The system gives no threads or signals.
    #[error("cannot start")]
    System(#[from] std::io::Error),
    /// A result cannot be printed.
    #[error(transparent)]
    Print(#[from] PrintError),
    /// No engine is named.
    #[error("nothing to serve: no engines")]
    NoEngines,
    /// Both protocols are off.
    #[error("nothing to serve: no address")]
    NoAddress,
    /// No broker is named.
    #[error("no broker: there is nothing to take jobs from")]
    NoBroker,
    /// Requests had to be ended.
    #[error("requests were ended, because the grace time was over")]
    Ended,
}

pub(crate) type CommandResult<T = ()> = Result<T, Error>;
