//! Advice on what to type after an error: the libraries' errors name no flags.

use tileforge_contract::{Provider, Task};
use tileforge_engine::Error as EngineError;
use tileforge_files::installation;
use tileforge_image::{Error as ImageError, Size, TilingError};
use tileforge_registry::Error as RegistryError;
use tileforge_runtime::Error;
use tileforge_runtime::depth;
use tileforge_runtime::diffusion::Error as DiffusionError;
use tileforge_runtime::diffusion::prompt::Error as PromptError;
use tileforge_runtime::diffusion::schedulers::Error as SchedulerError;
use tileforge_session::onnxruntime::INSTALL_CPP_RUNTIME;
use tileforge_session::{Error as SessionError, Jetson, OtherRelease, Probe};

const REBUILD: &str = "`engine-builder rebuild` makes the engine again; or copy it again";

/// What the user can do about an engine of another release.
pub(crate) fn of_release(other: &OtherRelease) -> &'static str {
    if other.is_newer() {
        "install that release here, or make the engine again here with `engine-builder rebuild`"
    } else {
        "`engine-builder rebuild` makes it again with the releases that are here"
    }
}

/// What the user can do about an error, as the end of its sentence.
pub(crate) fn advice(error: &Error) -> Option<String> {
    let text = match error.root() {
        Error::Session(error) => return of_session(error),
        Error::Engine(EngineError::NoSuchEngine { name, .. }) => return Some(first_build(name)),
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
        Error::NoSuchTile { .. } => "choose one of them with --tile",
        Error::NoSuchGraph { .. } => "choose one of them with --size",
        Error::NoSuchInputSize { wanted: Size { width, height }, .. } => {
            return Some(format!(
                "leave out --input-size, choose another one, or build the engine with `engine-builder build MODEL \
                 --size {width}x{height}`"
            ));
        }
        Error::NoSuchBatch { .. } => "choose one of them with --batch, or build the engine with such a batch",
        Error::ClipTooLong { .. } => {
            "give an engine with both: `engine-builder build` makes it without --chunk and --component"
        }
        Error::NoPart { .. } => "choose one with --part",
        Error::SharedFrames { .. } => "choose fewer with --frame-overlap",
        Error::TooThin { .. } => "choose another size with --size, or crop the frames",
        Error::MaskSize { .. } => "give the mask that was drawn on the picture, or resize it without interpolation",
        Error::OnlySize { expected, .. } => {
            return Some(format!(
                "for a network that restores faces, give an aligned crop of {expected}: the face upright, with eyes \
                 and mouth at the places that it was trained for"
            ));
        }
        Error::MapSize { .. } => "give the map that was aligned to the picture, or resize it without interpolation",
        _ => return None,
    };
    Some(text.into())
}

/// The commands that build an engine of this name: `NAME`, or `PROFILE/NAME`.
fn first_build(name: &str) -> String {
    let (profile, model) = name.rsplit_once('/').map_or((None, name), |(profile, model)| (Some(profile), model));
    let profile = profile.map_or(String::new(), |profile| format!(" --profile {profile}"));
    format!(
        "build one first with `engine-builder build {model}{profile}` (`engine-builder models` lists models by name), or \
         give an engine's directory"
    )
}

/// What the user can do about a picture that was stretched.
pub(crate) fn of_stretching(made: &depth::DepthStatistics) -> Option<String> {
    let depth::DepthStatistics { size, network_size, proportionate_size: Size { width, height }, .. } = made;
    made.stretched.then(|| {
        format!(
            "a picture of {size} is stretched to {network_size}, because the engine has no graph for its proportions; \
             `engine-builder build MODEL --size {width}x{height}` makes an engine that has"
        )
    })
}

fn of_diffusion(error: &DiffusionError) -> Option<&'static str> {
    match error {
        DiffusionError::Scheduler(SchedulerError::Class { .. } | SchedulerError::Sampler { .. }) => {
            Some("choose one of them with --scheduler")
        }
        DiffusionError::Scheduler(SchedulerError::NoSteps { .. } | SchedulerError::Steps { .. }) => {
            Some("choose other --steps, or another --strength")
        }
        DiffusionError::Scheduler(SchedulerError::Range { .. }) | DiffusionError::Range { .. } => {
            Some("`runtime generate --help` lists the options with their ranges")
        }
        DiffusionError::Scheduler(
            SchedulerError::NoNumbers { .. } | SchedulerError::NotFinite { .. } | SchedulerError::NeverFinite { .. },
        ) => Some("choose another --scheduler"),
        DiffusionError::Prompt(PromptError::Tag { .. }) => Some(
            "build it into an engine with `engine-builder build PIPELINE --lora FILE[:SCALE]`, and leave the tag out",
        ),
        DiffusionError::Prompt(_) => Some(
            "write \\( \\) \\[ \\] for brackets that are a part of the text, or pass --literal-prompt for a text without \
             weights",
        ),
        DiffusionError::SizeMultiple { .. } => Some("choose another --size"),
        DiffusionError::NoSuchSize { .. } => Some("choose one of them with --size, or build the engine for that size"),
        DiffusionError::NoSuchText { .. } => Some("leave out --long-prompt, or build the engine for longer texts"),
        DiffusionError::NotFinite { .. } => Some("build the engine with `engine-builder build --precision fp32`"),
        DiffusionError::NoPart { .. } | DiffusionError::NoFile { .. } | DiffusionError::Mismatch { .. } => {
            Some("build the engine from the whole folder of one pipeline")
        }
        _ => None,
    }
}

