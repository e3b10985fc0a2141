//! Traces, as a collector of OpenTelemetry receives them.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::collector::{Collector, below, named};
use crate::harness::{Server, binary_inference, engines, picture, program, repository};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// The header of a client whose trace has this id.
fn traceparent(trace: &str) -> String {
    format!("00-{trace}-{SPAN}-01")
}

/// A request is a span below that of its client, and has one for each of its parts.
#[test]
fn a_request_goes_on_with_the_trace_of_its_client() {
    let (engines, collector) = (engines(), Collector::start(&[]));
    let server = Server::start(engines.path(), &["--traces", &collector.url]);
    let (small, parent) = (picture(&server, "40x30"), traceparent(TRACE));
    let headers = [("traceparent", &*parent), ("tracestate", "vendor=1"), ("X-Request-Id", "mine")];
    assert_eq!(server.request("POST", "/v1/upscale?engine=model", &headers, &small).0, 200);
    let spans = collector.trace(TRACE, "POST /v1/upscale");
    let request = named(&spans, "POST /v1/upscale");
    assert_eq!([&request["kind"], &request["parent"], &request["status"]], ["SERVER", SPAN, "UNSET"]);
    let attributes = &request["attributes"];
    assert_eq!(attributes["http.request.method"], "POST");
    assert_eq!(attributes["http.route"], "/v1/upscale");
    assert_eq!(attributes["http.response.status_code"], 200);
    assert_eq!(attributes["tileforge.request.id"], "mine");
    assert_eq!(request["resource"]["service.name"], "tileforge-server");
    assert_eq!(below(&spans, request), ["decode", "encode", "infer"]);
    assert_eq!(named(&spans, "infer")["attributes"]["tileforge.model"], "model");
    // The log leads to the trace.
    let line = server.events().into_iter().find(|event| event["request_id"] == "mine").unwrap();
    assert_eq!(line["trace_id"], TRACE);

    // Tensors, over gRPC: by another client than ours.
    let other = "1af7651916cd43dd8448eb211c80319c";
    let script = "import sys, numpy as np, tritonclient.grpc as grpc
given = grpc.InferInput('image', [1, 3, 24, 24], 'FP32')
given.set_data_from_numpy(np.zeros((1, 3, 24, 24), np.float32))
client = grpc.InferenceServerClient(sys.argv[1])
client.infer('model', [given], headers={'traceparent': sys.argv[2]})
try:
    client.infer('none', [given], headers={'traceparent': sys.argv[2]})
except grpc.InferenceServerException as error:
    assert 'NOT_FOUND' in error.status(), error
else:
    raise SystemExit('a model that is not there')";
    let mut client = Command::new(repository("target/server-venv/bin/python"));
    let output = client.args(["-c", script, &server.grpc, &traceparent(other)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let spans = collector.trace(other, "inference.GRPCInferenceService/ModelInfer");
    let mut codes: Vec<&str> =
        spans.iter().filter_map(|span| span["attributes"]["rpc.response.status_code"].as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["NOT_FOUND", "OK"], "{spans:#?}");
    assert_eq!(named(&spans, "infer")["kind"], "INTERNAL");
    // Health checks have no spans.
    assert!(collector.spans().iter().all(|span| !span["name"].as_str().unwrap().contains("health")));
}

/// A job and a stream go on below their request when it has been answered.
#[test]
fn long_work_belongs_to_the_trace_of_its_request() {
    let (engines, collector) = (engines(), Collector::start(&[]));
    let server = Server::start_with(engines.path(), &[], |command| {
        // Configured by the environment, as in a cluster.
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).env("OTEL_SERVICE_NAME", "pictures");
    });
    let (small, parent) = (picture(&server, "40x30"), traceparent(TRACE));
    let headers = [("traceparent", &*parent)];
    let (status, _, job) = server.request("POST", "/v1/jobs/upscale?engine=model", &headers, &small);
    let job: Value = serde_json::from_slice(&job).unwrap();
    assert_eq!(status, 202, "{job}");
    let spans = collector.trace(TRACE, "job");
    let request = named(&spans, "POST /v1/jobs/upscale");
    assert_eq!(below(&spans, request), ["job"]);
    assert_eq!(below(&spans, named(&spans, "job")), ["decode", "encode", "infer"]);
    assert_eq!(request["resource"]["service.name"], "pictures");

    let other = "1af7651916cd43dd8448eb211c80319c";
    let parent = traceparent(other);
    let path = format!("/v1/jobs/{}/events", job["id"].as_str().unwrap());
    assert_eq!(server.request("GET", &path, &[("traceparent", &*parent)], b"").0, 200);
    let spans = collector.trace(other, "stream");
    // The name has no id of a job, because collectors group by name.
    assert_eq!(below(&spans, named(&spans, "GET /v1/jobs/{id}/events")), ["stream"]);
}

/// An invalid header starts a new trace; a client that does not sample gets no spans.
#[test]
fn traces_are_as_their_clients_say() {
    let (engines, collector) = (engines(), Collector::start(&[]));
    let mut server = Server::start(engines.path(), &["--traces", &format!("{}/", collector.url)]);
    let (length, body) = binary_inference(24);
    let length = length.to_string();
    let infer = |parent: &str, state: &str| {
        let headers = [("Inference-Header-Content-Length", &*length), ("traceparent", parent), ("tracestate", state)];
        assert_eq!(server.request("POST", "/v2/models/model/infer", &headers, &body).0, 200, "{parent}");
    };
    infer(&format!("00-{TRACE}-{SPAN}-00"), "");
    let zeros = format!("00-{}-{SPAN}-01", "0".repeat(32));
    let long = format!("00-{TRACE}-{SPAN}-01{}", "-x".repeat(2000));
    let strange = [
        "",
        "00",
        "\u{e4}",
        &zeros,
        &long,
        "00-zz-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    for parent in strange {
        infer(parent, "=,=,\u{e4}");
    }
    infer(&traceparent(TRACE), &"a=b,".repeat(2000));
    // No client chooses the name of a span.
    for (path, status) in [("/a", 404), ("/b", 404), ("/v1/upscale", 405)] {
        assert_eq!(server.request("BREW", path, &[], b"").0, status);
    }
    server.signal("TERM");
    assert_eq!(server.exit_code(), 0, "{}", server.log());
    // The last spans came before its end.
    let spans = collector.spans();
    let requests: Vec<&Value> = spans.iter().filter(|span| span["name"] == "POST /v2/models/{name}/infer").collect();
    assert_eq!(requests.len(), strange.len() + 1, "{spans:#?}");
    let roots = requests.iter().filter(|span| span["parent"] == "").count();
    assert_eq!(roots, strange.len(), "{requests:#?}");
    let ours = requests.iter().find(|span| span["trace"] == TRACE).unwrap();
    assert_eq!(ours["parent"], SPAN);
    let mut others: Vec<&str> = spans.iter().filter_map(|span| span["name"].as_str()).collect();
    others.retain(|name| name.starts_with("HTTP") || name.contains("BREW"));
    others.sort_unstable();
    assert_eq!(others, ["HTTP", "HTTP", "HTTP /v1/upscale"]);
}

/// A collector that does not answer or does not exist delays nothing.
#[test]
fn a_collector_that_fails_holds_nothing_up() {
    let engines = engines();
    let silent = Collector::start(&["silent"]);
    for url in [&*silent.url, "http://127.0.0.1:1"] {
        let mut server = Server::start(engines.path(), &["--traces", url]);
        server.assert_well();
        // Longer than the interval between two exports.
        std::thread::sleep(Duration::from_secs(6));
        let began = Instant::now();
        server.assert_well();
        assert!(began.elapsed() < Duration::from_secs(5), "{}", server.log());
        server.signal("TERM");
        assert_eq!(server.exit_code(), 0, "{}", server.log());
        assert!(began.elapsed() < Duration::from_secs(20), "{}", server.log());
        let said =
            server.events().into_iter().any(|event| event["target"].as_str().unwrap().starts_with("opentelemetry"));
        assert!(said, "{}", server.log());
    }
    for url in ["127.0.0.1:4318", "ftp://127.0.0.1", "http://", "http://a b"] {
        let mut command = Command::new(program("tileforge-server"));
        command.args(["serve", "--engines"]).arg(engines.path()).args(["--traces", url]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains("--traces: expected the URL"), "{url}: {text}");
    }
}

/// Without a collector, there is nothing to send.
#[test]
fn without_a_collector_nothing_is_traced() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    assert_eq!(server.post("/v2/models/none/infer", &json!({ "inputs": [] })).0, 404);
    let line = server.events().into_iter().find(|event| event["status"] == 404).unwrap();
    assert!(line.get("trace_id").is_none(), "{line}");
}
