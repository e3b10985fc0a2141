//! `runtime setup`: ONNX Runtime and the libraries of its providers, where the programs look for them.

mod binary;
mod download;
mod install;
mod record;
mod sources;
mod table;
mod wheel;

use std::collections::BTreeSet;
use std::env::consts::{ARCH, OS};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tileforge_files::{Digests, installation, unfinished};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};
use tileforge_terminal::{cache_folder, print, report};

use super::doctor::provider_lines;
use super::failure::{CommandResult, Failure};
use install::main_library;
use record::{Origin, Record};
use sources::Sources;
use table::{Part, Table, Wheel};

const EXAMPLES: &str = "\
Examples:
  runtime setup
  runtime setup --gpu
  runtime setup --from wheels
  runtime setup --from onnxruntime/lib --destination libraries";

/// The lock file that makes two runs wait for each other.
const LOCK: &str = ".tileforge-setup.lock";

/// Install ONNX Runtime, OpenVINO and, for a GPU, NVIDIA's libraries, where the programs look for them.
///
/// The libraries come from Python's wheels, each of which is pinned by its SHA-256. `pip` downloads them, or --from
/// names them. Nothing else of Python is used. What --gpu and --rtx have installed is kept by a later run without them.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Wheels that pip has downloaded, folders of such wheels, or folders with the libraries themselves; nothing is
    /// downloaded.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    from: Vec<PathBuf>,
    /// ONNX Runtime for NVIDIA GPUs, with CUDA 13, cuDNN 9 and TensorRT for RTX: over 1 GB to download.
    #[arg(long)]
    gpu: bool,
    /// Also TensorRT for RTX, which builds plans for RTX GPUs without a GPU; a part of --gpu.
    #[arg(long)]
    rtx: bool,
    /// Without OpenVINO, which runs graphs on processors faster.
    #[arg(long)]
    without_openvino: bool,
    /// Where the libraries go [default: where this program looks for them: ../lib/tileforge in a release].
    #[arg(long, value_name = "DIR")]
    destination: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let table = Table::built_in().map_err(Failure::Setup)?;
    let known = table.wheels_for(OS, ARCH);
    if !known.iter().any(|wheel| wheel.part == Part::Cpu) {
        let elsewhere = "set ORT_DYLIB_PATH to a library of ONNX Runtime that was built for it";
        return Err(Failure::Setup(format!("no libraries are known for {OS} on {ARCH}; {elsewhere}")));
    }
    let destination = arguments.destination.clone().map_or_else(default_destination, Ok)?;
    unfinished::create_folders(&destination).map_err(|error| not_writable(&destination, &error))?;
    let lock = tileforge_files::open_to_append(&destination.join(LOCK));
    let lock = lock.map_err(|error| not_writable(&destination, &error))?;
    // If the file system has no locks, runs cannot wait for each other; this one goes on.
    let _ = lock.lock();
    // On Windows, files that a program had loaded could not be removed earlier. Most runs would not remove them
    // otherwise.
    unfinished::remove_abandoned(&destination);

    let digests = Digests::new(cache_folder().map(|cache| cache.join("digests")));
    let present = Record::read(&destination);
    let whole = present.clone().whole(&destination, &digests);
    let wanted = wanted(&known, arguments, &present)?;
    let is_there = |wheel: &Wheel| {
        let origin = whole.origins.get(&wheel.name());
        origin.is_some_and(|origin| origin.sha256.as_ref() == Some(&wheel.sha256))
    };
    let sources = Sources::find(&arguments.from, &known, &wanted).map_err(Failure::Setup)?;
    let missing: Vec<&Wheel> = wanted.iter().copied().filter(|wheel| !is_there(wheel)).collect();
    let install = Install { table: &table, known: &known, destination: &destination, digests: &digests };
    let kept: BTreeSet<String> = wanted.iter().filter(|wheel| is_there(wheel)).map(|wheel| wheel.name()).collect();
    let mut new = whole.clone();
    // Files from a folder stay until something replaces them. If this run takes a folder, files of wheels stay as
    // well.
    new.origins.retain(|name, origin| origin.sha256.is_none() || !sources.folders.is_empty() || kept.contains(name));
    let changed = new != present || !missing.is_empty() || !sources.folders.is_empty();
    if changed {
        install.run(&sources, &missing, &present, new)?;
    }
    show(&destination, arguments.destination.is_none(), changed, wanted.iter().any(|wheel| wheel.part == Part::Rtx))
}

