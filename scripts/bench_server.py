#!/usr/bin/env python3
"""Measures what a request to the server takes beyond the run of its network.

    target/server-venv/bin/python scripts/bench_server.py HTTP_ADDRESS GRPC_ADDRESS MODEL [--side 64] [--requests 300]

One client sends requests on one connection, one after the other, with one tensor as bytes: over REST, and over gRPC.
The time within the network is the server's own figure (`tileforge_seconds{in="run"}`); what is left of each request is
the overhead: the host's queue, the server and the client together.
"""

import argparse
import http.client
import json
import statistics
import time

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("http")
parser.add_argument("grpc")
parser.add_argument("model")
parser.add_argument("--side", type=int, default=64)
parser.add_argument("--requests", type=int, default=300)
arguments = parser.parse_args()

shape = [1, 3, arguments.side, arguments.side]
tensor = np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).tobytes()
connection = http.client.HTTPConnection(arguments.http)


def get(path):
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def run_seconds():
    lines = [line for line in get("/metrics").splitlines() if line.startswith('tileforge_seconds{in="run"}')]
    return float(lines[0].split()[-1])


metadata = json.loads(get(f"/v2/models/{arguments.model}"))
name = metadata["inputs"][0]["name"]
head = json.dumps(
    {
        "inputs": [{"name": name, "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(tensor)}}],
        "parameters": {"binary_data_output": True},
    }
).encode()


def over_rest():
    headers = {"Inference-Header-Content-Length": str(len(head))}
    connection.request("POST", f"/v2/models/{arguments.model}/infer", head + tensor, headers)
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content[:500]


options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
call = grpc.insecure_channel(arguments.grpc, options).unary_unary("/inference.GRPCInferenceService/ModelInfer")
message = service_pb2.ModelInferRequest(model_name=arguments.model, raw_input_contents=[tensor])
message.inputs.add(name=name, datatype="FP32", shape=shape)
message = message.SerializeToString()

for protocol, ask in [("REST", over_rest), ("gRPC", lambda: call(message))]:
    for _ in range(20):
        ask()
    times, before = [], run_seconds()
    for _ in range(arguments.requests):
        began = time.perf_counter()
        ask()
        times.append((time.perf_counter() - began) * 1e3)
    network = (run_seconds() - before) * 1e3 / arguments.requests
    median, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
    mean = statistics.fmean(times)
    print(
        f"{protocol}: p50 {median:.2f} ms, p99 {p99:.2f} ms, mean {mean:.2f} ms; "
        f"within the network {network:.2f} ms on average; beyond it {mean - network:.2f} ms on average"
    )
