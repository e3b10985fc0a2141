//! Third-party object stores.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::parts::{Broker, Pictures, S3, ended, worker_with};
use crate::harness::engines;

fn job(id: &str) -> Value {
    json!({
        "id": id, "kind": "upscale", "inputs": { "image": "s3://bucket/jobs/in.png" },
        "output": format!("s3://bucket/jobs/out/{id}.png"), "options": { "engine": "model" },
    })
}

/// A store that refuses requests for a while delays jobs, but loses none.
#[test]
fn jobs_wait_for_a_store_that_refuses() {
    let (engines, broker, s3) = (engines(), Broker::nats(), S3::start());
    let picture = fs::read(Pictures::new().path("in.png")).unwrap();
    assert_eq!(s3.request("PUT", "/bucket/jobs/in.png", &picture).0, 200);
    let patient = worker_with(engines.path(), &broker, "s3://bucket/jobs", &["--lease", "1"], |command| {
        s3.environment(command);
    });
    broker.send(&[job("one")]);
    patient.wait_until("it is done", |worker| ended(worker, "done") == 1.0);
    let (status, made) = s3.request("GET", "/bucket/jobs/out/one.png", b"");
    assert!(status == 200 && made.starts_with(b"\x89PNG"));

    // Longer than a lease: the worker keeps its jobs, and asks again.
    s3.shut(true);
    broker.send(&["a", "b", "c"].map(job));
    thread::sleep(Duration::from_secs(4));
    assert_eq!([ended(&patient, "done"), ended(&patient, "given_back")], [1.0, 0.0]);
    s3.shut(false);
    patient.wait_until("all are done", |worker| ended(worker, "done") == 4.0);
    assert_eq!(ended(&patient, "given_back"), 0.0);
    drop(patient);

    // A worker with a short timeout gives them back, and they are tried again.
    let more = ["--store-timeout", "0.2", "--retry-delay", "0.3", "--tries", "50"];
    let hasty = worker_with(engines.path(), &broker, "s3://bucket/jobs", &more, |command| s3.environment(command));
    s3.shut(true);
    broker.send(&["d", "e"].map(job));
    hasty.wait_until("they are given back", |worker| ended(worker, "given_back") >= 4.0);
    s3.shut(false);
    hasty.wait_until("all are done", |worker| ended(worker, "done") == 2.0);
    // The store stays unavailable: then the jobs become dead letters with the reason.
    drop(hasty);
    let more = ["--store-timeout", "0.2", "--retry-delay", "0.1", "--tries", "2"];
    let strict = worker_with(engines.path(), &broker, "s3://bucket/jobs", &more, |command| s3.environment(command));
    s3.shut(true);
    broker.send(&[job("f")]);
    strict.wait_until("it is a dead letter", |worker| ended(worker, "dead_letter") == 1.0);
    let [letter] = <[Value; 1]>::try_from(broker.dead()).unwrap();
    assert!(
        letter["tries"] == 2 && letter["reason"].as_str().unwrap().contains("s3://bucket/jobs/out/f.png"),
        "{letter}"
    );
    assert_eq!(broker.left(), 0);
    for id in ["a", "b", "c", "d", "e"] {
        assert_eq!(s3.request("GET", &format!("/bucket/jobs/out/{id}.png"), b"").1, made);
    }
}
