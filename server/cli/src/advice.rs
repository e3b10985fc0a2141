//! Messages and advice about errors. The library's errors describe its domain; flags are named only here.

use std::io::ErrorKind;

use tileforge_terminal::{Exit, Failure, chain_with};

use crate::failure::Error;

impl Failure for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::NoEngines | Self::NoAddress | Self::NoBroker => Exit::Usage,
            _ => Exit::Failed,
        }
    }

    fn text(&self) -> Option<String> {
        Some(chain_with(self, on(self).as_deref()))
    }
}

/// What to do next, where that is known.
fn on(error: &Error) -> Option<String> {
    use tileforge_server::Error as Server;
    Some(match error {
        Error::NoEngines => "give `--engines DIR` or `--model-name NAME=SOURCE`".into(),
        Error::NoAddress => "give `--http ADDRESS` or `--grpc ADDRESS`".into(),
        Error::Server(Server::Address { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
            "give another one with `--http` or `--grpc`; port 0 takes a free one".into()
        }
        Error::Server(Server::Folder(_)) => {
            "give the folder that holds the engines' folders with `--engines`; `engine-builder build` makes engines"
                .into()
        }
        Error::NoBroker => "give `--broker URL`, or set TILEFORGE_BROKER".into(),
        Error::Server(Server::Store { .. }) => {
            "give `--store` with s3://BUCKET/…, gs://BUCKET/…, az://CONTAINER/… or file:///FOLDER, and the store's \
             variables in the environment, such as AWS_REGION"
                .into()
        }
        Error::Ended => "give more time with `--grace`".into(),
        _ => return None,
    })
}