/// The command that installs libraries: in a source tree, or in a release.
fn setup() -> &'static str {
    if installation::built_in().is_some() { "make setup" } else { "runtime setup" }
}

fn of_session(error: &SessionError) -> Option<String> {
    let text = match error {
        SessionError::Engine(error) => of_engine(error)?,
        SessionError::LibraryNotFound { .. } | SessionError::Library { .. } => {
            return Some(format!("run `{}`, or pass --ort-lib PATH", setup()));
        }
        SessionError::RuntimeMissing { .. } => INSTALL_CPP_RUNTIME,
        SessionError::NoLibraryAt { by, .. } => {
            return Some(format!("give {by} the library or the folder that holds it; `{}` downloads one", setup()));
        }
        SessionError::ProviderUnusable { .. } | SessionError::ProviderOptions { .. } => "use --provider cpu",
        SessionError::DoesNotFit { .. } => {
            "choose another --provider or other --devices, or make the engine for this machine: `engine-builder build` for \
             its profile, or `engine-builder rebuild` for the releases that are here"
        }
        SessionError::NoStepDown { .. } | SessionError::NodesElsewhere { .. } => "leave out --strict to allow that",
        SessionError::NoneFits { .. } => "push an engine for this machine, or one for the CPU",
        SessionError::NotExact { .. } => "leave out --exact to allow a fall back",
        SessionError::NoCache => "set HOME or XDG_CACHE_HOME",
        SessionError::SelfTest { .. } => REBUILD,
        error if error.is_out_of_memory() => "choose a smaller --tile, --batch or number of --streams",
        _ => return None,
    };
    Some(text.into())
}

/// What the user can do about an engine that cannot be pulled from a registry.
pub(crate) fn of_registry(error: &RegistryError) -> Option<&'static str> {
    match error {
        RegistryError::Engine(error) => of_engine(error),
        RegistryError::Refused { .. } => {
            Some("log in with `docker login`, or set TILEFORGE_REGISTRY_USERNAME and TILEFORGE_REGISTRY_PASSWORD")
        }
        RegistryError::NoCertificates { .. } => {
            Some("install the system's package `ca-certificates`, or set SSL_CERT_FILE to a file of certificates")
        }
        RegistryError::UnknownAuthority { .. } => Some(
            "put the certificate of the registry's own authority into ~/.config/containers/certs.d/HOST:PORT/ca.crt, \
             or set SSL_CERT_FILE",
        ),
        RegistryError::OpenPassword { .. } => Some("use a registry with HTTPS: passwords are sent by HTTPS alone"),
        RegistryError::Altered { .. } | RegistryError::Missing { .. } | RegistryError::Contradiction { .. } => {
            Some("nothing of it was kept; ask the engine's publisher to push it again")
        }
        RegistryError::Busy { .. } => Some("wait for it, or give another folder"),
        _ => None,
    }
}

fn of_engine(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::Schema { expected, found } if found < expected => {
            Some("`engine-builder rebuild` makes the engine again; or use the runtime of the release that built it")
        }
        EngineError::Schema { .. } => Some("use the runtime of the release that built the engine, or a newer one"),
        EngineError::Invalid { source, .. } => of_engine(source).or(Some(REBUILD)),
        EngineError::Altered { .. }
        | EngineError::Manifest { .. }
        | EngineError::Contract(_)
        | EngineError::Graph { .. } => Some(REBUILD),
        EngineError::SeveralParts { .. } => Some("give the folder of one part as --engine"),
        EngineError::Unsigned { .. } => Some("get a signed engine from its maker, or leave out --require-signature"),
        _ => None,
    }
}

fn of_image(error: &ImageError) -> Option<&'static str> {
    match error {
        ImageError::TooManyPixels { .. } => Some("`infer --max-megapixels` allows more, if it is genuine"),
        ImageError::Damaged { .. } => Some("copy or download it again; `infer --tolerant` goes on with what is there"),
        ImageError::NoTransparency { .. } => Some("write another format, or leave it out with --alpha drop"),
        ImageError::NotFrames { .. } => Some("say what raw frames are with --raw"),
        ImageError::NotFinite { .. } => Some("build the engine with `engine-builder build --precision fp32`"),
        ImageError::Tiling(TilingError::Overlap { .. }) => Some("choose a smaller --overlap"),
        ImageError::Tiling(TilingError::Margin { .. }) => Some("choose a smaller --margin or a larger --overlap"),
        _ => None,
    }
}

