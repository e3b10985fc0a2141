//! Models by name: `engine-builder models`, `fetch`, and `make engines`, against a small hub on this machine.

use end_to_end::{Outcome, binaries, command, names_in, repository, run, words};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tileforge_exporter::arch::{Entry, registry};
use tileforge_exporter::synthesise;
use tileforge_graph::DataType;

/// A request that a server received.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    path: String,
    range: Option<String>,
    token: Option<String>,
}

/// An HTTP server with ranges, redirects and refusals, as the hub has them.
struct Server {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    redirects: BTreeMap<String, String>,
    /// The number of bytes after which each of the next answers is cut.
    cuts: Vec<usize>,
    /// Whether a cut answer stays open instead of ending.
    stalls: bool,
    /// The status of every answer, instead of the correct one.
    status: Option<&'static str>,
    /// The token that the server requires.
    token: Option<String>,
    requests: Vec<Request>,
}

impl Server {
    fn start(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec())).collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects ends only its own answer.
                let _ = answer(stream, &shared);
            }
        });
        Server { address, state }
    }

    fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap()?;
    let path = first.split_whitespace().nth(1).unwrap().to_owned();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut state = state.lock().unwrap();
    let (range, token) = (headers.get("range").cloned(), headers.get("authorization").cloned());
    state.requests.push(Request { path: path.clone(), range: range.clone(), token: token.clone() });
    let mut stream = stream;
    if let Some(to) = state.redirects.get(&path) {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let refused = state.token.as_ref().is_some_and(|wanted| token.as_deref() != Some(&format!("Bearer {wanted}")));
    let (status, bytes) = match state.files.get(&path) {
        _ if refused => ("401 Unauthorized", Vec::new()),
        None => ("404 Not Found", Vec::new()),
        Some(bytes) => ("200 OK", bytes.clone()),
    };
    let tag = format!("\"{}\"", tileforge_engine::digest::sha256(&bytes));
    let same = headers.get("if-range").is_none_or(|wanted| *wanted == tag);
    let start = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let (status, start, more) = match start.filter(|_| same && status.starts_with("200")) {
        Some(start) if start >= bytes.len() => {
            ("416 Range Not Satisfiable", bytes.len(), format!("Content-Range: bytes */{}\r\n", bytes.len()))
        }
        Some(start) => {
            let range = format!("Content-Range: bytes {start}-{}/{}\r\n", bytes.len() - 1, bytes.len());
            ("206 Partial Content", start, range)
        }
        None => (status, 0, String::new()),
    };
    let status = state.status.unwrap_or(status);
    let body = &bytes[start..];
    let sent = if state.cuts.is_empty() { body.len() } else { state.cuts.remove(0).min(body.len()) };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {tag}\r\n{more}Connection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body[..sent])?;
    let stalls = state.stalls && sent < body.len();
    drop(state);
    if stalls {
        // Waits until the client disconnects.
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

/// `engine-builder` without the user's environment variables that it reads.
fn builder(arguments: &[&dyn AsRef<std::ffi::OsStr>], work: &Path) -> Command {
    let mut command = command("engine-builder", words(arguments));
    for name in ["HF_TOKEN", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
    command
        .env("MODEL_PATH", work.join("weights"))
        .env("XDG_CACHE_HOME", work.join("cache"))
        .env("NO_PROXY", "127.0.0.1");
    command
}

/// A model file in `work/models` for a checkpoint of this tree, which a server provides.
fn model(work: &Path, name: &str, source: &str, sha256: Option<&str>) -> PathBuf {
    let digest = sha256.map_or("{}".into(), |sha256| format!("{{ sha256: {sha256} }}"));
    let text = format!(
        "name: {name}\ndescription: A test.\nlicence: MIT\nprovenance: Here.\nsource: {source}\n\
         files: {{ model.pth: {digest} }}\ntask: upscale\narchitecture: SRVGGNetCompact\ncheckpoint: model.pth\n\
         hyperparameters: {{ filters: 12, scale: 4 }}\n"
    );
    fs::create_dir_all(work.join("models")).unwrap();
    let path = work.join("models").join(format!("{name}.yaml"));
    fs::write(&path, text).unwrap();
    path
}

fn checkpoint() -> Vec<u8> {
    fs::read(repository("tests/golden-torch/basicsr/net_g_latest.pth")).unwrap()
}

const FILE: &str = "/someone/compact/resolve/main/model.pth";
const HUB: &str = "{ hub: { repository: someone/compact, revision: main } }";

#[test]
fn weights_are_fetched_checked_and_built() {
    let work = tempfile::tempdir().unwrap();
    let bytes = checkpoint();
    let digest = tileforge_engine::digest::sha256(&bytes);
    let server = Server::start(&[(FILE, &bytes)]);
    let path = model(work.path(), "compact", HUB, Some(&digest));
    let engine = work.path().join("engine");
    let profile = repository("tests/profiles/small-tiles.yaml");
    let build = || {
        builder(&[&"build", &path, &"--profile", &profile, &"-o", &engine, &"--calibration-tiles", &"4"], work.path())
    };
    // The error about missing weights names their source.
    let missing = Outcome::of(&mut build()).failure(1, &["compact: model.pth is not on this machine"]);
    for word in [
        "the hub's repository someone/compact",
        "licence MIT",
        "`engine-builder fetch compact`",
        "weights/compact/model.pth",
    ] {
        assert!(missing.stderr.contains(word), "expected `{word}` in: {}", missing.stderr);
    }
    let fetch = |more: &[(&str, &str)]| {
        let mut command = builder(&[&"fetch", &path], work.path());
        Outcome::of(command.env("HF_ENDPOINT", &server.address).envs(more.iter().copied()))
    };
    let _ = fetch(&[("HF_HUB_OFFLINE", "1")]).failure(1, &["downloads are switched off", FILE, "HF_HUB_OFFLINE"]);
    assert!(server.requests().is_empty());
    let fetched = fetch(&[]).success();
    assert_eq!(fetched.stdout.trim(), work.path().join("weights/compact/model.pth").display().to_string());
    assert_eq!(fs::read(work.path().join("weights/compact/model.pth")).unwrap(), bytes);
    assert_eq!(names_in(&work.path().join("weights/compact")), ["model.pth"]);
    assert_eq!(server.requests().len(), 1);
    // Again: nothing is downloaded, offline or not.
    let _ = fetch(&[("HF_HUB_OFFLINE", "1")]).success();
    assert!(server.requests().is_empty());
    let _ = Outcome::of(&mut build()).success();
    let manifest: Value = serde_json::from_slice(&fs::read(engine.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["model"]["licence"], "MIT");
    let other = fs::read_to_string(&path).unwrap().replace("filters: 12", "filters: 64");
    fs::write(&path, other).unwrap();
    fs::remove_dir_all(&engine).unwrap();
    let _ = Outcome::of(&mut build()).failure(1, &["of another network: filters: expected 64, found 12"]);
}

#[test]
fn a_download_that_is_cut_goes_on_where_it_stopped() {
    let work = tempfile::tempdir().unwrap();
    let bytes = checkpoint();
    let digest = tileforge_engine::digest::sha256(&bytes);
    let server = Server::start(&[(FILE, &bytes)]);
    let path = model(work.path(), "compact", HUB, Some(&digest));
    let fetch = || Outcome::of(builder(&[&"fetch", &path], work.path()).env("HF_ENDPOINT", &server.address));
    let ranges = |requests: Vec<Request>| requests.into_iter().map(|request| request.range).collect::<Vec<_>>();
    // Two interruptions in one run: the program resumes by itself.
    server.state.lock().unwrap().cuts = vec![10_000, 20_000];
    let _ = fetch().success();
    assert_eq!(ranges(server.requests()), [None, Some("bytes=10000-".into()), Some("bytes=30000-".into())]);
    let weights = work.path().join("weights/compact");
    assert_eq!(fs::read(weights.join("model.pth")).unwrap(), bytes);
    assert_eq!(names_in(&weights), ["model.pth"]);
    // Interrupted until it gives up: the received part stays, and the next run resumes it.
    fs::remove_file(weights.join("model.pth")).unwrap();
    server.state.lock().unwrap().cuts = vec![40_000, 0];
    let _ = fetch().failure(1, &["the download was cut", "model.pth.part", "goes on from there"]);
    assert_eq!(fs::metadata(weights.join("model.pth.part/content")).unwrap().len(), 40_000);
    server.requests();
    let _ = fetch().success();
    assert_eq!(ranges(server.requests()), [Some("bytes=40000-".into())]);
    assert_eq!(fs::read(weights.join("model.pth")).unwrap(), bytes);
    // If the file changed in between, it is downloaded from its beginning.
    fs::remove_file(weights.join("model.pth")).unwrap();
    server.state.lock().unwrap().cuts = vec![40_000, 0];
    let _ = fetch().failure(1, &["the download was cut"]);
    fs::write(weights.join("model.pth.part/content.version"), "\n\"another\"").unwrap();
    let _ = fetch().success();
    assert_eq!(fs::read(weights.join("model.pth")).unwrap(), bytes);
    // A part that is already complete needs no more bytes.
    fs::create_dir(weights.join("model.pth.part")).unwrap();
    fs::rename(weights.join("model.pth"), weights.join("model.pth.part/content")).unwrap();
    let _ = fetch().success();
    assert_eq!(names_in(&weights), ["model.pth"]);
}

#[test]
fn a_server_that_stops_sending_is_asked_again() {
    let work = tempfile::tempdir().unwrap();
    let bytes = checkpoint();
    let server = Server::start(&[(FILE, &bytes)]);
    let path = model(work.path(), "compact", HUB, None);
    {
        let mut state = server.state.lock().unwrap();
        (state.stalls, state.cuts) = (true, vec![50_000]);
    }
    let fetch = |seconds| {
        let mut command = builder(&[&"fetch", &path], work.path());
        Outcome::of(command.env("HF_ENDPOINT", &server.address).env("HF_HUB_DOWNLOAD_TIMEOUT", seconds))
    };
    let _ = fetch("1").success();
    let ranges: Vec<_> = server.requests().into_iter().map(|request| request.range).collect();
    assert_eq!(ranges, [None, Some("bytes=50000-".into())]);
    assert_eq!(fs::read(work.path().join("weights/compact/model.pth")).unwrap(), bytes);
    for wrong in ["soon", "0"] {
        let _ = fetch(wrong).failure(2, &["HF_HUB_DOWNLOAD_TIMEOUT: expected a number of seconds", wrong]);
    }
}

/// Without an ETag and a digest, the rest could be from another file without notice.
#[test]
fn a_part_of_an_unknown_file_is_downloaded_anew() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(&[(FILE, &checkpoint())]);
    let path = model(work.path(), "compact", HUB, None);
    let fetch = || Outcome::of(builder(&[&"fetch", &path], work.path()).env("HF_ENDPOINT", &server.address));
    server.state.lock().unwrap().cuts = vec![40_000, 0];
    let _ = fetch().failure(1, &["the download was cut"]);
    fs::remove_file(work.path().join("weights/compact/model.pth.part/content.version")).unwrap();
    server.requests();
    let _ = fetch().success();
    assert_eq!(server.requests()[0].range, None);
    assert_eq!(fs::read(work.path().join("weights/compact/model.pth")).unwrap(), checkpoint());
}

#[test]
fn a_wrong_digest_is_refused_and_an_unpublished_one_is_recorded() {
    let work = tempfile::tempdir().unwrap();
    let bytes = checkpoint();
    let server = Server::start(&[(FILE, &bytes), ("/releases/model.pth", &bytes)]);
    let fetch = |path: &Path| Outcome::of(builder(&[&"fetch", &path], work.path()).env("HF_ENDPOINT", &server.address));
    let wrong = model(work.path(), "wrong", HUB, Some(&"0".repeat(64)));
    let _ = fetch(&wrong)
        .failure(1, &["expected the SHA-256 0000", "another file than the published one, and was removed"]);
    assert!(names_in(&work.path().join("weights/wrong")).is_empty());
    // The source is the address of a folder, and there is no digest.
    let folder = format!("{{ folder: {}/releases }}", server.address);
    let path = model(work.path(), "recorded", &folder, None);
    let _ = fetch(&path).success();
    let weights = work.path().join("weights/recorded");
    let record = fs::read_to_string(weights.join("model.pth.sha256")).unwrap();
    assert_eq!(record, format!("{}  model.pth\n", tileforge_engine::digest::sha256(&bytes)));
    let mut changed = bytes.clone();
    changed[100] ^= 1;
    fs::write(weights.join("model.pth"), changed).unwrap();
    let expected = ["(recorded on first use), found", "remove", "model.pth.sha256"];
    let _ = fetch(&path).failure(1, &expected);
    let profile = repository("profiles/cpu.yaml");
    let build = Outcome::of(&mut builder(
        &[&"build", &path, &"--profile", &profile, &"-o", &work.path().join("engine")],
        work.path(),
    ));
    let _ = build.failure(1, &expected);
}

#[test]
fn servers_that_refuse_are_explained() {
    let work = tempfile::tempdir().unwrap();
    let bytes = checkpoint();
    let (server, cdn) = (Server::start(&[]), Server::start(&[("/blob", &bytes)]));
    let path = model(work.path(), "compact", HUB, None);
    let fetch = |more: &[(&str, &str)]| {
        let mut command = builder(&[&"fetch", &path], work.path());
        Outcome::of(command.env("HF_ENDPOINT", &server.address).envs(more.iter().copied()))
    };
    let _ = fetch(&[]).failure(1, &["there is no such file (404)", FILE]);
    server.state.lock().unwrap().token = Some("secret".into());
    let _ = fetch(&[]).failure(1, &["the server refused the download (401)", "set HF_TOKEN"]);
    let refused = fetch(&[("HF_TOKEN", "wrong")]).failure(1, &["(401)", "the account of HF_TOKEN"]);
    assert!(!refused.stderr.contains("wrong"), "{}", refused.stderr);
    // As on the hub: the file is on another server, which must not get the token.
    server.state.lock().unwrap().redirects.insert(FILE.into(), format!("{}/blob", cdn.address));
    server.requests();
    let _ = fetch(&[("HF_TOKEN", "secret")]).success();
    assert_eq!(server.requests()[0].token.as_deref(), Some("Bearer secret"));
    assert_eq!(cdn.requests(), [Request { path: "/blob".into(), range: None, token: None }]);
    // A server that answers as if the request were for a part of the file.
    fs::remove_dir_all(work.path().join("weights")).unwrap();
    *cdn.state.lock().unwrap() = State { status: Some("416 Range Not Satisfiable"), ..State::default() };
    let _ = fetch(&[("HF_TOKEN", "secret")]).failure(1, &["found the answer 416"]);
    // A system without certificates cannot trust any server.
    let secure = model(work.path(), "secure", "{ folder: https://127.0.0.1:9/releases }", None);
    let mut command = builder(&[&"fetch", &secure], work.path());
    let outcome = Outcome::of(command.env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR"));
    let _ = outcome.failure(1, &["no certificates of authorities", "`ca-certificates`"]);
    // No server listens on this port.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _ = fetch(&[("HF_ENDPOINT", &format!("http://{closed}"))]).failure(1, &["cannot be downloaded", "refused"]);
    assert!(names_in(&work.path().join("weights/compact")).is_empty());
    // Weights in the folder of their model file.
    let beside = Outcome::of(&mut builder(&[&"fetch", &"compact-x4"], work.path())).success();
    assert!(beside.stdout.trim().ends_with("models/compact-x4.safetensors"), "{}", beside.stdout);
    // The source is a web page.
    let by_hand = model(work.path(), "by-hand", "{ page: https://example.org/zoo }", None);
    let outcome = Outcome::of(&mut builder(&[&"fetch", &by_hand], work.path()));
    let _ = outcome.failure(1, &["no program can download model.pth; get it from https://example.org/zoo"]);
}

#[test]
fn weights_are_found_in_every_place_that_people_keep_them() {
    let bytes = checkpoint();
    for place in [
        "weights/compact/model.pth",
        "weights/model.pth",
        "models/model.pth",
        "cache/tileforge/models/compact/model.pth",
    ] {
        let work = tempfile::tempdir().unwrap();
        let path = model(work.path(), "compact", HUB, None);
        let here = || {
            let shown = Outcome::of(&mut builder(&[&"models", &path, &"--json"], work.path())).success().json();
            shown[0]["available"].as_bool().unwrap()
        };
        assert!(!here(), "{place}");
        let place = work.path().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, &bytes).unwrap();
        assert!(here(), "{}", place.display());
    }
    // The cache of Hugging Face's own programs.
    let work = tempfile::tempdir().unwrap();
    let path = model(work.path(), "compact", HUB, None);
    let folder = work.path().join("hub/models--someone--compact");
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), "0123abcd").unwrap();
    fs::create_dir_all(folder.join("snapshots/0123abcd")).unwrap();
    fs::write(folder.join("snapshots/0123abcd/model.pth"), &bytes).unwrap();
    let mut command = builder(&[&"models", &path, &"--available", &"--names"], work.path());
    let found = Outcome::of(command.env("HF_HUB_CACHE", work.path().join("hub"))).success();
    assert_eq!(found.stdout.trim(), "compact");
    // That cache is only read: the digest of the first use is recorded in the folder of downloads.
    let profile = repository("tests/profiles/small-tiles.yaml");
    let engine = work.path().join("engine");
    let mut command = builder(&[&"build", &path, &"--profile", &profile, &"-o", &engine], work.path());
    let _ = Outcome::of(command.env("HF_HUB_CACHE", work.path().join("hub"))).success();
    assert_eq!(names_in(&folder.join("snapshots/0123abcd")), ["model.pth"]);
    assert!(work.path().join("weights/compact/model.pth.sha256").is_file());
    let listed = run("engine-builder", ["models"]).success().stdout;
    assert!(listed.lines().any(|line| line.starts_with("compact-x4 ") && line.contains(" here ")), "{listed}");
}

