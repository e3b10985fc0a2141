//! A registry for tests: Debian's docker-registry on a free port of this machine, and a proxy in front of it that cuts
//! connections.

use crate::certificates::Certificate;
use crate::tokens::TokenServer;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A registry that stops when this value is dropped.
pub struct LocalRegistry {
    process: Child,
    folder: tempfile::TempDir,
    /// HOST:PORT.
    pub address: String,
}

/// Access to a registry.
#[derive(Clone, Copy, Default)]
pub struct RegistrySettings<'a> {
    /// Only the user `me` with the password `secret` may use it.
    pub password: bool,
    /// It accepts only HTTPS, with this certificate.
    pub certificate: Option<&'a Certificate>,
    /// A client with a token of this server may use it.
    pub tokens: Option<&'a TokenServer>,
}

impl LocalRegistry {
    /// Starts an empty registry. `password`: only the user `me` with the password `secret` may use it.
    pub fn start(password: bool) -> Self {
        Self::start_with(RegistrySettings { password, ..RegistrySettings::default() })
    }

    /// Starts an empty registry with these settings.
    pub fn start_with(RegistrySettings { password, certificate, tokens }: RegistrySettings<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let tls = certificate.map_or_else(String::new, |Certificate { certificate, key }| {
            format!(", tls: {{ certificate: {}, key: {} }}", certificate.display(), key.display())
        });
        let mut settings = format!(
            "version: 0.1\nlog: {{ level: error, accesslog: {{ disabled: true }} }}\n\
             http: {{ addr: '{address}'{tls} }}\n\
             storage: {{ filesystem: {{ rootdirectory: {} }}, delete: {{ enabled: true }} }}\n",
            root.display()
        );
        settings += &tokens.map_or_else(String::new, TokenServer::settings);
        if password {
            // The bcrypt hash of "secret"; the registry takes no other form.
            let line = "me:$2b$05$Pb1HykwCoNY0gOF7pxcyE.HLPYIlnRvSYzdPFUKfMvYiorVrt7.YW\n";
            let passwords = folder.path().join("passwords");
            fs::write(&passwords, line).unwrap();
            settings += &format!("auth: {{ htpasswd: {{ realm: ours, path: {} }} }}\n", passwords.display());
        }
        let configuration = folder.path().join("config.yml");
        fs::write(&configuration, settings).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&configuration).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command
            .spawn()
            .unwrap_or_else(|error| panic!("docker-registry: {error}; install it: apt install docker-registry"));
        let registry = Self { process, folder, address };
        for _ in 0..200 {
            if TcpStream::connect(&registry.address).is_ok() {
                return registry;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("docker-registry does not answer on {}", registry.address);
    }

    /// The reference of a repository and tag in it, such as `x:1`.
    pub fn reference(&self, rest: &str) -> String {
        format!("oci://{}/{rest}", self.address)
    }

    /// The path of the bytes of a digest.
    pub fn data(&self, digest: &str) -> PathBuf {
        let digits = digest.strip_prefix("sha256:").unwrap();
        let blobs = self.folder.path().join("root/docker/registry/v2/blobs/sha256");
        blobs.join(&digits[..2]).join(digits).join("data")
    }

    /// The number of bytes that it stores.
    pub fn bytes(&self) -> u64 {
        fn all(folder: &Path) -> u64 {
            let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
            entries.map(|path| if path.is_dir() { all(&path) } else { path.metadata().unwrap().len() }).sum()
        }
        all(self.folder.path())
    }

    /// The manifest or index of a tag or digest.
    pub fn document(&self, name: &str, version: &str) -> Value {
        let accept = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json";
        let (status, body) = self.request("GET", name, version, &format!("Accept: {accept}\r\n"), b"");
        assert_eq!(status, 200, "{name} {version}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Gives a tag another manifest or index.
    pub fn put(&self, name: &str, version: &str, document: &Value) {
        let kind = format!("Content-Type: {}\r\n", document["mediaType"].as_str().unwrap());
        let (status, body) = self.request("PUT", name, version, &kind, document.to_string().as_bytes());
        assert_eq!(status, 201, "{name} {version}: {}", String::from_utf8_lossy(&body));
    }

    fn request(&self, method: &str, name: &str, version: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        write!(
            stream,
            "{method} /v2/{name}/manifests/{version} HTTP/1.0\r\n\
             Host: {host}\r\n{headers}Content-Length: {length}\r\n\r\n"
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }
}

impl Drop for LocalRegistry {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A proxy in front of a registry that cuts answers.
pub struct CuttingServer {
    /// HOST:PORT.
    pub address: String,
    state: Arc<Mutex<Cuts>>,
}

#[derive(Default)]
struct Cuts {
    /// The number of bytes after which each of the next answers with files is cut.
    next: Vec<usize>,
    /// The first lines of all requests.
    requests: Vec<String>,
}

impl CuttingServer {
    /// Starts a proxy for the registry on `address`.
    pub fn start(address: &str) -> Self {
        let (listener, registry) = (TcpListener::bind("127.0.0.1:0").unwrap(), address.to_owned());
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(Cuts::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client or a registry that closes its connection ends only its own answer.
                let _ = pass_on(stream, &registry, &shared);
            }
        });
        Self { address, state }
    }

    /// Cuts the next answers with files after these numbers of bytes.
    pub fn cut(&self, next: &[usize]) {
        self.state.lock().unwrap().next = next.to_vec();
    }

    /// The requests since the last call: method, path, and the requested range.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn pass_on(mut client: TcpStream, registry: &str, state: &Mutex<Cuts>) -> std::io::Result<()> {
    let (mut head, mut first) = (Vec::new(), String::new());
    for line in BufReader::new(client.try_clone()?).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if first.is_empty() {
            first = line.trim_end_matches(" HTTP/1.1").to_owned();
        } else if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: ") {
            first += &format!(" {range}");
        }
        head.push(line);
    }
    let is_file = first.starts_with("GET") && first.contains("/blobs/");
    let cut = {
        let mut state = state.lock().unwrap();
        state.requests.push(first);
        (is_file && !state.next.is_empty()).then(|| state.next.remove(0))
    };
    let mut server = TcpStream::connect(registry)?;
    write!(server, "{}\r\nConnection: close\r\n\r\n", head.join("\r\n"))?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |end| end + 4);
    let sent = cut.map_or(answer.len(), |cut| answer.len().min(body.saturating_add(cut)));
    client.write_all(&answer[..sent])?;
    client.shutdown(Shutdown::Both)
}
