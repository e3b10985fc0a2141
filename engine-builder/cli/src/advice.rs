//! Advice for the user about an error. The libraries' errors do not name flags: only this module does.

use tileforge_engine::Error as EngineError;
use tileforge_engine_builder::portable::NotCompiled;
use tileforge_engine_builder::rebuild::{Ingredient, Unrecorded};
use tileforge_engine_builder::request::{PipelineOption, RequestError};
use tileforge_engine_builder::{Error, MissingWeights, Origin, PrecisionOption};
use tileforge_exporter::Error as ExportError;
use tileforge_files::installation;
use tileforge_registry::Error as RegistryError;
use tileforge_session::Error as SessionError;
use tileforge_session::onnxruntime::INSTALL_CPP_RUNTIME;
use tileforge_tensorrt::{Error as PlanError, LibraryVersion};

/// The variable that names the folder of TensorRT for RTX.
pub(crate) const RTX_LIB: &str = "TENSORRT_RTX_LIB_PATH";

/// Advice about options that contradict each other.
fn request(problem: &RequestError) -> Option<String> {
    Some(match problem {
        RequestError::OfOneNetwork => "leave --set, --chunk and --frames out, or choose one with --component".into(),
        RequestError::OfPipelines(option) => {
            let option = match option {
                PipelineOption::Batch => "--batch",
                PipelineOption::Tokens => "--tokens",
                PipelineOption::Variant => "--variant",
                PipelineOption::Adaptations => "--lora",
                PipelineOption::Config => "--config",
            };
            format!("leave {option} out")
        }
        RequestError::OfFolders => "leave --variant and --config out".into(),
        RequestError::NoSuchPart { .. } => "choose it with --component".into(),
        RequestError::OfForeignFiles => {
            "leave --task, --contract, --input-range, --channel-order, --size-multiple, --mean and --deviation out"
                .into()
        }
        RequestError::NoMeaning { path } => format!(
            "`--task upscale` states that it makes pictures of pictures, `--task tensors` leaves its tensors without \
             a meaning, and `--contract FILE` states everything; `exporter inspect {}` shows what it has",
            path.display()
        ),
        RequestError::NeedsContract { .. } => "say it with `--contract FILE` (docs/metadata.md)".into(),
        RequestError::FastestOfParts => "name one with --precision, or build one part alone with --component".into(),
        RequestError::FastestElsewhere { .. } => "name a precision, or leave --precision out for the profile's".into(),
        RequestError::NoProfile => "give one with --profile".into(),
        RequestError::NoFoldersOfParts { .. } => return None,
    })
}

