//! Downloads from servers that cut connections, send wrong data, or change the file. Both programs download this way.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tileforge_engine::digest::sha256;
use tileforge_files::{Kept, Transfer};
use tileforge_registry::Error;
use tileforge_registry::download::{DownloadSource, Downloaded, Expected, Problem, Response, download};
use tileforge_registry::http::{Address, Client};
use ureq::http::header::{IF_RANGE, RANGE};

/// A server whose answers are given byte by byte, one for each connection.
struct Server {
    address: Address,
    client: Client,
    /// The header fields of each request that say what part is wanted, and by which user.
    requests: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&format!("http://{}/file", listener.local_addr().unwrap())).unwrap();
        let (requests, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(answers)));
        let (known, next) = (requests.clone(), answers.clone());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let is_recorded = |line: &&String| {
                    let names = ["range: ", "if-range: ", "authorization: "];
                    names.iter().any(|name| line.to_ascii_lowercase().starts_with(name))
                };
                known.lock().unwrap().push(head.iter().filter(is_recorded).cloned().collect::<Vec<_>>().join(" "));
                let answer = {
                    let mut answers = next.lock().unwrap();
                    if answers.is_empty() { answer("500 No more", &[], b"") } else { answers.remove(0) }
                };
                // A client that has received enough closes the connection.
                let _ = stream.write_all(&answer);
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        Self { address, client: Client::new(Duration::from_secs(20), Vec::new()), requests, answers }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

impl DownloadSource for Server {
    type Error = Problem;
    const IS_IMMUTABLE: bool = false;

    fn ask(&self, start: u64, version: Option<&str>) -> Result<Response, Problem> {
        let mut headers = Vec::new();
        if start > 0 {
            headers.push((RANGE, format!("bytes={start}-")));
            headers.extend(version.map(|version| (IF_RANGE, version.to_owned())));
        }
        match self.client.get(&self.address, &headers, None) {
            Ok(answer) if answer.status() == 500 => Ok(Response::Cut("no more answers".into())),
            Ok(answer) => Ok(Response::Answer(Box::new(answer))),
            Err(Error::Unreachable { reason, .. }) => Ok(Response::Cut(reason)),
            Err(error) => Err(Problem::Answer(error.to_string())),
        }
    }

    fn failed(&self, problem: Problem) -> Problem {
        problem
    }
}

struct Nothing;

impl Transfer for Nothing {
    fn begin(&mut self, _: &str, _: Option<u64>, _: u64) {}

    fn advance(&mut self, _: u64) {}
}

const TEXT: &[u8] = b"0123456789";

/// A folder for what is kept, and downloads to it.
struct Here {
    _work: tempfile::TempDir,
    kept: Kept,
}

impl Here {
    fn new() -> Self {
        let work = tempfile::tempdir().unwrap();
        let kept = Kept::beside(&work.path().join("file"), || false).unwrap();
        Self { _work: work, kept }
    }

    fn get(&self, server: &Server, sha256: Option<&str>, size: Option<u64>) -> Result<Downloaded, Problem> {
        let expected = Expected { name: "file", sha256, size, most: size.unwrap_or(1 << 20) };
        download(&self.kept, "content", &expected, server, &mut Nothing)
    }

    fn content(&self) -> Option<Vec<u8>> {
        self.kept.read("content", 1 << 30).unwrap()
    }
}

fn answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    [format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n").as_bytes(), body].concat()
}

fn ok(length: usize, tag: &str, body: &[u8]) -> Vec<u8> {
    let tag = if tag.is_empty() { "X: y".into() } else { format!("ETag: \"{tag}\"") };
    answer("200 OK", &[&format!("Content-Length: {length}"), &tag], body)
}

/// The part of a file from a byte on.
fn part(first: usize, total: usize, tag: &str) -> Vec<u8> {
    let (length, last) = (total - first, total - 1);
    let range = format!("Content-Range: bytes {first}-{last}/{total}");
    let body = b"0123456789ab".get(first..total).unwrap();
    let (length, tag) = (format!("Content-Length: {length}"), format!("ETag: \"{tag}\""));
    answer("206 Partial Content", &[&range, &length, &tag], body)
}

