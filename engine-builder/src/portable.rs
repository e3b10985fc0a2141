//! Whether an engine can be compiled where it is built.
//!
//! TensorRT compiles for one GPU, on a machine that has it. TensorRT for RTX builds plans on any machine that has its
//! library. An engine that could not be compiled is *portable*: it is complete, has passed its gates, and its graphs
//! run on any machine, but nothing in it is compiled.

pub use crate::not_compiled::NotCompiled;
use crate::profile::Profile;
use crate::rtx::{PlanBuilder, PlanProgram};
use crate::{Error, Result};
use tileforge_contract::Provider;
use tileforge_session::{Environment, Gpu};

/// The compiler of a profile's engines on this machine.
#[derive(Debug)]
pub(crate) enum Compiler {
    /// Nothing: the profile needs none.
    Nothing,
    /// TensorRT, on the GPU with this driver index.
    TensorRt(u32),
    /// TensorRT for RTX, without a GPU.
    TensorRtRtx(PlanBuilder),
}

/// The compiler of an engine for `profile` on this machine. `program` builds plans.
///
/// # Errors
/// Why the engine is portable.
pub(crate) fn compiler(
    environment: &Environment,
    profile: &Profile,
    program: Option<&PlanProgram>,
) -> Result<Compiler, NotCompiled> {
    match profile.provider {
        Provider::Cuda | Provider::OpenVino | Provider::Cpu => Ok(Compiler::Nothing),
        Provider::TensorRt => match gpu_of(environment, profile).map_err(NotCompiled::Here)? {
            Some(gpu) => Ok(Compiler::TensorRt(gpu)),
            None => Ok(Compiler::Nothing),
        },
        Provider::TensorRtRtx => {
            let program = program.ok_or_else(|| NotCompiled::Here("this program builds no plans".into()))?;
            PlanBuilder::beside(environment.library(), program)
                .map(Compiler::TensorRtRtx)
                .map_err(NotCompiled::NoBuilder)
        }
    }
}

/// The driver index of this machine's GPU that TensorRT compiles an engine of `profile` on.
fn gpu_of(environment: &Environment, profile: &Profile) -> Result<Option<u32>, String> {
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

/// Checks that an engine of `profile` can be compiled here.
///
/// # Errors
/// The engine would be portable, with the reason.
pub fn require_compiled(environment: &Environment, profile: &Profile, program: Option<&PlanProgram>) -> Result<()> {
    let refused = |reason| Error::Portable { profile: profile.name.clone(), reason };
    compiler(environment, profile, program).map(drop).map_err(refused)
}

/// Checks that an engine of `profile` will have its plans, if it consists of plans. Plans are built without a GPU, so
/// the caller expects them.
///
/// # Errors
/// NVIDIA's builder cannot be used, with the reason.
pub fn require_plans(environment: &Environment, profile: &Profile, program: Option<&PlanProgram>) -> Result<()> {
    match require_compiled(environment, profile, program) {
        Err(missing @ Error::Portable { reason: NotCompiled::NoBuilder(_), .. }) => Err(missing),
        _ => Ok(()),
    }
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
        let gpu = |name: &str| Gpu { name: name.into(), compute_capability: "9.0".into(), memory_bytes: 1 };
        let reason = |gpus| gpu_here(&profile("h100"), &gpus).unwrap_err();
        assert_eq!(
            reason(Err("no driver".into())),
            "there is no NVIDIA H100 here: the NVIDIA driver cannot be used: no driver"
        );
        assert!(reason(Ok(vec![gpu("NVIDIA L40S")])).ends_with("found NVIDIA L40S (9.0)"));
        assert!(reason(Ok(Vec::new())).ends_with("found no GPU at all"));
        assert_eq!(gpu_here(&profile("h100"), &Ok(vec![gpu("NVIDIA L40S"), gpu("NVIDIA H100 PCIe")])), Ok(Some(1)));
        assert_eq!(gpu_here(&profile("cpu"), &Err("no driver".into())), Ok(None));
    }

    #[test]
    fn plans_need_a_program_and_the_library() {
        let profile = Profile::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../profiles/rtx4090.yaml")).unwrap();
        let none = compiler(&crate::tests::environment(), &profile, None).unwrap_err();
        assert_eq!(none.to_string(), "this program builds no plans");
        let program = PlanProgram { program: "engine-builder".into(), arguments: Vec::new(), library: None };
        let error = PlanBuilder::new(&program, Path::new("/nowhere")).unwrap_err();
        assert!(matches!(
            error,
            tileforge_tensorrt::Error::LibraryMissing { .. } | tileforge_tensorrt::Error::NotCompiledIn
        ));
    }

    #[test]
    fn an_engine_is_compiled_where_the_environment_has_its_gpu() {
        let profile = Profile::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../profiles/h100.yaml")).unwrap();
        let gpu = Gpu { name: "NVIDIA H100 PCIe".into(), compute_capability: "9.0".into(), memory_bytes: 1 };
        let status = |usable| ProviderStatus {
            provider: Provider::TensorRt,
            compiled_in: true,
            usable,
            reason: "no TensorRT".into(),
        };
        let of = |probe| gpu_of(&crate::tests::environment().with_probe(probe), &profile);
        let with = |usable| Probe { providers: vec![status(usable)], gpus: vec![gpu.clone()], ..Probe::default() };
        assert_eq!(of(with(true)), Ok(Some(0)));
        assert_eq!(of(with(false)), Err("no TensorRT".into()));
        assert!(of(Probe::default()).unwrap_err().ends_with("found no GPU at all"));
        let broken = Probe { driver_problem: Some("no driver".into()), ..Probe::default() };
        assert!(of(broken).unwrap_err().ends_with("cannot be used: no driver"));
    }
}
