//! Servers and engines for tests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A path in the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Another program of the product, in the folder of the server's program.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_tileforge-server")).with_file_name(name);
    assert!(path.exists(), "{} is not there; run `make test`, which builds it first", path.display());
    path
}

/// The engine of the demo's model with small tiles, built once for all tests.
pub(crate) fn demo_engine() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("compact-x4");
        let mut command = Command::new(program("engine-builder"));
        command.arg("build").arg(repository("models/compact-x4.safetensors"));
        command.arg("--profile").arg(repository("tests/profiles/small-tiles.yaml"));
        let output = command.args(["--calibration-tiles", "4", "-o"]).arg(&engine).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (folder, engine)
    };
    &ENGINE.get_or_init(build).1
}

/// Copies an engine to `folder/name`. Another `note` gives another engine with the same graphs.
pub(crate) fn copy_engine(folder: &Path, name: &str) -> PathBuf {
    let place = folder.join(name);
    fs::create_dir_all(&place).unwrap();
    for entry in demo_engine().read_dir().unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.join(entry.file_name())).unwrap();
    }
    place
}

/// A folder of engines with `model`.
pub(crate) fn engines() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_engine(folder.path(), "model");
    folder
}

/// A folder of engines with `model`, and with `sd`, a tiny pipeline that makes pictures of 64x64 from texts. Built once
/// for all tests.
pub(crate) fn pipelines() -> &'static Path {
    static FOLDER: OnceLock<(tempfile::TempDir, tempfile::TempDir)> = OnceLock::new();
    let build = || {
        let (work, folder) = (tempfile::tempdir().unwrap(), engines());
        let engine = end_to_end::GoldenPipelines::read().engine(work.path(), "sd");
        end_to_end::copy_folder(&engine, &folder.path().join("sd"));
        (work, folder)
    };
    FOLDER.get_or_init(build).1.path()
}

/// An engine that gives the depth of pictures, of 56x70 in its network. Built once for all tests.
pub(crate) fn depth_engine() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let work = tempfile::tempdir().unwrap();
        let mut networks = end_to_end::golden_systems(work.path()).into_iter();
        let network = networks.find(|network| network.name.starts_with("DepthAnything-tiny/")).unwrap();
        let shapes = "pixel_values:1x3x56x70".parse().unwrap();
        let engine = end_to_end::small_engine(work.path(), "depth", &network, &shapes, &[]);
        (work, engine)
    };
    &ENGINE.get_or_init(build).1
}

/// A pipeline that restores pictures of at most 48x32. Built once for all tests.
pub(crate) fn restorer() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let work = tempfile::tempdir().unwrap();
        let engine = end_to_end::restoration_engine(work.path(), "transformer-3b.safetensors", 1, &[[4, 6]]);
        (work, engine)
    };
    &ENGINE.get_or_init(build).1
}

/// An engine that fills in what a mask covers, with graphs of 48x48 and 64x96. Built once for all tests.
pub(crate) fn inpainter() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let work = tempfile::tempdir().unwrap();
        let engine = end_to_end::inpainting_engine(work.path());
        (work, engine)
    };
    &ENGINE.get_or_init(build).1
}

/// A PNG of this size.
pub(crate) fn picture(server: &Server, size: &str) -> Vec<u8> {
    write_picture(&server.folder().join(format!("{size}.png")), size)
}

/// Writes a PNG of this size.
pub(crate) fn write_picture(path: &Path, size: &str) -> Vec<u8> {
    let script = repository("tests/clients/write_png.py");
    let made = Command::new("python3").arg(script).arg(path).arg(size).status().unwrap();
    assert!(made.success());
    fs::read(path).unwrap()
}

