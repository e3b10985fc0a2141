//! A worker with jobs, and with messages that are not jobs.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use super::parts::{Broker, Pictures, ended, worker};
use crate::collector::{Collector, below, named};
use crate::harness::{Server, engines, inpainter, picture, pipelines, write_picture};
use crate::inpaint::{field, mask};
use crate::pictures::{form, pixels};

/// The result of each job equals the server's answer to the same request.
#[test]
fn jobs_become_objects() {
    let server = Server::start(pipelines(), &[]);
    let (broker, pictures) = (Broker::nats(), Pictures::new());
    let worker = worker(pipelines(), &broker, &pictures.url(""), &[]);
    let generation = json!({ "prompt": "a fox", "steps": 3, "seed": 7, "engine": "sd" });
    let mut inline = pictures.job("inline", "in.png", "out/inline.png");
    inline["inputs"]["image"] =
        format!("data:image/png;base64,{}", end_to_end_base64(&picture(&server, "40x30"))).into();
    let mut webp = pictures.job("webp", "in.png", "out/webp");
    webp["options"]["output_format"] = "webp".into();
    let made = |id: &str, options: &Value| {
        let output = pictures.url(&format!("out/{id}.png"));
        json!({ "id": id, "kind": "generations", "output": output, "options": options })
    };
    let unseeded = json!({ "prompt": "a fox", "steps": 3 });
    let mut edit = made("edit", &json!({ "prompt": "a fox", "steps": 3, "seed": 7 }));
    edit["kind"] = "edits".into();
    let _ = write_picture(&pictures.path("64x64.png"), "64x64");
    edit["inputs"] = json!({ "image": pictures.url("64x64.png"), "mask": pictures.url("64x64.png") });
    let upscale = pictures.job("upscale", "in.png", "out/upscale.png");
    broker.send(&[upscale, inline, webp, made("made", &generation), made("one", &unseeded), edit]);
    worker.wait_until("all are done", |worker| ended(worker, "done") == 6.0);

    let expected =
        server.request("POST", "/v1/upscale?engine=model", &[], &fs::read(pictures.path("in.png")).unwrap()).2;
    assert!(fs::read(pictures.path("out/upscale.png")).unwrap() == expected);
    assert!(fs::read(pictures.path("out/inline.png")).unwrap() == expected);
    assert!(fs::read(pictures.path("out/webp")).unwrap().starts_with(b"RIFF"));
    let made = fs::read(pictures.path("out/made.png")).unwrap();
    let answer = server.post("/v1/images/generations", &generation).1;
    assert_eq!(answer["data"][0]["b64_json"], end_to_end_base64(&made).as_str());
    assert!(fs::read(pictures.path("out/one.png")).unwrap() != made);
    // Each has one object and its marker.
    assert_eq!(pictures.names("out").len(), 12);
    let marker = pictures.marker("out/upscale.png");
    assert_eq!([&marker["id"], &marker["done"]["bytes"]], [&json!("upscale"), &json!(expected.len())]);
    let digest = Command::new("sha256sum").arg(pictures.path("out/upscale.png")).output().unwrap().stdout;
    assert!(String::from_utf8(digest).unwrap().starts_with(marker["done"]["sha256"].as_str().unwrap()));
    assert_eq!((broker.left(), broker.dead()), (0, vec![]));
    assert_eq!(worker.figure(r#"tileforge_queue_jobs{state="waiting"}"#), 0.0);
    // It serves nothing but its health and its figures.
    assert_eq!([worker.get("/").0, worker.post("/v1/jobs/upscale", &json!({})).0], [404, 404]);
}

fn end_to_end_base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn a_job_may_have_two_pictures() {
    let engines = tempfile::tempdir().unwrap();
    end_to_end::copy_folder(inpainter(), &engines.path().join("eraser"));
    let server = Server::start(engines.path(), &[]);
    let (broker, pictures) = (Broker::nats(), Pictures::new());
    let worker = worker(engines.path(), &broker, &pictures.url(""), &[]);
    let hole = mask(&pictures.path(""), [40, 30]);
    let mut job = pictures.job("filled", "in.png", "out.png");
    (job["kind"], job["options"]) = ("inpaint".into(), json!({}));
    job["inputs"]["mask"] = pictures.url("mask-40x30.png").into();
    let mut alone = pictures.job("alone", "in.png", "alone.png");
    (alone["kind"], alone["options"]) = ("inpaint".into(), json!({}));
    broker.send(&[job, alone]);
    worker.wait_until("one is done", |worker| ended(worker, "done") == 1.0);
    let expected = form(&server, "/v1/inpaint", &pictures.path("in.png"), &[&field(&hole)]);
    assert!(pixels(&fs::read(pictures.path("out.png")).unwrap()) == pixels(&expected));
    worker.wait_until("the other is none", |worker| ended(worker, "dead_letter") == 1.0);
    let [letter] = <[Value; 1]>::try_from(broker.dead()).unwrap();
    assert!(letter["reason"].as_str().unwrap().contains("expected a picture as the field mask"), "{letter}");
}

/// A job that is sent twice has one result, and no job gets the output of another.
#[test]
fn a_result_is_made_once() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let worker = worker(engines.path(), &broker, &pictures.url(""), &[]);
    let job = pictures.job("one", "in.png", "out.png");
    broker.send(&[job.clone(), job.clone(), job.clone()]);
    worker.wait_until("all are done", |worker| ended(worker, "done") == 3.0);
    let made = fs::metadata(pictures.path("out.png")).unwrap().modified().unwrap();
    broker.send(&[job]);
    worker.wait_until("it is done", |worker| ended(worker, "done") == 4.0);
    assert_eq!(fs::metadata(pictures.path("out.png")).unwrap().modified().unwrap(), made);
    let before = worker.figure(r#"nv_inference_count{model="model"}"#);
    broker.send(&[
        pictures.job("other", "in.png", "out.png"),
        // An object that is no result, such as the input itself.
        pictures.job("over", "in.png", "in.png"),
    ]);
    worker.wait_until("both are refused", |worker| ended(worker, "dead_letter") == 2.0);
    let mut reasons: Vec<String> =
        broker.dead().iter().map(|letter| letter["reason"].as_str().unwrap().into()).collect();
    reasons.sort_unstable();
    assert!(reasons[0].contains("the output belongs to the job one"), "{reasons:?}");
    assert!(reasons[1].contains("there is an object at the output already"), "{reasons:?}");
    assert_eq!(worker.figure(r#"nv_inference_count{model="model"}"#), before);
}

/// A delivery continues its client's trace, with every broker.
#[test]
fn a_job_goes_on_with_the_trace_of_its_client() {
    let (engines, collector) = (engines(), Collector::start(&[]));
    for (broker, trace) in [(Broker::nats(), "0af7651916cd43dd8448eb211c80319c"), (Broker::redis(), &"5".repeat(32))] {
        let pictures = Pictures::new();
        let worker = worker(engines.path(), &broker, &pictures.url(""), &["--traces", &collector.url]);
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        let mut job = pictures.job("one", "in.png", "out.png");
        if broker.is_celery() {
            let fields = job.as_object_mut().unwrap();
            let (id, kind) = (fields.remove("id"), fields.remove("kind"));
            job = json!({ "id": id, "kind": kind, "kwargs": job, "options": { "headers": { "traceparent": parent } } });
            broker.send(&[job]);
        } else {
            broker.run(&["send", &parent], &job.to_string());
        }
        worker.wait_until("it is done", |worker| ended(worker, "done") == 1.0);
        let spans = collector.trace(trace, "process tileforge");
        let delivery = named(&spans, "process tileforge");
        assert_eq!([&delivery["kind"], &delivery["parent"]], ["CONSUMER", "b7ad6b7169203331"]);
        assert_eq!(below(&spans, delivery), ["decode", "encode", "fetch", "infer", "store"]);
        let attributes = &delivery["attributes"];
        let system = if broker.is_celery() { "redis" } else { "nats" };
        assert_eq!([&attributes["messaging.system"], &attributes["messaging.message.id"]], [system, "one"]);
        assert_eq!([&attributes["tileforge.job.kind"], &attributes["tileforge.job.outcome"]], ["upscale", "done"]);
        let line = worker.events().into_iter().find(|event| event["job"] == "one").unwrap();
        assert_eq!(line["trace_id"], trace);
    }
}

/// A job that cannot be done becomes a dead letter with its reason, and the worker goes on.
#[test]
fn what_is_no_job_becomes_a_dead_letter() {
    let (engines, broker, pictures) = (engines(), Broker::nats(), Pictures::new());
    let (outside, inside) = (Pictures::new(), pictures.url("jobs"));
    fs::create_dir(pictures.path("jobs")).unwrap();
    fs::rename(pictures.path("in.png"), pictures.path("jobs/in.png")).unwrap();
    fs::write(pictures.path("secret.png"), "x").unwrap();
    fs::write(pictures.path("jobs/text.png"), "no picture").unwrap();
    let _ = write_picture(&pictures.path("jobs/bomb.png"), "5000x5000");
    symlink(outside.path("in.png"), pictures.path("jobs/link.png")).unwrap();
    symlink(outside.path(""), pictures.path("jobs/folder")).unwrap();
    symlink(outside.path("new.png"), pictures.path("jobs/dangling.png")).unwrap();
    assert!(Command::new("mkfifo").arg(pictures.path("jobs/pipe.png")).status().unwrap().success());
    fs::create_dir(pictures.path("jobs/empty.png")).unwrap();
    let worker = worker(
        engines.path(),
        &broker,
        &inside,
        &["--tries", "2", "--retry-delay", "0.1", "--max-body", "1M", "--at-once", "1"],
    );
    fs::write(pictures.path("jobs/large.png"), vec![0; (1 << 20) + 1]).unwrap();

    let reads = |input: &str| pictures.job("a", "x", "jobs/out/x.png").with("inputs", json!({ "image": input }));
    let writes = |output: &str| pictures.job("a", "jobs/in.png", "x").with("output", output.into());
    let inside = |name: &str| pictures.url(&format!("jobs/{name}"));
    let good = pictures.job("a", "jobs/in.png", "jobs/out/x.png");
    let cases: Vec<(String, &str)> = vec![
        ("".into(), "expected a JSON object"),
        ("{".into(), "EOF while parsing"),
        ("[]".into(), "expected a JSON object"),
        ("null".into(), "expected a JSON object"),
        ("base64://79AP8=".into(), "expected a JSON object"),
        ("x900000".into(), "expected a message of at most 524288 bytes"),
        ("[".repeat(100_000), "expected a JSON object"),
        (json!({ "a": 1 }).to_string(), "unknown field `a`"),
        (good.clone().with("id", "../../x".into()).to_string(), "id: expected 1 to 128"),
        (good.clone().with("id", 7.into()).to_string(), "invalid type: integer"),
        (good.clone().with("kind", "shell".into()).to_string(), "kind: expected one of"),
        (good.clone().with("inputs", json!({})).to_string(), "expected a picture as the field image"),
        (good.clone().with("inputs", json!({ "x": "y" })).to_string(), "inputs: expected image, mask"),
        (good.clone().with("options", json!({ "engine": "../model" })).to_string(), "there is no model ../model"),
        (good.clone().with("options", json!({ "engine": "/etc" })).to_string(), "there is no model /etc"),
        (good.clone().with("options", json!({ "output_format": "exe" })).to_string(), "output_format: expected png"),
        (good.clone().with("options", json!({ "timeout": "soon" })).to_string(), "timeout: expected seconds"),
        (good.clone().with("options", json!({ "timeout": 0.001 })).to_string(), "the deadline has passed"),
        (good.clone().with("kind", "generations".into()).to_string(), "image: expected none"),
        (
            pictures
                .job("a", "x", "jobs/out/x.png")
                .with("kind", "generations".into())
                .with("inputs", json!({}))
                .with("options", json!({ "prompt": "a fox" }))
                .to_string(),
            "there is no engine for texts",
        ),
        (reads("/etc/passwd").to_string(), "inputs.image: expected a URL"),
        (reads("file:///etc/passwd").to_string(), "expected an object below a prefix"),
        (reads("http://127.0.0.1/x").to_string(), "expected s3://"),
        (reads("https://s3.amazonaws.com/x/y").to_string(), "expected s3://"),
        (reads("s3://bucket/x").to_string(), "expected an object below a prefix"),
        (reads("s3://user:word@bucket/x").to_string(), "expected a URL without user"),
        (reads("memory:///x").to_string(), "expected s3://"),
        (reads(&inside("../secret.png")).to_string(), "expected an object below a prefix"),
        (reads(&inside("%2e%2e/secret.png")).to_string(), "expected an object below a prefix"),
        (reads(&inside("..%2fsecret.png")).to_string(), "jobs/..%2fsecret.png: "),
        (reads(&inside("x/../../secret.png")).to_string(), "expected an object below a prefix"),
        (reads(&pictures.url("jobs2/in.png")).to_string(), "expected an object below a prefix"),
        (reads(&pictures.url("jobs")).to_string(), "expected an object below a prefix"),
        (reads(&format!("{}?x=y", inside("in.png"))).to_string(), "expected a URL without user"),
        (reads(&inside("link.png")).to_string(), "expected a file in the folder"),
        (reads(&inside("folder/in.png")).to_string(), "expected a file in the folder"),
        (reads(&inside("pipe.png")).to_string(), "expected a file in the folder"),
        (reads(&inside("empty.png")).to_string(), "expected a file in the folder"),
        (reads(&inside("nothing.png")).to_string(), "there is no such object"),
        (reads(&inside("large.png")).to_string(), "expected at most 1048576 bytes"),
        (reads(&inside("text.png")).to_string(), "expected a PNG, JPEG"),
        (reads(&inside("bomb.png")).to_string(), "expected at most 16 megapixels"),
        (reads("data:image/png;base64,%%%").to_string(), "inputs.image: expected data:"),
        (reads("data:image/png;base64,").to_string(), "expected a picture, found nothing"),
        (writes("file:///tmp/x.png").to_string(), "expected an object below a prefix"),
        (writes(&inside("../x.png")).to_string(), "expected an object below a prefix"),
        (writes(&inside("link.png")).to_string(), "expected a file in the folder"),
        (writes(&inside("dangling.png")).to_string(), "expected a file in the folder"),
        (writes(&inside("folder/new.png")).to_string(), "expected a file in the folder"),
        (writes(&inside("x.png.job.json")).to_string(), "does not end with .job.json"),
        (writes(&inside("x.png%2ejob.json")).to_string(), "does not end with .job.json"),
        (writes(&inside("a%00b.png")).to_string(), "jobs/a%00b.png: "),
        (writes(&inside(&"x".repeat(300))).to_string(), "File name too long"),
        (writes(&inside("in.png/x.png")).to_string(), "jobs/in.png/x.png"),
        (writes(&inside("")).to_string(), "expected an object below a prefix"),
    ];
    let lines: Vec<&str> = cases.iter().map(|(message, _)| message.as_str()).collect();
    broker.run(&["send"], &format!("{}\n", lines.join("\n")));
    worker.wait_until("all are dead letters", |worker| ended(worker, "dead_letter") == cases.len() as f64);
    let (letters, mut wrong) = (broker.dead(), Vec::new());
    for (message, expected) in &cases {
        let is_its = |letter: &&Value| match message.strip_prefix("base64:") {
            Some(coded) => letter["message_base64"] == coded,
            None if message.starts_with('x') => letter["truncated"] == true,
            None => letter["message"] == **message,
        };
        let found: Vec<&Value> = letters.iter().filter(is_its).collect();
        let shown: String = message.chars().take(200).collect();
        let [letter] = found[..] else { panic!("{shown}: {} letters", found.len()) };
        let reason = letter["reason"].as_str().unwrap();
        if !reason.contains(expected) {
            wrong.push(format!("{shown}: expected {expected}, found {reason}"));
        }
    }
    assert!(wrong.is_empty() && letters.len() == cases.len(), "{}", wrong.join("\n"));
    assert_eq!((broker.left(), outside.names("").len()), (0, 1), "{:?}", outside.names(""));
    // A failed job leaves no claim on its output.
    assert!(!pictures.has("jobs/out/x.png.job.json"));
    broker.send(&[good]);
    worker.wait_until("a good one is done", |worker| ended(worker, "done") == 1.0);
    assert!(pictures.has("jobs/out/x.png"));
}

/// A value with another field.
trait With {
    fn with(self, name: &str, value: Value) -> Value;
}

impl With for Value {
    fn with(self, name: &str, value: Value) -> Value {
        let mut changed = self;
        changed[name] = value;
        changed
    }
}

#[test]
fn what_cannot_start_says_why() {
    let engines = engines();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(crate::harness::program("tileforge-server"));
        command.args(["work", "--http", "off", "--engines"]).arg(engines.path()).args(arguments);
        let output = command.env_remove("TILEFORGE_BROKER").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let nats = ["--broker", "nats://127.0.0.1:1"];
    for (arguments, code, expected) in [
        (vec!["--store", "file:///tmp"], 2, "give `--broker URL`, or set TILEFORGE_BROKER"),
        (nats.to_vec(), 2, "--store <URL>"),
        (vec!["--broker", "amqp://user:secret@h", "--store", "file:///tmp"], 1, "expected nats://"),
        (vec!["--broker", "redis://[", "--store", "file:///tmp"], 1, "not the URL of a broker"),
        (
            [&nats[..], &["--store", "file:///nowhere/at/all"]].concat(),
            1,
            "file:///nowhere/at/all: not an object store",
        ),
        ([&nats[..], &["--store", "ftp://x/y"]].concat(), 1, "ftp://x/y: not an object store"),
        ([&nats[..], &["--store", "file:///tmp", "--queue-name", "a.b"]].concat(), 1, "letters, digits, `_` and `-`"),
        ([&nats[..], &["--store", "file:///tmp", "--lease", "0"]].concat(), 2, "expected at least 1 second"),
    ] {
        let (found, text) = run(&arguments);
        assert!(found == Some(code) && text.contains(expected), "{arguments:?}: {found:?} {text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