/// The steps that a Jetson still needs for its GPU, in order; empty if TensorRT can be used.
pub(crate) fn on_jetson(probe: &Probe, jetson: &Jetson) -> Vec<String> {
    let tensorrt = probe.status(Provider::TensorRt);
    if tensorrt.is_some_and(|status| status.usable) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    match jetson.release {
        Some((major, minor)) if jetson.is_too_old() => steps.push(format!(
            "install JetPack 7: Jetson Linux {major}.{minor} has CUDA 12, and ONNX Runtime's GPU library needs CUDA 13 \
             (for Orin from JetPack 7.2 on)"
        )),
        _ => {}
    }
    if probe.driver_problem.is_some() {
        steps.push("in a container, start it with `--runtime nvidia`, which gives it the driver".into());
    }
    if probe.tensorrt_version.is_none() {
        steps.push("install CUDA, cuDNN and TensorRT: apt install nvidia-jetpack".into());
    }
    if tensorrt.is_none_or(|status| !status.compiled_in) {
        steps.push(
            "build ONNX Runtime on it with --use_cuda --use_tensorrt --build_shared_lib, because PyPI has no GPU \
             library for aarch64, and pass it as --ort-lib or ORT_DYLIB_PATH"
                .into(),
        );
    }
    // Something else is missing: the provider's own reason names it.
    if steps.is_empty() {
        steps.extend(tensorrt.map(|status| format!("TensorRT: {}", status.reason)));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_session::Gpu;
    use tileforge_session::provider::ProviderStatus;

    /// A Jetson: `compiled_in` is whether its ONNX Runtime has TensorRT, `usable` whether it can use it.
    fn jetson(release: (u32, u32), compiled_in: bool, usable: bool) -> (Probe, Jetson) {
        let reason = if usable { "library, driver and GPU are there" } else { "libcudnn.so.9 is missing" };
        let status = ProviderStatus { provider: Provider::TensorRt, compiled_in, usable, reason: reason.into() };
        let gpu = Gpu { name: "Orin".into(), compute_capability: "8.7".into(), memory_bytes: 64 << 30 };
        let jetson = Jetson { board: "NVIDIA Jetson AGX Orin".into(), release: Some(release) };
        let tensorrt_version = compiled_in.then(|| "10.16.2".into());
        let probe = Probe { providers: vec![status], gpus: vec![gpu], tensorrt_version, ..Probe::default() };
        (Probe { jetson: Some(jetson.clone()), ..probe }, jetson)
    }

    #[test]
    fn a_jetson_is_told_what_it_needs_in_order() {
        let steps = |release, compiled_in, usable| {
            let (probe, jetson) = jetson(release, compiled_in, usable);
            on_jetson(&probe, &jetson)
        };
        let old = steps((36, 4), false, false);
        assert_eq!(old.len(), 3, "{old:?}");
        assert!(old[0].contains("install JetPack 7: Jetson Linux 36.4 has CUDA 12"), "{old:?}");
        assert!(old[1].contains("nvidia-jetpack") && old[2].contains("--use_tensorrt"), "{old:?}");
        let new = steps((39, 2), false, false);
        assert!(new[0].contains("nvidia-jetpack") && new.len() == 2, "{new:?}");
        assert_eq!(steps((39, 2), true, false), ["TensorRT: libcudnn.so.9 is missing"]);
        assert_eq!(steps((39, 2), true, true), [""; 0]);
        let (probe, jetson) = jetson((39, 2), true, false);
        let contained = Probe { driver_problem: Some("libcuda.so.1: not found".into()), ..probe };
        assert!(on_jetson(&contained, &jetson)[0].contains("--runtime nvidia"));
    }

    #[test]
    fn a_missing_cpp_runtime_is_not_mended_by_other_libraries() {
        let error = SessionError::RuntimeMissing { path: "onnxruntime.dll".into(), missing: vec!["msvcp140.dll"] };
        let told = advice(&Error::Session(error)).unwrap();
        assert!(told.contains("winget install") && !told.contains("setup"), "{told}");
    }

    #[test]
    fn advice_follows_the_root_of_an_error() {
        for (found, expected) in [(1, "`engine-builder rebuild` makes the engine again"), (3, "or a newer one")] {
            let schema = EngineError::Schema { expected: 2, found };
            let invalid = EngineError::Invalid { path: "manifest.json".into(), source: Box::new(schema) };
            let told = advice(&Error::Session(invalid.into())).unwrap();
            assert!(told.contains(expected), "{told}");
        }
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
