//! What to type after an error: libraries name no flags.

use tileforge_contract::Task;
use tileforge_engine::Error as EngineError;
use tileforge_image::{Error as ImageError, TilingError};
use tileforge_registry::Error as RegistryError;
use tileforge_runtime::Error;
use tileforge_runtime::diffusion::Error as DiffusionError;
use tileforge_runtime::diffusion::schedulers::Error as SchedulerError;
use tileforge_session::Error as SessionError;

const REBUILD: &str = "rebuild with engine-builder, or copy the engine again";

/// What the user can do about an error, as the end of its sentence.
pub(crate) fn advice(error: &Error) -> Option<String> {
    let text = match error.root() {
        Error::Session(error) => return of_session(error),
        Error::Engine(error) => of_engine(error)?,
        Error::Image(error) => of_image(error)?,
        Error::Diffusion(error) => of_diffusion(error)?,
        Error::Contract(tileforge_contract::Error::Task { found: Task::VaeEncoder, .. }) => {
            "`runtime encode` takes pictures and clips for it"
        }
        Error::Contract(tileforge_contract::Error::Task { found: Task::VaeDecoder, .. }) => {
            "`runtime decode` takes latents for it"
        }
        Error::Contract(tileforge_contract::Error::Task { .. }) => {
            "`runtime run` takes tensors for it, `runtime inspect` shows which; `runtime verify` runs its self-test"
        }
        Error::Contract(tileforge_contract::Error::Shape { .. })
        | Error::NoSuchShapes { .. }
        | Error::Tensor { .. } => "`runtime inspect` lists the engine's tensors and graphs",
        Error::Contract(_) => REBUILD,
        Error::TileTooLarge { .. } => "choose a smaller --tile",
        Error::NoSuchTile { .. } => "choose one of them with --tile, or a fitting --input-size for depth",
        Error::NoSuchBatch { .. } => "choose one of them with --batch, or build the engine with such a batch",
        Error::ClipTooLong { .. } => "give an engine with both: build it without --chunk and --component",
        Error::NoPart { .. } => "choose one with --part",
        Error::MapSize { .. } => "give the map that was aligned to the picture, or resize it without interpolation",
        _ => return None,
    };
    Some(text.into())
}

fn of_diffusion(error: &DiffusionError) -> Option<&'static str> {
    match error {
        DiffusionError::Scheduler(SchedulerError::Class { .. }) => Some("choose one of them with --scheduler"),
        DiffusionError::Scheduler(SchedulerError::NoSteps { .. } | SchedulerError::Steps { .. }) => {
            Some("choose other --steps, or another --strength")
        }
        DiffusionError::Scheduler(SchedulerError::Range { .. }) | DiffusionError::Range { .. } => {
            Some("`runtime generate --help` lists the options with their ranges")
        }
        DiffusionError::SizeMultiple { .. } => Some("choose another --size"),
        DiffusionError::NoSuchSize { .. } => Some("choose one of them with --size, or build the engine for that size"),
        DiffusionError::NoSuchText { .. } => Some("leave out --long-prompt, or build the engine for longer texts"),
        DiffusionError::NotFinite { .. } => Some("build the engine with --precision fp32"),
        DiffusionError::NoPart { .. } | DiffusionError::NoFile { .. } | DiffusionError::Mismatch { .. } => {
            Some("build the engine from the whole folder of one pipeline")
        }
        _ => None,
    }
}