/// A download that fails and leaves nothing.
fn refused(answers: Vec<Vec<u8>>, sha256: Option<&str>, size: Option<u64>) -> String {
    let (server, here) = (Server::start(answers), Here::new());
    let problem = here.get(&server, sha256, size).unwrap_err();
    assert!(here.kept.is_empty().unwrap(), "{problem:?}");
    format!("{problem:?}")
}

#[test]
fn a_cut_download_goes_on_with_the_same_version_alone() {
    let digest = sha256(TEXT);
    for known in [None, Some(digest.as_str())] {
        let server = Server::start(vec![ok(10, "a", b"0123"), part(4, 10, "a")]);
        let done = Here::new().get(&server, known, None).unwrap();
        assert_eq!((done.digest.sha256.as_str(), done.came), (digest.as_str(), 10));
        assert_eq!(server.requests(), ["", "range: bytes=4- if-range: \"a\""]);
    }
    // Another length, another tag, or the whole file again: the downloaded bytes belong to another file.
    for other in [part(4, 12, "a"), part(4, 10, "b")] {
        let server = Server::start(vec![ok(10, "a", b"xxxx"), other, ok(10, "b", TEXT)]);
        assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, digest);
    }
    let server = Server::start(vec![ok(10, "a", b"xxxx"), ok(10, "b", TEXT)]);
    assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, digest);
    // A part without a tag is the rest of what `If-Range` asked for.
    let untagged = answer("206 Partial Content", &["Content-Range: bytes 4-9/10", "Content-Length: 6"], b"456789");
    let server = Server::start(vec![ok(10, "a", b"0123"), untagged]);
    assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, digest);
    assert_eq!(server.requests().len(), 2);
    // In another process.
    let (server, here) = (Server::start(vec![ok(10, "a", b"0123")]), Here::new());
    assert!(matches!(here.get(&server, None, None), Err(Problem::Cut { kept: 4, .. })));
    *server.answers.lock().unwrap() = vec![part(4, 10, "a")];
    server.requests();
    assert_eq!(here.get(&server, None, None).unwrap().digest.sha256, digest);
    assert_eq!(server.requests(), ["range: bytes=4- if-range: \"a\""]);
    // A complete file needs no server.
    assert_eq!(here.get(&server, None, None).unwrap().came, 0);
    assert!(server.requests().is_empty());
}

#[test]
fn without_a_version_and_a_digest_nothing_is_resumed() {
    for first in [ok(10, "", b"xxxx"), answer("200 OK", &["Content-Length: 10", "ETag: W/\"a\""], b"xxxx")] {
        let server = Server::start(vec![first, ok(10, "", TEXT)]);
        assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, sha256(TEXT));
        assert_eq!(server.requests(), ["", ""]);
    }
}

#[test]
fn bytes_are_resumed_only_with_a_stored_version_that_identifies_them() {
    let stored = |version: Option<&str>| {
        let here = Here::new();
        here.kept.write("content", b"0123").unwrap();
        version.into_iter().for_each(|version| here.kept.write("content.version", version.as_bytes()).unwrap());
        here
    };
    let (server, here) = (Server::start(vec![part(4, 10, "a b")]), stored(Some("10\n\"a b\"")));
    assert_eq!(here.get(&server, None, None).unwrap().came, 6);
    assert_eq!(server.requests(), ["range: bytes=4- if-range: \"a b\""]);
    // No version, no tag, a tag that no server sent, and a length that is exceeded.
    for version in [None, Some("10\n"), Some("10\n\"a\u{1}\""), Some("3\n\"a\""), Some("x\n\"a\"")] {
        let (server, here) = (Server::start(vec![ok(10, "a", TEXT)]), stored(version));
        assert_eq!(here.get(&server, None, None).unwrap().came, 10, "{version:?}");
        assert_eq!(server.requests(), [""], "{version:?}");
    }
    // The longest tag has 1023 bytes.
    for (length, begins) in [(1021, "range: bytes=4- if-range: "), (1022, "")] {
        let tag = "a".repeat(length);
        let server = Server::start(vec![ok(10, &tag, b"0123"), ok(10, &tag, TEXT)]);
        assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, sha256(TEXT));
        let second = server.requests().remove(1);
        assert!(second.starts_with(begins) && second.is_empty() == begins.is_empty(), "{second}");
    }
}

