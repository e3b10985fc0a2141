//! More than the server can do at once.

use std::io::Write;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Server, binary_inference, engines, inference, long_inference};

const INFER: &str = "/v2/models/model/infer";

#[test]
fn a_full_queue_refuses_at_once_and_loses_nothing() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--queue", "2"]);
    server.assert_well();
    let (length, body) = long_inference(8);
    let ask = || {
        let began = Instant::now();
        let header = [("Inference-Header-Content-Length", &*length.to_string())];
        let (status, head, _) = server.request("POST", INFER, &header, &body);
        (status, head, began.elapsed())
    };
    let answers: Vec<_> = thread::scope(|scope| {
        let asking: Vec<_> = (0..24).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let served = answers.iter().filter(|(status, ..)| *status == 200).count();
    let refused: Vec<_> = answers.iter().filter(|(status, ..)| *status == 429).collect();
    assert!(served >= 2 && !refused.is_empty() && served + refused.len() == 24, "{served} of {answers:?}");
    assert!(refused.iter().all(|(_, head, _)| head.to_ascii_lowercase().contains("retry-after: 1")), "{refused:?}");
    server.assert_well();
}

#[test]
fn requests_and_bodies_that_are_too_many_are_refused_at_once() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--max-requests", "3", "--max-bodies", "1M"]);
    // Three requests whose bodies do not end.
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n");
    let mut open: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for stream in &mut open {
        stream.write_all(head.as_bytes()).unwrap();
    }
    server.wait_until("three requests", |server| server.figure("nv_inference_pending_request_count") == 3.0);
    let (status, answer) = server.post(INFER, &inference(24));
    assert!(status == 429 && answer["error"].as_str().unwrap().contains("3 requests are in the server"), "{answer}");
    // Requests that are not work are answered.
    assert_eq!(server.get("/v2/health/ready").0, 200);
    // The memory of all bodies is less than three of them.
    for stream in &mut open {
        let _ = stream.write_all(&vec![b' '; 600_000]);
    }
    server.wait_until("one is refused", |server| {
        server.events().iter().any(|event| event["status"] == 429 && event["path"] == INFER)
    });
    drop(open);
    server.wait_until("room", |server| server.figure("nv_inference_pending_request_count") == 0.0);
    server.assert_well();
}

#[test]
fn a_request_ends_at_its_deadline_and_with_its_client() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--request-timeout", "120"]);
    server.assert_well();
    let mut content = inference(96);
    content["parameters"] = json!({ "timeout": 1 });
    let (status, answer) = server.post(INFER, &content);
    assert_eq!(status, 504, "{answer}");
    // A client that disconnects cancels its request: its waiting samples do not run.
    let (length, body) = long_inference(400);
    let before = server.figure("tileforge_runs");
    let mut stream = server.connect();
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: {length}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    server.wait_until("it runs", |server| server.figure("tileforge_runs") > before);
    drop(stream);
    server.wait_until("it is gone", |server| server.figure("tileforge_requests_cancelled") == 1.0);
    server.wait_until("nothing waits", |server| server.figure("tileforge_queued_samples") == 0.0);
    assert!(server.figure("tileforge_runs") < before + 300.0, "{}", server.figure("tileforge_runs"));
    let went = |event: &Value| event["outcome"] == "the client disconnected before the answer";
    assert!(server.events().iter().any(went), "{}", server.log());
    server.assert_well();
}

#[test]
fn memory_stays_the_same_over_thousands_of_requests() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let (length, body) = binary_inference(24);
    let ask = |count: usize| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..count / 4 {
                        let header = [("Inference-Header-Content-Length", &*length.to_string())];
                        assert_eq!(server.request("POST", INFER, &header, &body).0, 200);
                    }
                });
            }
        });
    };
    ask(400);
    let before = server.memory();
    ask(1600);
    let after = server.memory();
    // 5 %, and a little for what the allocator keeps.
    assert!(after < before + before / 20 + (4 << 20), "{before} bytes, then {after}");
}
