#!/usr/bin/env python3
"""Measures what a request to the server takes beyond the run of its network.

    target/server-venv/bin/python scripts/bench_server.py HTTP_ADDRESS GRPC_ADDRESS MODEL [--side 64] [--requests 300]

One client sends requests on one connection, one after the other, with one tensor as bytes: over REST, and over gRPC.
In turn with each it asks a bare server, which takes the same bytes, computes nothing and answers with as many bytes:
what that takes is the protocol's and the client's own. The bare gRPC server is grpcio's, the bare REST server writes a
fixed answer to its socket.

How long the network, the host and the server take is read from the server's metrics: `tileforge_seconds{in="run"}`,
`tileforge_task_seconds` and `tileforge_request_seconds`.
"""

import argparse
import http.client
import json
import multiprocessing
import socket
import statistics
import time
from concurrent import futures

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelInfer"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def answer_over_grpc(answer, address):
    """A bare gRPC server with one fixed answer; it puts its address into the queue `address`."""

    class Anything(grpc.GenericRpcHandler):
        def service(self, _details):
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)

    server = grpc.server(futures.ThreadPoolExecutor(1), options=OPTIONS)
    server.add_generic_rpc_handlers((Anything(),))
    address.put(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    server.wait_for_termination()


def answer_over_rest(answer, address):
    """A bare HTTP server for one connection, with one fixed answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    address.put(f"127.0.0.1:{listener.getsockname()[1]}")
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = connection.makefile("rb")
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n".encode()
    while line := request.readline():
        length = 0
        while line not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            line = request.readline()
        request.read(length)
        connection.sendall(head + answer)


def bare_server(serve, answer):
    address = multiprocessing.Queue()
    process = multiprocessing.Process(target=serve, args=(answer, address), daemon=True)
    process.start()
    return address.get()


def over_rest(connection, model, head, tensor):
    headers = {"Inference-Header-Content-Length": str(len(head))}

    def ask():
        connection.request("POST", f"/v2/models/{model}/infer", head + tensor, headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content[:500]
        return content

    return ask


def over_grpc(address, message):
    call = grpc.insecure_channel(address, OPTIONS).unary_unary(METHOD)
    return lambda: call(message)


def seconds_of(connection, model):
    """Seconds that all requests for `model` took so far: in the network, in the host, in the server."""
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    host = [value for name, value in values.items() if name.startswith("tileforge_task_seconds{")]
    return [
        float(values['tileforge_seconds{in="run"}']),
        sum(map(float, host)),
        float(values[f'tileforge_request_seconds_sum{{model="{model}"}}']),
    ]


def timed(ask):
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) * 1e3


def main():
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
    connection.request("GET", f"/v2/models/{arguments.model}")
    name = json.load(connection.getresponse())["inputs"][0]["name"]
    described = {"name": name, "datatype": "FP32", "shape": shape}
    head = json.dumps(
        {
            "inputs": [described | {"parameters": {"binary_data_size": len(tensor)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    message = service_pb2.ModelInferRequest(model_name=arguments.model, raw_input_contents=[tensor])
    message.inputs.add(**described)
    message = message.SerializeToString()

    ours = {
        "REST": over_rest(connection, arguments.model, head, tensor),
        "gRPC": over_grpc(arguments.grpc, message),
    }
    # Every process is started before the first channel of gRPC is used, whose threads a fork would not copy.
    answer = ours["REST"]()
    bare_rest = bare_server(answer_over_rest, answer)
    bare_grpc = bare_server(answer_over_grpc, bytes(len(answer)))
    bare = {
        "REST": over_rest(http.client.HTTPConnection(bare_rest), arguments.model, head, tensor),
        "gRPC": over_grpc(bare_grpc, message),
    }
    for protocol in ours:
        for _ in range(20):
            ours[protocol]()
            bare[protocol]()
        before = seconds_of(connection, arguments.model)
        times, bare_times = [], []
        for _ in range(arguments.requests):
            times.append(timed(ours[protocol]))
            bare_times.append(timed(bare[protocol]))
        after = seconds_of(connection, arguments.model)
        network, host, server = ((end - start) * 1e3 / arguments.requests for start, end in zip(before, after))
        print(
            f"{protocol}: median {statistics.median(times):.2f} ms; on average {statistics.fmean(times):.2f} ms, "
            f"of these network {network:.2f}, host {host - network:.2f}, server {server - host:.2f}, "
            f"sockets and client {statistics.fmean(times) - server:.2f}; "
            f"a bare server: median {statistics.median(bare_times):.2f} ms"
        )


if __name__ == "__main__":
    main()
