//! Engines that come, change and go while the server runs.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Server, SetAtEnd, copy_engine, engines, inference, pipelines, repository, request};

/// The reason that the index gives for a model, or `READY`.
fn state(server: &Server, name: &str) -> Option<String> {
    let (_, index) = server.post("/v2/repository/index", &json!({}));
    let models: &Vec<Value> = index.as_array().unwrap();
    let model = models.iter().find(|model| model["name"] == name)?;
    let word = if model["state"] == "READY" { "state" } else { "reason" };
    Some(model[word].as_str().unwrap().to_owned())
}

#[test]
fn engines_come_and_go_and_broken_ones_are_named() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    assert_eq!(state(&server, "other"), None);
    // Built beside its place and renamed, as the builder does.
    let work = tempfile::tempdir_in(engines.path()).unwrap();
    fs::rename(copy_engine(work.path(), "new"), engines.path().join("other")).unwrap();
    server.wait_until("a new engine", |server| state(server, "other").as_deref() == Some("READY"));
    assert_eq!(server.post("/v2/models/other/infer", &inference(24)).0, 200);
    // Names that begin with a dot are unfinished engines, and files are not models.
    fs::rename(copy_engine(work.path(), "new"), engines.path().join(".hidden")).unwrap();
    fs::write(engines.path().join("file"), "x").unwrap();
    // An engine with changed weights is refused, and opened when it is whole again.
    let broken = copy_engine(work.path(), "broken");
    let weights = fs::read(broken.join("model.weights")).unwrap();
    fs::write(broken.join("model.weights"), &weights[1..]).unwrap();
    fs::rename(&broken, engines.path().join("broken")).unwrap();
    server.wait_until("a broken engine", |server| {
        state(server, "broken").is_some_and(|reason| reason.contains("model.weights"))
    });
    let (status, answer) = server.post("/v2/models/broken/infer", &inference(24));
    assert!(status == 503 && answer["error"].as_str().unwrap().contains("could not be loaded"), "{answer}");
    let (status, head, _) = server.get("/v2/models/broken/ready");
    assert!(status == 503 && head.contains("retry-after: 1"), "{head}");
    fs::write(engines.path().join("broken/model.weights"), &weights).unwrap();
    server.signal("HUP");
    server.wait_until("it is whole", |server| state(server, "broken").as_deref() == Some("READY"));
    fs::remove_dir_all(engines.path().join("other")).unwrap();
    server.wait_until("it is gone", |server| state(server, "other").is_none());
    assert_eq!(server.post("/v2/models/other/infer", &inference(24)).0, 404);
    let (_, index) = server.post("/v2/repository/index", &json!({ "ready": true }));
    assert_eq!(index.as_array().unwrap().len(), 2, "{index}");
    server.assert_well();
}

#[test]
fn an_engine_is_exchanged_loaded_and_unloaded_under_load() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let (done, served, unavailable) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let content = inference(24).to_string();
    thread::scope(|scope| {
        // If an assertion fails here, the clients end, too; the scope waits for them.
        let _ends = SetAtEnd(&done);
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let (status, _, body) =
                        request(&server.http, "POST", "/v2/models/model/infer", &[], content.as_bytes()).unwrap();
                    match status {
                        200 => served.fetch_add(1, Ordering::SeqCst),
                        503 => unavailable.fetch_add(1, Ordering::SeqCst),
                        _ => panic!("{status}: {}", String::from_utf8_lossy(&body)),
                    };
                }
            });
        }
        let loads = || server.figure(r#"tileforge_model_loads{model="model"}"#) as usize;
        for _ in 0..4 {
            let before = loads();
            let work = tempfile::tempdir_in(engines.path()).unwrap();
            let new = copy_engine(work.path(), "new");
            // As the builder does it: the two folders change places in one step.
            let exchanged = std::process::Command::new("python3")
                .arg(repository("tests/clients/exchange_folders.py"))
                .arg(&new)
                .arg(engines.path().join("model"))
                .status()
                .unwrap();
            assert!(exchanged.success());
            server.wait_until("the new engine", |_| loads() > before);
            drop(work);
        }
        assert_eq!(unavailable.load(Ordering::SeqCst), 0, "an exchange loses no request");
        for _ in 0..4 {
            assert_eq!(server.post("/v2/repository/models/model/unload", &json!({})).0, 200);
            assert_eq!(server.post("/v2/models/model/infer", &inference(24)).0, 503);
            assert_eq!(server.post("/v2/repository/models/model/load", &json!({})).0, 200);
            server.assert_well();
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(served.load(Ordering::SeqCst) > 10);
    assert_eq!(state(&server, "model").as_deref(), Some("READY"));
    server.assert_well();
}

#[test]
fn the_configuration_is_read_again() {
    let engines = engines();
    let work = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| copy_engine(work.path(), name));
    let config = work.path().join("config.toml");
    let write = |name: &str, source: &std::path::Path| {
        fs::write(&config, format!("[models]\n{name} = \"{}\"\n", source.display())).unwrap();
    };
    write("one", &first);
    let server = Server::start(engines.path(), &["--config", config.to_str().unwrap()]);
    assert_eq!(state(&server, "one").as_deref(), Some("READY"));
    write("two", &second);
    server.signal("HUP");
    server.wait_until("another name", |server| state(server, "two").as_deref() == Some("READY"));
    server.wait_until("the first is gone", |server| state(server, "one").is_none());
    // An unreadable configuration changes nothing.
    fs::write(&config, "[models\n").unwrap();
    server.signal("HUP");
    server.wait_until("it is said", |server| server.log().contains("cannot be reloaded"));
    fs::write(&config, "[models]\n\"../x\" = \"y\"\n").unwrap();
    server.signal("HUP");
    server.wait_until("it is said", |server| server.log().contains("expected a name"));
    assert_eq!(state(&server, "two").as_deref(), Some("READY"));
    server.assert_well();
}

