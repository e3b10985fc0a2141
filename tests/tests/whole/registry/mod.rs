//! Engines in a real registry: pushed, pulled, resumed, refused, and read by other programs.

mod access;

use end_to_end::{
    CuttingServer, LocalRegistry, Outcome, command, copied_engine, copy_folder, demo_engine, edit_manifest, names_in,
    new_key, repository, run, words,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tileforge_engine::digest::{sha256, sha256_file};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A program without the user's environment variables that it reads.
fn program(name: &str, arguments: &[&dyn AsRef<OsStr>], work: &Path) -> Command {
    let mut command = command(name, words(arguments));
    for name in ["TILEFORGE_REGISTRY_USERNAME", "TILEFORGE_REGISTRY_PASSWORD", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.env_remove(name);
    }
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.env("DOCKER_CONFIG", work.join("docker")).env("XDG_CONFIG_HOME", work.join("config"));
    command.env("XDG_CACHE_HOME", work.join("cache"));
    command
}

fn push(work: &Path, arguments: &[&dyn AsRef<OsStr>]) -> Outcome {
    let all: Vec<&dyn AsRef<OsStr>> =
        [&"push" as &dyn AsRef<OsStr>].into_iter().chain(arguments.iter().copied()).collect();
    Outcome::of(&mut program("engine-builder", &all, work))
}

fn pull(work: &Path, reference: &str, output: &Path, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    let line: [&dyn AsRef<OsStr>; 4] = [&"pull", &reference, &"-o", &output];
    let all: Vec<&dyn AsRef<OsStr>> = line.into_iter().chain(more.iter().copied()).collect();
    Outcome::of(&mut program("runtime", &all, work))
}

/// A copy of the demo engine for another profile, with another self-test.
fn engine_for(work: &Path, profile: &str, provider: &str, capability: &str) -> PathBuf {
    let parent = work.join(profile);
    fs::create_dir(&parent).unwrap();
    let engine = copied_engine(&parent);
    let selftest = engine.join("selftest.safetensors");
    let mut bytes = fs::read(&selftest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= profile.len() as u8;
    fs::write(&selftest, &bytes).unwrap();
    edit_manifest(&engine, |manifest| {
        manifest["target"]["profile"] = json!(profile);
        manifest["target"]["provider"] = json!(provider);
        manifest["target"]["compute_capability"] = json!(capability);
        manifest["target"]["portable"] = json!(true);
        manifest["files"]["selftest.safetensors"]["sha256"] = json!(sha256(&bytes));
    });
    engine
}

fn assert_equal(one: &Path, other: &Path) {
    assert_eq!(names_in(one), names_in(other));
    for name in names_in(one) {
        let (one, other) = (one.join(&name), other.join(&name));
        if one.is_dir() {
            assert_equal(&one, &other);
        } else {
            assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{name}");
        }
    }
}

/// The digest of a layer of the single engine that a tag names.
fn layer_of(registry: &LocalRegistry, name: &str, tag: &str, file: &str) -> String {
    let engine = registry.document(name, tag)["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let manifest = registry.document(name, &engine);
    let layers = manifest["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["annotations"]["org.cncf.model.filepath"] == file).unwrap();
    layer["digest"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_pushed_is_pulled_with_its_signature() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (registry, engine) = (LocalRegistry::start(false), copied_engine(work));
    let [private, public] = new_key(work, "ours");
    let [_, foreign] = new_key(work, "theirs");
    let reference = registry.reference("someone/compact:1.0");
    let pulled = work.join("pulled");
    let _ = pull(work, &reference, &pulled, &[])
        .failure(1, &["the registry has no repository or tag of this name", "compact:1.0"]);

    // First without a signature.
    let sent = push(work, &[&engine, &reference, &"--json"]).success().json();
    assert_eq!((&sent["engines"][0]["is_signed"], &sent["there"]["files"]), (&json!(false), &json!(0)));
    let missing = pull(work, &reference, &pulled, &[&"--require-signature", &public]);
    let _ = missing.failure(1, &["manifest.sig", "a signature is required, and there is none"]);
    let _ = pull(work, &reference, &pulled, &[]).success();
    assert_equal(&engine, &pulled);

    let _ = run("engine-builder", words(&[&"sign", &engine, &"--key", &private])).success();
    let again = push(work, &[&engine, &reference, &"--json"]).success().json();
    // The signature, and the empty configuration of the signature's manifest.
    assert_eq!((&again["sent"]["files"], &again["sent"]["bytes"]), (&json!(2), &json!(64 + 2)));
    assert_eq!(again["engines"][0]["digest"], sent["engines"][0]["digest"]);
    let refused = pull(work, &reference, &pulled, &[&"--require-signature", &foreign]);
    let _ = refused.failure(1, &["manifest.sig", "not one of this key"]);
    assert!(!pulled.join("manifest.sig").exists(), "the older engine is still there");
    let told = pull(work, &reference, &pulled, &[&"--require-signature", &public]).success();
    assert!(told.stderr.contains("fits cpu") && told.stdout.trim() == pulled.to_str().unwrap(), "{told:?}");
    assert_equal(&engine, &pulled);
    let _ = run("runtime", words(&[&"verify", &"--engine", &pulled, &"--require-signature", &public])).success();

    // By its digest; the same push gives the same bytes.
    let digest = again["digest"].as_str().unwrap();
    let third = push(work, &[&engine, &reference, &"--json"]).success().json();
    assert_eq!((&third["digest"], &third["sent"]["files"]), (&json!(digest), &json!(0)));
    let by_digest = registry.reference(&format!("someone/compact@{digest}"));
    let _ = pull(work, &by_digest, &work.join("by-digest"), &[&"--require-signature", &public]).success();
    assert_equal(&engine, &work.join("by-digest"));
    let one = registry.reference(&format!("someone/compact@{}", sent["engines"][0]["digest"].as_str().unwrap()));
    let _ = pull(work, &one, &work.join("one"), &[]).success();
    assert_equal(&engine, &work.join("one"));
    let _ = push(work, &[&engine, &by_digest]).failure(2, &["expected a tag to push to", "1.0"]);
    let _ = push(work, &[&engine, &"ghcr.io/compact"]).failure(2, &["oci://HOST"]);
    // An engine never replaces another kind of folder.
    fs::write(pulled.join("thesis.txt"), "x").unwrap();
    let _ = pull(work, &reference, &pulled, &[]).failure(1, &["thesis.txt"]);
    assert!(!names_in(work).iter().any(|name| name.ends_with(".part")), "{:?}", names_in(work));
}

#[test]
fn a_second_profile_uploads_only_what_differs() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let (cpu, t4) = (demo_engine(), engine_for(work, "t4", "tensorrt", "7.5"));
    let reference = registry.reference("compact:1.0");
    let bytes_of = |engine: &Path, name: &str| fs::metadata(engine.join(name)).unwrap().len();
    let first = push(work, &[&cpu, &reference, &"--json"]).success().json();
    let before = registry.bytes();
    let second = push(work, &[&t4, &reference, &"--add", &"--json"]).success().json();
    // The manifest, the self-test and the configuration.
    let files = bytes_of(&t4, "manifest.json") + bytes_of(&t4, "selftest.safetensors");
    let sent = second["sent"]["bytes"].as_u64().unwrap();
    assert!((files + 1..files + 2000).contains(&sent), "{sent} {files}");
    let whole = first["sent"]["bytes"].as_u64().unwrap();
    assert!(registry.bytes() - before < files + 20_000 && whole > 3 * files, "{whole} {files}");
    eprintln!("first profile: {whole} bytes sent; second: {sent}");

    // Both are listed, with verdicts; this machine has no GPU.
    let list = |more: &[&dyn AsRef<OsStr>]| {
        let line: [&dyn AsRef<OsStr>; 3] = [&"pull", &reference, &"--list"];
        let all: Vec<_> = line.into_iter().chain(more.iter().copied()).collect();
        Outcome::of(&mut program("runtime", &all, work))
    };
    let listed = list(&[&"--json"]).success().json();
    let of = |key: &str| [0, 1].map(|place| listed[place][key].clone());
    assert_eq!(of("profiles"), [json!(["small-tiles"]), json!(["t4"])]);
    assert_eq!(of("exact"), [json!(true), json!(false)]);
    assert_eq!(listed[1]["compute_capabilities"], json!(["7.5"]));
    let text = list(&[]).success().stdout;
    assert!(
        text.contains("for small-tiles: fits cpu") && text.contains("for t4: falls back to cpu, because tensorrt:"),
        "{text}"
    );

    // With --add, a push of a profile replaces that profile's engine; without it, a push replaces all engines.
    let twice = push(work, &[&t4, &t4, &reference]).failure(2, &["found two for t4 in fp32", "different tags"]);
    assert_eq!(twice.stdout, "");
    let added = push(work, &[&t4, &reference, &"--add", &"--json"]).success().json();
    assert_eq!((&added["kept"], &added["digest"]), (&json!(1), &second["digest"]));
    let out = work.join("out");
    let _ = pull(work, &reference, &out, &[]).success();
    assert_equal(cpu, &out);
    let _ = pull(work, &reference, &out, &[&"--profile", &"t4"]).success();
    assert_equal(&t4, &out);
    let _ = pull(work, &reference, &out, &[&"--profile", &"t5"]).failure(2, &["--profile t5", "small-tiles, t4"]);
    let _ = push(work, &[&t4, &reference]).success();
    let _ = pull(work, &reference, &work.join("exact"), &[&"--exact"])
        .failure(3, &["no engine fits this machine exactly", "for t4: falls back to cpu", "--exact"]);
    let _ = pull(work, &reference, &out, &[]).success();
    assert_equal(&t4, &out);
}

#[test]
fn engines_of_several_parts_share_their_files_in_the_registry() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let engine = work.join("pair");
    let part = |name: &str| {
        let folder = engine.join(name);
        copy_folder(demo_engine(), &folder);
        edit_manifest(&folder, |manifest| manifest["name"] = json!(name));
        json!(sha256_file(&folder.join("manifest.json")).unwrap())
    };
    let parts = json!({ "decoder": part("decoder"), "encoder": part("encoder") });
    fs::create_dir(engine.join("tokenizer")).unwrap();
    fs::write(engine.join("tokenizer/vocab.json"), "{}").unwrap();
    let manifest = json!({
        "schema": 2, "name": "pair", "producer": "a test", "parts": parts,
        "files": { "tokenizer/vocab.json": { "bytes": 2, "sha256": sha256(b"{}") } },
    });
    fs::write(engine.join("manifest.json"), manifest.to_string()).unwrap();
    let reference = registry.reference("pair");
    let sent = push(work, &[&engine, &reference, &"--json"]).success().json();
    let whole: u64 =
        names_in(demo_engine()).iter().map(|name| demo_engine().join(name).metadata().unwrap().len()).sum();
    assert!(sent["sent"]["bytes"].as_u64().unwrap() < whole + 40_000, "{sent} {whole}");
    let pulled = work.join("pulled");
    let _ = pull(work, &reference, &pulled, &[]).success();
    assert_equal(&engine, &pulled);
    let inode = |part: &str| fs::metadata(pulled.join(part).join("model.weights")).unwrap().ino();
    assert_eq!(inode("decoder"), inode("encoder"));
    let _ = run("runtime", words(&[&"verify", &"--engine", &pulled])).success();
}

#[test]
fn a_pull_that_is_cut_at_any_point_goes_on() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let _ = push(work, &[&demo_engine(), &registry.reference("compact")]).success();
    let server = CuttingServer::start(&registry.address);
    let reference = format!("oci://{}/compact", server.address);
    let length = |name: &String| usize::try_from(demo_engine().join(name).metadata().unwrap().len()).unwrap();
    let lengths: Vec<usize> =
        names_in(demo_engine()).iter().filter(|name| *name != "manifest.json").map(length).collect();
    let whole: usize = lengths.iter().sum();
    // Pseudorandom points that are the same in every run: Knuth's multiplicative hash.
    let points: Vec<usize> = (1..=20_usize).map(|number| number.wrapping_mul(2_654_435_761) % whole).collect();
    let output = work.join("pulled");
    let part = work.join("pulled.part");
    let mut resumed = 0;
    for point in points {
        // The manifest is requested first, and then one file after the other. Bytes after the point are never sent.
        let (mut cuts, mut left) = (vec![usize::MAX], point);
        for length in &lengths {
            cuts.push(if left >= *length { usize::MAX } else { left });
            left = left.saturating_sub(*length);
            if cuts.last() != Some(&usize::MAX) {
                break;
            }
        }
        cuts.extend([0; 3]);
        server.cut(&cuts);
        let refused = pull(work, &reference, &output, &[]).failure(1, &["error: "]);
        let expected = ["goes on from there", "cannot be reached"];
        assert!(expected.iter().any(|words| refused.stderr.contains(words)), "{}", refused.stderr);
        assert!(!output.exists());
        let kept = fs::read_dir(&part).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        let kept: u64 = kept.sum();
        assert_eq!(kept, point as u64);
        server.requests();
        server.cut(&[]);
        let told = pull(work, &reference, &output, &[&"--json"]).success().json();
        assert_eq!(told["downloaded_bytes"].as_u64().unwrap(), whole as u64 - kept);
        resumed += usize::from(server.requests().iter().any(|request| request.contains("bytes=")));
        assert_equal(demo_engine(), &output);
        assert!(!part.exists());
        fs::remove_dir_all(&output).unwrap();
    }
    assert!(resumed >= 15, "{resumed} of 20 pulls asked for the rest of a file");
    // Interrupted several times in one run: the program resumes by itself.
    server.cut(&[usize::MAX, 1000, 2000, 3000, 4000, 5000]);
    let _ = pull(work, &reference, &output, &[]).success();
    assert_equal(demo_engine(), &output);
}

#[test]
fn what_is_altered_missing_or_exchanged_is_refused_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let reference = registry.reference("compact");
    let _ = push(work, &[&demo_engine(), &reference]).success();
    let (output, before) = (work.join("pulled"), names_in(work));
    let refused = |words: &[&str]| {
        let _ = pull(work, &reference, &output, &[]).failure(1, words);
        assert_eq!(names_in(work), before);
    };
    let [weights, selftest, manifest] = ["model.weights", "selftest.safetensors", "manifest.json"]
        .map(|name| registry.data(&layer_of(&registry, "compact", "latest", name)));
    for (path, name, expected) in
        [(&weights, "model.weights", "expected the SHA-256 "), (&manifest, "manifest.json", "expected sha256:")]
    {
        let whole = fs::read(path).unwrap();
        let mut altered = whole.clone();
        altered[whole.len() / 2] ^= 1;
        fs::write(path, altered).unwrap();
        refused(&[name, expected, "push it again"]);
        fs::write(path, &whole[1..]).unwrap();
        refused(&[name, &format!("expected {} bytes", whole.len())]);
        fs::remove_file(path).unwrap();
        refused(&[name]);
        fs::write(path, &whole).unwrap();
    }
    // Two files are exchanged.
    let contents = [&weights, &selftest].map(|path| fs::read(path).unwrap());
    fs::write(&weights, &contents[1]).unwrap();
    fs::write(&selftest, &contents[0]).unwrap();
    refused(&["expected"]);
    fs::write(&weights, &contents[0]).unwrap();
    fs::write(&selftest, &contents[1]).unwrap();

    let index = registry.document("compact", "latest");
    // An engine's manifest that lists other files than the engine's.
    let engine = index["manifests"][0]["digest"].as_str().unwrap();
    let whole = registry.document("compact", engine);
    let with_layers = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut manifest = whole.clone();
        change(manifest["layers"].as_array_mut().unwrap());
        let digest = format!("sha256:{}", sha256(manifest.to_string().as_bytes()));
        registry.put("compact", &digest, &manifest);
        let mut index = index.clone();
        index["manifests"][0]["digest"] = json!(digest);
        index["manifests"][0]["size"] = json!(manifest.to_string().len());
        registry.put("compact", "latest", &index);
    };
    let path = "org.cncf.model.filepath";
    with_layers(&|layers| layers[1]["annotations"][path] = json!("../../escaped"));
    refused(&["expected the path of a file in the engine, found `../../escaped`"]);
    with_layers(&|layers| layers.push(layers[1].clone()));
    refused(&["is there twice"]);
    with_layers(&|layers| drop(layers.pop()));
    refused(&["the engine's manifest lists it, and there is none"]);
    with_layers(&|layers| {
        let mut more = layers[1].clone();
        more["annotations"][path] = json!("more.bin");
        layers.push(more);
    });
    refused(&["more.bin: the engine's manifest does not list it"]);
    with_layers(&|layers| {
        let digest = layers[2]["digest"].clone();
        layers[1]["digest"] = digest;
    });
    refused(&["expected", "with the SHA-256"]);
    with_layers(&|layers| *layers = vec![layers[1].clone(); 4097]);
    refused(&["expected at most 4096, found 4097"]);

    // An index with wrong facts.
    for (key, value) in [
        ("io.tileforge.engine.memory", "1"),
        ("io.tileforge.engine.precision", "fp16"),
        ("io.tileforge.engine.profile", "rtx4090"),
        ("org.opencontainers.image.title", "another"),
    ] {
        let mut lying = index.clone();
        lying["manifests"][0]["annotations"][key] = json!(value);
        registry.put("compact", "latest", &lying);
        refused(&["the index says", key, value]);
    }
    let mut broken = index.clone();
    broken["manifests"][0]["annotations"]["io.tileforge.engine.provider"] = json!("abacus");
    registry.put("compact", "latest", &broken);
    refused(&["io.tileforge.engine.provider: expected one of"]);
    registry.put("compact", "latest", &json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] }));
    refused(&["found one without engines"]);
    registry.put("compact", "latest", &index);
    let _ = pull(work, &reference, &output, &[]).success();
    // An altered file is not pushed to the registry.
    let parent = work.join("altered");
    fs::create_dir(&parent).unwrap();
    let engine = copied_engine(&parent);
    let mut bytes = fs::read(engine.join("model.weights")).unwrap();
    bytes[1000] ^= 1;
    fs::write(engine.join("model.weights"), bytes).unwrap();
    let other = registry.reference("other");
    let _ = push(work, &[&engine, &other]).failure(1, &["model.weights", "expected SHA-256"]);
    let _ = pull(work, &other, &work.join("other"), &[])
        .failure(1, &["the registry has no repository or tag of this name"]);
}

