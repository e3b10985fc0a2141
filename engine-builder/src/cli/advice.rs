//! What the user can do about an error. The libraries' errors speak of their domain; flags are named here alone.

use tileforge_engine::Error as EngineError;
use tileforge_engine_builder::{Error, PrecisionOption};
use tileforge_exporter::Error as ExportError;
use tileforge_session::Error as SessionError;

/// What to do next, where that is known.
pub(super) fn on(error: &Error) -> Option<String> {
    Some(match error {
        Error::NoEffect { option, users, .. } => format!("leave {} out, or build {users}", flag(*option)),
        Error::Precision { possible, .. } => {
            let possible = possible.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ");
            format!("expected --precision {possible}")
        }
        Error::Portable { .. } => "build it on that machine, or without --require-compiled for a portable one".into(),
        Error::Session(SessionError::LibraryNotFound { .. }) => {
            "run `make setup` in the source tree, or pass --ort-lib PATH".into()
        }
        Error::Session(SessionError::NoLibraryAt { .. }) => "give the path of the library or of its folder".into(),
        Error::Session(SessionError::Library { .. }) => "run `make setup`, or pass --ort-lib PATH".into(),
        Error::Engine(error) => return engine(error),
        Error::Export(ExportError::SeveralGraphs { tasks, .. }) => {
            let flags: Vec<String> = tasks.iter().map(|task| format!("`--component {task}`")).collect();
            format!("choose one with {}", flags.join(" or "))
        }
        Error::Export(ExportError::Hyperparameters { missing: Some(missing), .. }) => {
            let flags: Vec<String> =
                missing.values.iter().map(|value| format!("`--set {}={value}`", missing.name)).collect();
            format!("set it, as in {}", flags.join(" or "))
        }
        _ => return None,
    })
}

fn engine(error: &EngineError) -> Option<String> {
    Some(match error {
        EngineError::Altered { .. } => "build the engine again, or copy it again".into(),
        EngineError::Invalid { source, .. } => return engine(source),
        EngineError::Schema { .. } => "build the engine again with this release".into(),
        EngineError::Key { kind: "public", .. } => "give the .pub file of keygen".into(),
        EngineError::Key { .. } => "give the .key file of keygen".into(),
        EngineError::Unsigned { .. } => "ask whoever made the engine to sign it".into(),
        EngineError::Signature { .. } => "get the engine again from whoever signs it, or give their key".into(),
        EngineError::Archive { .. } => "copy the archive again, or pack the engine again".into(),
        _ => return None,
    })
}

fn flag(option: PrecisionOption) -> &'static str {
    match option {
        PrecisionOption::Calibration => "--calibration",
        PrecisionOption::AllLayers => "--all-layers",
        PrecisionOption::Sensitivity => "--sensitivity",
    }
}
