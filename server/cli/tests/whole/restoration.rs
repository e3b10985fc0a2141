//! Pictures that a pipeline restores.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Server, engines, picture, restorer};
use crate::pictures::{error, form, of_the_program, pixels, size_of};

const PATH: &str = "/v1/upscale?engine=restorer";

/// A folder of engines with `model`, which enlarges, and `restorer`.
fn both() -> tempfile::TempDir {
    let folder = engines();
    end_to_end::copy_folder(restorer(), &folder.path().join("restorer"));
    folder
}

#[test]
fn a_picture_is_restored_as_the_runtime_restores_it() {
    let engines = both();
    let server = Server::start(engines.path(), &[]);
    let given = picture(&server, "61x45");
    let file = server.folder().join("61x45.png");
    let (status, head, made) = server.request("POST", PATH, &[], &given);
    assert_eq!((status, size_of(&made)), (200, [42, 32]), "{head}");
    assert!(pixels(&made) == pixels(&of_the_program(restorer(), &server, "61x45.png", &[])));
    // With settings in the query, in a form, and as a job.
    let expected = of_the_program(
        restorer(),
        &server,
        "61x45.png",
        &["--size", "48x32", "--seed", "18446744073709551615", "--colour", "wavelet"],
    );
    let query = "&size=48x32&seed=18446744073709551615&colour=wavelet";
    let (status, _, made) = server.request("POST", &format!("{PATH}{query}"), &[], &given);
    assert!(status == 200 && pixels(&made) == pixels(&expected));
    let fields = ["engine=restorer", "size=48x32", "seed=18446744073709551615", "colour=wavelet"];
    assert!(pixels(&form(&server, "/v1/images/upscale", &file, &fields)) == pixels(&expected));
    let job: Value = serde_json::from_slice(&form(&server, "/v1/jobs/upscale", &file, &fields)).unwrap();
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let job = || serde_json::from_slice::<Value>(&server.get(&path).2).unwrap();
    server.wait_until("done", |_| job()["status"] == "completed");
    assert_eq!((&job()["done"], &job()["total"]), (&1.into(), &1.into()), "{}", job());
    let (_, head, made) = server.get(&format!("{path}/result"));
    assert!(head.contains("content-type: image/png") && pixels(&made) == pixels(&expected), "{head}");
    // The list says what it is.
    let (_, _, listed) = server.get("/v1/models/restorer");
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!((&listed["id"], &listed["task"]), (&"restorer".into(), &"restore".into()));
    assert_eq!(server.figure("nv_inference_request_success{model=\"restorer\"}"), 4.0);
    // Each engine is used only for its own task.
    let (status, _, body) = server.request("POST", "/v1/upscale", &[], &given);
    assert!(status == 400 && String::from_utf8_lossy(&body).contains("one of model, restorer"));
    server.assert_well();
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let engines = both();
    let server = Server::start(engines.path(), &["--max-megapixels", "1"]);
    let given = picture(&server, "61x45");
    let file = server.folder().join("61x45.png");
    let before = server.memory();
    for (query, expected) in [
        ("size=0", "size: expected the length of the shorter side, or a size"),
        ("size=-1", "size: expected the length of the shorter side"),
        ("size=48x", "size: expected the length of the shorter side"),
        ("size=4294967296", "size: expected the length of the shorter side"),
        ("size=99999999999999999999x1", "size: expected the length of the shorter side"),
        ("size=33", "the engine has no graph for 44×33, only for 48×32"),
        ("size=4294967295", "the engine has no graph for"),
        ("size=4294967295x4294967295", "the engine has no graph for 4294967295×4294967295"),
        ("size=1x32", "a result has at least two rows and columns"),
        ("seed=18446744073709551616", "seed: expected a whole number from 0 to 18446744073709551615"),
        ("seed=-1", "seed: expected a whole number"),
        ("seed=1.5", "seed: expected a whole number"),
        ("colour=sepia", "colour: expected one of lab, wavelet"),
        ("colour=Lab", "colour: expected one of lab, wavelet"),
        (
            "noise=1",
            "expected the settings size, seed, colour, engine, model, timeout, priority, output_format, found noise",
        ),
        ("frame_overlap=1", "found frame_overlap"),
        ("sede=7", "found sede"),
        ("%1b%5b2J=7", "found \\u{1b}[2J"),
        ("timeout=-1", "timeout: expected seconds"),
    ] {
        let (status, _, body) = server.request("POST", &format!("{PATH}&{query}"), &[], &given);
        let found = error(&body);
        assert!(status == 400 && found.contains(expected) && found.len() < 300, "{query}: {status} {found}");
    }
    // A request that can be refused without its picture makes no job; other bad requests fail as jobs.
    let (status, _, body) = server.request("POST", "/v1/jobs/upscale?engine=restorer&seed=x", &[], &given);
    assert!(status == 400 && error(&body).contains("seed"));
    let noise = format!("noise=@{}", file.display());
    let found = error(&form(&server, "/v1/upscale", &file, &["engine=restorer", &noise]));
    assert_eq!(found, "expected files as the fields image or file, found noise");
    let long = format!("{}=1", "x".repeat(30_000));
    assert!(error(&form(&server, "/v1/upscale", &file, &["engine=restorer", &long])).len() < 300);
    // A picture of more pixels than are taken, and the settings of another kind of engine.
    let (status, _, body) = server.request("POST", PATH, &[], &picture(&server, "1100x1000"));
    assert!(status == 400 && error(&body).contains("1100×1000"), "{}", error(&body));
    let (status, _, body) = server.request("POST", PATH, &[], &picture(&server, "1000x1"));
    assert!(status == 400 && error(&body).contains("at least two rows and columns"), "{}", error(&body));
    let (status, _, body) = server.request("POST", "/v1/upscale?engine=model&seed=1", &[], &given);
    assert!(status == 400 && error(&body) == "seed is for engines that restore; this one enlarges");
    for path in ["/v1/depth?engine=restorer", "/v1/jobs/depth?engine=restorer"] {
        let (status, _, body) = server.request("POST", path, &[], &given);
        assert!(status == 400 && error(&body).contains("something else"));
    }
    let (status, answer) =
        server.post("/v1/images/generations", &serde_json::json!({ "model": "restorer", "prompt": "x" }));
    assert!(status == 400, "{answer}");
    assert!(server.memory() < before + (64 << 20), "{before}, {}", server.memory());
    let (status, _, _) = server.request("POST", &format!("{PATH}&timeout=0.000001"), &[], &given);
    assert_eq!(status, 504);
    assert_eq!(server.request("POST", PATH, &[], &given).0, 200);
    server.assert_well();
}

#[test]
fn restorations_are_cancelled_and_many_of_them_are_served() {
    let engines = both();
    let server = Server::start(engines.path(), &[]);
    let given = picture(&server, "61x45");
    let jobs: Vec<String> = (0..12)
        .map(|_| {
            let (status, _, job) = server.request("POST", "/v1/jobs/upscale?engine=restorer", &[], &given);
            let job: Value = serde_json::from_slice(&job).unwrap();
            assert_eq!(status, 202, "{job}");
            format!("/v1/jobs/{}", job["id"].as_str().unwrap())
        })
        .collect();
    let began = Instant::now();
    let (kept, cancelled) = jobs.split_at(2);
    for path in cancelled.iter().rev() {
        assert_eq!(server.request("DELETE", path, &[], b"").0, 200);
    }
    for path in kept {
        server.wait_until("it is done", |server| {
            serde_json::from_slice::<Value>(&server.get(path).2).unwrap()["status"] == "completed"
        });
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    server.wait_until("nothing waits", |server| server.figure("nv_inference_pending_request_count") == 0.0);
    server.assert_well();
}
