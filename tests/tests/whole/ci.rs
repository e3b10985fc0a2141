//! The action and the job that users add to their CI, run step by step as the CI systems run them.

use end_to_end::{Outcome, copied_engine, demo_engine, new_key, repository, run, words};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(repository(path)).unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a text, found {value}"))
}

/// The names of the action's inputs and the variables of the job that stand for them.
const INPUTS: [(&str, &str); 12] = [
    ("engine", "TILEFORGE_ENGINE"),
    ("pictures", "TILEFORGE_PICTURES"),
    ("results", "TILEFORGE_RESULTS"),
    ("require-signature", "TILEFORGE_REQUIRE_SIGNATURE"),
    ("provider", "TILEFORGE_PROVIDER"),
    ("expected", "TILEFORGE_EXPECTED"),
    ("minimum-psnr", "TILEFORGE_MINIMUM_PSNR"),
    ("baseline", "TILEFORGE_BASELINE"),
    ("threshold", "TILEFORGE_THRESHOLD"),
    ("infer-options", "TILEFORGE_INFER_OPTIONS"),
    ("bench-options", "TILEFORGE_BENCH_OPTIONS"),
    ("runtime", "TILEFORGE_RUNTIME"),
];

/// A shell in `work` that has the programs on its path.
fn shell(work: &Path) -> Command {
    let runtime = end_to_end::command("runtime", [""; 0]);
    let programs = Path::new(runtime.get_program()).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.current_dir(work).env("PATH", path).env("XDG_CACHE_HOME", work).env("CUDA_VISIBLE_DEVICES", "");
    command
}

/// Runs a CI system's steps with the values of some inputs in `work`.
type System = fn(&Path, &[(&str, &str)]) -> Outcome;

/// Runs the steps of the action in order, until one fails.
fn github(work: &Path, given: &[(&str, &str)]) -> Outcome {
    let action = yaml("ci/github/action.yml");
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for (name, input) in action["inputs"].as_object().unwrap() {
        let value = given.iter().find(|(given, _)| given == name).map(|(_, value)| *value);
        let value = value.or_else(|| input.get("default").map(text));
        known.insert(format!("inputs.{name}"), value.unwrap_or_else(|| panic!("{name} is required")).to_owned());
    }
    let mut all = Outcome { code: 0, stdout: String::new(), stderr: String::new() };
    for step in action["runs"]["steps"].as_array().unwrap() {
        assert_eq!(text(&step["shell"]), "bash");
        let outputs = work.join("outputs");
        fs::write(&outputs, "").unwrap();
        let mut command = shell(work);
        // As GitHub starts a script with `shell: bash`.
        command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", text(&step["run"])]);
        command.env("GITHUB_OUTPUT", &outputs);
        for (name, value) in step["env"].as_object().unwrap() {
            let expression = text(value).strip_prefix("${{ ").and_then(|rest| rest.strip_suffix(" }}")).unwrap();
            command.env(name, known.get(expression).unwrap_or_else(|| panic!("unknown {expression}")));
        }
        let done = Outcome::of(&mut command);
        all = Outcome { code: done.code, stdout: all.stdout + &done.stdout, stderr: all.stderr + &done.stderr };
        for line in fs::read_to_string(&outputs).unwrap().lines() {
            let (name, value) = line.split_once('=').unwrap();
            known.insert(format!("steps.{}.outputs.{name}", text(&step["id"])), value.to_owned());
        }
        if all.code != 0 {
            return all;
        }
    }
    for (name, output) in action["outputs"].as_object().unwrap() {
        let expression = text(&output["value"]).trim_start_matches("${{ ").trim_end_matches(" }}");
        let path = work.join(known.get(expression).unwrap_or_else(|| panic!("{name}: unknown {expression}")));
        assert!(path.exists(), "{name}: {}", path.display());
    }
    all
}

