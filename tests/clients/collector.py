"""A collector of traces: takes OTLP over HTTP, read by OpenTelemetry's own messages, and gives the spans as JSON.

    collector.py [silent]

Prints its address. POST /v1/traces takes spans, GET /spans gives all that came so far. With `silent`, it takes
connections and never answers.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

spans, lock = [], threading.Lock()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with lock:
            self.answer(200, "application/json", json.dumps(spans).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "silent" in sys.argv:
            time.sleep(3600)
        assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                with lock:
                    spans.extend(
                        {
                            "resource": attributes(resource.resource.attributes),
                            "name": span.name,
                            "kind": Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                            "trace": span.trace_id.hex(),
                            "id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "status": Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
                            "attributes": attributes(span.attributes),
                            "milliseconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6,
                        }
                        for span in scope.spans
                    )
        self.answer(200, "application/x-protobuf", b"")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
