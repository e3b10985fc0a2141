#!/usr/bin/env python3
"""Compares forms of graphs in FP16 by the kernels of their plans for RTX GPUs, and the bytes that these move.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install -r tests/golden/requirements.txt onnx
    cargo build --release --package tileforge-tensorrt --features rtx --example build_plan
    target/golden-venv/bin/python scripts/search_forms.py [--capability 8.9]

Each graph is a small network at 256×256 with 64 channels. Its forms compute the same in other operators. TensorRT for
RTX builds their plans, and the example prints what these move. `search_eight_bits.py` does the same for 8 bits.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy
from search_eight_bits import CHANNELS, SIDE, Graph, moved

GROUPS = 32
WINDOW = 8
HEADS = 4
TOKENS = SIDE * SIDE


class Half(Graph):
    """A graph in FP16 alone."""

    def __init__(self):
        super().__init__("fp16", "–", "–")

    def shape(self, *dims: int) -> str:
        return self.constant(f"shape.{len(self.weights)}", numpy.array(dims, numpy.int64))

    def filled(self, *dims: int, value: float = 0.01) -> str:
        return self.constant(f"filled.{len(self.weights)}", numpy.full(dims, value, numpy.float16))

    def reshaped(self, value: str, *dims: int) -> str:
        return self.node("Reshape", value, self.shape(*dims))

    def activated(self, value: str) -> str:
        """x · sigmoid(x), as PyTorch's SiLU."""
        return self.node("Mul", value, self.node("Sigmoid", value))

    def tokens(self) -> str:
        rows = self.reshaped("picture", 1, CHANNELS, TOKENS)
        return self.node("Transpose", rows, perm=[0, 2, 1])

    def picture(self, tokens: str) -> str:
        return self.reshaped(self.node("Transpose", tokens, perm=[0, 2, 1]), 1, CHANNELS, SIDE, SIDE)


def residual(graph: Half, form: str) -> None:
    """Two blocks of two convolutions, whose result is added by a fifth."""
    value = "picture"
    for _ in range(2):
        made = graph.node("Relu", graph.convolution(value, CHANNELS, CHANNELS))
        made = graph.convolution(made, CHANNELS, CHANNELS)
        if form == "Mul by 0.2":
            made = graph.node("Mul", made, graph.filled(value=0.2))
        value = graph.node("Add", made, value)


def normalised(graph: Half, form: str) -> None:
    """A convolution, normalisation of 32 groups with SiLU, and another convolution."""
    made = graph.convolution("picture", CHANNELS, CHANNELS)
    scale, bias = graph.filled(CHANNELS), graph.filled(CHANNELS)
    if form == "GroupNormalization":
        made = graph.node("GroupNormalization", made, scale, bias, num_groups=GROUPS)
    else:
        made = graph.reshaped(made, 1, GROUPS, -1)
        made = graph.node("InstanceNormalization", made, graph.filled(GROUPS, value=1), graph.filled(GROUPS, value=0))
        made = graph.reshaped(made, 1, CHANNELS, SIDE, SIDE)
        made = graph.node("Mul", made, graph.reshaped(scale, 1, CHANNELS, 1, 1))
        made = graph.node("Add", made, graph.reshaped(bias, 1, CHANNELS, 1, 1))
    graph.convolution(graph.activated(made), CHANNELS, CHANNELS)


def gated(graph: Half, form: str) -> None:
    """GEGLU of transformers: a product of four times the width, gated by another one."""
    tokens, width = graph.tokens(), 4 * CHANNELS
    if form == "one product, split":
        both = graph.node("MatMul", tokens, graph.filled(CHANNELS, 2 * width))
        values = graph.node("Split", both, axis=2, num_outputs=2)
        gates = f"{values}.gates"
        graph.nodes[-1].output.append(gates)
    else:
        values = graph.node("MatMul", tokens, graph.filled(CHANNELS, width))
        gates = graph.node("MatMul", tokens, graph.filled(CHANNELS, width))
    made = graph.node("Mul", values, graph.node("Gelu", gates))
    graph.picture(graph.node("MatMul", made, graph.filled(width, CHANNELS)))