/// The wheels that these arguments request, and the wheels of parts that an earlier run installed.
fn wanted<'t>(known: &[&'t Wheel], arguments: &Arguments, present: &Record) -> Result<Vec<&'t Wheel>, Failure> {
    let had = |part: Part| known.iter().any(|wheel| wheel.part == part && present.origins.contains_key(&wheel.name()));
    let exists = |part: Part| known.iter().any(|wheel| wheel.part == part);
    for (option, asked, part) in [("--gpu", arguments.gpu, Part::Gpu), ("--rtx", arguments.rtx, Part::Rtx)] {
        if asked && !exists(part) {
            return Err(Failure::Usage(format!("{option}: NVIDIA's libraries are not known for {OS} on {ARCH}")));
        }
    }
    let gpu = arguments.gpu || had(Part::Gpu);
    let rtx = gpu || arguments.rtx || had(Part::Rtx);
    let is_wanted = |wheel: &&&Wheel| match wheel.part {
        Part::Cpu => !gpu,
        Part::Gpu | Part::Provider => gpu,
        Part::Rtx => rtx,
        Part::OpenVino => !arguments.without_openvino,
    };
    Ok(known.iter().filter(is_wanted).copied().collect())
}

/// Where this program looks for the library: its current place, or its place in a release.
fn default_destination() -> Result<PathBuf, Failure> {
    if let Some(tree) = installation::built_in().filter(|tree| tree.is_dir()) {
        let tree = tileforge_files::real_path(tree).unwrap_or_else(|_| tree.to_owned());
        let instead = "`make setup` there installs its libraries; expected --destination for another place";
        return Err(Failure::Usage(format!("this program was built in {}: {instead}", tree.display())));
    }
    let folders = onnxruntime::folders_around_executable();
    if let Some(there) = folders.iter().find(|folder| folder.join(main_library()).is_file()) {
        return Ok(tileforge_files::real_path(there).unwrap_or_else(|_| there.clone()));
    }
    let programs = installation::executable_folder();
    match programs.parent().filter(|_| programs.ends_with("bin")) {
        Some(root) => Ok(root.join("lib").join("tileforge")),
        None => Ok(programs),
    }
}

/// A change of what is installed in a folder.
struct Install<'i> {
    table: &'i Table,
    known: &'i [&'i Wheel],
    destination: &'i Path,
    digests: &'i Digests,
}

impl Install<'_> {
    /// Makes all new files in a staging folder, tests them, and moves them to the destination. `new` holds the kept
    /// files.
    fn run(&self, sources: &Sources<'_>, missing: &[&Wheel], present: &Record, mut new: Record) -> CommandResult {
        let given = |wheel: &Wheel| sources.wheels.iter().find(|(other, _)| other.sha256 == wheel.sha256);
        // A folder with libraries may have all that is missing.
        let absent: Vec<&Wheel> = missing.iter().copied().filter(|wheel| given(wheel).is_none()).collect();
        let is_given = sources.are_named;
        let python = if is_given || absent.is_empty() { None } else { download::python() };
        if !absent.is_empty() && python.is_none() && sources.folders.is_empty() {
            return Err(not_given(&absent, is_given));
        }
        let failed = |error| Failure::file(self.destination, "write into", error);
        let staging = unfinished::folder_in(self.destination).map_err(failed)?;
        let mut fresh = BTreeSet::new();
        let wheels = missing.iter().filter(|wheel| given(wheel).is_some() || python.is_some());
        for wheel in wheels {
            let name = wheel.name();
            let downloads = staging.path().join("downloads");
            let path = match (given(wheel), &python) {
                (Some((_, path)), _) => path.clone(),
                (None, Some(python)) => {
                    unfinished::create_folders(&downloads).map_err(failed)?;
                    report(&format!("downloading {name}"));
                    download::download(python, wheel, &downloads).map_err(Failure::Setup)?
                }
                (None, None) => continue,
            };
            let file = sources::open_pinned(wheel, &path, self.digests).map_err(Failure::Setup)?;
            let at = |reason| Failure::Setup(format!("{}: {reason}", path.display()));
            let files = wheel::unpack(&file, wheel, self.table, staging.path()).map_err(at)?;
            // Removed after each wheel: all wheels together have more than a gigabyte.
            let _ = std::fs::remove_dir_all(&downloads);
            fresh.extend(files.keys().cloned());
            new.replace(name, Origin { sha256: Some(wheel.sha256.clone()), files });
        }
        for folder in &sources.folders {
            let files = sources::copy_libraries(folder, self.known, staging.path()).map_err(Failure::Setup)?;
            fresh.extend(files.keys().cloned());
            new.replace(folder.display().to_string(), Origin { sha256: None, files });
        }
        self.try_out(staging.path(), &fresh, present, &new)?;
        let files: Vec<&str> = fresh.iter().map(String::as_str).collect();
        install::place(staging.path(), self.destination, &files)
            .map_err(|(path, error)| Failure::file(&path, "replace", error))?;
        new.write(self.destination).map_err(Failure::Setup)?;
        let now: BTreeSet<&str> = new.files().collect();
        install::remove(self.destination, present.files().filter(|path| !now.contains(path)));
        Ok(())
    }

    /// Loads the new libraries together with the kept ones, in another process, because a damaged library may end it.
    fn try_out(&self, staging: &Path, fresh: &BTreeSet<String>, present: &Record, new: &Record) -> CommandResult {
        let failed = |error| Failure::file(staging, "read", error);
        let [before, now] = [present, new].map(|record| record.files().collect::<BTreeSet<&str>>());
        for entry in self.destination.read_dir().map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(name) = name.to_str().filter(|name| !fresh.contains(*name)) else { continue };
            // Recorded files that are not part of the new installation are left out.
            let stays = now.contains(name) || !before.contains(name);
            if stays && sources::is_library(name, self.known) {
                tileforge_files::link_or_copy(&self.destination.join(name), &staging.join(name)).map_err(failed)?;
            }
        }
        if !staging.join(main_library()).exists() {
            let expected = format!("expected {} among the libraries, found none", main_library());
            return Err(Failure::Setup(expected));
        }
        let program = std::env::current_exe().map_err(|error| Failure::file(Path::new("runtime"), "find", error))?;
        let mut doctor = Command::new(&program);
        doctor.arg("doctor").arg("--quiet").arg("--ort-lib").arg(staging).env_remove("ORT_DYLIB_PATH");
        let tried = doctor.output().map_err(|error| Failure::file(&program, "run", error))?;
        if tried.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
        let reason = if reason.is_empty() { tried.status.to_string() } else { reason };
        // The staging folder no longer exists when the user reads this.
        let reason = reason.replace(&*staging.to_string_lossy(), &self.destination.to_string_lossy());
        Err(Failure::Setup(format!(
            "the libraries cannot be loaded on this machine, and nothing was changed: {reason}"
        )))
    }
}