fn of_session(error: &SessionError) -> Option<String> {
    let text = match error {
        SessionError::Engine(error) => of_engine(error)?,
        SessionError::LibraryNotFound { .. } | SessionError::Library { .. } => {
            "run `make setup`, or pass --ort-lib PATH"
        }
        SessionError::NoLibraryAt { by, .. } => {
            return Some(format!("give {by} the library or the folder that holds it; `make setup` downloads one"));
        }
        SessionError::ProviderUnusable { .. } | SessionError::ProviderOptions { .. } => "use --provider cpu",
        SessionError::DoesNotFit { .. } => {
            "choose another --provider or other --devices, or build the engine for this box with engine-builder"
        }
        SessionError::NoStepDown { .. } | SessionError::NodesElsewhere { .. } => "leave out --strict to allow that",
        SessionError::NoneFits { .. } => "push an engine for this box, or one for the CPU",
        SessionError::NotExact { .. } => "leave out --exact to allow a fall back",
        SessionError::NoCache => "set HOME or XDG_CACHE_HOME",
        SessionError::SelfTest { .. } => REBUILD,
        error if error.is_out_of_memory() => "choose a smaller --tile, --batch or number of --streams",
        _ => return None,
    };
    Some(text.into())
}

/// What the user can do about an engine that does not come out of a registry.
pub(crate) fn of_registry(error: &RegistryError) -> Option<&'static str> {
    match error {
        RegistryError::Engine(error) => of_engine(error),
        RegistryError::Refused { .. } => {
            Some("log in with `docker login`, or set TILEFORGE_REGISTRY_USERNAME and TILEFORGE_REGISTRY_PASSWORD")
        }
        RegistryError::NoCertificates { .. } => {
            Some("install the system's package `ca-certificates`, or set SSL_CERT_FILE to a file of certificates")
        }
        RegistryError::Altered { .. } | RegistryError::Missing { .. } | RegistryError::Lie { .. } => {
            Some("nothing of it was kept; ask whoever pushed the engine to push it again")
        }
        RegistryError::Busy { .. } => Some("wait for it, or give another folder"),
        _ => None,
    }
}

fn of_engine(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::Schema { .. } => {
            Some("use the runtime of the release that built the engine, or rebuild it with engine-builder")
        }
        EngineError::Invalid { source, .. } => of_engine(source).or(Some(REBUILD)),
        EngineError::Altered { .. }
        | EngineError::Manifest { .. }
        | EngineError::Contract(_)
        | EngineError::Graph { .. } => Some(REBUILD),
        EngineError::SeveralParts { .. } => Some("give the folder of one part as --engine"),
        EngineError::Unsigned { .. } => {
            Some("ask whoever sent the engine for one that is signed, or leave out --require-signature")
        }
        _ => None,
    }
}

fn of_image(error: &ImageError) -> Option<&'static str> {
    match error {
        ImageError::TooManyPixels { .. } => Some("`infer --max-megapixels` allows more, if it is genuine"),
        ImageError::Damaged { .. } => Some("copy or download it again; `infer --tolerant` goes on with what is there"),
        ImageError::NoTransparency { .. } => Some("write another format, or leave it out with --alpha drop"),
        ImageError::NotFrames { .. } => Some("say what raw frames are with --raw"),
        ImageError::NotFinite { .. } => Some("build the engine with --precision fp32"),
        ImageError::Tiling(TilingError::Overlap { .. }) => Some("choose a smaller --overlap"),
        ImageError::Tiling(TilingError::Margin { .. }) => Some("choose a smaller --margin or a larger --overlap"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_the_root_of_an_error() {
        let schema = EngineError::Schema { expected: 2, found: 1 };
        let invalid = EngineError::Invalid { path: "manifest.json".into(), source: Box::new(schema) };
        let told = advice(&Error::Session(invalid.into())).unwrap();
        assert!(told.contains("release that built the engine"), "{told}");
        let shared = Error::Shared(std::sync::Arc::new(Error::Image(ImageError::NotFrames {
            path: "standard input".into(),
            expected: "YUV4MPEG2",
        })));
        assert!(advice(&shared).unwrap().contains("--raw"));
        let other = Error::Engine(EngineError::Manifest { problem: "no name".into() });
        assert_eq!(advice(&other).unwrap(), REBUILD);
        assert_eq!(advice(&Error::Cancelled), None);
    }
}