def shuffled(graph: Half, form: str) -> None:
    """A convolution whose channels become pixels, and one behind it."""
    graph.side = 2 * SIDE
    made = graph.convolution("picture", CHANNELS, 4 * CHANNELS)
    if form == "DepthToSpace":
        made = graph.node("DepthToSpace", made, blocksize=2, mode="CRD")
    else:
        made = graph.reshaped(made, 1, CHANNELS, 2, 2, SIDE, SIDE)
        made = graph.node("Transpose", made, perm=[0, 1, 4, 2, 5, 3])
        made = graph.reshaped(made, 1, CHANNELS, 2 * SIDE, 2 * SIDE)
    graph.convolution(made, CHANNELS, CHANNELS)


def attended(graph: Half, form: str) -> None:
    """Attention of four heads within windows of 8×8."""
    across = SIDE // WINDOW
    if form.startswith("rows first"):
        rows = graph.node("Transpose", "picture", perm=[0, 2, 3, 1])
        parts = graph.reshaped(rows, across, WINDOW, across, WINDOW, CHANNELS)
        parts = graph.node("Transpose", parts, perm=[0, 2, 1, 3, 4])
    else:
        parts = graph.reshaped("picture", CHANNELS, across, WINDOW, across, WINDOW)
        parts = graph.node("Transpose", parts, perm=[1, 3, 2, 4, 0])
    windows = graph.reshaped(parts, across * across, WINDOW * WINDOW, CHANNELS)
    split = (across * across, WINDOW * WINDOW, HEADS, CHANNELS // HEADS)
    heads = []
    if form.endswith("one product"):
        joint = graph.node("MatMul", windows, graph.filled(CHANNELS, 3 * CHANNELS))
        joint = graph.reshaped(joint, *split[:2], 3, *split[2:])
        joint = graph.node("Transpose", joint, perm=[2, 0, 3, 1, 4])
        heads = [
            graph.node("Gather", joint, graph.constant(f"at.{at}.{len(graph.nodes)}", numpy.int64(at)), axis=0)
            for at in range(3)
        ]
    else:
        for _ in range(3):
            made = graph.reshaped(graph.node("MatMul", windows, graph.filled(CHANNELS, CHANNELS)), *split)
            heads.append(graph.node("Transpose", made, perm=[0, 2, 1, 3]))
    query, key, value = heads
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.node("Softmax", graph.node("Mul", scores, graph.filled(value=0.25)), axis=-1)
    made = graph.node("Transpose", graph.node("MatMul", scores, value), perm=[0, 2, 1, 3])
    made = graph.node("MatMul", graph.reshaped(made, *split[:2], CHANNELS), graph.filled(CHANNELS, CHANNELS))
    made = graph.reshaped(made, across, across, WINDOW, WINDOW, CHANNELS)
    if form.startswith("rows first"):
        made = graph.reshaped(graph.node("Transpose", made, perm=[0, 2, 1, 3, 4]), 1, SIDE, SIDE, CHANNELS)
        graph.node("Transpose", made, perm=[0, 3, 1, 2])
    else:
        made = graph.node("Transpose", made, perm=[4, 0, 2, 1, 3])
        graph.reshaped(made, 1, CHANNELS, SIDE, SIDE)


FORMS = {
    "residual blocks": (residual, ["Mul by 0.2", "the factor in the weights"]),
    "group normalisation with SiLU": (normalised, ["GroupNormalization", "InstanceNormalization of groups"]),
    "GEGLU": (gated, ["one product, split", "two products"]),
    "pixel shuffle": (shuffled, ["DepthToSpace", "Reshape and Transpose"]),
    "attention in windows": (
        attended,
        ["rows first, three products", "rows first, one product", "at once, three products", "at once, one product"],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare forms of graphs by the bytes that plans move.")
    parser.add_argument("--capability", default="8.9", help="the GPU that plans are for (default 8.9)")
    arguments = parser.parse_args()
    print("| network | form | kernels | MB moved |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        for name, (write, forms) in FORMS.items():
            for form in forms:
                graph = Half()
                write(graph, form)
                graph.save(path)
                kernels, size = moved(path, arguments.capability)
                print(f"| {name} | {form} | {kernels} | {size / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
