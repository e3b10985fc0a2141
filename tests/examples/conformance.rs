//! Checks the provider options that profiles produce with ONNX Runtime's own parsers: `make conformance`.
//!
//! Each check runs in a child process, because it loads the providers' libraries, and because NVIDIA's libraries are
//! stubs (`tests/conformance/`) that compute nothing. It shows that names are known and values well formed. It shows
//! nothing about any GPU.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use end_to_end::{command, engine_of, repository, words};
use std::process::{Command, ExitCode};
use tileforge_contract::Provider;
use tileforge_engine_builder::Profile;
use tileforge_engine_builder::profile::{ProviderOptions, names};
use tileforge_session::provider;

fn options_of(profile: &str, provider: Provider) -> ProviderOptions {
    let profile = Profile::read(profile).unwrap_or_else(|error| fail(&error));
    match provider {
        Provider::TensorRtRtx => profile.tensorrt_rtx_options(),
        Provider::TensorRt => profile.tensorrt_options(),
        Provider::Cuda => profile.cuda_options(),
        Provider::OpenVino | Provider::Cpu => ProviderOptions::new(),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    println!("{error}");
    std::process::exit(1)
}

/// In the child: passes a profile's options to the parser, with one of them changed.
fn ask(profile: &str, provider: &str, change: &str) -> ExitCode {
    let provider: Provider = provider.parse().unwrap_or_else(|error: String| fail(&error));
    let options = options_of(profile, provider);
    let (name, value) = change.split_once('=').unwrap_or_default();
    let changed = options.iter().map(|(name, value)| (*name, value.as_str())).filter(|(known, _)| *known != name);
    let changed = changed.chain((!name.is_empty()).then_some((name, value)));
    match provider::check_options(end_to_end::environment().library(), provider, changed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// The output of the child: nothing if the options are accepted.
fn answer(profile: &str, provider: Provider, change: &str) -> Result<(), String> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args([profile, provider.name(), change]).output().unwrap();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        _ => Err(format!("the process died ({}): {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// How the runtime judges an engine for a GPU, where the GPU library is installed and NVIDIA's libraries are missing,
/// or are stubs without a device. Returns what it did wrong.
fn ladder() -> Vec<String> {
    let (_folder, engine) = engine_of(&repository("models/compact-x4.yaml"), "profiles/t4.yaml");
    let work = tempfile::tempdir().unwrap();
    let picture = work.path().join("small.png");
    let output = work.path().join("large.png");
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(0, 0, 64, 64).save(&picture).unwrap();
    let infer = |more: &'static str| {
        let line = words(&[&"infer", &"--engine", &engine, &"--input", &picture, &"--output", &output]);
        line.into_iter().chain(more.split_whitespace().map(Into::into)).collect::<Vec<_>>()
    };
    let mut failures = Vec::new();
    for (libraries, stubs, reason) in [
        ("none", false, "libcudart.so.13 is missing: install the CUDA 13 runtime"),
        ("stubs", true, "cuInit failed with code 100 (no device)"),
    ] {
        let questions = [
            (words(&[&"doctor"]), 0, "", reason),
            (words(&[&"doctor", &"--engine", &engine]), 0, "", "falls back to cpu, because tensorrt: "),
            (
                words(&[&"doctor", &"--engine", &engine, &"--provider", &"tensorrt"]),
                3,
                reason,
                "refused, because tensorrt: ",
            ),
            (infer("--provider tensorrt --strict"), 3, reason, ""),
            (infer("--provider cuda"), 3, reason, ""),
            (infer("--strict"), 3, "leave out --strict", ""),
            (infer(""), 0, reason, " on CPU"),
        ];
        for (line, code, talk, result) in questions {
            let mut command = command("runtime", &line);
            if !stubs {
                command.env_remove("LD_LIBRARY_PATH");
            }
            let outcome = command.output().unwrap();
            let (said, found) = (String::from_utf8_lossy(&outcome.stderr), String::from_utf8_lossy(&outcome.stdout));
            if outcome.status.code() != Some(code) || !said.contains(talk) || !found.contains(result) {
                failures.push(format!(
                    "libraries: {libraries}: {line:?}: expected code {code}, `{talk}` and `{result}`, found {}, \
                     {said}{found}",
                    outcome.status
                ));
            }
        }
    }
    println!("14 questions to the runtime without a GPU, {} wrong answers", failures.len());
    failures
}

/// The provider of TensorRT for RTX: its plugin can be registered with ONNX Runtime, and its header has the names of
/// the options that we set. Its own parser reads options for a device only. Returns what is wrong.
fn tensorrt_rtx() -> Vec<String> {
    let folder = end_to_end::environment().library().path().with_file_name("");
    let header = folder.join("../include/tensorrt_rtx_provider_options.h");
    let header = std::fs::read_to_string(&header).unwrap_or_else(|error| fail(&format!("{header:?}: {error}")));
    // constexpr const char* kCudaGraphEnable = "enable_cuda_graph";
    let known: Vec<&str> = header
        .lines()
        .filter(|line| line.starts_with("constexpr const char* "))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    let profile = Profile::read("rtx4090").unwrap();
    let ours = profile.tensorrt_rtx_options().into_keys().chain([tileforge_session::RUNTIME_CACHE_OPTION]);
    let unknown = ours.filter(|name| !known.contains(name));
    let mut failures: Vec<String> =
        unknown.map(|name| format!("tensorrt-rtx: no option {name} in its header")).collect();
    // In a process of its own, because it loads the plugin. The first has no driver's library at all.
    for (stubs, expected) in [(false, Some("libcuda.so.1: cannot open shared object file")), (true, None)] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("register");
        // The plugin links to libraries beside it.
        let stubs = if stubs { std::env::var("LD_LIBRARY_PATH").unwrap() + ":" } else { String::new() };
        let output = command.env("LD_LIBRARY_PATH", format!("{stubs}{}", folder.display())).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let right = match expected {
            None => output.status.success(),
            // Without the stubs, the first missing library may also be the CUDA runtime, which comes with them.
            Some(words) => !output.status.success() && (said.contains(words) || said.contains("libcudart.so.13")),
        };
        if !right {
            let talk = String::from_utf8_lossy(&output.stderr);
            failures.push(format!("registration: expected {expected:?}, found {}: {said}{talk}", output.status));
        }
    }
    println!("{} options of the TensorRT-RTX provider and 2 registrations, {} wrong", 2, failures.len());
    failures
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["register"] {
        return match end_to_end::environment().library().register_tensorrt_rtx() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        };
    }
    if let [profile, provider, change] = arguments.as_slice() {
        return ask(profile, provider, change);
    }
    let mut failures = Vec::new();
    let mut asked = 0;
    let mut expect = |profile: &str, provider: Provider, change: &str, refusal: Option<&str>| {
        asked += 1;
        match (answer(profile, provider, change), refusal) {
            (Ok(()), None) => {}
            (Err(said), Some(words)) if said.contains(words) => {}
            (Ok(()), Some(words)) => {
                failures.push(format!("{profile}, {provider}: {change} was taken; expected `{words}`"))
            }
            (Err(said), _) => failures.push(format!("{profile}, {provider}: {change}: {said}")),
        }
    };
    let profiles = names();
    for profile in profiles.iter().filter(|name| *name != "cpu") {
        expect(profile, Provider::TensorRt, "", None);
        expect(profile, Provider::Cuda, "", None);
    }
    // The parser is really asked: it refuses wrong options, in its own words.
    expect("rtx4090", Provider::TensorRt, "trt_builder_optimisation_level=3", Some("Unknown provider option"));
    expect("rtx4090", Provider::TensorRt, "trt_cuda_graph_enable=perhaps", Some("Failed to parse provider option"));
    expect("rtx4090", Provider::TensorRt, "trt_max_workspace_size=4 GiB", Some("Failed to parse provider option"));
    expect("rtx4090", Provider::Cuda, "use_tf33=1", Some("Unknown provider option"));
    expect("rtx4090", Provider::Cuda, "cudnn_conv_algo_search=FASTEST", Some("Failed to"));
    // The parser accepts these wrong options, which is why we check profiles ourselves.
    expect("rtx4090", Provider::TensorRt, "trt_builder_optimization_level=99", None);
    println!("{asked} questions about {} profiles, {} wrong answers", profiles.len() - 1, failures.len());
    failures.extend(ladder());
    failures.extend(tensorrt_rtx());
    for failure in &failures {
        println!("{failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
