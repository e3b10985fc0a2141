//! Long work as jobs.

use std::io::{Read, Write};
use std::thread;

use serde_json::{Value, json};

use crate::generate::long;
use crate::harness::{Server, engines, picture, pipelines, request};

/// Makes a job, and returns its path.
fn made(server: &Server, kind: &str, content: &Value) -> String {
    let (status, job) = server.post(&format!("/v1/jobs/{kind}"), content);
    assert_eq!(status, 202, "{job}");
    format!("/v1/jobs/{}", job["id"].as_str().unwrap())
}

fn status(server: &Server, path: &str) -> Value {
    serde_json::from_slice(&server.get(path).2).unwrap()
}

/// The names and data of an answer's events.
fn events(text: &[u8]) -> Vec<(String, Value)> {
    // The answer is chunked; the lengths of chunks are on separate lines.
    let text = String::from_utf8_lossy(text);
    let mut names = text.lines().filter_map(|line| line.strip_prefix("event: ").map(str::to_owned));
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| (names.next().unwrap(), serde_json::from_str(line).unwrap())).collect()
}

#[test]
fn a_job_is_followed_and_its_result_is_the_answer() {
    let server = Server::start(pipelines(), &[]);
    let content = json!({ "model": "sd", "prompt": "a fox", "steps": 30, "seed": 3, "partial_images": 3 });
    let path = made(&server, "generations", &content);
    let (code, head, text) = server.get(&format!("{path}/events"));
    assert!(code == 200 && head.contains("content-type: text/event-stream"), "{head}");
    let events = events(&text);
    let (last, data) = events.last().unwrap();
    assert_eq!((last.as_str(), &data["status"]), ("completed", &"completed".into()), "{events:?}");
    assert!(events.iter().any(|(name, data)| name == "progress" && data["total"].as_u64() >= Some(30)), "{events:?}");
    assert!(events.iter().any(|(name, data)| name == "preview" && data["size"] == "64x64"), "{events:?}");
    let (code, head, result) = server.get(&format!("{path}/result"));
    assert!(code == 200 && head.contains("content-type: application/json"), "{head}");
    let result: Value = serde_json::from_slice(&result).unwrap();
    let mut alone = content;
    alone["partial_images"] = 0.into();
    assert_eq!(result["data"], server.post("/v1/images/generations", &alone).1["data"]);
    // It is removed with its result.
    assert_eq!(server.request("DELETE", &path, &[], b"").0, 200);
    assert_eq!(server.get(&path).0, 404);
    // A picture as a body becomes a file.
    let (code, _, job) = server.request("POST", "/v1/jobs/upscale?engine=model", &[], &picture(&server, "40x30"));
    let job: Value = serde_json::from_slice(&job).unwrap();
    assert_eq!(code, 202, "{job}");
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    server.wait_until("done", |server| status(server, &path)["status"] == "completed");
    let (_, head, file) = server.get(&format!("{path}/result"));
    assert!(head.contains("content-type: image/png") && file.starts_with(b"\x89PNG"), "{head}");
}

#[test]
fn a_job_waits_in_a_queue_and_is_cancelled() {
    let server = Server::start(pipelines(), &["--queue", "2"]);
    let mut jobs = Vec::new();
    let refused = loop {
        let (code, job) = server.post("/v1/jobs/generations", &long());
        if code != 202 {
            break (code, job);
        }
        jobs.push(format!("/v1/jobs/{}", job["id"].as_str().unwrap()));
    };
    // A full queue refuses at once, in the form of this interface.
    assert!(refused.0 == 429 && refused.1["error"].is_string(), "{refused:?}");
    let last = jobs.last().unwrap().clone();
    server.wait_until("it has a place", |server| {
        let job = status(server, &last);
        job["status"] == "queued" && job["place"].as_u64().is_some()
    });
    let (code, _, answer) = server.get(&format!("{last}/result"));
    assert_eq!(code, 409, "{}", String::from_utf8_lossy(&answer));
    assert!(server.figure("nv_inference_pending_request_count") >= jobs.len() as f64);
    // Clients that follow it are notified.
    let text = thread::scope(|scope| {
        let following = scope.spawn(|| server.get(&format!("{last}/events")).2);
        server.wait_until("it is followed", |server| {
            server.events().iter().any(|event| event["path"] == format!("{last}/events"))
        });
        for path in &jobs {
            assert_eq!(server.request("DELETE", path, &[], b"").0, 200);
        }
        following.join()
    });
    assert_eq!(events(&text.unwrap()).last().unwrap().0, "cancelled");
    server.wait_until("nothing runs", |server| server.figure("nv_inference_pending_request_count") == 0.0);
    server.assert_well();
}