fn not_writable(folder: &Path, error: &io::Error) -> Failure {
    let next = "choose a folder of your own with --destination, or run it with the rights to change this one";
    Failure::Setup(format!("{}: cannot write into it: {error}; {next}", folder.display()))
}

/// The error where wheels are missing: `--from` has not all of them, or nothing here can download them.
fn not_given(absent: &[&Wheel], is_given: bool) -> Failure {
    let names: Vec<String> = absent.iter().map(|wheel| format!("  {}", wheel.name())).collect();
    let what = if is_given { "these wheels are missing:" } else { "no Python with pip was found, which downloads:" };
    let next = if is_given { "this command downloads them" } else { "on a machine with Python, this command does" };
    let command = download::command(absent);
    Failure::Setup(format!("{what}\n{}\n{next}; then name their folder with --from:\n  {command}", names.join("\n")))
}

/// Prints what is there now, and what each provider lacks.
fn show(destination: &Path, is_default: bool, changed: bool, rtx: bool) -> CommandResult {
    let place = destination.join(main_library());
    let search = if is_default {
        Search::AroundExecutable
    } else {
        Search::Named { place: destination.to_owned(), by: "--destination" }
    };
    let environment = Environment::new(onnxruntime::load(&search)?);
    let library = environment.library();
    let is = if changed { "is now" } else { "is" };
    let mut lines = vec![format!("ONNX Runtime  {} {is} in {}", library.version(), destination.display())];
    lines.extend(provider_lines(library, environment.probe()));
    print(&lines.join("\n"))?;
    if rtx {
        let licences = destination.join("licences");
        report(&format!("TensorRT for RTX is under NVIDIA's licence, in {}: not to be passed on", licences.display()));
    }
    if let Some(other) = std::env::var_os("ORT_DYLIB_PATH").filter(|other| !other.is_empty())
        && !is_same(Path::new(&other), &place)
    {
        report(&format!("ORT_DYLIB_PATH names {}, which is loaded instead", Path::new(&other).display()));
    } else if !is_default && !is_searched(destination) {
        report(&format!("the programs do not look there by themselves: set ORT_DYLIB_PATH={}", place.display()));
    }
    Ok(())
}

/// Whether a library that the user named, or the folder that holds it, is this one.
fn is_same(named: &Path, library: &Path) -> bool {
    let named = if named.is_dir() { named.join(main_library()) } else { named.to_owned() };
    tileforge_files::is_same_file(&named, library).unwrap_or(false)
}

fn is_searched(destination: &Path) -> bool {
    let folders = onnxruntime::folders_around_executable();
    folders.iter().any(|folder| tileforge_files::is_same_file(folder, destination).unwrap_or(false))
}
