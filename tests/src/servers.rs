//! Small HTTP servers for tests. They answer as a test defines, and record the requests.

use crate::certificates::Certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The method, such as `GET`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The header with a password or a token.
    pub authorization: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status line, such as `200 OK`.
    pub status: &'static str,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer with only a status.
    pub fn status(status: &'static str) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// The answer with one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server on a free port of this machine that runs as long as the test.
pub struct ScriptedServer {
    /// The port, at all addresses of this machine's loopback.
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl ScriptedServer {
    /// Starts the server. With a certificate it accepts only HTTPS.
    pub fn start(
        certificate: Option<&Certificate>,
        answer: impl Fn(&Asked, u16) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (known, tls) = (asked.clone(), certificate.map(server_settings));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects or does not trust the certificate ends only its own connection.
                let _ = match &tls {
                    None => serve(stream, &known, |asked| answer(asked, port)),
                    Some(tls) => encrypted(stream, tls, &known, |asked| answer(asked, port)),
                };
            }
        });
        Self { port, asked }
    }

    /// The requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn server_settings(certificate: &Certificate) -> Arc<ServerConfig> {
    let chain = vec![CertificateDer::from_pem_file(&certificate.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

fn encrypted(
    stream: TcpStream,
    settings: &Arc<ServerConfig>,
    asked: &Mutex<Vec<Asked>>,
    answer: impl Fn(&Asked) -> Answer,
) -> io::Result<()> {
    let connection = ServerConnection::new(settings.clone()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    serve(&mut stream, asked, answer)?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// Answers one request.
fn serve(stream: impl Read + Write, asked: &Mutex<Vec<Asked>>, answer: impl Fn(&Asked) -> Answer) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let head = read_head(&mut stream)?;
    let mut words = head[0].split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut request = Asked { method, path, authorization: header(&head, "authorization"), body: Vec::new() };
    let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    stream.by_ref().take(length).read_to_end(&mut request.body)?;
    let Answer { status, headers, body } = answer(&request);
    asked.lock().unwrap().push(request);
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (stream, length) = (stream.get_mut(), body.len());
    write!(stream, "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)?;
    stream.flush()
}

/// The lines before the body.
fn read_head(stream: &mut impl BufRead) -> io::Result<Vec<String>> {
    let lines = stream.lines().take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
    let head = lines.collect::<io::Result<Vec<_>>>()?;
    if head.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(head) }
}

/// The value of a header.
fn header(head: &[String], name: &str) -> Option<String> {
    let values = head.iter().filter_map(|line| line.split_once(": "));
    values.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
}

/// A proxy in front of a registry whose tokens expire at the worst times.
pub struct ExpiringServer {
    /// HOST:PORT.
    pub address: String,
    refused: Arc<AtomicUsize>,
}

impl ExpiringServer {
    /// Starts the proxy for the registry on `address`. The request about the second file is delayed by `wait`. Each
    /// file of at least `bytes` is refused once before it is sent, as by a registry whose token has expired.
    pub fn start(address: &str, bytes: u64, wait: Duration) -> Self {
        let (listener, registry) = (TcpListener::bind("127.0.0.1:0").unwrap(), address.to_owned());
        let address = listener.local_addr().unwrap().to_string();
        let refused = Arc::new(AtomicUsize::new(0));
        let count = refused.clone();
        thread::spawn(move || {
            let (mut asked, mut sent) = (BTreeSet::new(), BTreeSet::new());
            for stream in listener.incoming().flatten() {
                let reaction = |head: &[String]| {
                    let first = head[0].as_str();
                    let length = header(head, "content-length").and_then(|length| length.parse::<u64>().ok());
                    if first.starts_with("HEAD") && asked.insert(first.to_owned()) && asked.len() == 2 {
                        return Reaction::Wait(wait);
                    }
                    let digest = first.split("digest=").nth(1).map(str::to_owned);
                    let is_large = first.starts_with("PUT") && length.is_some_and(|length| length >= bytes);
                    if is_large && digest.is_some_and(|digest| sent.insert(digest)) {
                        count.fetch_add(1, Ordering::Relaxed);
                        return Reaction::Refuse;
                    }
                    Reaction::PassOn
                };
                // A client or a registry that closes its connection ends only its own answer.
                let _ = pass_on(stream, &registry, reaction);
            }
        });
        Self { address, refused }
    }

    /// How many files were refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

enum Reaction {
    PassOn,
    Wait(Duration),
    Refuse,
}

/// Forwards one request and its answer, if this is the reaction to it.
fn pass_on(mut client: TcpStream, registry: &str, reaction: impl FnOnce(&[String]) -> Reaction) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let head = read_head(&mut reader)?;
    match reaction(&head) {
        Reaction::PassOn => {}
        Reaction::Wait(time) => thread::sleep(time),
        Reaction::Refuse => {
            write!(client, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
            return client.shutdown(Shutdown::Both);
        }
    }
    let mut server = TcpStream::connect(registry)?;
    write!(server, "{}\r\nConnection: close\r\n\r\n", head.join("\r\n"))?;
    let mut to_server = server.try_clone()?;
    let sending = thread::spawn(move || io::copy(&mut reader, &mut to_server));
    let answered = io::copy(&mut server, &mut client);
    // The registry may answer before it has the whole request. Then the rest is not read.
    client.shutdown(Shutdown::Both)?;
    let _ = sending.join();
    answered.map(drop)
}
