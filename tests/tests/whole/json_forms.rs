//! The forms of what the commands print with `--json`, which scripts of users read: which keys there are, and the type
//! of each value.

use end_to_end::{GoldenPipelines, LocalRegistry, demo_engine, repository, run, words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use tileforge_contract::DataType;
use tileforge_runtime::tensor_file::{Stored, write};

/// Values of `runtime doctor` whose types and keys depend on the machine: its GPU, its drivers, its libraries.
const OF_THE_MACHINE: [&str; 6] =
    ["driver_cuda_version", "driver_problem", "gpus", "jetson", "tensorrt_rtx_version", "to_do"];

/// Adds a line for each value: the keys on the way to it, and its type. An array has the form of its first element.
fn describe(path: &str, value: &Value, lines: &mut Vec<String>) {
    let type_name = match value {
        _ if OF_THE_MACHINE.contains(&path) => "depends on the machine",
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(elements) => match elements.first() {
            Some(first) => return describe(&format!("{path}[]"), first, lines),
            None => "empty array",
        },
        Value::Object(entries) if entries.is_empty() => "empty object",
        Value::Object(entries) => {
            let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
            return entries.iter().for_each(|(key, value)| describe(&format!("{prefix}{key}"), value, lines));
        }
    };
    lines.push(format!("{path}: {type_name}"));
}

/// The form of a command's JSON: its lines, sorted.
fn form(program: &str, line: &[&dyn AsRef<OsStr>]) -> String {
    let outcome = run(program, words(line).into_iter().chain(["--json".into()]));
    let mut lines = Vec::new();
    describe("", &outcome.success().json(), &mut lines);
    lines.sort_unstable();
    lines.join("\n  ")
}

#[test]
fn the_json_of_every_command_for_the_demo_engine_keeps_its_form() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let [photo, darker, large] = ["photo.png", "darker.png", "large.png"].map(at);
    let cut = image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, 60, 45);
    cut.save(&photo).unwrap();
    cut.brighten(-9).save(&darker).unwrap();
    let [tensors, sent] = ["in.safetensors", "out.safetensors"].map(at);
    let stored = Stored { data_type: DataType::F32, shape: vec![1, 3, 24, 24], bytes: vec![0; 4 * 3 * 24 * 24] };
    write(&tensors, &[("image".to_owned(), stored)], &BTreeMap::new()).unwrap();
    let (engine, built, again, pulled) = (demo_engine(), at("built"), at("again"), at("pulled"));
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/small-tiles.yaml"));
    let fleet = at("fleet.yaml");
    fs::write(&fleet, format!("cards: [h100]\nmodels: [{}]\n", model.display())).unwrap();
    let registry = LocalRegistry::start(false);
    let reference = registry.reference("compact:1.0");

    // Figures of few runs suffice: only their names count.
    let bench = |more: &'static [&'static str]| {
        let line: [&dyn AsRef<OsStr>; 11] = [
            &"bench",
            &"--engine",
            &engine,
            &"--size",
            &"24x24",
            &"--runs",
            &"1",
            &"--warm-up",
            &"0",
            &"--passes",
            &"1",
        ];
        line.into_iter().chain(more.iter().map(|word| word as &dyn AsRef<OsStr>)).collect::<Vec<_>>()
    };
    let commands: Vec<(&str, &str, Vec<&dyn AsRef<OsStr>>)> = vec![
        ("runtime", "infer", vec![&"infer", &"--engine", &engine, &"--input", &photo, &"--output", &large]),
        ("runtime", "run", vec![&"run", &"--engine", &engine, &"--input", &tensors, &"--output", &sent]),
        ("runtime", "bench", bench(&[])),
        ("runtime", "bench --sweep", bench(&["--sweep"])),
        ("runtime", "bench --profile", bench(&["--profile"])),
        ("runtime", "evaluate", vec![&"evaluate", &"--engine", &engine, &"--input", &photo]),
        ("runtime", "compare", vec![&"compare", &photo, &darker]),
        ("runtime", "inspect", vec![&"inspect", &"--engine", &engine]),
        ("runtime", "verify", vec![&"verify", &"--engine", &engine]),
        ("runtime", "warm", vec![&"warm", &"--engine", &engine]),
        ("runtime", "doctor", vec![&"doctor", &"--engine", &engine]),
        ("engine-builder", "build", vec![&"build", &model, &"--profile", &profile, &"-o", &built]),
        ("engine-builder", "rebuild", vec![&"rebuild", &built, &"--profile", &"cpu", &"-o", &again]),
        ("engine-builder", "diff", vec![&"diff", &built, &again]),
        ("engine-builder", "lint", vec![&"lint", &"--target", &"tensorrt-11", &engine]),
        ("engine-builder", "plan", vec![&"plan", &fleet]),
        ("engine-builder", "models", vec![&"models", &"compact-x4"]),
        ("engine-builder", "profiles", vec![&"profiles", &"cpu"]),
        ("engine-builder", "push", vec![&"push", &engine, &reference]),
        ("runtime", "pull", vec![&"pull", &reference, &"-o", &pulled]),
        ("runtime", "pull --list", vec![&"pull", &reference, &"--list"]),
        ("exporter", "inspect", vec![&"inspect", &model]),
    ];
    let forms = commands.iter().map(|(program, name, line)| format!("{program} {name}\n  {}", form(program, line)));
    insta::assert_snapshot!(forms.collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_json_of_the_commands_for_a_pipeline_keeps_its_form() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let engine = GoldenPipelines::read().engine(work.path(), "sd");
    let [photo, fox, latent, decoded] = ["photo.png", "fox.png", "latent.safetensors", "decoded.png"].map(at);
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, 64, 48).save(&photo).unwrap();
    let fox: Vec<&dyn AsRef<OsStr>> = vec![
        &"generate",
        &"--engine",
        &engine,
        &"--output",
        &fox,
        &"--prompt",
        &"a fox",
        &"--seed",
        &"1",
        &"--steps",
        &"2",
    ];
    let commands: Vec<(&str, Vec<&dyn AsRef<OsStr>>)> = vec![
        ("generate", fox),
        ("encode", vec![&"encode", &"--engine", &engine, &"--input", &photo, &"--output", &latent]),
        ("decode", vec![&"decode", &"--engine", &engine, &"--input", &latent, &"--output", &decoded]),
        ("roundtrip", vec![&"roundtrip", &"--engine", &engine, &"--input", &photo]),
        ("inspect", vec![&"inspect", &"--engine", &engine]),
        ("verify", vec![&"verify", &"--engine", &engine]),
        ("warm", vec![&"warm", &"--engine", &engine]),
        ("doctor", vec![&"doctor", &"--engine", &engine]),
    ];
    let forms = commands.iter().map(|(name, line)| format!("runtime {name}\n  {}", form("runtime", line)));
    insta::assert_snapshot!(forms.collect::<Vec<_>>().join("\n"));
}
