#!/usr/bin/env python3
"""Times our kernels (crates/kernels) beside those of other libraries: 3x3 convolutions and attention. Each way is a
process of its own, in random order and with pauses.

    cargo build --release --locked --package tileforge-kernels --example kernel_time
    python3 -m venv VENV && VENV/bin/pip install numpy onnx onnxruntime==1.31.1 openvino==2026.4.1 ncnn torch
    VENV/bin/python scripts/bench_kernels.py --threads 2 --rounds 3

Prints the median milliseconds, and in brackets how many times as long as the first way takes. All compute in FP32.
Attention has a bias for each head, and begins and ends with `[samples, tokens, heads, width]`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

REPOSITORY = Path(__file__).resolve().parent.parent
# Convolutions: channels of values and of results, rows and columns: SRVGGNetCompact, RRDBNet (two), SPAN, Stable
# Diffusion's UNet and its decoder. Attention: samples, heads, tokens, width of a head: SwinIR, DAT, Depth Anything, the
# UNet.
SIZES = {
    "convolution": [(32, 32, 512), (64, 64, 256), (192, 32, 128), (48, 48, 256), (320, 320, 64), (512, 512, 128)],
    "attention": [(64, 6, 64, 30), (16, 6, 256, 30), (1, 6, 1814, 64), (1, 8, 4096, 40)],
}
WAYS = ["ours", "onnxruntime", "openvino", "ncnn", "torch"]
RUNS = 15
PAUSE = 0.5


def shapes(kernel: str, size: tuple[int, ...]) -> tuple[dict[str, list[int]], dict[str, list[int]], list[int]]:
    """Of the inputs, the weights and the results."""
    if kernel == "convolution":
        inputs, outputs, side = size
        return {"x": [1, inputs, side, side]}, {"w": [outputs, inputs, 3, 3]}, [1, outputs, side, side]
    samples, heads, tokens, width = size
    all_tokens = [samples, tokens, heads, width]
    return {name: all_tokens for name in "qkv"}, {"b": [1, heads, tokens, tokens]}, all_tokens


def values(shapes: dict[str, list[int]]) -> dict[str, object]:
    import numpy

    generator = numpy.random.default_rng(0)
    return {name: generator.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def onnx_model(kernel: str, size: tuple[int, ...]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    inputs, weights, results = shapes(kernel, size)
    node = helper.make_node
    nodes = {
        "convolution": lambda: [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
        "attention": lambda: [
            node("Transpose", ["q"], ["q_heads"], perm=[0, 2, 1, 3]),
            node("Transpose", ["k"], ["k_heads"], perm=[0, 2, 3, 1]),
            node("Transpose", ["v"], ["v_heads"], perm=[0, 2, 1, 3]),
            node("MatMul", ["q_heads", "k_heads"], ["products"]),
            node("Add", ["products", "b"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1),
            node("MatMul", ["shares", "v_heads"], ["sums"]),
            node("Transpose", ["sums"], ["y"], perm=[0, 2, 1, 3]),
        ],
    }[kernel]()
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        kernel,
        [port(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [port("y", TensorProto.FLOAT, results)],
        [numpy_helper.from_array(value, name) for name, value in values(weights).items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def onnxruntime_run(kernel: str, size: tuple[int, ...], threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx_model(kernel, size), options, providers=["CPUExecutionProvider"])
    inputs = values(shapes(kernel, size)[0])
    return lambda: session.run(None, inputs)


def openvino_run(kernel: str, size: tuple[int, ...], threads: int) -> Callable[[], object]:
    import openvino

    core = openvino.Core()
    properties = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    model = core.read_model(onnx_model(kernel, size))
    request = core.compile_model(model, "CPU", properties).create_infer_request()
    inputs = values(shapes(kernel, size)[0])
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)


def ncnn_run(kernel: str, size: tuple[int, ...], threads: int) -> Callable[[], object]:
    import ncnn
    import numpy

    inputs, outputs, side = size
    layers = (
        f"7767517\n2 2\nInput in 0 1 data 0={side} 1={side} 2={inputs}\n"
        f"Convolution c 1 1 data out 0={outputs} 1=3 4=1 5=0 6={inputs * outputs * 9}\n"
    )
    weights = values(shapes(kernel, size)[1])["w"]
    net = ncnn.Net()
    net.opt.num_threads = threads
    # These would compute in fewer bits.
    net.opt.use_bf16_storage = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_fp16_packed = False
    with tempfile.TemporaryDirectory() as folder:
        parameters, binary = Path(folder, "model.param"), Path(folder, "model.bin")
        parameters.write_text(layers)
        binary.write_bytes(struct.pack("<I", 0) + weights.tobytes())
        net.load_param(str(parameters))
        net.load_model(str(binary))
    x = ncnn.Mat(numpy.ascontiguousarray(values(shapes(kernel, size)[0])["x"][0])).clone()

    def run() -> object:
        extractor = net.create_extractor()
        extractor.input("data", x)
        return extractor.extract("out")

    return run


def torch_run(kernel: str, size: tuple[int, ...], threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    inputs, weights, _ = shapes(kernel, size)
    given = {name: torch.from_numpy(value) for name, value in values({**inputs, **weights}).items()}
    functional = torch.nn.functional

    def run() -> object:
        with torch.inference_mode():
            if kernel == "convolution":
                return functional.conv2d(given["x"], given["w"], padding=1)
            heads = [given[name].transpose(1, 2) for name in "qkv"]
            sums = functional.scaled_dot_product_attention(*heads, attn_mask=given["b"], scale=1.0)
            return sums.transpose(1, 2).contiguous()

    return run


def of_this_process(kernel: str, way: str, size: tuple[int, ...], threads: int) -> float:
    """The median milliseconds of a way other than ours."""
    run = {"onnxruntime": onnxruntime_run, "openvino": openvino_run, "ncnn": ncnn_run, "torch": torch_run}[way]
    run = run(kernel, size, threads)
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--kernels", nargs="+", default=list(SIZES), choices=list(SIZES))
    # A kernel, a way, the threads and the sizes: what this script calls itself with.
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kernel, way, threads, *size = arguments.one
        print(of_this_process(kernel, way, tuple(map(int, size)), int(threads)))
        return
    # ncnn has other layers for attention.
    cases = [
        (kernel, size, [way for way in arguments.ways if way != "ncnn" or kernel == "convolution"])
        for kernel in arguments.kernels
        for size in SIZES[kernel]
    ]
    runs = [(kernel, size, way) for kernel, size, ways in cases for way in ways] * arguments.rounds
    random.shuffle(runs)
    times: dict[tuple[str, tuple[int, ...], str], list[float]] = {}
    for kernel, size, way in runs:
        numbers = [str(arguments.threads), *map(str, size)]
        ours = [str(REPOSITORY / "target/release/examples/kernel_time"), kernel, *numbers]
        command = ours if way == "ours" else [sys.executable, __file__, "--one", kernel, way, *numbers]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{kernel}, {way}, {size}: {result.stderr.strip()}")
        times.setdefault((kernel, size, way), []).append(float(result.stdout.split()[-1]))
        time.sleep(PAUSE)
    for kernel, size, ways in cases:
        medians = {way: statistics.median(times[kernel, size, way]) for way in ways}
        first = medians[ways[0]]
        cells = ", ".join(f"{way} {taken:.2f} ({taken / first:.2f})" for way, taken in medians.items())
        print(f"{kernel} {'x'.join(map(str, size))}: {cells}")


if __name__ == "__main__":
    main()