#[test]
fn passwords_come_from_the_environment_dockers_configuration_and_its_helpers() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(true);
    let reference = registry.reference("compact");
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &["401", "no user was given", "docker login"]);
    let docker = work.join("docker");
    fs::create_dir(&docker).unwrap();
    let configuration = docker.join("config.json");
    let login = |text: &str| {
        // "me:…" in base64.
        fs::write(&configuration, json!({ "auths": { &registry.address: { "auth": text } } }).to_string()).unwrap();
    };
    login("bWU6d3Jvbmc=");
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &["401", "for the user that was given"]);
    login("bWU6c2VjcmV0");
    let _ = push(work, &[&demo_engine(), &reference]).success();
    let _ = pull(work, &reference, &work.join("one"), &[]).success();
    // A credential helper, which is a program on the search path.
    let helper = docker.join("docker-credential-ours");
    fs::write(&helper, "#!/bin/sh\ncat > /dev/null\necho '{\"Username\":\"me\",\"Secret\":\"secret\"}'\n").unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&configuration, json!({ "credsStore": "ours" }).to_string()).unwrap();
    let path = format!("{}:{}", docker.display(), std::env::var("PATH").unwrap());
    let line: [&dyn AsRef<OsStr>; 4] = [&"pull", &reference, &"-o", &work.join("two")];
    let _ = Outcome::of(program("runtime", &line, work).env("PATH", path)).success();
    // Our own environment variables.
    fs::remove_file(&configuration).unwrap();
    let line: [&dyn AsRef<OsStr>; 4] = [&"pull", &reference, &"-o", &work.join("three")];
    let mut command = program("runtime", &line, work);
    let command = command.env("TILEFORGE_REGISTRY_USERNAME", "me").env("TILEFORGE_REGISTRY_PASSWORD", "secret");
    let _ = Outcome::of(command).success();
    assert_equal(&work.join("one"), &work.join("three"));
}

