#!/usr/bin/env python3
"""Compares forms of 8-bit graphs by the bytes that their plans for RTX GPUs move.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install -r tests/golden/requirements.txt onnx
    cargo build --release --package tileforge-tensorrt --features rtx --example build_plan
    target/golden-venv/bin/python scripts/search_eight_bits.py [--capability 8.9]

Each graph is a small network of convolutions 3×3 at 256×256: a chain of four with activations, two around a pixel
shuffle, two residual blocks, or two dense blocks as RRDBNet has them. In the forms, scales, QuantizeLinear and
DequantizeLinear are at other places; the numbers that are computed are the same, but for rounding. TensorRT for RTX
builds their plans, and the example prints what these move.
"""

from __future__ import annotations

import argparse
import itertools
import re
import tempfile
from pathlib import Path

import numpy
import onnx
from commands import ROOT, binaries, run
from onnx import TensorProto, helper, numpy_helper

SIDE = 256
CHANNELS = 64
GROWTH = 32  # channels that a convolution of a dense block adds
LIBRARIES = ROOT / ".onnxruntime" / "lib"
KINDS = {"fp16": None, "int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}


class Graph:
    """An ONNX graph in FP16 with 8-bit layers; the methods return names of values."""

    def __init__(self, kind: str, scales: str, quantised: str):
        self.kind, self.scales, self.quantised = KINDS[kind], scales, quantised
        self.nodes, self.weights = [], []
        self.side = SIDE
        self.pairs: dict[str, tuple[str, str]] = {}
        self.constant("scale", numpy.float16(0.02))
        self.eight("zero", ())

    def constant(self, name: str, value: numpy.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def eight(self, name: str, dims: tuple[int, ...]) -> str:
        """Zeros in 8 bits: the values change nothing about a plan's bytes."""
        if self.kind is not None:
            count = int(numpy.prod(dims, dtype=int))
            self.weights.append(helper.make_tensor(name, self.kind, dims, bytes(count), raw=True))
        return name

    def node(self, operator: str, *inputs: str, **attributes) -> str:
        name = f"{operator}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def pair(self, value: str) -> str:
        """The value after quantising and dequantising; each value is quantised once."""
        if self.kind is None:
            return value
        if value not in self.pairs:
            quantised = self.node("QuantizeLinear", value, "scale", "zero")
            self.pairs[value] = quantised, self.node("DequantizeLinear", quantised, "scale", "zero")
        return self.pairs[value][1]

    def convolution(self, value: str, channels: int, to: int) -> str:
        at = len(self.nodes)
        attributes = {"kernel_shape": [3, 3], "pads": [1] * 4}
        dims = (to, channels, 3, 3)
        bias = numpy.full(to, 0.01, numpy.float16)
        if self.kind is None:
            weight = self.constant(f"weight.{at}", numpy.full(dims, 0.01, numpy.float16))
            return self.node("Conv", value, weight, self.constant(f"bias.{at}", bias), **attributes)
        weight = self.eight(f"weight.{at}", dims)
        if self.scales == "channels":
            scales = self.constant(f"scales.{at}", numpy.full(to, 0.002, numpy.float16))
            weight = self.node("DequantizeLinear", weight, scales, self.eight(f"zeros.{at}", (to,)), axis=0)
            made = self.node("Conv", value, weight, self.constant(f"bias.{at}", bias), **attributes)
        else:
            one = self.constant(f"one.{at}", numpy.float16(0.002))
            made = self.node("Conv", value, self.node("DequantizeLinear", weight, one, "zero"), **attributes)
            if self.scales == "behind":
                factors = numpy.linspace(0.5, 1, to, dtype=numpy.float16).reshape(1, to, 1, 1)
                made = self.node("Mul", made, self.constant(f"factors.{at}", factors))
            made = self.node("Add", made, self.constant(f"bias.{at}", bias.reshape(1, to, 1, 1)))
        return self.pair(made) if self.quantised == "behind layers" else made

    def save(self, path: Path) -> None:
        self.nodes[-1].output[0] = "made"
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, CHANNELS, side, side])
            for name, side in [("picture", SIDE), ("made", self.side)]
        ]
        graph = helper.make_graph(self.nodes, "forms", ports[:1], ports[1:], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def chain(graph: Graph, activation: str) -> None:
    value = "picture"
    for _ in range(4):
        value = graph.convolution(graph.pair(value), CHANNELS, CHANNELS)
        if activation == "ReLU":
            value = graph.node("Relu", value)
        else:
            slopes = numpy.linspace(0.1, 0.9, CHANNELS, dtype=numpy.float16).reshape(1, CHANNELS, 1, 1)
            slopes = graph.constant(f"slopes.{len(graph.nodes)}", slopes)
            value = graph.node("Max", value, graph.node("Mul", value, slopes))


def enlarged(graph: Graph, moved: str) -> None:
    """A convolution whose channels become pixels, and one behind it."""
    graph.side = 2 * SIDE
    made = graph.convolution(graph.pair("picture"), CHANNELS, 4 * CHANNELS)
    if moved == "in 8 bits" and graph.kind is not None:
        graph.pair(made)
        pixels = graph.node("DepthToSpace", graph.pairs[made][0], blocksize=2)
        source = graph.node("DequantizeLinear", pixels, "scale", "zero")
    else:
        source = graph.pair(graph.node("DepthToSpace", made, blocksize=2))
    graph.node("Relu", graph.convolution(source, CHANNELS, CHANNELS))


def residual(graph: Graph, trunk: str) -> None:
    value = "picture"
    for _ in range(2):
        inner = graph.node("Relu", graph.convolution(graph.pair(value), CHANNELS, CHANNELS))
        made = graph.convolution(graph.pair(inner), CHANNELS, CHANNELS)
        value = graph.node("Add", made, graph.pair(value) if trunk == "8 bits" else value)


def dense(graph: Graph, joined: str) -> None:
    value = "picture"
    for _ in range(2):
        features, channels = [value], [CHANNELS]
        for layer in range(5):
            to = GROWTH if layer < 4 else CHANNELS
            groups = [range(len(features))]
            if joined == "sums":
                # As in 16 bits: sums of convolutions over {0}, {1, 2} and {3, 4}.
                groups = [[at for at in group if at < len(features)] for group in ([0], [1, 2], [3, 4])]
            parts = []
            for group in filter(len, groups):
                width = sum(channels[at] for at in group)
                if joined == "in 8 bits" and graph.kind is not None:
                    pairs = [(graph.pair(features[at]), graph.pairs[features[at]][0])[1] for at in group]
                    joint = graph.node("Concat", *pairs, axis=1) if len(pairs) > 1 else pairs[0]
                    source = graph.node("DequantizeLinear", joint, "scale", "zero")
                else:
                    names = [features[at] for at in group]
                    source = graph.pair(graph.node("Concat", *names, axis=1) if len(names) > 1 else names[0])
                parts.append(graph.convolution(source, width, to))
            made = parts[0]
            for part in parts[1:]:
                made = graph.node("Add", made, part)
            if layer < 4:
                features.append(graph.node("LeakyRelu", made, alpha=0.2))
                channels.append(to)
        factor = graph.constant(f"factor.{len(graph.nodes)}", numpy.float16(0.2))
        value = graph.node("Add", graph.node("Mul", made, factor), value)


def moved(path: Path, capability: str) -> tuple[int, int]:
    """Kernels of the plan, and the bytes that they move."""
    program = binaries() / "examples" / "build_plan"
    command = [program, LIBRARIES, path, capability, "kernels"]
    said = run(*command)
    found = re.search(r"(\d+) kernels move (\d+) bytes", said)
    return int(found[1]), int(found[2])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare forms of 8-bit graphs by the bytes that plans move.")
    parser.add_argument("--capability", default="8.9", help="the GPU that plans are for (default 8.9)")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if kind != "fp8" or arguments.capability not in ("8.0", "8.6")]
    scales = ["channels", "one", "behind"]
    forms = {
        "chain": (chain, [("ReLU",), ("Max",)]),
        "enlarged": (enlarged, [("in 16 bits",), ("in 8 bits",)]),
        "residual": (residual, [("16 bits",), ("8 bits",)]),
        "dense": (dense, [("in 16 bits",), ("in 8 bits",), ("sums",)]),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        print("| network | kind | scales of channels | quantised | form | kernels | MB moved |")
        print("|---|---|---|---|---|---|---|")
        for (name, (write, options)), kind in itertools.product(forms.items(), kinds):
            places = itertools.product(scales, ["before layers", "behind layers"]) if kind != "fp16" else [("–", "–")]
            for (scale, quantised), form in itertools.product(list(places), options):
                graph = Graph(kind, scale, quantised)
                write(graph, *form)
                graph.save(path)
                kernels, size = moved(path, arguments.capability)
                row = [name, kind, scale, quantised, *form, str(kernels), f"{size / 1e6:.0f}"]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
