//! Whether an engine can be compiled where it is built.
//!
//! TensorRT compiles for one GPU, on a machine that has it. An engine that was built elsewhere is *portable*: it is
//! complete, has passed its gates, and its graphs run on any machine, but nothing in it is compiled.

use crate::profile::Profile;
use crate::{Error, Result};
use tileforge_contract::Provider;
use tileforge_session::{Environment, Gpu};

/// The number (of the driver) of this machine's GPU that an engine of `profile` is compiled on; `None` for a profile
/// that needs no compiling.
///
/// # Errors
/// Why the engine is portable.
pub fn compiles_on(environment: &Environment, profile: &Profile) -> Result<Option<u32>, String> {
    if profile.provider != Provider::TensorRt {
        return Ok(None);
    }
    let probe = environment.probe();
    let gpus = probe.driver_problem.clone().map_or_else(|| Ok(probe.gpus.clone()), Err);
    let gpu = gpu_here(profile, &gpus)?;
    let missing = if gpu.is_some() { probe.reason_against(Provider::TensorRt) } else { String::new() };
    if missing.is_empty() { Ok(gpu) } else { Err(missing) }
}

fn gpu_here(profile: &Profile, gpus: &Result<Vec<Gpu>, String>) -> Result<Option<u32>, String> {
    let Some(device) = profile.device.as_ref().filter(|_| profile.provider == Provider::TensorRt) else {
        return Ok(None);
    };
    let here = gpus
        .as_ref()
        .map_err(|problem| format!("there is no {} here: the NVIDIA driver cannot be used: {problem}", device.gpu))?;
    if let Some(number) = (0..).zip(here).find_map(|(number, gpu)| device.is(gpu).then_some(number)) {
        return Ok(Some(number));
    }
    let names: Vec<String> = here.iter().map(|gpu| format!("{} ({})", gpu.name, gpu.compute_capability)).collect();
    let found = if names.is_empty() { "no GPU at all".into() } else { names.join(", ") };
    Err(format!("expected a {} (compute capability {}) here, found {found}", device.gpu, device.compute_capability))
}

/// Checks that an engine of `profile` will not be portable.
///
/// # Errors
/// The engine will be portable, with the reason.
pub fn require_compiled(environment: &Environment, profile: &Profile) -> Result<()> {
    let refused = |reason| Error::Portable { profile: profile.name.clone(), reason };
    compiles_on(environment, profile).map(drop).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tileforge_session::Probe;
    use tileforge_session::provider::ProviderStatus;

    #[test]
    fn the_reason_names_what_is_here() {
        let profile = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../profiles/{name}.yaml"));
            Profile::read(path.to_str().unwrap()).unwrap()
        };
        let gpu = |name: &str| Gpu { name: name.into(), compute_capability: "8.9".into(), memory_bytes: 1 };
        let reason = |gpus| gpu_here(&profile("l4"), &gpus).unwrap_err();
        assert_eq!(
            reason(Err("no driver".into())),
            "there is no NVIDIA L4 here: the NVIDIA driver cannot be used: no driver"
        );
        assert!(reason(Ok(vec![gpu("NVIDIA L40S")])).ends_with("found NVIDIA L40S (8.9)"));
        assert!(reason(Ok(Vec::new())).ends_with("found no GPU at all"));
        assert_eq!(gpu_here(&profile("l4"), &Ok(vec![gpu("NVIDIA L40S"), gpu("NVIDIA L4")])), Ok(Some(1)));
        assert_eq!(gpu_here(&profile("cpu"), &Err("no driver".into())), Ok(None));
    }

    #[test]
    fn an_engine_is_compiled_where_the_environment_has_its_gpu() {
        let profile = Profile::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../profiles/l4.yaml")).unwrap();
        let gpu = Gpu { name: "NVIDIA L4".into(), compute_capability: "8.9".into(), memory_bytes: 1 };
        let status = |usable| ProviderStatus {
            provider: Provider::TensorRt,
            compiled_in: true,
            usable,
            reason: "no TensorRT".into(),
        };
        let of = |probe| compiles_on(&crate::tests::environment().with_probe(probe), &profile);
        let with = |usable| Probe { providers: vec![status(usable)], gpus: vec![gpu.clone()], ..Probe::default() };
        assert_eq!(of(with(true)), Ok(Some(0)));
        assert_eq!(of(with(false)), Err("no TensorRT".into()));
        assert!(of(Probe::default()).unwrap_err().ends_with("found no GPU at all"));
        let broken = Probe { driver_problem: Some("no driver".into()), ..Probe::default() };
        assert!(of(broken).unwrap_err().ends_with("cannot be used: no driver"));
    }
}
