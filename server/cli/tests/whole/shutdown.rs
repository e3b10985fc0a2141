//! How a server ends.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Server, SetAtEnd, binary_inference, engines, long_inference, repository, request};

const INFER: &str = "/v2/models/model/infer";

#[test]
fn nothing_that_was_accepted_is_lost_when_it_ends_under_load() {
    let engines = engines();
    let mut server = Server::start(engines.path(), &["--drain", "0.5"]);
    server.assert_well();
    // gRPC clients, each with one persistent connection. The script prints a line for each answered call, and ends
    // with the first call that was not accepted.
    let mut calls = Command::new(repository("target/server-venv/bin/python"))
        .arg(repository("tests/clients/call_until_unavailable.py"))
        .args([&server.grpc, "model", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Starting it takes a while.
    let mut answered = BufReader::new(calls.stdout.take().unwrap());
    let mut first = String::new();
    answered.read_line(&mut first).unwrap();
    assert_eq!(first, "answered\n");
    let (length, body) = binary_inference(24);
    let (ended, served, lost) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let http = server.http.clone();
    let ask = || {
        loop {
            let header = [("Inference-Header-Content-Length", &*length.to_string())];
            if ended.load(Ordering::SeqCst) {
                return;
            }
            match request(&http, "POST", INFER, &header, &body) {
                Ok((200, ..)) => served.fetch_add(1, Ordering::SeqCst),
                // Not accepted. The system resets connections that arrive while a socket closes; they never reach the
                // server. Requests that do reach it are counted below.
                Ok((503, ..)) => return,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) => {
                    return;
                }
                _ if ended.load(Ordering::SeqCst) => return,
                other => {
                    eprintln!("{other:?}");
                    lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            };
        }
    };
    let code = thread::scope(|scope| {
        // If an assertion fails here, the clients end, too; the scope waits for them.
        let _ends = SetAtEnd(&ended);
        for _ in 0..4 {
            scope.spawn(ask);
        }
        let until = Instant::now() + Duration::from_secs(30);
        while served.load(Ordering::SeqCst) < 20 && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        server.signal("TERM");
        // First it reports that it is not ready, and still serves.
        server.wait_until("not ready", |server| server.get("/v2/health/ready").0 == 503);
        let before = served.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        assert!(served.load(Ordering::SeqCst) > before, "requests are taken while it drains");
        let code = server.exit_code();
        ended.store(true, Ordering::SeqCst);
        code
    });
    let mut rest = String::new();
    answered.read_to_string(&mut rest).unwrap();
    assert!(calls.wait().unwrap().success(), "{rest}");
    let events = server.events();
    let of = |protocol: &str, status: u64| {
        let is =
            |event: &&Value| event["protocol"] == protocol && event["status"] == status && event["method"] == "POST";
        events.iter().filter(is).count()
    };
    assert_eq!((code, lost.load(Ordering::SeqCst)), (0, 0), "{}", server.log());
    // Each accepted request has its answer: the server's count equals the clients' count.
    assert_eq!(of("http", 200), served.load(Ordering::SeqCst) + 1);
    assert!(events.iter().all(|event| event["outcome"].is_null()), "{}", server.log());
}

#[test]
fn what_is_accepted_ends_and_what_takes_too_long_is_ended() {
    let engines = engines();
    let (length, body) = long_inference(64);
    for (grace, expected) in [("60", (0, 200)), ("0.2", (1, 503))] {
        let mut server = Server::start(engines.path(), &["--grace", grace]);
        server.assert_well();
        let before = server.figure("tileforge_runs");
        let answer = thread::scope(|scope| {
            let (http, length, body) = (server.http.clone(), length.to_string(), &body);
            let asking = scope
                .spawn(move || request(&http, "POST", INFER, &[("Inference-Header-Content-Length", &length)], body));
            server.wait_until("it runs", |server| server.figure("tileforge_runs") > before);
            server.signal("TERM");
            asking.join().unwrap()
        });
        let status = answer.map(|(status, ..)| status).unwrap();
        assert_eq!((server.exit_code(), status), expected, "{grace}: {}", server.log());
    }
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_it_from_ending() {
    let engines = engines();
    let mut server = Server::start(engines.path(), &["--grace", "1", "--write-timeout", "60"]);
    let (length, body) = long_inference(16);
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: {length}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = server.connect();
    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    server.wait_until("its answer is made", |server| {
        server.events().iter().any(|event| event["path"] == INFER && event["status"] == 200)
    });
    let began = Instant::now();
    server.signal("TERM");
    let _ = server.exit_code();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(stream);
}

#[test]
fn systemd_is_told() {
    let engines = engines();
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let told = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    let mut server = Server::start_with(engines.path(), &[], |command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    assert_eq!(told(), "READY=1");
    server.signal("HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1");
    server.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(server.exit_code(), 0);
}
