"""Asks a server by the Open Inference Protocol, as its users do: tritonclient over HTTP and gRPC.

    open_inference.py HTTP_ADDRESS GRPC_ADDRESS MODEL

Every answer is compared with the others; the script ends with an exception where one differs.
"""

import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

http_address, grpc_address, model = sys.argv[1:]
random = np.random.default_rng(1)
# Gradients, as pictures have them.
rows, columns = np.mgrid[0:24, 0:24] / 24
picture = np.stack([rows, columns, (rows + columns) / 2]).astype(np.float32)
batch = np.stack([picture, picture[::-1], picture * 0.5])


def refused(call, *words):
    """The error of a call that has to fail with an error that has these words."""
    try:
        call()
    except InferenceServerException as error:
        assert all(word in f"{error.status()} {error}" for word in words), error
        return error
    raise AssertionError(f"expected an error with {words}")


def over(kind, address, **options):
    client = kind.InferenceServerClient(address, **options)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    assert client.is_model_ready(model, "1")

    def tensor(values, datatype="FP32"):
        given = kind.InferInput("image", list(values.shape), datatype)
        given.set_data_from_numpy(values)
        return [given]

    def infer(values, datatype="FP32", **more):
        return client.infer(model, tensor(values, datatype), **more)

    result = infer(picture[None], request_id="mine")
    large = result.as_numpy("upscaled")
    assert large.shape == (1, 3, 96, 96) and large.dtype == np.float32, large.shape
    # The network enlarges: its means are those of the picture.
    assert abs(large.mean() - picture.mean()) < 0.01
    several = infer(batch).as_numpy("upscaled")
    assert several.shape == (3, 3, 96, 96)
    assert np.array_equal(several[0], large[0])
    wide = infer(picture.astype(np.float16).astype(np.float32)[None]).as_numpy("upscaled")
    half = infer(picture.astype(np.float16)[None], "FP16").as_numpy("upscaled")
    assert np.array_equal(half, wide)
    narrow = infer(picture[None], parameters={"output_datatype": "FP16"}).as_numpy("upscaled")
    assert narrow.dtype == np.float16 and np.array_equal(narrow, large.astype(np.float16))
    named = infer(picture[None], outputs=[kind.InferRequestedOutput("upscaled")])
    assert np.array_equal(named.as_numpy("upscaled"), large)

    refused(lambda: client.infer("none", tensor(picture[None])), "none")
    refused(lambda: client.infer("../none", tensor(picture[None])))
    refused(lambda: infer(picture[None], model_version="2"), "version")
    refused(lambda: infer(picture[None], outputs=[kind.InferRequestedOutput("other")]), "upscaled")
    refused(lambda: infer(np.zeros((1, 3, 7, 7), np.float32)), "[1, 3, 7, 7]")
    refused(lambda: infer(np.zeros((1, 4, 24, 24), np.float32)), "3 channels")
    refused(lambda: infer(np.zeros((1, 3, 24, 24), np.int64), "INT64"), "FP32")
    refused(lambda: client.infer(model, tensor(picture[None]) * 2), "two")
    error = refused(lambda: infer(picture[None], timeout=1))
    assert "504" in error.status() or "DEADLINE" in error.status(), error.status()
    # None of them has hurt the others.
    assert np.array_equal(infer(picture[None]).as_numpy("upscaled"), large)

    client.unload_model(model)
    assert not client.is_model_ready(model)
    error = refused(lambda: infer(picture[None]), "unloaded")
    assert "503" in error.status() or "UNAVAILABLE" in error.status(), error.status()
    refused(lambda: client.load_model("../../etc"))
    refused(lambda: client.load_model("etc"), "no model")
    refused(lambda: client.load_model(model, config="{}"), "no parameters")
    client.load_model(model)
    assert client.is_model_ready(model)
    return client, large


web, first = over(http, http_address)
calls, second = over(grpc, grpc_address)
assert np.array_equal(first, second)

metadata = web.get_model_metadata(model)
message = calls.get_model_metadata(model, as_json=True)
assert metadata["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 3, -1, -1]}], metadata
assert [int(length) for length in message["outputs"][0]["shape"]] == [-1, 3, -1, -1], message
assert (metadata["platform"], metadata["versions"]) == ("tileforge", ["1"]), metadata
for server in [web.get_server_metadata(), calls.get_server_metadata(as_json=True)]:
    assert server["name"] == "tileforge-server" and "binary_tensor_data" in server["extensions"], server
entry = {"name": model, "version": "1", "state": "READY"}
assert {**entry, "reason": ""} in web.get_model_repository_index()
assert entry in calls.get_model_repository_index(as_json=True)["models"]

# JSON in both directions.
given = http.InferInput("image", [1, 3, 24, 24], "FP32")
given.set_data_from_numpy(picture[None], binary_data=False)
text = web.infer(model, [given], outputs=[http.InferRequestedOutput("upscaled", binary_data=False)])
assert np.array_equal(text.as_numpy("upscaled"), first)
# Compressed bodies are not taken, and that is said.
error = refused(lambda: web.infer(model, [given], request_compression_algorithm="gzip"), "compression")
# Elements in the messages themselves.
request = grpc.service_pb2.ModelInferRequest(model_name=model)
tensor = request.inputs.add(name="image", datatype="FP32", shape=[1, 3, 24, 24])
tensor.contents.fp32_contents.extend(picture.ravel().tolist())
stub = grpc.service_pb2_grpc.GRPCInferenceServiceStub(calls._channel)
answer = stub.ModelInfer(request)
assert np.array_equal(np.frombuffer(answer.raw_output_contents[0], np.float32), first.ravel())

# The health service that probes of Kubernetes ask.
health = calls._channel.unary_unary(
    "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
)
assert health(b"") == b"\x08\x01"
print("every answer is right")
