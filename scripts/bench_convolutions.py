#!/usr/bin/env python3
"""Times 3x3 convolutions of our kernels (crates/kernels) beside those of other libraries. Each way is a process of its
own, in random order and with pauses.

    cargo build --release --locked --package tileforge-kernels --example convolution_time
    python3 -m venv VENV && VENV/bin/pip install numpy onnx onnxruntime==1.31.1 openvino==2026.4.1 ncnn torch
    VENV/bin/python scripts/bench_convolutions.py --threads 2 --rounds 3

Prints the median milliseconds, and in brackets how many times as long as the first way takes. All compute in FP32.
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
# Channels of values and of results, rows and columns: SRVGGNetCompact, RRDBNet (two), SPAN, Stable Diffusion's UNet
# and its decoder.
SIZES = [(32, 32, 512), (64, 64, 256), (192, 32, 128), (48, 48, 256), (320, 320, 64), (512, 512, 128)]
WAYS = ["ours", "onnxruntime", "openvino", "ncnn", "torch"]
RUNS = 15
PAUSE = 0.5


def onnx_model(inputs: int, outputs: int, side: int) -> bytes:
    import numpy
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy.random.default_rng(0).standard_normal((outputs, inputs, 3, 3)).astype("f4")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs, side, side])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs, side, side])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def onnxruntime_run(size: tuple[int, int, int], threads: int) -> Callable[[], object]:
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx_model(*size), options, providers=["CPUExecutionProvider"])
    x = numpy.random.default_rng(1).standard_normal((1, size[0], size[2], size[2])).astype("f4")
    return lambda: session.run(None, {"x": x})


def openvino_run(size: tuple[int, int, int], threads: int) -> Callable[[], object]:
    import numpy
    import openvino

    core = openvino.Core()
    properties = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    request = core.compile_model(core.read_model(onnx_model(*size)), "CPU", properties).create_infer_request()
    x = numpy.random.default_rng(1).standard_normal((1, size[0], size[2], size[2])).astype("f4")
    return lambda: request.infer({0: x}, share_inputs=True, share_outputs=True)


def ncnn_run(size: tuple[int, int, int], threads: int) -> Callable[[], object]:
    import ncnn
    import numpy

    inputs, outputs, side = size
    layers = (
        f"7767517\n2 2\nInput in 0 1 data 0={side} 1={side} 2={inputs}\n"
        f"Convolution c 1 1 data out 0={outputs} 1=3 4=1 5=0 6={inputs * outputs * 9}\n"
    )
    weights = numpy.random.default_rng(0).standard_normal(inputs * outputs * 9).astype("f4")
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
    values = numpy.ascontiguousarray(numpy.random.default_rng(1).standard_normal((inputs, side, side)).astype("f4"))
    x = ncnn.Mat(values).clone()

    def run() -> object:
        extractor = net.create_extractor()
        extractor.input("data", x)
        return extractor.extract("out")

    return run


def torch_run(size: tuple[int, int, int], threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    inputs, outputs, side = size
    x, weights = torch.randn(1, inputs, side, side), torch.randn(outputs, inputs, 3, 3)

    def run() -> object:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(x, weights, padding=1)

    return run


def of_this_process(way: str, size: tuple[int, int, int], threads: int) -> float:
    """The median milliseconds of a way other than ours."""
    run = {"onnxruntime": onnxruntime_run, "openvino": openvino_run, "ncnn": ncnn_run, "torch": torch_run}[way]
    run = run(size, threads)
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
    # A way, then inputs, outputs, side and threads: what this script calls itself with.
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way, *numbers = arguments.one
        *size, threads = map(int, numbers)
        print(of_this_process(way, tuple(size), threads))
        return
    times: dict[tuple[tuple[int, int, int], str], list[float]] = {}
    runs = [(size, way) for size in SIZES for way in arguments.ways] * arguments.rounds
    random.shuffle(runs)
    for size, way in runs:
        numbers = [*map(str, size), str(arguments.threads)]
        ours = [str(REPOSITORY / "target/release/examples/convolution_time"), *numbers]
        command = ours if way == "ours" else [sys.executable, __file__, "--one", way, *numbers]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{way}, {size}: {result.stderr.strip()}")
        times.setdefault((size, way), []).append(float(result.stdout.split()[-1]))
        time.sleep(PAUSE)
    for size in SIZES:
        best = {way: statistics.median(times[size, way]) for way in arguments.ways}
        first = best[arguments.ways[0]]
        cells = ", ".join(f"{way} {taken:.2f} ({taken / first:.2f})" for way, taken in best.items())
        print(f"{size[0]} to {size[1]} channels, {size[2]}x{size[2]}: {cells}")


if __name__ == "__main__":
    main()
