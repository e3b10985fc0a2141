#!/usr/bin/env python3
"""Measures what a processor gains from batches of text encoders and of a network for depth.

    python3 -m venv target/peers-venv
    target/peers-venv/bin/pip install numpy onnxruntime==1.32.0
    make build
    target/peers-venv/bin/python scripts/bench_batches.py [--runs 5] [NETWORK:PRESET ...]

Each network has random weights, and a graph for each batch, as `exporter export` makes it. The graphs run on ONNX
Runtime's CPU provider with 2 threads, in turns. A figure is the time for each sample of a batch over the time of a
batch of one, the median of the rounds: below 1, the batch is faster.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy
import onnxruntime
from commands import binaries, run, xtask
from turns import take_turns

THREADS = 2
BATCHES = (1, 2, 4)
NUMBERS = numpy.random.default_rng(0)
# The input of each architecture, the shape of one sample, and what makes samples.
SAMPLES = {
    "CLIPText": ("input_ids", [77], lambda shape: NUMBERS.integers(0, 49000, shape)),
    "DepthAnything": ("pixel_values", [3, 518, 518], lambda shape: NUMBERS.standard_normal(shape, dtype=numpy.float32)),
}
NETWORKS = ["CLIPText:clip-l", "CLIPText:openclip-bigg", "DepthAnything:vits"]


def session(graph: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def measure(network: str, runs: int, folder: Path) -> list[float]:
    architecture, preset = network.split(":")
    checkpoint = folder / "checkpoint.safetensors"
    xtask("synth", architecture, "--preset", preset, "-o", checkpoint)
    name, shape, samples = SAMPLES[architecture]
    ways = {}
    for batch in BATCHES:
        graph = folder / f"{batch}.onnx"
        sizes = "x".join(map(str, [batch, *shape]))
        run(binaries() / "exporter", "export", checkpoint, "--shapes", f"{name}:{sizes}", "-o", graph)
        opened, inputs = session(graph), {name: samples([batch, *shape])}
        ways[str(batch)] = lambda opened=opened, inputs=inputs: opened.run(None, inputs)
    _, times = take_turns(ways, runs)
    each = {batch: statistics.median(times[str(batch)]) / batch for batch in BATCHES}
    return [each[batch] / each[1] for batch in BATCHES]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what batches gain on a processor.")
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK:PRESET")
    arguments = parser.parse_args()
    for network in arguments.networks:
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(network, arguments.runs, Path(folder))
        print(network, *(f"{batch}: {figure:.2f}" for batch, figure in zip(BATCHES, figures)), sep="  ", flush=True)


if __name__ == "__main__":
    main()