/// Advice for an error, if there is any.
pub(super) fn on(error: &Error) -> Option<String> {
    Some(match error {
        Error::NoEffect { option, users, .. } => format!("leave {} out, or build {users}", flag(*option)),
        Error::Precision { possible, .. } => {
            let possible = possible.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ");
            format!("expected --precision {possible}")
        }
        Error::ModelGraph { .. } => "choose one with `--component NAME`".into(),
        Error::MissingWeights(missing) => {
            let MissingWeights { model, file, origin, folders, .. } = missing.as_ref();
            let place = folders.first().map_or_else(String::new, |folder| folder.join(file).display().to_string());
            match origin {
                Some(Origin::Hub { .. } | Origin::Folder(_)) => {
                    format!("`engine-builder fetch {model}` downloads it to {place}; MODEL_PATH names other folders")
                }
                Some(Origin::Page(_)) => format!("download it there, and put it at {place}"),
                None => format!("put it beside the model file, or at {place}"),
            }
        }
        Error::WrongWeights { record: Some(record), .. } => {
            format!("if you changed it on purpose, remove {}", record.display())
        }
        Error::WrongWeights { .. } => "get it again with `engine-builder fetch`, after you removed it".into(),
        Error::NoAddress { .. } => {
            "put it into a folder of MODEL_PATH; `engine-builder models` says when it is found".into()
        }
        Error::Offline { .. } => "unset HF_HUB_OFFLINE, or put the files into a folder of MODEL_PATH".into(),
        Error::Refused { has_token: false, .. } => {
            "if the model asks for it, accept its licence on its page and set HF_TOKEN to your token".into()
        }
        Error::Refused { .. } => "accept the model's licence on its page with the account of HF_TOKEN".into(),
        Error::NoCertificates { .. } => {
            "install the system's package `ca-certificates`, or set SSL_CERT_FILE to a file of certificates".into()
        }
        Error::Download(error) => match error.as_ref() {
            RegistryError::UnknownAuthority { .. } => {
                "set SSL_CERT_FILE to a file with the certificate of its authority".into()
            }
            _ => return None,
        },
        Error::Busy { .. } => "wait for it".into(),
        Error::PipelineFile { .. } => {
            "give a folder in diffusers' layout that has them, as in `--config stable-diffusion-v1-5`, or take one \
             network with `exporter export --component` and build its graph"
                .into()
        }
        Error::ChangedSource { .. } => {
            "give the files that it was made of, or build it of the others with --allow-changed-source; --profile NAME \
             takes a changed profile alone"
                .into()
        }
        Error::Request(problem) => return request(problem),
        Error::Unrecorded { missing, .. } => match missing {
            Unrecorded::Files { .. } => "give the new engine another folder with --output".into(),
            Unrecorded::Model => "give that with --model".into(),
            Unrecorded::Calibration => {
                "give it with --calibration, or take the built-in samples with --allow-changed-source".into()
            }
            Unrecorded::Profile => "give one with --profile".into(),
        },
        Error::Ingredient { ingredient, .. } => {
            let option = match ingredient {
                Ingredient::Model => "--model",
                Ingredient::Config => "--config",
                Ingredient::Adaptation => "--lora",
                Ingredient::Calibration => "--calibration",
            };
            format!("name it with {option}")
        }
        Error::NoSizes { .. } => "give its sizes, as in `--size 1280x720 --frames 5`".into(),
        Error::Portable { reason: NotCompiled::NoBuilder(error), .. } => return missing_builder(error),
        Error::Plan(error) => return missing_builder(error),
        Error::Portable { .. } => "build it on that machine, or without --require-compiled for a portable one".into(),
        Error::Session(SessionError::LibraryNotFound { .. }) => {
            format!("run `{}`, or pass --ort-lib PATH", setup())
        }
        Error::Session(SessionError::RuntimeMissing { .. }) => INSTALL_CPP_RUNTIME.into(),
        Error::Session(SessionError::NoLibraryAt { .. }) => "give the path of the library or of its folder".into(),
        Error::Session(SessionError::Library { .. }) => format!("run `{}`, or pass --ort-lib PATH", setup()),
        Error::Engine(error) => return engine(error),
        Error::Export(ExportError::UnknownArchitecture { .. }) => "`-v` compares it with every architecture".into(),
        Error::Export(ExportError::NoWeights { path, found, .. }) => {
            format!("give the file itself, as in `engine-builder build {}`", path.join(found.first()?).display())
        }
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

/// The command that installs libraries: for programs of a source tree, or for those of a release.
fn setup() -> &'static str {
    if installation::built_in().is_some() { "make setup" } else { "runtime setup" }
}

/// Advice if plans for RTX GPUs cannot be built.
pub(super) fn missing_builder(error: &PlanError) -> Option<String> {
    let portable = "or build an engine without plans, which CUDA and the CPU run, with --portable";
    let release = LibraryVersion::EXPECTED;
    let libraries = format!(
        "`runtime setup --rtx` beside the programs of a release, and `make setup RTX=1` in a source tree, install \
         {release}; elsewhere, --rtx-lib DIR or {RTX_LIB} names their folder"
    );
    Some(match error {
        PlanError::NotCompiledIn => format!(
            "take the programs of a release for x86-64, or install libclang (on Debian and Ubuntu: apt install \
             libclang-dev) and run `make build`; {portable}"
        ),
        PlanError::LibraryMissing { .. } | PlanError::LibraryVersion { .. } | PlanError::LibraryUnusable { .. } => {
            format!("{libraries}; {portable}")
        }
        _ => return None,
    })
}

fn engine(error: &EngineError) -> Option<String> {
    Some(match error {
        EngineError::NoSuchEngine { name, .. } => {
            let model = name.rsplit('/').next().unwrap_or(name);
            format!("build one first with `engine-builder build {model}`, or give an engine's directory")
        }
        EngineError::Altered { .. } => "build the engine again, or copy it again".into(),
        EngineError::Invalid { source, .. } => return engine(source),
        EngineError::Schema { expected, found } if found < expected => {
            "`engine-builder rebuild` makes it again with this release".into()
        }
        EngineError::Schema { .. } => "use the release that built it, or a newer one".into(),
        EngineError::Key { kind: "public", .. } => "give the .pub file of keygen".into(),
        EngineError::Key { .. } => "give the .key file of keygen".into(),
        EngineError::Unsigned { .. } => "ask the engine's publisher to sign it".into(),
        EngineError::Signature { .. } => "get the engine again from its publisher, or give the publisher's key".into(),
        EngineError::Archive { .. } => "copy the archive again, or pack the engine again".into(),
        _ => return None,
    })
}

/// Advice if engines cannot be pushed to a registry.
pub(super) fn registry(error: &RegistryError) -> Option<String> {
    Some(match error {
        RegistryError::Engine(error) => return engine(error),
        RegistryError::Refused { .. } => {
            "log in with `docker login`, or set TILEFORGE_REGISTRY_USERNAME and TILEFORGE_REGISTRY_PASSWORD".into()
        }
        RegistryError::PushToDigest { .. } => "give a tag, as in oci://HOST/NAME:1.0".into(),
        RegistryError::Twins { .. } => "push them to different tags".into(),
        RegistryError::NoCertificates { .. } => {
            "install the system's package `ca-certificates`, or set SSL_CERT_FILE to a file of certificates".into()
        }
        RegistryError::UnknownAuthority { .. } => {
            "put the certificate of the registry's own authority into ~/.config/containers/certs.d/HOST:PORT/ca.crt, \
             or set SSL_CERT_FILE"
                .into()
        }
        RegistryError::OpenPassword { .. } => "use a registry with HTTPS: passwords are sent by HTTPS alone".into(),
        RegistryError::Document { .. } => "push to another tag, or leave out --add to replace what is there".into(),
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
