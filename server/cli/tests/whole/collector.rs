//! A third-party collector of traces.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{repository, request};

/// A collector that ends when this is dropped.
pub(crate) struct Collector {
    child: Child,
    pub(crate) url: String,
}

impl Collector {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(repository("target/server-venv/bin/python"));
        command.arg(repository("tests/clients/collector.py")).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; run `make test`"));
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let address = self.url.strip_prefix("http://").unwrap();
        let (status, _, body) = request(address, "GET", "/spans", &[], b"").unwrap();
        assert_eq!(status, 200);
        serde_json::from_slice(&body).unwrap()
    }

    /// The spans of one trace, once the span `name` has arrived. Spans are sent some seconds after their end.
    pub(crate) fn trace(&self, trace: &str, name: &str) -> Vec<Value> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let spans = self.spans();
            let of_trace: Vec<Value> = spans.iter().filter(|span| span["trace"] == trace).cloned().collect();
            if of_trace.iter().any(|span| span["name"] == name) {
                return of_trace;
            }
            assert!(Instant::now() < until, "{name}: {spans:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The one span of this name.
pub(crate) fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    let found: Vec<&Value> = spans.iter().filter(|span| span["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

/// The sorted names of a span's direct children.
pub(crate) fn below(spans: &[Value], parent: &Value) -> Vec<String> {
    let below = spans.iter().filter(|span| span["parent"] == parent["id"]);
    let mut names: Vec<String> = below.map(|span| span["name"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}
