//! Faults around a job: workers die, brokers restart, engines change, disks fill up, and workers end.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::parts::{Broker, Pictures, ended, worker, worker_with};
use crate::harness::{Server, copy_engine, engines, program, repository, write_picture};

/// Jobs that take some seconds.
fn slow(pictures: &Pictures, count: usize) -> Vec<Value> {
    let _ = write_picture(&pictures.path("large.png"), "600x400");
    (0..count).map(|number| pictures.job(&format!("job-{number}"), "large.png", &format!("out/{number}.png"))).collect()
}

fn outputs(count: usize) -> BTreeSet<String> {
    (0..count).flat_map(|number| [format!("{number}.png"), format!("{number}.png.job.json")]).collect()
}

fn is_busy(worker: &Server) -> bool {
    worker.figure("tileforge_jobs_running") >= 1.0
}

/// The number of tries of finished jobs, from the log.
fn tries(worker: &Server) -> Vec<u64> {
    // The last line of a worker that ends may be a message for people.
    let log = worker.log();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["outcome"] == "done").map(|event| event["tries"].as_u64().unwrap()).collect()
}

#[test]
fn a_long_job_is_delivered_once() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let start = || worker(engines.path(), &broker, &pictures.url(""), &["--lease", "1"]);
    let workers = [start(), start()];
    let _ = write_picture(&pictures.path("large.png"), "1000x600");
    broker.send(&[pictures.job("long", "large.png", "out/0.png")]);
    let began = Instant::now();
    workers[0].wait_until("it is done", |_| workers.iter().any(|worker| ended(worker, "done") == 1.0));
    assert!(began.elapsed() > Duration::from_secs(2), "it has to take longer than a lease: {:?}", began.elapsed());
    assert_eq!(workers.iter().flat_map(tries).collect::<Vec<_>>(), [1]);
}

#[test]
fn the_jobs_of_a_killed_worker_go_to_another() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let start = || worker(engines.path(), &broker, &pictures.url(""), &["--lease", "2", "--at-once", "2"]);
    let (first, second) = (start(), start());
    broker.send(&slow(&pictures, 6));
    first.wait_until("both work", |first| is_busy(first) && is_busy(&second));
    first.signal("KILL");
    second.wait_until("nothing is left", |_| broker.left() == 0);
    assert_eq!((pictures.objects("out"), broker.dead()), (outputs(6), vec![]));
    assert!(tries(&second).contains(&2), "{:?}", tries(&second));
}

#[test]
fn a_job_that_kills_its_workers_becomes_a_dead_letter() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let start = || worker(engines.path(), &broker, &pictures.url(""), &["--lease", "1", "--tries", "2"]);
    broker.send(&slow(&pictures, 1));
    for _ in 0..2 {
        let worker = start();
        worker.wait_until("it works", is_busy);
        worker.signal("KILL");
    }
    let last = start();
    last.wait_until("it is a dead letter", |worker| ended(worker, "dead_letter") == 1.0);
    let [letter] = <[Value; 1]>::try_from(broker.dead()).unwrap();
    assert!(
        letter["reason"].as_str().unwrap().contains("delivered 2 times, and no worker came to its end"),
        "{letter}"
    );
    assert_eq!(letter["id"], "job-0");
    // Its output is free again.
    assert!(!pictures.has("out/0.png") && !pictures.has("out/0.png.job.json"), "{:?}", pictures.names("out"));
}

