"""One graph with a fixed input, on ONNX Runtime or OpenVINO, as the servers beside this file serve it.

The environment says what is served: GRAPH, LIBRARY (`onnxruntime` or `openvino`), THREADS for each run, AT_ONCE runs at
the same time, and PORT. `tensor` takes the FP32 numbers of one sample as bytes and gives those of the output. `picture`
takes a PNG and gives a PNG.
"""

import functools
import io
import os
import queue
import threading

import numpy
from PIL import Image

PORT = int(os.environ["PORT"])


def of_onnxruntime(graph: str, threads: int, at_once: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    [entry] = session.get_inputs()
    free = threading.BoundedSemaphore(at_once)

    def compute(sample: numpy.ndarray) -> numpy.ndarray:
        with free:
            return session.run(None, {entry.name: sample})[0]

    return entry.shape, compute


def of_openvino(graph: str, threads: int, at_once: int):
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": at_once,
        "INFERENCE_NUM_THREADS": threads * at_once,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    network = openvino.Core().compile_model(graph, "CPU", settings)
    free: queue.SimpleQueue = queue.SimpleQueue()
    for _ in range(at_once):
        free.put(network.create_infer_request())

    def compute(sample: numpy.ndarray) -> numpy.ndarray:
        request = free.get()
        try:
            request.infer([sample], share_inputs=True)
            return request.get_output_tensor(0).data.copy()
        finally:
            free.put(request)

    return list(network.inputs[0].shape), compute


@functools.cache
def opened():
    """The input's shape and what computes, opened once in each process."""
    ways = {"onnxruntime": of_onnxruntime, "openvino": of_openvino}
    numbers = [int(os.environ[name]) for name in ("THREADS", "AT_ONCE")]
    return ways[os.environ["LIBRARY"]](os.environ["GRAPH"], *numbers)


def tensor(body: bytes) -> bytes:
    shape, compute = opened()
    return compute(numpy.frombuffer(body, numpy.float32).reshape(shape)).tobytes()


def picture(body: bytes) -> bytes:
    _, compute = opened()
    pixels = numpy.asarray(Image.open(io.BytesIO(body)).convert("RGB"), numpy.float32) / 255
    large = compute(numpy.ascontiguousarray(pixels.transpose(2, 0, 1)[None]))[0]
    large = (large.clip(0, 1) * 255).round().astype(numpy.uint8).transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(large).save(file, "PNG")
    return file.getvalue()
