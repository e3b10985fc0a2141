//! Releases: for each target an archive, a Debian package and a bill of materials; and signed checksums over all
//! files.
//!
//! The same programs, ONNX Runtime and date give the same bytes.

mod at;
mod build;
mod checksums;
mod components;
mod content;
mod debian;
mod elf;
mod licences;
mod manifests;
mod materials;
mod onnxruntime;
mod pe;
mod target;
mod tree;
mod version;

use components::Components;
use onnxruntime::OnnxRuntime;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use at::at;
use std::process::Command;
use target::{System, Target};
use tileforge_engine::signature::PrivateKey;
use tileforge_files::unfinished;
use tileforge_terminal::{print, report};
use version::VERSION;

/// The files for a container, in addition to the Debian packages.
const CONTAINERFILE: &str = include_str!("../../../packaging/Containerfile");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What a release is for; may be repeated [default: this machine]
    #[arg(long, value_name = "TRIPLE", value_parser = target::parse)]
    target: Vec<&'static Target>,
    /// Programs that are built already, for one target
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// An ONNX Runtime that scripts/setup_onnxruntime.py has installed, for one target [default: it is downloaded]
    #[arg(long, value_name = "DIR")]
    onnxruntime: Option<PathBuf>,
    /// Programs of this machine, which print completions and manual pages [default: those of --programs if they are for
    /// this machine; otherwise they are built]
    #[arg(long, value_name = "DIR")]
    printed_by: Option<PathBuf>,
    /// Where the files of the release will be on the web, for the manifests of winget and Scoop
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Build in NVIDIA's builder for RTX GPUs, where a target has it
    #[arg(long)]
    rtx: bool,
    /// A private key of `engine-builder keygen`, to sign the checksums with
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The folder of the release
    #[arg(short, long, value_name = "DIR", default_value = "target/dist")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut targets = arguments.target.clone();
    if targets.is_empty() {
        targets.push(target::here()?);
    }
    if targets.len() > 1 && (arguments.programs.is_some() || arguments.onnxruntime.is_some()) {
        return Err("--programs and --onnxruntime are for one --target; expected one, or neither of them".into());
    }
    // An invalid key is reported before the programs are built.
    let key = arguments.key.as_deref().map(PrivateKey::read).transpose().map_err(|error| error.to_string())?;
    let seconds = date()?;
    targets.iter().try_for_each(|target| build::check(target, arguments.programs.is_some()))?;
    // Programs that run here print the manual pages and completions, which are the same for all targets.
    let spoken = content::spoken_by(&match (&arguments.printed_by, &arguments.programs) {
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) if targets.iter().all(|target| target.is_here()) => folder.clone(),
        _ => build::programs(target::here()?, arguments.rtx)?,
    })?;
    let mut made: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let has_package = targets.iter().any(|target| target.system != System::Windows);
    for target in targets {
        let programs = match &arguments.programs {
            Some(folder) => folder.clone(),
            None => build::programs(target, arguments.rtx)?,
        };
        let library = match &arguments.onnxruntime {
            Some(folder) => folder.clone(),
            None => build::onnxruntime(target)?,
        };
        let library = OnnxRuntime::read(&library, target)?;
        let components = Components::of(target, arguments.rtx && target.has_rtx())?;
        let materials = materials::of(target, &components, &library, seconds)?;
        let release = content::of(target, &programs, &library, &components, &spoken, &materials, seconds)?;
        let name = format!("tileforge-{VERSION}-{}", target.triple);
        match target.system {
            System::Linux { debian } => {
                made.insert(format!("{name}.tar.gz"), release.tree.archive(&name, seconds)?);
                let package = debian::package(&release, debian, seconds)?;
                made.insert(format!("tileforge_{}_{debian}.deb", debian::version()), package);
            }
            System::Windows => {
                let archive = release.tree.zip(&name, seconds)?;
                if let Some(address) = &arguments.url {
                    let sha256 = checksums::sha256(&archive);
                    made.extend(manifests::of(address, &format!("{name}.zip"), &sha256)?);
                } else {
                    report("without the manifests of winget and Scoop: no --url");
                }
                made.insert(format!("{name}.zip"), archive);
            }
        }
        made.insert(format!("{name}.cdx.json"), materials);
    }
    if has_package {
        made.insert("Containerfile".into(), CONTAINERFILE.into());
    }
    let sums = checksums::of(&made);
    if let Some(key) = &key {
        made.insert("SHA256SUMS.sig".into(), key.sign(sums.as_bytes()).to_vec());
    } else {
        report("not signed: no --key");
    }
    made.insert("SHA256SUMS".into(), sums.into());
    fs::create_dir_all(&arguments.output).map_err(|error| at(&arguments.output, &error))?;
    // The signature of an earlier release in this folder would not match the new checksums.
    let signature = arguments.output.join("SHA256SUMS.sig");
    if key.is_none() && signature.exists() {
        fs::remove_file(&signature).map_err(|error| at(&signature, &error))?;
    }
    for (name, bytes) in &made {
        let path = arguments.output.join(name);
        unfinished::write(&path, bytes).map_err(|error| at(&path, &error))?;
        let line = format!("{:>11} bytes  {}", bytes.len(), path.display());
        print(&line).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The date of everything in a release, in seconds since 1970: SOURCE_DATE_EPOCH, or the date of the last commit.
fn date() -> Result<u64, String> {
    let expected = "expected SOURCE_DATE_EPOCH (seconds since 1970) or a commit, whose date a release has";
    if let Some(variable) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let seconds = variable.to_str().and_then(|text| text.parse().ok());
        return seconds.ok_or_else(|| format!("{expected}; found SOURCE_DATE_EPOCH={}", variable.display()));
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(build::repository());
    let found = build::output_of(&mut git).map_err(|reason| format!("{expected}; {reason}"))?;
    found.trim().parse().map_err(|_| format!("{expected}; git says `{}`", found.trim()))
}