#[test]
fn an_engine_out_of_a_registry_runs_and_stays_in_the_cache() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let (engine, [private, public]) = (copied_engine(work), new_key(work, "ours"));
    let [_, foreign] = new_key(work, "theirs");
    let _ = run("engine-builder", words(&[&"sign", &engine, &"--key", &private])).success();
    let pushed = push(work, &[&engine, &registry.reference("compact:1.0"), &"--json"]).success().json();
    let server = CuttingServer::start(&registry.address);
    let reference = format!("oci://{}/compact:1.0", server.address);
    let photo = repository("tests/images/coffee.png");
    let infer = |engine: &str, output: &str| {
        let output = work.join(output);
        let line: [&dyn AsRef<OsStr>; 7] = [&"infer", &"--engine", &engine, &"--input", &photo, &"--output", &output];
        Outcome::of(&mut program("runtime", &line, work))
    };
    let refused: [&dyn AsRef<OsStr>; 5] = [&"verify", &"--engine", &reference, &"--require-signature", &foreign];
    let _ = Outcome::of(&mut program("runtime", &refused, work)).failure(1, &["not one of this key"]);
    let told = infer(&reference, "one.png").success();
    assert!(told.stderr.contains("fits cpu"), "{}", told.stderr);
    server.requests();
    // A pull by tag needs one request, and a pull by digest needs none.
    let _ = infer(&reference, "two.png").success();
    assert_eq!(server.requests(), ["GET /v2/compact/manifests/1.0"]);
    let digest = pushed["digest"].as_str().unwrap();
    let _ = infer(&format!("oci://{}/compact@{digest}", server.address), "three.png").success();
    assert_eq!(server.requests(), [""; 0]);
    let picture = |name: &str| fs::read(work.join(name)).unwrap();
    assert!(picture("one.png") == picture("two.png") && picture("one.png") == picture("three.png"));
    drop(registry);
    let _ = infer(&reference, "four.png").failure(1, &["cannot be reached"]);
    assert!(!work.join("four.png").exists());
    for line in [
        words(&[
            &"verify",
            &"--engine",
            &format!("oci://gone.invalid/compact@{digest}"),
            &"--require-signature",
            &public,
        ]),
        words(&[&"inspect", &"--engine", &format!("oci://gone.invalid/compact@{digest}")]),
        words(&[&"doctor", &"--engine", &format!("oci://gone.invalid/compact@{digest}")]),
    ] {
        let mut command = program("runtime", &[], work);
        let _ = Outcome::of(command.args(line)).success();
    }
}

