//! Where profiles are, and which one fits this machine.

use super::{ComputeCapability, Device, Profile};
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use tileforge_files::{is_plain, owner};
use tileforge_session::{Gpu, provider};

/// The profile for this machine.
#[derive(Debug)]
pub struct Here {
    /// The profile's name; `cpu` if no GPU of this machine has a profile.
    pub name: String,
    /// How it was found, in a sentence.
    pub reason: String,
}

/// The path of a profile: the path itself if it ends in `.yaml`, or the path of a name in the folders of profiles.
pub(super) fn path_of(name_or_path: &str) -> Result<PathBuf> {
    if name_or_path.ends_with(".yaml") {
        return Ok(PathBuf::from(name_or_path));
    }
    let file = format!("{name_or_path}.yaml");
    if !is_plain(name_or_path) {
        let reason = "expected the name of a profile, or the path of a .yaml file";
        return Err(Error::input(Path::new(name_or_path), reason));
    }
    if let Some(path) = folders().iter().map(|folder| folder.join(&file)).find(|path| path.is_file()) {
        return match owner::check(&path).map_err(|source| Error::file(&path, "inspect", source))? {
            Ok(()) => Ok(path),
            Err(untrusted) => Err(Error::input(
                &path,
                format!("is not used, because others can change it ({untrusted}); give the path of a .yaml file"),
            )),
        };
    }
    let known = names();
    let known = if known.is_empty() {
        "there is no folder `profiles`".into()
    } else {
        format!("known are {}", known.join(", "))
    };
    Err(Error::input(Path::new(name_or_path), format!("no such profile; {known}, or give the path of a .yaml file")))
}

/// The names of all profiles, sorted.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in folders().iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The source tree that this crate was compiled in.
const SOURCE_TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The folders `profiles/` beside the executable, of its installation, and of the source tree that it was built in. The
/// current folder is not among them: whoever downloads a model there does not want its profiles instead of ours.
fn folders() -> Vec<PathBuf> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let beside = executable.parent().into_iter();
    let beside = beside.flat_map(|folder| [folder.join("profiles"), folder.join("../share/tileforge/profiles")]);
    beside.chain([Path::new(SOURCE_TREE).join("profiles")]).filter(|folder| folder.is_dir()).collect()
}

/// Asks the driver for the first GPU and looks for its profile.
///
/// # Errors
/// A profile cannot be read.
pub fn here() -> Result<Here> {
    let gpus = match provider::gpus() {
        Ok(gpus) => gpus,
        Err(problem) => return Ok(Here { name: "cpu".into(), reason: format!("no GPU here: {problem}") }),
    };
    let Some(gpu) = gpus.first() else {
        return Ok(Here { name: "cpu".into(), reason: "the driver sees no GPU".into() });
    };
    let profiles = names().iter().map(|name| Profile::read(name)).collect::<Result<Vec<Profile>>>()?;
    Ok(of_gpu(gpu, &profiles))
}

pub(super) fn of_gpu(gpu: &Gpu, profiles: &[Profile]) -> Here {
    let found = profiles.iter().find(|profile| profile.device.as_ref().is_some_and(|device| device.is(gpu)));
    let what = format!("{} (compute capability {})", gpu.name, gpu.compute_capability);
    match found {
        Some(profile) => Here { name: profile.name.clone(), reason: format!("the first GPU is {what}") },
        None => Here {
            name: "cpu".into(),
            reason: format!("no profile has the name of the first GPU, {what}: add one to use it"),
        },
    }
}

impl Device {
    /// Whether a name of the driver stands for this device.
    pub fn is(&self, gpu: &Gpu) -> bool {
        let capability = gpu.compute_capability.parse::<ComputeCapability>();
        capability.is_ok_and(|capability| capability == self.compute_capability)
            && self.driver_names.contains(&gpu.name)
    }
}
