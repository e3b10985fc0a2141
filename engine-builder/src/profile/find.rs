//! Where profiles are found, and which profile suits this machine.

use super::{ComputeCapability, Device, Profile};
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use tileforge_contract::Provider;
use tileforge_files::{installation, is_plain, owner};
use tileforge_session::{Gpu, provider};

/// The profile for this machine.
#[derive(Debug)]
pub struct Here {
    /// The profile's name; `cpu` if no profile suits this machine's GPU.
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
    Err(Error::NoSuchName { name: name_or_path.to_owned(), reason: unknown(name_or_path, &names(), &places()) })
}

/// The message for an unknown profile name, with similar names.
fn unknown(name: &str, known: &[String], places: &[PathBuf]) -> String {
    if known.is_empty() {
        let places = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
        return format!("no such profile; none were found in {places}; give the path of a .yaml file");
    }
    let lower = name.to_ascii_lowercase();
    let alike = |known: &&String| strsim::jaro_winkler(&lower, known);
    let nearest = known.iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
    let instead = match nearest {
        Some(nearest) if *nearest == lower => format!("; it is called {nearest}"),
        _ if lower.starts_with(FAMILY) && known.iter().any(|known| known == FAMILY) => {
            format!("; {FAMILY} builds for every RTX GPU of the series 30, 40 and 50")
        }
        Some(nearest) if alike(&nearest) > ALIKE => format!("; is {nearest} meant?"),
        _ => String::new(),
    };
    format!("no such profile{instead}; known are {}, or give the path of a .yaml file", known.join(", "))
}

/// The profile of every RTX GPU that has no profile of its own.
const FAMILY: &str = "rtx";

/// Names with a lower similarity are not suggested.
const ALIKE: f64 = 0.8;

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

/// The folders of profiles, existing or not: `profiles/` beside the executable, in its installation, and in the source
/// tree that it was built in. The current folder is not included: a profile in a folder of downloaded models must not
/// replace ours.
pub fn places() -> Vec<PathBuf> {
    installation::installed("profiles")
}

fn folders() -> Vec<PathBuf> {
    places().into_iter().filter(|folder| folder.is_dir()).collect()
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

/// The profile of this GPU; else of its family; else of a GPU with the same compute capability.
pub(super) fn of_gpu(gpu: &Gpu, profiles: &[Profile]) -> Here {
    let what = format!("{} (compute capability {})", gpu.name, gpu.compute_capability);
    let has = |profile: &&Profile| profile.device.as_ref().is_some_and(|device| device.is(gpu));
    if let Some(own) = profiles.iter().find(has) {
        return Here { name: own.name.clone(), reason: format!("the first GPU is {what}") };
    }
    let none = format!("no profile has the name of the first GPU, {what}");
    let capability = gpu.compute_capability.parse::<ComputeCapability>().ok();
    let takes = |family: &&Profile| capability.is_some_and(|capability| family.plans_for.contains(&capability));
    if let Some(family) = profiles.iter().find(|profile| profile.name == FAMILY).filter(takes) {
        let reason = format!("{none}: this one is for every GPU of that capability");
        return Here { name: family.name.clone(), reason };
    }
    let alike = profiles.iter().filter_map(|profile| {
        let device = profile.device.as_ref().filter(|_| profile.provider == Provider::TensorRt)?;
        (Some(device.compute_capability) == capability).then_some((profile, device))
    });
    // The profile with the most memory that does not exceed this GPU's memory; else the profile with the least memory.
    let nearness = |bytes: u64| if bytes <= gpu.memory_bytes { (true, bytes) } else { (false, u64::MAX - bytes) };
    match alike.max_by_key(|(_, device)| nearness(device.memory.bytes)) {
        Some((profile, device)) => {
            Here { name: profile.name.clone(), reason: format!("{none}: {} computes alike", device.gpu) }
        }
        None => Here { name: "cpu".into(), reason: format!("{none}: add one to use it") },
    }
}

impl Device {
    /// Whether the driver's name of a GPU stands for this device.
    pub fn is(&self, gpu: &Gpu) -> bool {
        let capability = gpu.compute_capability.parse::<ComputeCapability>();
        capability.is_ok_and(|capability| capability == self.compute_capability)
            && self.driver_names.contains(&gpu.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_a_profile_points_to_the_one_to_take() {
        let known = ["a100", "cpu", "l4", "rtx", "rtx4090", "rtx6000-ada"].map(String::from);
        let told = |name: &str| unknown(name, &known, &[]);
        for name in ["rtx4080", "rtx5080", "RTX3070", "rtx-4070-ti"] {
            assert!(
                told(name).contains("; rtx builds for every RTX GPU of the series 30, 40 and 50; known are"),
                "{name}"
            );
        }
        assert!(told("RTX4090").contains("; it is called rtx4090"), "{}", told("RTX4090"));
        assert!(told("a10").contains("is a100 meant?"), "{}", told("a10"));
        assert!(told("mi300").starts_with("no such profile; known are a100"), "{}", told("mi300"));
        let nowhere = unknown("rtx", &[], &["/opt/bin/profiles".into(), "/opt/share/profiles".into()]);
        assert!(nowhere.contains("none were found in /opt/bin/profiles, /opt/share/profiles"), "{nowhere}");
    }
}
