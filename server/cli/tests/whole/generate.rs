//! Pictures from texts, by OpenAI's interface.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clients::python;
use crate::harness::{Server, picture, pipelines, repository};

const GENERATIONS: &str = "/v1/images/generations";
const EDITS: &str = "/v1/images/edits";

/// A request that takes some seconds.
pub(crate) fn long() -> Value {
    json!({ "model": "sd", "prompt": "a fox", "n": 10, "steps": 150, "seed": 1 })
}

#[test]
fn the_client_of_openai_is_served() {
    let server = Server::start(pipelines(), &[]);
    let path = server.folder().join("64x64.png");
    picture(&server, "64x64");
    python("openai_images.py", &[&server.http, "sd", path.to_str().unwrap()]);
    assert_eq!(server.figure("nv_inference_pending_request_count"), 0.0);
}

#[test]
fn the_client_of_openai_for_npm_is_served() {
    let server = Server::start(pipelines(), &[]);
    let modules = repository("target/server-npm/node_modules");
    let output = Command::new("node")
        .arg(repository("tests/clients/openai_images.mjs"))
        .args([&server.http, "sd"])
        .arg(modules.canonicalize().unwrap_or_else(|_| panic!("{} is not there; run `make test`", modules.display())))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_client_that_goes_ends_its_pictures() {
    let server = Server::start(pipelines(), &[]);
    for streams in [false, true] {
        let mut content = long();
        (content["stream"], content["partial_images"]) = (streams.into(), 5.into());
        let content = content.to_string();
        let before = server.figure("tileforge_runs");
        let mut stream = server.connect();
        let length = content.len();
        let head = format!(
            "POST {GENERATIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
            Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), content.as_bytes()].concat()).unwrap();
        server.wait_until("it runs", |server| server.figure("tileforge_runs") > before + 5.0);
        drop(stream);
        server.wait_until("it has gone", |server| server.figure("nv_inference_pending_request_count") == 0.0);
        server.wait_until("nothing waits", |server| server.figure("tileforge_queued_samples") == 0.0);
        assert!(server.figure("tileforge_runs") < before + 2000.0);
    }
    server.assert_well();
}

#[test]
fn a_stream_whose_reader_stalls_holds_nothing_up() {
    let server = Server::start(pipelines(), &["--write-timeout", "1"]);
    let mut content = long();
    (content["stream"], content["partial_images"], content["n"]) = (true.into(), 10.into(), 1.into());
    let content = content.to_string();
    let length = content.len();
    let head = format!(
        "POST {GENERATIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
        Content-Length: {length}\r\n\r\n"
    );
    // None of these clients reads a byte.
    let mut open: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for stream in &mut open {
        stream.write_all(&[head.as_bytes(), content.as_bytes()].concat()).unwrap();
    }
    server.wait_until("all end", |server| {
        let answered = |event: &Value| event["path"] == GENERATIONS && event["status"] == 200;
        server.events().iter().filter(|event| answered(event)).count() == 8
            && server.figure("nv_inference_pending_request_count") == 0.0
    });
    // The events that were sent are complete: small events fit into the buffers of a socket.
    let mut answer = String::new();
    open[0].set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let _ = open[0].read_to_string(&mut answer);
    assert!(answer.contains("event: image_generation.completed"), "{answer}");
    server.assert_well();
}

#[test]
fn pictures_as_text_that_lie_are_refused_in_openais_form() {
    let server = Server::start(pipelines(), &["--max-megapixels", "1", "--max-body", "8M"]);
    let refused = |path: &str, kind: &str, body: &[u8]| {
        let (status, _, answer) = server.request("POST", path, &[("Content-Type", kind)], body);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let error = &answer["error"];
        assert!(error["type"].is_string() && !error["message"].as_str().unwrap().is_empty(), "{answer}");
        (status, error["message"].as_str().unwrap().to_owned())
    };
    let json = |content: Value| refused(EDITS, "application/json", content.to_string().as_bytes());
    let small = coded(&picture(&server, "64x64"));
    let edit = |image: &str| json!({ "model": "sd", "prompt": "x", "image": image, "steps": 1 });
    // A bomb, inside base64.
    let before = server.memory();
    let (status, message) = json(edit(&coded(&picture(&server, "10000x10000"))));
    assert!(status == 400 && message.contains("10000×10000"), "{message}");
    assert!(server.memory() < before + (60 << 20));
    for image in ["", "=", "%%%", "data:", "data:image/png,abc", "data:image/png;base64,", "AAAA", &small[..60]] {
        assert_eq!(json(edit(image)).0, 400, "{image}");
    }
    let mut masked = edit(&small);
    masked["mask"] = coded(&picture(&server, "32x64")).into();
    assert!(json(masked).1.contains("mask: expected 64x64, as the picture, found 32x64"));
    let mut alone = edit("");
    alone.as_object_mut().unwrap().remove("image");
    assert!(json(alone).1.contains("image: expected one picture"));
    // Invalid JSON, and invalid forms.
    for body in ["", "{", "[]", "{\"prompt\": 1}", "{\"prompt\": \"x\", \"prompt\": \"x\"}", "\"x\"", "{\"n\": 1e99}"] {
        assert_eq!(refused(GENERATIONS, "application/json", body.as_bytes()).0, 400, "{body}");
    }
    // Texts that would take many times their size in memory.
    let before = server.memory();
    for (begin, part) in
        [("{\"images\": [", "\"\","), ("{\"image\": [", "[],"), ("{\"mask\": [", "1,"), ("{\"seed\": [", "1,")]
    {
        let body = [begin, &part.repeat(7 << 20).as_str()[..7 << 20]].concat();
        assert_eq!(refused(EDITS, "application/json", body.as_bytes()).0, 400, "{begin}");
        assert_eq!(
            server.request("POST", "/sdapi/v1/img2img", &[], body.replace("images", "init_images").as_bytes()).0,
            400
        );
    }
    assert!(server.memory() < before + (60 << 20), "{before}, {}", server.memory());
    let deep = format!("{{\"other\": {}", "[".repeat(1 << 20));
    assert_eq!(refused(GENERATIONS, "application/json", deep.as_bytes()).0, 400);
    let form = "multipart/form-data; boundary=x";
    for body in
        ["", "--x", "--x\r\n\r\n--x--\r\n", "--x\r\nContent-Disposition: form-data; name=n\r\n\r\nNaN\r\n--x--\r\n"]
    {
        assert_eq!(refused(EDITS, form, body.as_bytes()).0, 400, "{body}");
    }
    assert_eq!(refused("/v1/images/nothing", "application/json", b"{}").0, 404);
    let (status, answer) = server.post(GENERATIONS, &json!({ "model": "sd", "prompt": "x", "steps": 1 }));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn long_pictures_end_at_their_deadline() {
    let server = Server::start(pipelines(), &[]);
    let mut content = long();
    content["timeout"] = 0.3.into();
    let began = Instant::now();
    let (status, answer) = server.post(GENERATIONS, &content);
    assert!(status == 504 && began.elapsed() < Duration::from_secs(5), "{answer}");
    assert_eq!(answer["error"]["type"], "server_error");
    content["stream"] = true.into();
    let (status, _, events) =
        server.request("POST", GENERATIONS, &[("Content-Type", "application/json")], content.to_string().as_bytes());
    let events = String::from_utf8(events).unwrap();
    assert!(status == 504 || events.contains("event: error\ndata: {\"error\":{"), "{status} {events}");
    server.assert_well();
}

/// Bytes in base64.
pub(crate) fn coded(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