/// The small preset of an architecture that has the parts of a model's graph.
fn reduced(model: &str, graph: &str) -> &'static str {
    match (model, graph) {
        ("sdxl-base", "unet") => "tiny-xl",
        ("sdxl-inpainting", _) => "tiny-inpainting",
        ("seedvr2-7b", "transformer") => "tiny-7b",
        (_, next) if next.ends_with("_next") => "tiny-next",
        _ => "tiny",
    }
}

/// Sizes that run quickly.
fn sizes(task: &str, frames: Option<&Value>) -> Value {
    let tile = match task {
        "upscale" | "realtime" => "32x48",
        "vae_encoder" => "64x64",
        "vae_decoder" | "unet" | "transformer" => "8x16",
        "depth" => "42x56",
        _ => return Value::Null,
    };
    json!({ "tiles": [tile], "frames": frames.unwrap_or(&json!(1)) })
}

#[test]
fn make_engines_builds_every_model() {
    let work = tempfile::tempdir().unwrap();
    let (models, weights) = (work.path().join("models"), work.path().join("weights"));
    fs::create_dir(&models).unwrap();
    let described = run("engine-builder", ["models", "--json"]).success().json();
    let (mut names, mut graphs) = (Vec::new(), 0);
    for mut model in described.as_array().unwrap().clone() {
        let name = model["name"].as_str().unwrap().to_owned();
        fs::create_dir_all(weights.join(&name)).unwrap();
        // The same model with reduced weights, one file for each graph. JSON is YAML.
        let mut files = serde_json::Map::new();
        for (graph, facts) in model["graphs"].as_object_mut().unwrap() {
            let (architecture, task) = (facts["architecture"].clone(), facts["task"].as_str().unwrap().to_owned());
            let is_it = |entry: &&Entry| architecture == entry.name && entry.task.to_string() == task;
            let presets = registry().iter().find(is_it).unwrap().presets();
            let (_, network) = presets.into_iter().find(|(preset, _)| *preset == reduced(&name, graph)).unwrap();
            let file = format!("weights{graph}.safetensors");
            synthesise(network.as_ref(), DataType::F32, 1, &weights.join(&name).join(&file)).unwrap();
            facts["sizes"] = sizes(&task, facts["sizes"].get("frames"));
            facts["hyperparameters"] = json!({});
            facts["checkpoint"] = json!(file);
            files.insert(file, json!({}));
            graphs += 1;
        }
        if model.get("restoration").is_some() {
            // Each token has as many numbers as the small transformers take.
            let states: Vec<u8> = (0..50_u8).flat_map(|at| (f32::from(at) / 25.0 - 1.0).to_le_bytes()).collect();
            let view = TensorView::new(Dtype::F32, vec![5, 10], &states).unwrap();
            safetensors::serialize_to_file([("text", view)], None, &weights.join(&name).join("text")).unwrap();
            model["restoration"]["text"] = json!("text");
            files.insert("text".into(), json!({}));
        }
        model["files"] = files.into();
        let single = model["graphs"].as_object_mut().unwrap().remove("");
        let mut keys = model.as_object().unwrap().clone();
        keys.remove("available");
        if let Some(Value::Object(graph)) = single {
            keys.remove("graphs");
            keys.extend(graph);
        }
        fs::write(models.join(format!("{name}.yaml")), Value::Object(keys).to_string()).unwrap();
        names.push(name);
    }
    assert_eq!((names.len(), graphs), (30, 49));
    let folder = work.path().join("engines");
    let make = |names: &str| {
        let mut make = Command::new("make");
        make.current_dir(repository(".")).args(["--no-print-directory", "engines-of-models", "GPU=cpu"]);
        make.arg(format!("BIN={}", binaries().display())).arg(format!("MODELS={names}"));
        make.arg(format!("MODEL_FILES={}", models.display())).arg(format!("ENGINE_FOLDER={}", folder.display()));
        make.env("MODEL_PATH", &weights).env("XDG_CACHE_HOME", work.path().join("cache"));
        make.env("CUDA_VISIBLE_DEVICES", "").env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        Outcome::of(&mut make)
    };
    let _ = make(&names.join(" ")).success();
    assert_eq!(names_in(&folder.join("cpu")), names);
    for name in &names {
        let engine = folder.join("cpu").join(name);
        let shown = run("runtime", words(&[&"verify", &"--engine", &engine, &"--json"])).success().json();
        assert_eq!(shown["passed"], true, "{}: {shown}", engine.display());
    }
    // A second run has nothing to do, and an unknown name ends it.
    assert!(!make(&names.join(" ")).success().stdout.contains("engine-builder build"));
    let _ = make("compact-x5").failure(2, &["compact-x5.yaml: no such model; known are animesharp-v4-x2"]);
}