#[test]
fn a_password_stays_with_its_server() {
    let on = |to: &Server| answer("302 Found", &[&format!("Location: {}", to.address), "Content-Length: 0"], b"");
    let (first, other) = (Server::start(Vec::new()), Server::start(Vec::new()));
    *first.answers.lock().unwrap() = vec![on(&other), ok(10, "a", TEXT)];
    *other.answers.lock().unwrap() = vec![on(&first)];
    let answer = first.client.get(&first.address, &[], Some("Basic secret")).unwrap();
    assert_eq!(answer.status(), 200);
    // The second request to the first server was made because the other server wanted it.
    assert_eq!(first.requests(), ["authorization: Basic secret", ""]);
    assert_eq!(other.requests(), [""]);
}

#[test]
fn an_answer_for_parts_is_no_file() {
    for range in ["bytes */0", "bytes */10", "nonsense"] {
        let none = answer("416 Range Not Satisfiable", &[&format!("Content-Range: {range}"), "Content-Length: 0"], b"");
        let problem = refused(vec![none], None, None);
        assert!(problem.contains("the answer 416"), "{problem}");
    }
    assert!(refused(vec![part(0, 10, "a")], None, None).contains("a part of it"));
    let (server, here) = (Server::start(vec![ok(10, "a", b"0123"), part(3, 10, "a")]), Here::new());
    let problem = format!("{:?}", here.get(&server, None, None).unwrap_err());
    assert!(problem.contains("expected the bytes from 4 on, found bytes 3-9/10"), "{problem}");
    // An answer 416 that does not state the length in bytes.
    let odd = answer("416 Range Not Satisfiable", &["Content-Range: bytes none/4", "Content-Length: 0"], b"");
    let server = Server::start(vec![ok(10, "a", b"0123"), odd, ok(10, "a", TEXT)]);
    assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, sha256(TEXT));
    // 416 states that nothing is missing, but the digest shows another file.
    let more = answer("416 Range Not Satisfiable", &["Content-Range: bytes */4", "Content-Length: 0"], b"");
    let problem = refused(vec![ok(10, "a", b"0123"), more], Some(&sha256(TEXT)), None);
    assert!(problem.contains("Altered"), "{problem}");
}

#[test]
fn the_end_of_a_connection_is_no_end_of_a_file() {
    let endless = |body: &[u8]| answer("200 OK", &["ETag: \"a\""], body);
    let problem = refused(vec![endless(b"0123")], None, None);
    assert!(problem.contains("whose length the server does not say"), "{problem}");
    // A digest detects the end, and so does a published length.
    let digest = sha256(TEXT);
    let server = Server::start(vec![endless(b"0123"), part(4, 10, "a")]);
    assert_eq!(Here::new().get(&server, Some(&digest), None).unwrap().digest.sha256, digest);
    let server = Server::start(vec![endless(TEXT)]);
    assert_eq!(Here::new().get(&server, None, Some(10)).unwrap().digest.sha256, digest);
    // Chunks, whole and cut.
    let chunked = |body: &[u8]| answer("200 OK", &["Transfer-Encoding: chunked", "ETag: \"a\""], body);
    let server = Server::start(vec![chunked(b"a\r\n0123456789\r\n0\r\n\r\n")]);
    assert_eq!(Here::new().get(&server, None, None).unwrap().digest.sha256, digest);
    for cut in [&b"4\r\n0123\r\n"[..], b"a\r\n0123"] {
        let (server, here) = (Server::start(vec![chunked(cut)]), Here::new());
        assert!(matches!(here.get(&server, None, None), Err(Problem::Cut { kept: 4, .. })));
        assert_eq!(here.content().unwrap(), b"0123");
    }
}

