//! Why a command failed, and how results are printed.

use tileforge_engine_builder::Error;
use tileforge_terminal::{
    self as terminal, Exit, PrintError, chain, chain_with, counted, is_verbose, print, print_json,
};

use super::advice;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments do not go together.
    Usage(String),
    /// The library's error.
    Builder(Error),
    /// An operation with engines and a registry failed.
    Registry(tileforge_registry::Error),
    /// A result cannot be printed.
    Print(PrintError),
    /// Some of several engines were not built. Their errors have been printed.
    Partly {
        /// How many.
        failed: usize,
        /// Of how many.
        of: usize,
        /// The exit code of the first of them.
        exit: Exit,
    },
}

pub(crate) type CommandResult = Result<(), Failure>;

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Builder(error.into())
    }
}

impl terminal::Failure for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Builder(error) => match error.root() {
                Error::NoEffect { .. }
                | Error::NoSuchName { .. }
                | Error::Precision { .. }
                | Error::ModelGraph { .. }
                | Error::Component { .. }
                | Error::Request(_)
                | Error::Unrecorded { .. } => Exit::Usage,
                Error::Engine(
                    tileforge_engine::Error::NoSuchEngine { .. } | tileforge_engine::Error::NoSuchPart { .. },
                ) => Exit::Usage,
                Error::Gate(_) | Error::Lint(_) => Exit::Gate,
                Error::Portable { .. } => Exit::DoesNotFit,
                Error::Session(error) if error.does_not_fit() => Exit::DoesNotFit,
                _ => Exit::Failed,
            },
            Self::Registry(
                tileforge_registry::Error::PushToDigest { .. } | tileforge_registry::Error::Twins { .. },
            )
            | Self::Usage(_) => Exit::Usage,
            Self::Registry(_) | Self::Print(_) => Exit::Failed,
            Self::Partly { exit, .. } => *exit,
        }
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Usage(reason) => reason.clone(),
            Self::Builder(error) => {
                let text = chain_with(error, advice::on(error.root()).as_deref());
                let details = match error.root() {
                    Error::Export(error) if is_verbose() => error.details(),
                    _ => None,
                };
                [Some(text), details].into_iter().flatten().collect::<Vec<_>>().join("\n")
            }
            Self::Registry(error) => chain_with(error, advice::registry(error).as_deref()),
            Self::Print(error) => chain(error),
            Self::Partly { failed, of, .. } => format!("{failed} of {} were not built", counted(*of, "engine")),
        })
    }
}

/// Prints a human-readable result.
pub(crate) fn result(text: &str) -> CommandResult {
    print(text).map_err(Failure::Print)
}

/// Prints a machine-readable result.
pub(crate) fn result_json(value: &impl serde::Serialize) -> CommandResult {
    print_json(value).map_err(Failure::Print)
}