#[test]
fn jobs_survive_a_broker_that_starts_again() {
    let (engines, mut broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let worker = worker(engines.path(), &broker, &pictures.url(""), &["--lease", "2", "--at-once", "1"]);
    broker.send(&slow(&pictures, 3));
    worker.wait_until("it works", is_busy);
    broker.program.restart(Duration::from_secs(3));
    worker.wait_until("nothing is left", |_| broker.left() == 0);
    assert_eq!((pictures.names("out"), broker.dead()), (outputs(3), vec![]));
}

#[test]
fn a_worker_waits_for_its_broker() {
    let engines = engines();
    for broker in [Broker::nats(), Broker::redis()] {
        let (mut broker, pictures) = (broker, Pictures::new());
        broker.program.kill();
        let (url, store) = (broker.url(), pictures.url(""));
        let worker = Server::start_worker(engines.path(), &["--broker", &url, "--store", &store], |_| {});
        worker.wait_until("it says so", |worker| worker.log().contains("the broker does not answer"));
        assert_eq!(worker.figure("tileforge_broker_connected"), 0.0);
        broker.program.start_again();
        worker.wait_until("it is there", |worker| worker.figure("tileforge_broker_connected") == 1.0);
        let mut worker = worker;
        worker.signal("TERM");
        assert_eq!(worker.exit_code(), 0, "{}", worker.log());
    }
}

#[test]
fn an_engine_is_exchanged_between_jobs() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let worker = worker(engines.path(), &broker, &pictures.url(""), &[]);
    let jobs: Vec<Value> =
        (0..60).map(|number| pictures.job(&format!("job-{number}"), "in.png", &format!("out/{number}.png"))).collect();
    broker.send(&jobs);
    let loads = || worker.figure(r#"tileforge_model_loads{model="model"}"#);
    for _ in 0..3 {
        let before = loads();
        let work = tempfile::tempdir_in(engines.path()).unwrap();
        let new = copy_engine(work.path(), "new");
        let mut exchange = Command::new("python3");
        exchange.arg(repository("tests/clients/exchange_folders.py")).arg(&new).arg(engines.path().join("model"));
        assert!(exchange.status().unwrap().success());
        worker.wait_until("the new engine", |_| loads() > before);
    }
    worker.wait_until("all are done", |worker| ended(worker, "done") == 60.0);
    assert_eq!([ended(&worker, "given_back"), ended(&worker, "dead_letter")], [0.0, 0.0], "{}", worker.log());
    assert_eq!((pictures.names("out"), broker.left()), (outputs(60), 0));
}

/// A full disk delays jobs until there is room, and leaves nothing unfinished.
#[test]
fn a_job_waits_for_room_on_the_disk() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let disk = pictures.path("disk");
    fs::create_dir(&disk).unwrap();
    // Only the worker sees this disk; the file that fills it is reached through the worker's folder.
    let script = r#"mount -t tmpfs -o size=64k disk "$0" && head -c 60000 /dev/zero > "$0/filled" && exec "$@""#;
    let more = ["--store-timeout", "0.2", "--retry-delay", "0.3", "--tries", "50"];
    let worker = worker_with(engines.path(), &broker, &pictures.url(""), &more, |command| {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--map-root-user", "sh", "-c", script]).arg(&disk);
        shell.arg(program("tileforge-server")).args(command.get_args());
        for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            shell.env(name, value);
        }
        let log = PathBuf::from(value_of(command, "XDG_CACHE_HOME")).join("log");
        shell.stdout(std::process::Stdio::piped()).stderr(fs::File::create(log).unwrap());
        *command = shell;
    });
    broker.send(&[pictures.job("a", "in.png", "disk/a.png")]);
    worker.wait_until("it is given back", |worker| ended(worker, "given_back") >= 2.0);
    assert!(worker.log().contains("No space left on device"), "{}", worker.log());
    let seen = PathBuf::from(format!("/proc/{}/root{}", worker.process(), disk.display()));
    let names = || -> BTreeSet<String> {
        seen.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    worker.wait_until("nothing unfinished stays", |_| names().iter().all(|name| !name.contains('#')));
    fs::remove_file(seen.join("filled")).unwrap();
    worker.wait_until("it is done", |worker| ended(worker, "done") == 1.0);
    assert_eq!(names(), ["a.png", "a.png.job.json"].map(str::to_owned).into());
}

fn value_of(command: &Command, name: &str) -> String {
    let value = command.get_envs().find(|(known, _)| *known == name).and_then(|(_, value)| value);
    value.unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_worker_that_ends_finishes_its_job_or_gives_it_back() {
    for (grace, code, done) in [("60", 0, 1), ("0.05", 1, 0)] {
        let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
        // A lease longer than the test: the job is delivered again only if it is given back.
        let more = ["--lease", "600", "--grace", grace, "--at-once", "1"];
        let mut first = worker(engines.path(), &broker, &pictures.url(""), &more);
        broker.send(&slow(&pictures, 2));
        first.wait_until("it works", is_busy);
        first.signal("TERM");
        assert_eq!((first.exit_code(), tries(&first).len()), (code, done), "{}", first.log());
        assert_eq!(broker.left(), 2 - done);
        let second = worker(engines.path(), &broker, &pictures.url(""), &more);
        second.wait_until("nothing is left", |_| broker.left() == 0);
        assert_eq!(pictures.names("out"), outputs(2), "{}", second.log());
    }
}
