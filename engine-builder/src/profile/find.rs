//! Where profiles are, and which one fits this machine.

use super::{ComputeCapability, Device, Profile};
use crate::{Error, Result};
use std::path::{Path, PathBuf};
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
    if let Some(path) = folders().iter().map(|folder| folder.join(&file)).find(|path| path.is_file()) {
        return Ok(path);
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

/// The folders `profiles/` below the current folder, beside the executable, and in any folder above it.
fn folders() -> Vec<PathBuf> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    std::iter::once(Path::new("profiles").to_owned())
        .chain(executable.ancestors().skip(1).map(|folder| folder.join("profiles")))
        .filter(|folder| folder.is_dir())
        .collect()
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
