//! Brokers, stores and workers for tests.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, repository, write_picture};

/// A child process that ends when this is dropped.
pub(super) struct Program {
    child: Child,
    command: Command,
    pub(super) port: u16,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start(make: impl Fn(u16, &Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Another program may take the port between its choice and its use.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = make(port, folder.path());
            let log = fs::File::create(folder.path().join("log")).unwrap();
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; run .ci/run"));
            if answers(port, &mut child) {
                return Self { child, command, port, _folder: folder };
            }
            let _ = child.wait();
        }
        panic!("it does not start: {}", fs::read_to_string(folder.path().join("log")).unwrap());
    }

    /// Kills it, and starts it again after a while at the same port with the same files.
    pub(super) fn restart(&mut self, away: Duration) {
        self.kill();
        thread::sleep(away);
        self.start_again();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn start_again(&mut self) {
        self.child = self.command.spawn().unwrap();
        assert!(answers(self.port, &mut self.child));
    }
}

/// Waits until a program listens.
fn answers(port: u16, child: &mut Child) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until && child.try_wait().unwrap().is_none() {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    false
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker with its third-party client.
pub(super) struct Broker {
    pub(super) program: Program,
    scheme: &'static str,
    client: &'static str,
}

impl Broker {
    /// A server of NATS with JetStream.
    pub(super) fn nats() -> Self {
        let program = Program::start(|port, folder| {
            let mut command = Command::new("nats-server");
            command.args(["-a", "127.0.0.1", "-js", "-p", &port.to_string(), "-sd"]).arg(folder);
            command
        });
        Self { program, scheme: "nats", client: "nats_jobs.py" }
    }

    /// A Redis server with persistence.
    pub(super) fn redis() -> Self {
        let program = Program::start(|port, folder| {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "yes"]);
            command.args(["--appendfsync", "always", "--dir"]).arg(folder);
            command
        });
        Self { program, scheme: "redis", client: "celery_jobs.py" }
    }

    pub(super) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.program.port)
    }

    /// Whether its jobs are Celery's tasks.
    pub(super) fn is_celery(&self) -> bool {
        self.scheme == "redis"
    }

    /// Runs the client, and returns the lines of its output.
    pub(super) fn run(&self, action: &[&str], lines: &str) -> Vec<String> {
        let mut command = Command::new(repository("target/server-venv/bin/python"));
        command.arg(repository("tests/clients").join(self.client)).args([&self.url(), "tileforge"]).args(action);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; run `make test`"));
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Sends jobs.
    pub(super) fn send(&self, jobs: &[Value]) {
        let lines: Vec<String> = jobs.iter().map(Value::to_string).collect();
        self.run(&["send"], &lines.join("\n"));
    }

    /// The dead letters.
    pub(super) fn dead(&self) -> Vec<Value> {
        self.run(&["dead"], "").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Messages that wait, or that workers have.
    pub(super) fn left(&self) -> usize {
        self.run(&["left"], "")[0].parse().unwrap()
    }
}

/// A folder for the objects of jobs, with pictures.
pub(super) struct Pictures(tempfile::TempDir);

impl Pictures {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let _ = write_picture(&folder.path().join("in.png"), "40x30");
        Self(folder)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn url(&self, name: &str) -> String {
        format!("file://{}/{name}", self.0.path().display())
    }

    /// A job that enlarges a picture of the folder.
    pub(super) fn job(&self, id: &str, input: &str, output: &str) -> Value {
        json!({
            "id": id, "kind": "upscale", "inputs": { "image": self.url(input) }, "output": self.url(output),
            "options": { "engine": "model" },
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// What the marker beside an output says.
    pub(super) fn marker(&self, output: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(&format!("{output}.job.json"))).unwrap()).unwrap()
    }

    /// The names of a folder's files.
    pub(super) fn names(&self, folder: &str) -> BTreeSet<String> {
        let entries = self.path(folder).read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The names of a folder's objects. A worker that was killed while it wrote an object leaves `NAME#1`, which is
    /// not an object.
    pub(super) fn objects(&self, folder: &str) -> BTreeSet<String> {
        self.names(folder).into_iter().filter(|name| !name.contains('#')).collect()
    }
}

/// Starts a worker for one broker and one store.
pub(super) fn worker(engines: &Path, broker: &Broker, store: &str, more: &[&str]) -> Server {
    worker_with(engines, broker, store, more, |_| {})
}

/// The same, with a change to how it is started.
pub(super) fn worker_with(
    engines: &Path,
    broker: &Broker,
    store: &str,
    more: &[&str],
    change: impl FnOnce(&mut Command),
) -> Server {
    let url = broker.url();
    let arguments = [&["--broker", &url, "--store", store][..], more].concat();
    let worker = Server::start_worker(engines, &arguments, change);
    worker.wait_until("the broker answers", |worker| worker.figure("tileforge_broker_connected") == 1.0);
    worker
}

/// The number of a worker's deliveries with this outcome.
pub(super) fn ended(worker: &Server, outcome: &str) -> f64 {
    worker.figure(&format!("tileforge_jobs{{outcome=\"{outcome}\"}}"))
}

/// moto's S3 with the bucket `bucket`, behind a proxy that can refuse requests.
pub(super) struct S3 {
    moto: Program,
    door: u16,
    shut: Arc<AtomicBool>,
}

impl S3 {
    pub(super) fn start() -> Self {
        let moto = Program::start(|port, _| {
            let mut command = Command::new(repository("target/server-venv/bin/python"));
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
            command
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (door, port, shut) = (listener.local_addr().unwrap().port(), moto.port, Arc::new(AtomicBool::new(false)));
        let is_shut = shut.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let is_shut = is_shut.clone();
                thread::spawn(move || drop(pass(stream, port, &is_shut)));
            }
        });
        let s3 = Self { moto, door, shut };
        assert_eq!(s3.request("PUT", "/bucket", b"").0, 200);
        s3
    }

    /// Sets a worker's environment variables for it.
    pub(super) fn environment(&self, command: &mut Command) {
        command.env("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.door)).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").env("AWS_REGION", "us-east-1");
    }

    /// Lets the proxy answer 503, or serve again.
    pub(super) fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
    }

    /// A request that bypasses the proxy.
    pub(super) fn request(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let key = "AWS4-HMAC-SHA256 Credential=key/20261125/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let address = format!("127.0.0.1:{}", self.moto.port);
        let headers = [("Authorization", key)];
        let (status, _, body) = crate::harness::request(&address, method, path, &headers, body).unwrap();
        (status, body)
    }
}

/// Forwards a connection, or answers that the store is unavailable.
fn pass(client: TcpStream, port: u16, is_shut: &AtomicBool) -> std::io::Result<()> {
    let (mut client, mut server) = (client, TcpStream::connect(("127.0.0.1", port))?);
    let (mut back_from, mut back_to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    let mut bytes = vec![0; 1 << 16];
    loop {
        let length = client.read(&mut bytes)?;
        if is_shut.load(Ordering::SeqCst) && length > 0 {
            client.write_all(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
            return client.shutdown(std::net::Shutdown::Both);
        }
        if length == 0 {
            return server.shutdown(std::net::Shutdown::Write);
        }
        server.write_all(&bytes[..length])?;
    }
}
