"""Calls a server over gRPC in ways that no honest client does. Each is refused with a status that says why.

    attack_grpc.py ADDRESS MODEL MOST_BYTES
"""

import sys

import grpc
from tritonclient.grpc import service_pb2 as messages

address, model, most_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
channel = grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)])
SERVICE = "/inference.GRPCInferenceService/"


def call(path, content, timeout=60):
    return channel.unary_unary(path)(content, timeout=timeout)


def refused(status, words, content, path=SERVICE + "ModelInfer", **more):
    try:
        call(path, content, **more)
    except grpc.RpcError as error:
        assert error.code().name == status and words in error.details(), (status, words, error.code(), error.details())
        return error
    raise AssertionError(f"expected {status} with {words}")


def request(inputs=(("image", "FP32", [1, 3, 24, 24]),), raw=(b"\0" * 6912,), **more):
    message = messages.ModelInferRequest(model_name=model, raw_input_contents=raw, **more)
    for name, datatype, shape in inputs:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
    return message


image = ("image", "FP32", [1, 3, 24, 24])
data = b"\0" * 6912
call(SERVICE + "ModelInfer", request().SerializeToString())
for words, message in [
    ("expected 6912 bytes", request(raw=[data[1:]])),
    ("expected 6912 bytes", request(raw=[data + b"x"])),
    ("expected 1, one for each input, found 2", request(raw=[data, data])),
    ("two of this name", request(inputs=[image, image], raw=[data, data])),
    ("lengths of at least 0", request(inputs=[("image", "FP32", [-1, 3, 24, 24])])),
    ("more elements than there can be", request(inputs=[("image", "FP32", [2**62, 2**62])])),
    ("more than there can be bytes", request(inputs=[("image", "FP32", [2**62])])),
    ("at most 8 axes", request(inputs=[("image", "FP32", [1] * 9)], raw=[b"\0" * 4])),
    ("expected elements of FP32", request(inputs=[("image", "BYTES", [1, 3, 24, 24])])),
    ("expected elements of FP32", request(inputs=[("image", "x" * 100_000, [1, 3, 24, 24])])),
    ("expected inputs image", request(inputs=[("x" * 100_000, "FP32", [1, 3, 24, 24])])),
    ("image", request(inputs=[], raw=[])),
]:
    error = refused("INVALID_ARGUMENT", words, message.SerializeToString())
    assert len(error.details()) < 1000
both = request()
both.inputs[0].contents.fp32_contents.append(1)
refused("INVALID_ARGUMENT", "both", both.SerializeToString())
several = request(raw=[])
several.inputs[0].contents.fp32_contents.append(1)
several.inputs[0].contents.int64_contents.append(1)
refused("INVALID_ARGUMENT", "of one type", several.SerializeToString())
shared = request()
shared.inputs[0].parameters["shared_memory_region"].string_param = "/etc"
refused("INVALID_ARGUMENT", "shared memory", shared.SerializeToString())
other = request()
other.model_name = "../" + model
refused("NOT_FOUND", "there is no model", other.SerializeToString())

# Invalid messages, a message that is too large, and methods that do not exist.
refused("INTERNAL", "", b"\xff" * 100)
for length in [most_bytes + 1, 4 * most_bytes]:
    try:
        call(SERVICE + "ModelInfer", request(raw=[b"\0" * length]).SerializeToString())
        raise AssertionError("a message that is too large was taken")
    except grpc.RpcError as error:
        assert error.code().name in ("OUT_OF_RANGE", "RESOURCE_EXHAUSTED"), error
refused("UNIMPLEMENTED", "", b"", path=SERVICE + "ModelConfig")
refused("UNIMPLEMENTED", "", b"", path="/other.Service/Call")
# A deadline of the call itself, for work that takes far longer.
long = request([("image", "FP32", [128, 3, 24, 24])], [data * 128])
try:
    call(SERVICE + "ModelInfer", long.SerializeToString(), timeout=0.01)
    raise AssertionError("the deadline was passed")
except grpc.RpcError as error:
    assert error.code().name == "DEADLINE_EXCEEDED", error
call(SERVICE + "ModelInfer", request().SerializeToString())
print("all were refused")
