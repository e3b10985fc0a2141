//! Third-party clients.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Server, binary_inference, engines, inference, repository};

/// Runs a Python script of `tests/clients` in the environment that `make test` makes.
pub(crate) fn python(script: &str, arguments: &[&str]) {
    let python = repository("target/server-venv/bin/python");
    let mut command = Command::new(&python);
    command.arg(repository("tests/clients").join(script)).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}; run `make test`", python.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn tritonclient_is_served_over_http_and_grpc() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    python("open_inference.py", &[&server.http, &server.grpc, "model"]);
}

#[test]
fn calls_that_lie_are_refused_with_a_status() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--max-body", "1M"]);
    python("attack_grpc.py", &[&server.grpc, "model", "1048576"]);
    server.assert_well();
}

#[test]
fn curl_is_served() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl").args(["--silent", "--show-error"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let body = server.folder().join("body.json");
    std::fs::write(&body, inference(24).to_string()).unwrap();
    let url = |path: &str| format!("http://{}{path}", server.http);
    let answer: Value =
        serde_json::from_str(&curl(&["--data", &format!("@{}", body.display()), &url("/v2/models/model/infer")]))
            .unwrap();
    assert_eq!(answer["outputs"][0]["shape"], json!([1, 3, 96, 96]));
    let head = curl(&["--head", "--request", "GET", "--header", "X-Request-Id: mine-7", &url("/v2/health/live")]);
    assert!(head.contains("x-request-id: mine-7"), "{head}");
    let is_mine = |event: &Value| event["request_id"] == "mine-7" && event["status"] == 200;
    assert!(server.events().iter().any(is_mine), "{}", server.log());
}

#[test]
fn a_quiet_server_logs_no_request() {
    let engines = engines();
    let mut server = Server::start(engines.path(), &["--quiet"]);
    assert_eq!(server.get("/v2/health/live").0, 200);
    server.signal("TERM");
    assert_eq!((server.exit_code(), server.log().as_str()), (0, ""));
}

#[test]
fn the_document_has_the_paths_that_are_served() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let (status, _, body) = server.get("/openapi.json");
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &document["info"]["version"]), (200, &env!("CARGO_PKG_VERSION").into()));
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{name}", "model").replace("{version}", "1").replace("{id}", "0");
        for (method, operation) in operations.as_object().unwrap() {
            let (status, head, _) = server.request(&method.to_uppercase(), &path, &[], b"");
            let listed = operation["responses"].as_object().unwrap();
            assert!(listed.contains_key(&status.to_string()) && status != 405, "{method} {path}: {head}");
        }
        assert_eq!(server.request("PATCH", &path, &[], b"").0, 405, "{path}");
    }
}

#[test]
fn figures_are_prometheus_text_and_count_what_happened() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    server.assert_well();
    let (length, body) = binary_inference(24);
    let header = [("Inference-Header-Content-Length", &*length.to_string())];
    let (status, head, _) = server.request("POST", "/v2/models/model/infer", &header, &body);
    assert_eq!((status, head.contains("inference-header-content-length")), (200, true), "{head}");
    let (status, _) = server.post("/v2/models/model/infer", &json!({ "inputs": [] }));
    assert_eq!(status, 400);
    for (name, expected) in [
        (r#"nv_inference_request_success{model="model"}"#, 2.0),
        (r#"nv_inference_count{model="model"}"#, 2.0),
        (r#"nv_inference_request_failure{model="model",reason="Invalid"}"#, 1.0),
        ("nv_inference_pending_request_count", 0.0),
        ("tileforge_runs", 2.0),
        (r#"tileforge_sessions{memory="machine"}"#, 1.0),
    ] {
        assert_eq!(server.figure(name), expected, "{name}: {}", String::from_utf8_lossy(&server.get("/metrics").2));
    }
}
