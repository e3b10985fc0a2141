//! Keys and certificates.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Server, engines, inference, program, repository};

/// Runs a command that has to succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn new_key(name: &str, keys: &Path) -> String {
    output(Command::new(program("tileforge-server")).args(["key", name, "--keys"]).arg(keys))
}

#[test]
fn with_keys_only_those_who_show_one_are_served() {
    let engines = engines();
    let work = tempfile::tempdir().unwrap();
    let keys = work.path().join("keys");
    let [alice, bob] = ["alice", "bob"].map(|name| new_key(name, &keys));
    let text = std::fs::read_to_string(&keys).unwrap();
    assert!(!text.contains(&alice) && text.starts_with("alice "), "{text}");
    let server = Server::start(engines.path(), &["--keys", keys.to_str().unwrap()]);
    let body = inference(24).to_string();
    let ask = |authorization: &str| {
        server.request("POST", "/v2/models/model/infer", &[("Authorization", authorization)], body.as_bytes())
    };
    for key in [&alice, &bob] {
        assert_eq!(ask(&format!("Bearer {key}")).0, 200);
    }
    let line = text.lines().next().unwrap().trim_start_matches("alice ");
    for wrong in [
        "",
        "Bearer",
        "Bearer ",
        &alice,
        &format!("Basic {alice}"),
        &format!("Bearer {}", &alice[1..]),
        &format!("Bearer {line}"),
    ] {
        let (status, head, _) = ask(wrong);
        assert!(status == 401 && head.contains("www-authenticate: Bearer"), "{wrong}: {head}");
    }
    for path in ["/metrics", "/v2", "/v2/models/model", "/v1/models"] {
        assert_eq!(server.get(path).0, 401, "{path}");
    }
    assert_eq!(server.get("/v2/health/ready").0, 200);
    // Over gRPC, too.
    let python = repository("target/server-venv/bin/python");
    let call = |header: &str| {
        let script = "import sys, tritonclient.grpc as grpc\n\
            client = grpc.InferenceServerClient(sys.argv[1])\n\
            headers = {'authorization': sys.argv[2]} if sys.argv[2] else None\n\
            try: print(client.get_model_metadata('model', headers=headers).name)\n\
            except Exception as error: print(error)\n";
        output(Command::new(&python).args(["-c", script, &server.grpc, header]))
    };
    assert_eq!(call(&format!("Bearer {bob}")), "model");
    assert!(call("").contains("UNAUTHENTICATED"), "{}", call(""));
    // A key that is removed from the file is no longer accepted; an invalid file changes nothing.
    std::fs::write(&keys, "bob").unwrap();
    server.signal("HUP");
    server.wait_until("it is said", |server| server.log().contains("line 1: expected a name"));
    assert_eq!(ask(&format!("Bearer {alice}")).0, 200);
    std::fs::write(&keys, text.lines().nth(1).unwrap()).unwrap();
    server.signal("HUP");
    server.wait_until("the key is gone", |_| ask(&format!("Bearer {alice}")).0 == 401);
    assert_eq!(ask(&format!("Bearer {bob}")).0, 200);
    let shown = [&alice, &bob].iter().any(|key| server.log().contains(key.as_str()));
    assert!(!shown, "keys are in the log");
}

/// A certificate for this machine's loopback that its own key has signed.
fn certificate(folder: &Path, name: &str) -> [PathBuf; 2] {
    let files = ["crt", "key"].map(|ending| folder.join(format!("{name}.{ending}")));
    output(
        Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "30",
            ])
            .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1"])
            .arg("-out")
            .arg(&files[0])
            .arg("-keyout")
            .arg(&files[1]),
    );
    files
}

#[test]
fn certificates_are_served_and_read_again_when_they_change() {
    let engines = engines();
    let work = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| certificate(work.path(), name));
    let used = ["crt", "key"].map(|ending| work.path().join(format!("used.{ending}")));
    let exchange = |files: &[PathBuf; 2]| {
        for (from, to) in files.iter().zip(&used) {
            let beside = to.with_extension("new");
            std::fs::copy(from, &beside).unwrap();
            std::fs::rename(beside, to).unwrap();
        }
    };
    exchange(&first);
    let more = ["--tls-certificate", used[0].to_str().unwrap(), "--tls-key", used[1].to_str().unwrap()];
    let server = Server::start_encrypted(engines.path(), &more, &used[0]);
    let ask = |authority: &Path| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "20", "--cacert"]).arg(authority);
        let output = command.arg(format!("https://{}/v2/models/model", server.http)).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).is_ok_and(|answer| answer["name"] == "model")
    };
    assert!(ask(&first[0]) && !ask(&second[0]));
    let python = repository("target/server-venv/bin/python");
    let script = "import sys, tritonclient.grpc as grpc\n\
        client = grpc.InferenceServerClient(sys.argv[1], ssl=True, root_certificates=sys.argv[2])\n\
        print(client.is_server_ready())\n";
    assert_eq!(output(Command::new(&python).args(["-c", script, &server.grpc]).arg(&first[0])), "True");
    // Without encryption there is no answer.
    assert!(!server.exchange(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").contains("200 OK"));
    // An invalid file changes nothing; a new certificate is noticed.
    std::fs::write(&used[0], "x").unwrap();
    server.wait_until("it is said", |server| server.log().contains("cannot be read again"));
    assert!(ask(&first[0]));
    exchange(&second);
    server.wait_until("the new certificate", |_| ask(&second[0]));
    assert!(!ask(&first[0]));
}