/// A server that ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    /// HOST:PORT.
    pub(crate) http: String,
    /// HOST:PORT.
    pub(crate) grpc: String,
    log: PathBuf,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server for the engines of a folder, and waits until it is ready.
    pub(crate) fn start(engines: &Path, more: &[&str]) -> Self {
        Self::start_with(engines, more, |_| {})
    }

    /// As [`Server::start`], with a change to the command.
    pub(crate) fn start_with(engines: &Path, more: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let server = Self::open(engines, more, change, "");
        server.wait_until("ready", |server| server.get("/v2/health/ready").0 == 200);
        server
    }

    /// Starts a server with this certificate.
    pub(crate) fn start_encrypted(engines: &Path, more: &[&str], certificate: &Path) -> Self {
        let server = Self::open(engines, more, |_| {}, "s");
        server.wait_until("ready", |server| {
            let mut command = Command::new("curl");
            command.args(["--silent", "--fail", "--cacert"]).arg(certificate);
            command.arg(format!("https://{}/v2/health/ready", server.http)).output().unwrap().status.success()
        });
        server
    }

    fn open(engines: &Path, more: &[&str], change: impl FnOnce(&mut Command), secure: &str) -> Self {
        let mut command = Command::new(program("tileforge-server"));
        command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--poll", "0.1", "--engines"]);
        command.arg(engines).args(more);
        Self::spawn(command, change, &[&format!("http{secure}://"), &format!("grpc{secure}://")])
    }

    /// Starts a worker for the engines of a folder, and waits until it is ready.
    pub(crate) fn start_worker(engines: &Path, more: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(program("tileforge-server"));
        command.args(["work", "--http", "127.0.0.1:0", "--poll", "0.1", "--engines"]).arg(engines).args(more);
        let worker = Self::spawn(command, change, &["http://"]);
        worker.wait_until("ready", |worker| worker.get("/v2/health/ready").0 == 200);
        worker
    }

    /// Starts a command that prints an address for each of these schemes.
    fn spawn(command: Command, change: impl FnOnce(&mut Command), schemes: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = command;
        command.env("CUDA_VISIBLE_DEVICES", "").env("XDG_CACHE_HOME", folder.path());
        command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |scheme: &&str| {
            let line = lines.next().map(Result::unwrap);
            let found = line.as_deref().and_then(|line| line.strip_prefix(scheme)).map(str::to_owned);
            found.unwrap_or_else(|| panic!("{line:?}: {}", fs::read_to_string(&log).unwrap()))
        };
        let mut addresses: Vec<String> = schemes.iter().map(&mut address).collect();
        let http = addresses.remove(0);
        Self { child, http, grpc: addresses.pop().unwrap_or_default(), log, folder }
    }

    /// Waits until something holds.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !holds(self) {
            assert!(Instant::now() < until, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A folder for this server's files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The events of its log, which are one JSON object each.
    pub(crate) fn events(&self) -> Vec<Value> {
        let log = self.log();
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} in {log}"))).collect()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code, once it has ended.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The status of a request with this literal head.
    pub(crate) fn raw(&self, head: &str, body: &[u8]) -> u16 {
        let mut stream = self.connect();
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer[..answer.len().min(64)]).into_owned();
        text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    /// A connection for HTTP.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes, and reads everything until the server closes the connection.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // A server that refuses what comes may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A request on a connection of its own: its status, its head and its body.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (u16, String, Vec<u8>) {
        request(&self.http, method, path, headers, body).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String, Vec<u8>) {
        self.request("GET", path, &[], b"")
    }

    /// Sends JSON. With the status and the JSON that comes.
    pub(crate) fn post(&self, path: &str, content: &Value) -> (u16, Value) {
        let kind = [("Content-Type", "application/json")];
        let (status, _, body) = self.request("POST", path, &kind, content.to_string().as_bytes());
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&body))))
    }

    /// The figure of a line of the metrics.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").2).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or(0.0)
    }

    /// Checks that it does what it is for.
    pub(crate) fn assert_well(&self) {
        let (status, answer) = self.post("/v2/models/model/infer", &inference(24));
        assert_eq!(status, 200, "{answer}: {}", self.log());
        assert_eq!(answer["outputs"][0]["shape"], json!([1, 3, 96, 96]));
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sets a flag when it goes, also when a test fails.
pub(crate) struct SetAtEnd<'f>(pub(crate) &'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A request for one picture of a side.
pub(crate) fn inference(side: usize) -> Value {
    let data: Vec<f32> = (0..3 * side * side).map(|place| (place % 97) as f32 / 97.0).collect();
    json!({ "inputs": [{ "name": "image", "datatype": "FP32", "shape": [1, 3, side, side], "data": data }] })
}

/// The same as bytes: the length of the JSON, and the body.
pub(crate) fn binary_inference(side: usize) -> (usize, Vec<u8>) {
    let bytes: Vec<u8> = (0..3 * side * side).flat_map(|place| ((place % 97) as f32 / 97.0).to_le_bytes()).collect();
    let text = json!({
        "parameters": { "binary_data_output": true },
        "inputs": [{
            "name": "image", "datatype": "FP32", "shape": [1, 3, side, side],
            "parameters": { "binary_data_size": bytes.len() },
        }],
    })
    .to_string();
    (text.len(), [text.into_bytes(), bytes].concat())
}

/// So many black pictures of 96² in one request, as bytes: the length of the JSON, and the body.
pub(crate) fn long_inference(pictures: usize) -> (usize, Vec<u8>) {
    let bytes = vec![0_u8; pictures * 3 * 96 * 96 * 4];
    let text = json!({
        "parameters": { "binary_data_output": true },
        "inputs": [{
            "name": "image", "datatype": "FP32", "shape": [pictures, 3, 96, 96],
            "parameters": { "binary_data_size": bytes.len() },
        }],
    })
    .to_string();
    (text.len(), [text.into_bytes(), bytes].concat())
}

/// A request on a connection of its own.
pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<(u16, String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer[end + 4..].to_vec();
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    if length.is_some_and(|length| length.parse() != Ok(body.len())) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, head, body))
}
