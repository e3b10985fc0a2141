//! Why a command failed, and how results are printed.

use tileforge_exporter::Error;
use tileforge_terminal::{self as terminal, Exit, PrintError, chain, chain_with, is_verbose, print, print_json};

use super::advice;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments do not go together.
    Usage(String),
    /// The library's error.
    Export(Error),
    /// Results cannot be printed.
    Print(PrintError),
}

pub(crate) type CommandResult = Result<(), Failure>;

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Export(error.into())
    }
}

impl terminal::Failure for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_)
            | Self::Export(
                Error::UnknownHyperparameter { .. }
                | Error::SeveralGraphs { .. }
                | Error::NoSuchComponent { .. }
                | Error::OneGraphPerFile { .. }
                | Error::ShapeText { .. }
                | Error::TwoShapes { .. }
                | Error::Shape { .. }
                | Error::NeedsFixedShape { .. }
                | Error::ImageTooSmall { .. }
                | Error::NoSuchInput { .. },
            ) => Exit::Usage,
            Self::Export(_) | Self::Print(_) => Exit::Failed,
        }
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Usage(reason) => reason.clone(),
            Self::Export(error) => {
                let text = chain_with(error, advice::on(error).as_deref());
                let details = error.details().filter(|_| is_verbose());
                [Some(text), details].into_iter().flatten().collect::<Vec<_>>().join("\n")
            }
            Self::Print(error) => chain(error),
        })
    }
}

/// Prints a result.
pub(crate) fn result(text: &str) -> CommandResult {
    print(text).map_err(Failure::Print)
}

/// Prints a result for machines.
pub(crate) fn result_json(value: &impl serde::Serialize) -> CommandResult {
    print_json(value).map_err(Failure::Print)
}