/// Runs the script of the job.
fn gitlab(work: &Path, given: &[(&str, &str)]) -> Outcome {
    let job = yaml("ci/gitlab/engine.yml")[".tileforge-engine"].clone();
    // Runners start `sh` where an image has no bash.
    let script = job["script"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join("\n");
    let mut command = shell(work);
    command.args(["-e", "-c", &script]);
    for (variable, value) in job["variables"].as_object().unwrap() {
        let (name, _) = INPUTS.iter().find(|(_, of_job)| of_job == variable).unwrap();
        let value = given.iter().find(|(given, _)| given == name).map_or_else(|| text(value), |(_, value)| *value);
        command.env(variable, value);
    }
    Outcome::of(&mut command)
}

const SYSTEMS: [(&str, System); 2] = [("github", github), ("gitlab", gitlab)];

/// A folder with a small picture.
fn pictures(work: &Path) -> PathBuf {
    let folder = work.join("pictures");
    fs::create_dir(&folder).unwrap();
    let photo = image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, 40, 30);
    photo.save(folder.join("a b.png")).unwrap();
    folder
}

/// Short options, so that no test takes long.
const QUICK: (&str, &str) = ("bench-options", "--size 48x48 --runs 2 --warm-up 1 --passes 1");

#[test]
fn a_signed_archive_is_unpacked_run_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let engine = copied_engine(folder.path());
    let [key, public] = new_key(folder.path(), "ours");
    let [_, foreign] = new_key(folder.path(), "theirs");
    let _ = run("engine-builder", words(&[&"sign", &engine, &"--key", &key])).success();
    let archive = folder.path().join("engine.tar");
    let _ = run("engine-builder", words(&[&"pack", &engine, &"-o", &archive])).success();
    let pictures = pictures(folder.path());
    let as_text = |path: &Path| path.to_str().unwrap().to_owned();
    let (archive, pictures, public, foreign) =
        (as_text(&archive), as_text(&pictures), as_text(&public), as_text(&foreign));
    for (name, system) in SYSTEMS {
        let work = folder.path().join(name);
        fs::create_dir(&work).unwrap();
        let given = [("engine", archive.as_str()), ("pictures", &pictures), ("require-signature", &public), QUICK];
        let _ = system(&work, &given).success();
        let results = work.join("tileforge-results");
        let report: Value = serde_json::from_slice(&fs::read(results.join("infer.json")).unwrap()).unwrap();
        assert_eq!(report["files"][0]["assigned"][0]["provider"], "CPUExecutionProvider", "{name}");
        assert_eq!(image::open(results.join("pictures/a b.png")).unwrap().width(), 160, "{name}");
        assert!(results.join("bench.txt").exists() && results.join("engine/manifest.sig").exists(), "{name}");

        // The same machine has about the same speed, and nothing is a hundred times as fast.
        let figures: Value = serde_json::from_slice(&fs::read(results.join("figures.json")).unwrap()).unwrap();
        let baseline = |times: f64| {
            let mut faster = figures.clone();
            faster["images_per_second"] = (figures["images_per_second"].as_f64().unwrap() * times).into();
            let path = work.join(format!("baseline-{times}.json"));
            fs::write(&path, faster.to_string()).unwrap();
            as_text(&path)
        };
        let (same, faster) = (baseline(1.0), baseline(1000.0));
        let with = |baseline: &str, threshold: &str| {
            let mut given = given.to_vec();
            given.extend([("baseline", baseline), ("threshold", threshold)]);
            system(&work, &given)
        };
        let compared = with(&same, "0.01").success();
        assert!(compared.stdout.contains("against before"), "{name}: {}", compared.stdout);
        let _ = with(&faster, "0.5").failure(4, &["expected a speed of at least 0.50"]);
        let _ = with("no-such-file.json", "0.5").failure(1, &["no-such-file.json"]);

        let mut wrong = given.to_vec();
        wrong[2].1 = &foreign;
        fs::remove_dir_all(&results).unwrap();
        let _ = system(&work, &wrong).failure(1, &["manifest.sig"]);
        assert!(!results.join("engine").exists() && !results.join("infer.json").exists(), "{name}");
    }
}

