//! `engine-builder pack`, `unpack`, `keygen`, `sign`, `verify` and `diff`.

use super::failure::{CommandResult, Failure, result, result_json};
use super::named;
use std::path::{Path, PathBuf};
use tileforge_engine::diff::diff as differences_of;
use tileforge_engine::share::share_files;
use tileforge_engine::{Bundle, PublicKey, archive, signature};
use tileforge_engine_builder::{check_weights, model_package};
use tileforge_terminal::{Progress, RequiredSignature, digests, report};

/// Write an engine directory as one tar file, or engines of one model as a model package of ONNX Runtime. The same
/// engines give the same bytes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  engine-builder pack engines/rtx4090/compact-x4 -o compact-x4.tar\n  \
        engine-builder pack --format model-package engines/*/compact-x4 -o compact-x4-package")]
pub(super) struct PackArguments {
    /// The engine's directory or name; for a model package, one for each machine, where a name stands for all profiles
    #[arg(value_name = "ENGINE", required = true)]
    engines: Vec<PathBuf>,
    /// tar: one file that `unpack` and `runtime unpack` take. model-package: a folder that ONNX Runtime 1.31 opens
    /// without Tileforge and chooses a variant of by provider; it has no signature and no self-test
    #[arg(long, value_name = "FORMAT", default_value = "tar")]
    format: PackFormat,
    /// Where the tar file or the folder goes
    #[arg(short, long, value_name = "FILE.tar|DIR")]
    output: PathBuf,
}

/// What engines are packed as.
#[derive(Clone, Copy, clap::ValueEnum)]
enum PackFormat {
    Tar,
    ModelPackage,
}

/// Unpack an engine, refusing any file that is missing, additional or altered.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  engine-builder unpack compact-x4.tar -o engines/compact-x4 --require-signature \
        release.pub")]
pub(super) struct UnpackArguments {
    /// The tar file of `engine-builder pack`
    #[arg(value_name = "FILE.tar")]
    archive: PathBuf,
    /// Where the engine directory goes
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    signed: RequiredSignature,
    /// Store files that engines below this folder also have only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
}

/// Make a key to sign with: NAME.key, which stays secret, and NAME.pub.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  engine-builder keygen -o release")]
pub(super) struct KeygenArguments {
    /// The files' name, without .key and .pub
    #[arg(short, long, value_name = "NAME")]
    output: PathBuf,
}

/// Sign an engine: its own files, and all parts of a pipeline.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  engine-builder sign engines/rtx4090/compact-x4 --key release.key")]
pub(super) struct SignArguments {
    /// The engine's directory or name
    #[arg(value_name = "ENGINE")]
    engine: PathBuf,
    /// A private key of `engine-builder keygen`
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
}

/// Check that an engine is whole and signed with a key, or that the checkpoint of a graph is unchanged. `runtime
/// verify` also runs an engine.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  engine-builder verify engines/rtx4090/compact-x4 --require-signature release.pub\n  \
        engine-builder verify compact-x4.onnx"
)]
pub(super) struct VerifyArguments {
    /// The engine's directory or name, or an exported graph (.onnx)
    #[arg(value_name = "ENGINE|GRAPH.onnx")]
    engine: PathBuf,
    #[command(flatten)]
    signed: RequiredSignature,
}

/// Show how two engines differ.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  engine-builder diff engines/rtx4090/compact-x4 engines/rtx3090/compact-x4")]
pub(super) struct DiffArguments {
    /// An engine's directory or name
    first: PathBuf,
    /// That of another engine
    second: PathBuf,
    /// Print the differences as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn pack(arguments: &PackArguments) -> CommandResult {
    match (arguments.format, arguments.engines.as_slice()) {
        (PackFormat::ModelPackage, engines) => model_package::write(&named::engines(engines)?, &arguments.output)?,
        (PackFormat::Tar, [engine]) => archive::pack(&named::engine(engine)?, &arguments.output)?,
        (PackFormat::Tar, engines) => {
            let found = engines.len();
            return Err(Failure::Usage(format!("a tar file holds one engine, found {found}; pack each into its own")));
        }
    }
    result(&arguments.output.display().to_string())
}

pub(super) fn unpack(arguments: &UnpackArguments) -> CommandResult {
    let key = arguments.signed.key.as_deref().map(PublicKey::read).transpose()?;
    let unpacked = archive::unpack(&arguments.archive, &arguments.output, key.as_ref())?;
    if let Some(folder) = &arguments.share {
        let saved = share_files(&arguments.output, folder)?;
        report(&format!("  {:.1} MB shared with other engines", saved as f64 / 1e6));
    }
    report(&format!("{}: {} files are whole", unpacked.name, unpacked.files));
    result(&arguments.output.display().to_string())
}

pub(super) fn keygen(arguments: &KeygenArguments) -> CommandResult {
    let keys = signature::keygen(&arguments.output)?;
    result(&format!("{}\n{}", keys.private.display(), keys.public.display()))
}

pub(super) fn sign(arguments: &SignArguments) -> CommandResult {
    let engine = named::engine(&arguments.engine)?;
    let bundle = Bundle::open(&engine)?;
    check_all_weights(&bundle)?;
    signature::sign(&bundle, &arguments.key)?;
    report(&format!("{}: signed", engine.display()));
    Ok(())
}

pub(super) fn verify(arguments: &VerifyArguments) -> CommandResult {
    let path = &arguments.engine;
    let is_graph = path.extension().is_some_and(|extension| extension == "onnx");
    let Some(key) = &arguments.signed.key else {
        let problem = "an engine needs --require-signature KEY; `runtime verify` checks its files without one";
        return if is_graph { verify_graph(path) } else { Err(Failure::Usage(problem.into())) };
    };
    let bundle = Bundle::open_of(&named::engine(path)?, Some(&PublicKey::read(key)?))?;
    bundle.check_nothing_unlisted()?;
    check_all_weights(&bundle)?;
    let files = bundle.files().len();
    result(&format!("{}: signed with {}, {files} files are whole", bundle.name(), key.display()))
}

/// As [`check_weights`], for an engine or for each part of a pipeline.
fn check_all_weights(bundle: &Bundle) -> Result<(), Failure> {
    bundle.engines().into_iter().try_for_each(|(_, engine)| Ok(check_weights(engine)?))
}

/// Compares a graph's weight files with those that it was written with.
fn verify_graph(path: &Path) -> CommandResult {
    tileforge_graph::load(path)?;
    let files = tileforge_graph::check_weight_files(path, &digests(Progress::new()))?;
    if files.is_empty() {
        return result(&format!("{}: states no digest of a file of weights", path.display()));
    }
    let lines = files.iter().map(|file| match &file.sha256 {
        Some(_) => format!("{}: unchanged since the export", file.file),
        None => format!("{}: has the size that it had; it was not digested", file.file),
    });
    result(&lines.collect::<Vec<_>>().join("\n"))
}

pub(super) fn diff(arguments: &DiffArguments) -> CommandResult {
    let differences = differences_of(&named::engine(&arguments.first)?, &named::engine(&arguments.second)?)?;
    if arguments.json {
        return result_json(&differences);
    }
    if differences.is_empty() {
        return result("the engines are equal");
    }
    let text = |value: &Option<serde_json::Value>| value.as_ref().map_or("nothing".into(), ToString::to_string);
    let lines =
        differences.iter().map(|found| format!("{}: {} → {}", found.key, text(&found.first), text(&found.second)));
    result(&lines.collect::<Vec<_>>().join("\n"))
}