#[test]
fn skopeo_copies_and_inspects_what_we_push() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let gpu = engine_for(work, "t4", "tensorrt", "7.5");
    let _ = push(work, &[&demo_engine(), &gpu, &registry.reference("compact:1.0")]).success();
    let skopeo = |arguments: &[&str]| {
        let output = Command::new("skopeo").args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("skopeo: {error}; install it: apt install skopeo"));
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let docker = |rest: &str| format!("docker://{}/{rest}", registry.address);
    let inspected = skopeo(&["inspect", "--tls-verify=false", "--raw", &docker("compact:1.0")]);
    let index: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(index, registry.document("compact", "1.0"));
    let engine = index["manifests"][0]["digest"].as_str().unwrap();
    let inspected = skopeo(&["inspect", "--tls-verify=false", "--raw", &docker(&format!("compact@{engine}"))]);
    let manifest: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(manifest["artifactType"], "application/vnd.cncf.model.manifest.v1+json");
    let (from, to) = (docker("compact:1.0"), docker("copied/compact:1.0"));
    let plain = ["--src-tls-verify=false", "--dest-tls-verify=false"];
    // skopeo 1.9 writes its own index, without the types of the artefacts, but leaves the engines unchanged.
    skopeo(&["copy", "--all", plain[0], plain[1], &from, &to]);
    let pulled = work.join("pulled");
    let _ = pull(work, &registry.reference("copied/compact:1.0"), &pulled, &[]).success();
    assert_equal(demo_engine(), &pulled);
}

#[test]
fn oras_pulls_what_we_push() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let registry = LocalRegistry::start(false);
    let pushed = push(work, &[&demo_engine(), &registry.reference("compact:1.0"), &"--json"]).success().json();
    let target = format!("{}/compact@{}", registry.address, pushed["engines"][0]["digest"].as_str().unwrap());
    let pulled = work.join("pulled");
    fs::create_dir(&pulled).unwrap();
    let python = repository("target/oras-venv/bin/python");
    assert!(python.exists(), "oras is missing; `make test` installs it");
    let output = Command::new(python)
        .arg(repository("tests/clients/oras_pull.py"))
        .args([&target, pulled.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_equal(demo_engine(), &pulled);
    let _ = run("runtime", words(&[&"verify", &"--engine", &pulled])).success();
}
