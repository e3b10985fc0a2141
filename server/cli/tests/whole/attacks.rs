//! Requests and connections that try to break the server. Afterwards, the server still works.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, binary_inference, engines, inference};

const INFER: &str = "/v2/models/model/infer";

/// The status and the error of a request with this JSON.
fn refused(server: &Server, content: &str) -> (u16, String) {
    let (status, _, body) = server.request("POST", INFER, &[], content.as_bytes());
    let answer: Value = serde_json::from_slice(&body).unwrap();
    (status, answer["error"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn json_that_lies_is_refused_with_the_reason() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let with = |shape: &str, data: &str| {
        format!(r#"{{"inputs":[{{"name":"image","datatype":"FP32","shape":{shape},"data":{data}}}]}}"#)
    };
    let nested = "[".repeat(100_000);
    for (content, expected) in [
        ("", "the JSON of the request: EOF"),
        ("{", "the JSON of the request: EOF"),
        ("[]", "the JSON of the request: invalid type: sequence, expected a JSON object"),
        (r#"["", {}, [], []]"#, "the JSON of the request: invalid type: sequence, expected a JSON object"),
        (r#"{"inputs":[["image","FP32",[1],{},[1]]]}"#, "invalid type: sequence, expected a JSON object"),
        (r#"{"inputs":[],"outputs":[["upscaled",{}]]}"#, "invalid type: sequence, expected a JSON object"),
        ("nul", "the JSON of the request: "),
        (r#"{"inputs":[]} x"#, "trailing characters"),
        (r#"{"inputs":[],"inputs":[]}"#, "duplicate field"),
        (&format!(r#"{{"inputs":{nested}"#), "the JSON of the request"),
        (&format!(r#"{{"other":{nested}"#), "the JSON of the request: EOF"),
        (&with("[1]", &nested), "at most 8 arrays"),
        (&with("[1]", "[NaN]"), "the JSON of the request"),
        (&with("[1]", "[Infinity]"), "the JSON of the request"),
        (&with("[1]", "[null]"), "a number or an array of numbers"),
        (&with("[1]", r#"["1"]"#), "a number or an array of numbers"),
        (&with("[1]", r#"{"a":1}"#), "an array of numbers"),
        (&with("[1]", "[1e39]"), "out of its type's range"),
        (&with("[1]", "[1e999]"), "number out of range"),
        (&with("[-1]", "[1]"), "expected lengths of at least 0"),
        (&with("[1.5]", "[1]"), "the JSON of the request"),
        (&with(r#""1""#, "[1]"), "the JSON of the request"),
        (&with("[9223372036854775807,9223372036854775807]", "[1]"), "more elements than there can be"),
        (&with("[4611686018427387904]", "[1]"), "expected 4611686018427387904 elements for its shape, found 1"),
        (&with("[99999999999999999999]", "[1]"), "the JSON of the request"),
        (&with("[1,1,1,1,1,1,1,1,1]", "[1]"), "at most 8 axes"),
        (&with("[0,3,24,24]", "[]"), "image"),
        (&with("[1,3,24,24]", "[1]"), "expected 1728 elements for its shape, found 1"),
        (r#"{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"data":[1]}]}"#, "expected elements of FP32"),
        (r#"{"inputs":[{"name":"image","datatype":"FP16","shape":[1],"data":[1]}]}"#, "come as bytes alone"),
        (r#"{"inputs":[{"name":"image","datatype":"FP32","shape":[1]}]}"#, "expected `data` or `binary_data_size`"),
        (r#"{"inputs":[],"parameters":{"timeout":-1}}"#, "timeout: expected a whole number"),
        (r#"{"inputs":[],"parameters":{"x":{}}}"#, "true, false, a number or a text"),
    ] {
        let (status, error) = refused(&server, content);
        let start: String = content.chars().take(90).collect();
        assert!(status == 400 && error.contains(expected), "{start}: expected {expected}, found {status} {error}");
        assert!(error.len() < 1000, "{start}: {error}");
    }
    // An error does not quote a value of another type at full length.
    let long = json!({ "inputs": "x".repeat(900_000) }).to_string();
    let (status, error) = refused(&server, &long);
    assert!(status == 400 && error.len() < 3000 && error.contains("expected a sequence at line 1"), "{error}");
    // An input with the same name twice, and none at all.
    let mut twice = inference(24);
    let input = twice["inputs"][0].clone();
    twice["inputs"].as_array_mut().unwrap().push(input);
    assert!(refused(&server, &twice.to_string()).1.contains("two of this name"));
    assert_eq!(refused(&server, r#"{"inputs":[]}"#).0, 400);
    server.assert_well();
}

#[test]
fn binary_tensors_that_lie_are_refused_with_the_reason() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let (length, body) = binary_inference(24);
    let ask = |length: &str, body: &[u8]| {
        let (status, _, body) = server.request("POST", INFER, &[("Inference-Header-Content-Length", length)], body);
        (
            status,
            serde_json::from_slice::<Value>(&body).unwrap_or_default()["error"].as_str().unwrap_or_default().to_owned(),
        )
    };
    for (length, body, expected) in [
        ("x".to_owned(), &body[..], "expected at most the body's"),
        ("-1".into(), &body, "expected at most the body's"),
        ("99999999999999999999999".into(), &body, "expected at most the body's"),
        ((body.len() + 1).to_string(), &body, "expected at most the body's"),
        ((length - 1).to_string(), &body, "the JSON of the request: EOF"),
        ((length + 1).to_string(), &body, "the JSON of the request: "),
        ("0".into(), &body, "the JSON of the request: EOF"),
        (length.to_string(), &body[..body.len() - 1], "bytes that are left"),
        (length.to_string(), &[&body[..], b"x"].concat(), "expected nothing behind the tensors, found 1 bytes"),
    ] {
        let (status, error) = ask(&length, body);
        assert!(status == 400 && error.contains(expected), "{length}: expected {expected}, found {status} {error}");
    }
    assert_eq!(ask(&length.to_string(), &body).0, 200);
    let shared = json!({ "inputs": [{
        "name": "image", "datatype": "FP32", "shape": [1], "parameters": { "shared_memory_region": "/etc" } }] });
    assert!(refused(&server, &shared.to_string()).1.contains("shared memory is not served"));
    server.assert_well();
}

#[test]
fn names_reach_no_files_and_paths_that_are_none_say_so() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    for name in [
        "none",
        "..",
        "../model",
        "..%2fmodel",
        "%2e%2e%2fmodel",
        "model%00",
        "%ff",
        "model%2f",
        "a".repeat(5000).as_str(),
    ] {
        for (method, path) in [
            ("GET", format!("/v2/models/{name}")),
            ("POST", format!("/v2/models/{name}/infer")),
            ("POST", format!("/v2/repository/models/{name}/load")),
            ("POST", format!("/v2/repository/models/{name}/unload")),
            ("GET", format!("/v1/models/{name}")),
            ("GET", format!("/v1/jobs/{name}")),
            ("DELETE", format!("/v1/jobs/{name}")),
            ("GET", format!("/v1/jobs/{name}/events")),
            ("GET", format!("/v1/jobs/{name}/result")),
        ] {
            let (status, head, body) = server.request(method, &path, &[], b"{}");
            assert!(status == 404, "{path}: {head}");
            let error = &serde_json::from_slice::<Value>(&body).unwrap()["error"];
            let message = if path.starts_with("/v1/models/") { &error["message"] } else { error };
            assert!(message.is_string(), "{path}: {error}");
        }
    }
    assert_eq!(server.get("/none").0, 404);
    assert_eq!(server.get("/v2/models/model/versions/2").0, 404);
    assert_eq!(server.get("/v2/models/model/versions/1").0, 200);
    assert_eq!(server.request("DELETE", "/v2/models/model", &[], b"").0, 405);
    assert_eq!(server.get(INFER).0, 405);
    assert_eq!(server.request("POST", INFER, &[("Content-Encoding", "gzip")], b"x").0, 415);
    // A source that a client names is not taken.
    let (status, answer) =
        server.post("/v2/repository/models/model/load", &json!({ "parameters": { "config": "{}" } }));
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("no parameters"), "{answer}");
    // A body that is not an object does not change a model.
    for (path, content) in [
        ("/v2/repository/index", r#"[true]"#),
        ("/v2/repository/models/model/load", "[{}]"),
        ("/v2/repository/models/model/unload", "[null, null]"),
        ("/v2/repository/models/model/unload", r#"{"parameters":[null]}"#),
        ("/v2/repository/models/model/unload", "x"),
    ] {
        let (status, _, body) = server.request("POST", path, &[], content.as_bytes());
        let answer = String::from_utf8(body).unwrap();
        assert!(status == 400 && answer.contains("the body: "), "{path}: {status} {answer}");
    }
    // The parameters of Triton's clients change nothing.
    let unload = json!({ "parameters": { "unload_dependents": false } });
    assert_eq!(server.post("/v2/repository/models/model/unload", &unload).0, 200);
    assert_eq!(server.request("POST", "/v2/repository/models/model/load", &[], b"").0, 200);
    server.assert_well();
}

#[test]
fn bodies_that_are_too_large_or_never_end_are_refused() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--max-body", "1M", "--body-timeout", "1"]);
    let head = |more: &str| format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    for length in ["1048577", "9223372036854775807"] {
        let answer = server.exchange(head(&format!("Content-Length: {length}\r\n")).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413"), "{length}: {answer}");
    }
    for length in ["-1", "x", "18446744073709551616", "1, 2"] {
        let answer = server.exchange(head(&format!("Content-Length: {length}\r\n")).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400"), "{length}: {answer}");
    }
    // Endless chunks: more than 64 MiB, of which sockets buffer a few.
    let mut stream = server.connect();
    stream.write_all(head("Transfer-Encoding: chunked\r\n").as_bytes()).unwrap();
    let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let mut sent = 0;
    while sent < 1024 && stream.write_all(piece.as_bytes()).is_ok() {
        sent += 1;
    }
    let mut answer = [0; 12];
    let read = stream.read(&mut answer).unwrap_or(0);
    assert!(sent < 1024 && (read == 0 || answer.starts_with(b"HTTP/1.1 413")), "{sent}");
    // A chunk with a wrong length.
    let answer =
        server.exchange(&[head("Transfer-Encoding: chunked\r\n").as_bytes(), b"fffffffffffffffff\r\n"].concat());
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    // Both length headers at once, as in request smuggling: the rest after either length must not be taken as a new
    // request.
    let both = head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")
        + "0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(server.exchange(both.as_bytes()).matches("nv_inference").count(), 0);
    // A body that stops, one that comes byte by byte, and one that ends early.
    let began = Instant::now();
    let answer = server.exchange((head("Content-Length: 100\r\n") + "{").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    let mut stream = server.connect();
    stream.write_all(head("Content-Length: 1000\r\n").as_bytes()).unwrap();
    while began.elapsed() < Duration::from_secs(10) && stream.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "a body byte by byte is read for ever");
    drop(stream);
    let mut stream = server.connect();
    stream.write_all((head("Content-Length: 100\r\n") + "{").as_bytes()).unwrap();
    drop(stream);
    server.assert_well();
}

#[test]
fn heads_that_come_slowly_or_are_too_large_are_refused() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--header-timeout", "1"]);
    let began = Instant::now();
    // Nothing at all, a head that stops, a head that comes byte by byte, and an idle connection.
    let mut silent = [
        &b""[..],
        b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    .map(|bytes| {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        stream
    });
    let mut slow = server.connect();
    while began.elapsed() < Duration::from_secs(10) && slow.write_all(b"GET"[..1].as_ref()).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    for stream in &mut silent {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    assert!(began.elapsed() < Duration::from_secs(8), "slow heads hold a connection");
    // The same for gRPC: nothing, and a beginning of its preface.
    for bytes in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let began = Instant::now();
        let mut stream = TcpStream::connect(&server.grpc).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(began.elapsed() < Duration::from_secs(45), "a silent connection of gRPC stays");
    }
    let large = format!("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert!(server.exchange(large.as_bytes()).starts_with("HTTP/1.1 431"));
    let many: String = (0..1000).map(|number| format!("X-{number}: x\r\n")).collect();
    let many = format!("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert!(server.exchange(many.as_bytes()).starts_with("HTTP/1.1 431"));
    for text in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n"] {
        let answer = server.exchange(text.as_bytes());
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{text:?}: {answer}");
    }
    server.assert_well();
}

#[test]
fn old_and_eager_clients_are_served() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let answer = server.exchange(b"GET /v2/health/live HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with(r#"{"live":true}"#), "{answer}");
    // Several requests at once on one connection are answered in their order.
    let body = inference(24).to_string();
    let infer = format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let live = "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /v2/models/model HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = server.exchange(format!("{live}{infer}{live}{last}").as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 4, "{answer}");
    let places: Vec<usize> = ["live", "model_name", "platform"].iter().map(|word| answer.find(word).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_thousand_connections_are_served_and_more_are_refused_at_once() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--max-connections", "1000", "--header-timeout", "60"]);
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| server.connect()).collect();
    // They are counted once they are accepted.
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let answer = server.exchange(b"");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("Retry-After"), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(5));
    for stream in &mut streams {
        stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    }
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    server.assert_well();
}