#[test]
fn jobs_are_their_callers_and_expire() {
    let engines = engines();
    let keys = engines.path().join("keys");
    let key = |name: &str| {
        let mut command = std::process::Command::new(crate::harness::program("tileforge-server"));
        let output = command.args(["key", name, "--keys"]).arg(&keys).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        format!("Bearer {}", String::from_utf8(output.stdout).unwrap().trim())
    };
    let [alice, bob] = [key("alice"), key("bob")];
    let server = Server::start(engines.path(), &["--result-time", "1.5", "--keys", keys.to_str().unwrap()]);
    let small = picture(&server, "40x30");
    let ask = |method: &str, path: &str, key: &str, body: &[u8]| {
        server.request(method, path, &[("Authorization", key)], body)
    };
    let (code, head, job) = ask("POST", "/v1/jobs/upscale", &alice, &small);
    let job: Value = serde_json::from_slice(&job).unwrap();
    assert_eq!(code, 202, "{job}");
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    assert!(head.contains(&format!("location: {path}")), "{head}");
    for path in [path.clone(), format!("{path}/events"), format!("{path}/result")] {
        assert_eq!(ask("GET", &path, &bob, b"").0, 404, "{path}");
        assert_eq!(server.get(&path).0, 401, "{path}");
    }
    assert_eq!(ask("DELETE", &path, &bob, b"").0, 404);
    assert_eq!(ask("GET", &path, &alice, b"").0, 200);
    server.wait_until("its time is over", |_| ask("GET", &path, &alice, b"").0 == 404);
    for path in ["/v1/jobs/", "/v1/jobs/..%2f", "/v1/jobs/0", &format!("/v1/jobs/{}", "0".repeat(32))] {
        assert_eq!(ask("GET", path, &alice, b"").0, 404, "{path}");
    }
}

#[test]
fn a_job_ends_before_the_server_does() {
    let mut server = Server::start(pipelines(), &[]);
    let path = made(&server, "generations", &json!({ "model": "sd", "prompt": "a fox", "steps": 150, "n": 4 }));
    let events_path = format!("{path}/events");
    let answer = thread::scope(|scope| {
        let (http, events_path) = (server.http.clone(), events_path.as_str());
        let following = scope.spawn(move || request(&http, "GET", events_path, &[], b""));
        server.wait_until("it is followed", |server| server.events().iter().any(|event| event["path"] == events_path));
        server.signal("TERM");
        following.join().unwrap()
    });
    let text = answer.unwrap().2;
    assert_eq!(events(&text).last().unwrap().0, "completed", "{}", server.log());
    assert_eq!(server.exit_code(), 0, "{}", server.log());
}

#[test]
fn results_that_pile_up_stay_within_their_limits() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--max-jobs", "4", "--max-results", "100K"]);
    let small = picture(&server, "40x30");
    let mut paths = Vec::new();
    for _ in 0..12 {
        let (code, _, job) = server.request("POST", "/v1/jobs/upscale", &[], &small);
        let job: Value = serde_json::from_slice(&job).unwrap();
        assert_eq!(code, 202, "{job}");
        let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
        server.wait_until("done", |server| status(server, &path)["status"] == "completed");
        paths.push(path);
    }
    let kept: Vec<bool> = paths.iter().map(|path| server.get(path).0 == 200).collect();
    assert!((1..=4).contains(&kept.iter().filter(|kept| **kept).count()) && kept[11] && !kept[0], "{kept:?}");
    // A refused request makes no job.
    assert_eq!(server.request("POST", "/v1/jobs/upscale", &[], b"no picture").0, 400);
    assert_eq!(server.post("/v1/jobs/generations", &json!({})).0, 400);
    assert_eq!(server.post("/v1/jobs/other", &json!({})).0, 405);
}

#[test]
fn a_thousand_followers_do_not_stop_it() {
    let limits = ["--max-connections", "1100", "--max-steps", "900", "--max-pictures", "40"];
    let server = Server::start(pipelines(), &limits);
    let (mut longer, pictures, steps) = (long(), 40, 900);
    (longer["n"], longer["steps"]) = (pictures.into(), steps.into());
    let path = made(&server, "generations", &longer);
    let head = format!("GET {path}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut open = Vec::new();
    for _ in 0..1000 {
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        open.push(stream);
    }
    assert_eq!(server.get("/v2/health/ready").0, 200);
    let mut first = [0; 15];
    open[999].read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    // Half of the clients disconnect, and the job goes on.
    open.truncate(500);
    assert_ne!(status(&server, &path)["status"], "failed");
    assert_eq!(server.request("DELETE", &path, &[], b"").0, 200);
    // A connection stays open after the last event.
    open[0].set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let (mut rest, mut some) = (String::new(), [0; 4096]);
    while !rest.contains("event: cancelled") {
        let count = open[0].read(&mut some).unwrap_or_else(|error| panic!("{error} after {rest}"));
        assert_ne!(count, 0, "{rest}");
        rest.push_str(&String::from_utf8_lossy(&some[..count]));
    }
    drop(open);
    server.wait_until("all are closed", |server| server.figure(r#"tileforge_connections{protocol="http"}"#) <= 2.0);
    server.assert_well();
}