#[test]
fn a_server_fills_no_disk() {
    let terabyte = answer("200 OK", &["Content-Length: 1099511627776", "ETag: \"a\""], b"0123");
    assert!(refused(vec![terabyte.clone()], None, None).contains("at most 1048576 bytes"));
    assert!(refused(vec![terabyte], None, Some(10)).contains("10 bytes"));
    // More than there is.
    let server = Server::start(vec![answer("200 OK", &["X: y"], TEXT)]);
    let (here, digest) = (Here::new(), sha256(TEXT));
    let problem = here.get(&server, Some(&digest), Some(1 << 60)).unwrap_err();
    assert!(matches!(problem, Problem::Space { needed, .. } if needed == 1 << 60), "{problem:?}");
    assert_eq!(here.content(), None);
    // Chunks without end.
    let chunks = [b"10000\r\n".as_slice(), &[7; 1 << 16], b"\r\n"].concat().repeat(32);
    let endless = answer("200 OK", &["Transfer-Encoding: chunked"], &chunks);
    assert!(refused(vec![endless], None, None).contains("at most 1048576 bytes"));
    // More than the file has.
    let more = answer("200 OK", &["Transfer-Encoding: chunked"], b"c\r\n0123456789ab\r\n0\r\n\r\n");
    assert!(refused(vec![more], None, Some(10)).contains("10 bytes"));
}

#[test]
fn another_file_is_not_kept() {
    let digest = sha256(TEXT);
    assert!(refused(vec![ok(10, "a", b"9876543210")], Some(&digest), None).contains("the SHA-256"));
    let chunks = b"a\r\n9876543210\r\n0\r\n\r\n";
    let chunked = answer("200 OK", &["Transfer-Encoding: chunked"], chunks);
    assert!(refused(vec![chunked], Some(&digest), None).contains("the SHA-256"));
    assert!(refused(vec![ok(9, "a", b"987654321")], Some(&digest), Some(10)).contains("10 bytes"));
    assert!(refused(vec![ok(0, "a", b"")], None, None).contains("no byte of it"));
    let packed = answer("200 OK", &["Content-Length: 10", "Content-Encoding: gzip"], TEXT);
    assert!(refused(vec![packed], None, None).contains("the encoding gzip"));
    // A part of the wrong file, which the digest shows.
    let refusal = refused(vec![ok(10, "a", b"9876"), part(4, 10, "a")], Some(&digest), None);
    assert!(refusal.contains("the SHA-256"), "{refusal}");
}

#[test]
fn nonsense_in_headers_is_no_file() {
    for headers in [
        ["Content-Length: -1", "X: y"],
        ["Content-Length: 99999999999999999999999", "X: y"],
        ["Content-Length: 10", "Content-Length: 11"],
        ["Content-Length: 10", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: nonsense", "X: y"],
    ] {
        let (server, here) = (Server::start(vec![answer("200 OK", &headers, b"0123")]), Here::new());
        assert!(here.get(&server, None, None).is_err(), "{headers:?}");
    }
    let outside = "bytes 4-9/18446744073709551616";
    for range in ["bytes 4-3/10", "bytes 4-10/10", outside, "bytes 4-9", "4-9/10", "bytes +4-9/10"] {
        let rest = answer("206 Partial Content", &[&format!("Content-Range: {range}")], b"456789");
        let (server, here) = (Server::start(vec![ok(10, "a", b"0123"), rest]), Here::new());
        assert!(matches!(here.get(&server, None, None), Err(Problem::Answer(_))), "{range}");
    }
    // A character in a tag that is not allowed in a header.
    let odd = answer("200 OK", &["Content-Length: 10", "ETag: \"a\u{1}b\""], b"0");
    let (server, here) = (Server::start(vec![odd]), Here::new());
    assert!(here.get(&server, None, None).is_err());
}

#[test]
fn redirects_have_an_end() {
    for location in ["", "/file", "http://", "ftp://127.0.0.1/", "//user:word@127.0.0.1/"] {
        let on = answer("302 Found", &[&format!("Location: {location}"), "Content-Length: 0"], b"");
        let server = Server::start(vec![on; 20]);
        assert!(matches!(Here::new().get(&server, None, None), Err(Problem::Answer(_))), "{location}");
        assert!(server.requests().len() <= 11);
    }
}
