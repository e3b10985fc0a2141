//! Jobs that Celery's own client sends and waits for.

use std::time::Duration;

use serde_json::{Value, json};

use super::parts::{Broker, Pictures, ended, worker};
use crate::harness::{Server, engines, write_picture};

fn task(pictures: &Pictures, id: &str, input: &str) -> Value {
    let mut kwargs = pictures.job(id, input, &format!("out/{id}.png"));
    let fields = kwargs.as_object_mut().unwrap();
    let (id, kind) = (fields.remove("id").unwrap(), fields.remove("kind").unwrap());
    json!({ "id": id, "kind": kind, "kwargs": kwargs })
}

/// What `get` of the client gives.
fn got(broker: &Broker, id: &str) -> (String, Value) {
    serde_json::from_str(&broker.run(&["get", id], "")[0]).unwrap()
}

#[test]
fn tasks_of_celery_are_jobs() {
    let (engines, broker, pictures) = (engines(), Broker::redis(), Pictures::new());
    let worker = worker(engines.path(), &broker, &pictures.url(""), &["--tries", "2", "--retry-delay", "0.1"]);
    let mut urgent = task(&pictures, "urgent", "in.png");
    urgent["options"] = json!({ "priority": 6, "expires": 600 });
    let one = task(&pictures, "one", "in.png");
    broker.send(&[one.clone(), urgent, one]);
    let (state, result) = got(&broker, "one");
    assert_eq!(
        (state.as_str(), &result["output"]),
        ("SUCCESS", &json!(pictures.url("out/one.png"))),
        "{}",
        worker.log()
    );
    assert_eq!(got(&broker, "urgent").0, "SUCCESS");
    worker.wait_until("the second delivery is done", |worker| ended(worker, "done") == 3.0);
    assert_eq!(pictures.names("out").len(), 4);

    // Failures are raised at the client.
    let missing = task(&pictures, "missing", "nothing.png");
    let mut late = task(&pictures, "late", "in.png");
    late["options"] = json!({ "countdown": 60 });
    let mut linked = task(&pictures, "unknown", "in.png");
    linked["kind"] = "shell".into();
    broker.send(&[missing, late, linked]);
    for (id, expected) in
        [("missing", "there is no such object"), ("late", "eta, countdown"), ("unknown", "kind: expected")]
    {
        let (state, reason) = got(&broker, id);
        assert!(state == "FAILURE" && reason.as_str().unwrap().contains(expected), "{id}: {state} {reason}");
    }
    // Entries that are not messages at all.
    broker.run(&["raw"], &format!("{{\nno JSON\n[]\n{}\n", "x".repeat(2 << 20)));
    worker.wait_until("they are dead letters", |worker| ended(worker, "dead_letter") == 7.0);
    assert_eq!((broker.dead().len(), broker.left()), (7, 0));
    broker.send(&[task(&pictures, "last", "in.png")]);
    assert_eq!(got(&broker, "last").0, "SUCCESS");
}

/// Neither a killed worker nor a restart of Redis loses a task.
#[test]
fn tasks_survive_a_worker_and_the_broker() {
    let (engines, mut broker, pictures) = (engines(), Broker::redis(), Pictures::new());
    let _ = write_picture(&pictures.path("large.png"), "300x200");
    let start =
        |broker: &Broker| worker(engines.path(), broker, &pictures.url(""), &["--lease", "1.5", "--at-once", "2"]);
    let (first, second) = (start(&broker), start(&broker));
    let ids: Vec<String> = (0..6).map(|number| format!("task-{number}")).collect();
    let tasks: Vec<Value> = ids.iter().map(|id| task(&pictures, id, "large.png")).collect();
    broker.send(&tasks);
    let busy = |worker: &Server| worker.figure("tileforge_jobs_running") == 2.0;
    first.wait_until("both work", |first| busy(first) && busy(&second));
    first.signal("KILL");
    broker.program.restart(Duration::from_secs(1));
    for id in &ids {
        assert_eq!(got(&broker, id).0, "SUCCESS", "{}", second.log());
    }
    second.wait_until("nothing is left", |_| broker.left() == 0);
    assert_eq!((pictures.objects("out").len(), broker.dead().len()), (12, 0), "{:?}", pictures.names("out"));
}