#[test]
fn a_folder_is_run_where_it_was_built_for_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = pictures(folder.path());
    let for_gpu = copied_engine(folder.path());
    let manifest = fs::read_to_string(for_gpu.join("manifest.json")).unwrap();
    let manifest = manifest.replace("\"provider\": \"cpu\"", "\"provider\": \"cuda\"");
    fs::write(for_gpu.join("manifest.json"), manifest).unwrap();
    for (name, system) in SYSTEMS {
        let work = folder.path().join(name);
        fs::create_dir(&work).unwrap();
        let given = |engine: &Path| {
            let given = [
                ("engine", engine.to_str().unwrap()),
                ("pictures", pictures.to_str().unwrap()),
                ("results", "out"),
                ("infer-options", "--tile 24x24 --png-compression fast"),
                QUICK,
            ];
            system(&work, &given)
        };
        let _ = given(demo_engine()).success();
        let report: Value = serde_json::from_slice(&fs::read(work.join("out/infer.json")).unwrap()).unwrap();
        assert!(report["files"][0]["tiles"].as_u64().unwrap() > 1, "{name}: {report}");
        // This machine has no GPU: the engine would run on the CPU.
        let _ = given(&for_gpu).failure(3, &["falls back to cpu, because cuda", "--strict"]);
        let _ = given(&work.join("nothing")).failure(1, &["no such folder"]);
    }
}

#[test]
fn pictures_are_compared_with_those_of_an_earlier_run() {
    let folder = tempfile::tempdir().unwrap();
    let (pictures, expected) = (pictures(folder.path()), folder.path().join("expected"));
    for (name, system) in SYSTEMS {
        let work = folder.path().join(name);
        fs::create_dir(&work).unwrap();
        let with = |expected: &Path, more: &[(&str, &str)]| {
            let [engine, pictures, expected] = [demo_engine(), &pictures, expected].map(|path| path.to_str().unwrap());
            let given = [("engine", engine), ("pictures", pictures), ("expected", expected), ("results", "out"), QUICK];
            system(&work, &[&given[..], more].concat())
        };
        let compare =
            || -> Value { serde_json::from_slice(&fs::read(work.join("out/compare.json")).unwrap()).unwrap() };
        if !expected.exists() {
            let _ = with("".as_ref(), &[]).success();
            assert!(!work.join("out/compare.json").exists());
            end_to_end::copy_folder(&work.join("out/pictures"), &expected);
        }
        let _ = with(&expected, &[]).success();
        assert_eq!(compare()["files"][0]["maximum"], 0, "{name}");

        // A sample with another level is found, and a floor decides whether it counts.
        let changed = work.join("changed");
        end_to_end::copy_folder(&expected, &changed);
        let mut picture = image::open(changed.join("a b.png")).unwrap().into_rgb8();
        picture.get_pixel_mut(3, 5).0[1] ^= 0x40;
        picture.save(changed.join("a b.png")).unwrap();
        let _ = with(&changed, &[("minimum-psnr", "40")]).success();
        let _ = with(&changed, &[("minimum-psnr", "90")]).failure(4, &["a b.png: expected a PSNR of at least 90 dB"]);
        assert_eq!(compare()["files"][0]["maximum"], 0x40, "{name}");
        assert!(work.join("out/differences/a b.png").exists());
        fs::copy(changed.join("a b.png"), changed.join("c.png")).unwrap();
        let _ = with(&changed, &[]).failure(1, &["lacks c.png"]);
    }
}

#[test]
fn action_job_and_documentation_have_the_same_inputs() {
    let action = yaml("ci/github/action.yml");
    let job = yaml("ci/gitlab/engine.yml")[".tileforge-engine"]["variables"].clone();
    let documentation = fs::read_to_string(repository("docs/ci.md")).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(keys(&action["inputs"]), INPUTS.iter().map(|(name, _)| (*name).to_owned()).collect());
    assert_eq!(keys(&job), INPUTS.iter().map(|(_, variable)| (*variable).to_owned()).collect());
    for (name, variable) in INPUTS {
        let input = &action["inputs"][name];
        assert!(documentation.contains(&format!("`{name}`")), "{name}");
        assert!(documentation.contains(&format!("`{variable}`")), "{variable}");
        let default = if input["required"] == true { "" } else { text(&input["default"]) };
        assert_eq!(text(&job[variable]), default, "{variable}");
    }
    // The example sets only inputs that the action has.
    let example = yaml("ci/github/example.yml");
    let steps = example["jobs"]["engine"]["steps"].as_array().unwrap();
    let uses = steps.iter().find(|step| step["uses"] == "./ci/github").unwrap();
    assert!(keys(&uses["with"]).is_subset(&keys(&action["inputs"])), "{uses}");
    for required in action["inputs"].as_object().unwrap().iter().filter(|(_, input)| input["required"] == true) {
        assert!(uses["with"].get(required.0).is_some(), "{}", required.0);
    }
}