#[test]
fn each_engine_runs_where_the_configuration_says() {
    let engines = engines();
    let work = tempfile::tempdir().unwrap();
    let source = copy_engine(work.path(), "engine");
    let config = work.path().join("config.toml");
    let write = |models: &[(&str, &str)]| {
        let line = |(name, more): &(&str, &str)| format!("{name} = {{ source = \"{}\"{more} }}\n", source.display());
        fs::write(&config, format!("[models]\n{}", models.iter().map(line).collect::<String>())).unwrap();
    };
    write(&[
        ("gpu", r#", provider = "cuda""#),
        ("processor", r#", provider = "cpu", strict = true, streams = 2, threads = 1"#),
        ("usual", ""),
    ]);
    // The folder's engine and `usual` run where the command line says.
    let words = ["--config", config.to_str().unwrap(), "--provider", "tensorrt"];
    let server = Server::start(engines.path(), &words);
    let ready = |server: &Server, name: &str| state(server, name).as_deref() == Some("READY");
    assert!(ready(&server, "processor"), "{:?}", state(&server, "processor"));
    for (name, provider) in [("gpu", "cuda"), ("usual", "tensorrt"), ("model", "tensorrt")] {
        let state = state(&server, name).unwrap();
        assert!(state.contains(provider), "{name}: {state}");
    }
    // Requests of several clients run at the same time, each in a session of its own.
    server.wait_until("two sessions", |server| {
        thread::scope(|scope| {
            (0..8).for_each(|_| {
                scope.spawn(|| assert_eq!(server.post("/v2/models/processor/infer", &inference(24)).0, 200));
            });
        });
        server.figure(r#"tileforge_sessions{memory="machine"}"#) == 2.0
    });
    write(&[("gpu", r#", provider = "cpu""#), ("processor", r#", provider = "cuda""#)]);
    server.signal("HUP");
    server.wait_until("it moves to the processor", |server| ready(server, "gpu"));
    // An engine that cannot move stays where it is.
    assert!(ready(&server, "processor"));
    for wrong in [
        ", streams = 0",
        ", streams = 17",
        ", threads = 70000",
        ", provider = \"gpu\"",
        ", stream = 1",
        ", devices = [-1]",
    ] {
        write(&[("wrong", wrong)]);
        let told = server.log().matches("cannot be reloaded").count();
        server.signal("HUP");
        server.wait_until(wrong, |server| server.log().matches("cannot be reloaded").count() > told);
    }
    assert!(server.log().contains("models.wrong: expected a source, or a table"), "{}", server.log());
    assert!(ready(&server, "gpu"));
}

#[test]
fn engines_and_pipelines_that_do_not_fit_are_named() {
    let server = Server::start(pipelines(), &["--provider", "tensorrt"]);
    for name in ["model", "sd"] {
        let state = state(&server, name).unwrap();
        assert!(state.contains("tensorrt"), "{name}: {state}");
    }
}

#[test]
fn a_server_without_engines_says_so_once_and_where_some_are() {
    let engines = engines();
    let parent = tempfile::tempdir().unwrap();
    let inner = parent.path().join("cpu");
    fs::rename(engines.path(), &inner).unwrap();
    let server = Server::start(parent.path(), &[]);
    server.wait_until("it says so", |server| server.log().contains("no engine in this folder"));
    // The folder is looked at again every tenth of a second.
    thread::sleep(Duration::from_millis(500));
    let log = server.log();
    assert_eq!(log.matches("no engine in this folder").count(), 1, "{log}");
    assert!(log.contains(&format!("need `--engines {}`", inner.display())), "{log}");
}
