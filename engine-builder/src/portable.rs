//! Whether an engine can be compiled where it is built.
//!
//! TensorRT's code is for one GPU: it is made on a machine that has that GPU, from the graphs that the engine holds. An engine without it is
//! *portable*: it is whole, its gates were passed, and the graphs run on any machine.

use crate::profile::Profile;
use crate::{Error, Result};
use runtime::provider::{self, Gpu, Provider};

/// Why an engine of `profile` that is built here is portable; `None` if there is nothing to compile.
pub fn reason_for_portable(profile: &Profile) -> Option<String> {
    portable_because(profile, &provider::gpus())
}

fn portable_because(profile: &Profile, gpus: &Result<Vec<Gpu>, String>) -> Option<String> {
    let device = profile.device.as_ref().filter(|_| profile.provider == Provider::TensorRt)?;
    let here = match gpus {
        Err(problem) => return Some(format!("there is no {} here: the NVIDIA driver cannot be used: {problem}", device.gpu)),
        Ok(gpus) => gpus,
    };
    if here.iter().any(|gpu| device.is(gpu)) {
        return Some(format!("this version does not compile engines while it builds them, although there is a {} here", device.gpu));
    }
    let names: Vec<String> = here.iter().map(|gpu| format!("{} ({})", gpu.name, gpu.compute_capability)).collect();
    let found = if names.is_empty() { "no GPU at all".into() } else { names.join(", ") };
    Some(format!("expected a {} (compute capability {}) here, found {found}", device.gpu, device.compute_capability))
}

/// That an engine of `profile` will not be portable.
///
/// # Errors
/// It will be, with the reason: the machine does not fit.
pub fn require_compiled(profile: &Profile) -> Result<()> {
    match reason_for_portable(profile) {
        None => Ok(()),
        Some(reason) => Err(Error::Runtime(runtime::Error::DoesNotFit(format!(
            "{}: an engine cannot be compiled here: {reason}; build it on that machine, or without --require-compiled for a portable one",
            profile.name
        )))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_reason_names_what_is_here() {
        let profile = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../profiles/{name}.yaml"));
            Profile::read(path.to_str().unwrap()).unwrap()
        };
        let gpu = |name: &str| Gpu { name: name.into(), compute_capability: "8.9".into(), memory_bytes: 1 };
        let reason = |gpus| portable_because(&profile("l4"), &gpus).unwrap();
        assert_eq!(reason(Err("no driver".into())), "there is no NVIDIA L4 here: the NVIDIA driver cannot be used: no driver");
        assert!(reason(Ok(vec![gpu("NVIDIA L40S")])).ends_with("found NVIDIA L40S (8.9)"));
        assert!(reason(Ok(Vec::new())).ends_with("found no GPU at all"));
        assert!(reason(Ok(vec![gpu("NVIDIA L40S"), gpu("NVIDIA L4")])).contains("does not compile"));
        assert_eq!(portable_because(&profile("cpu"), &Err("no driver".into())), None);
    }
}
