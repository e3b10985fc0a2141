#!/usr/bin/env python3
"""How long ONNX Runtime's threads should keep their processor while they wait for each other.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install numpy onnxruntime==1.31.1
    target/golden-venv/bin/python scripts/bench_spinning.py [--runs 15] GRAPH.onnx ...

Each graph runs with several durations, in turns, while none, one and two other processes keep a processor busy. The
script prints the medians of the time over that of ONNX Runtime's default.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy
import onnxruntime
from turns import ratios, take_turns

DURATIONS = ["0", "2", "5", "10", "20", "50", "100", "300"]
BUSY = [0, 1, 2]


def run_of(graph: Path, microseconds: str | None) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    if microseconds is not None:
        options.add_session_config_entry("session.intra_op.spin_duration_us", microseconds)
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    random = numpy.random.default_rng(1)
    inputs = {port.name: random.random(port.shape, dtype=numpy.float32) for port in session.get_inputs()}
    return lambda: session.run(None, inputs)


def burn() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    print("| graph | processors kept busy by others | " + " | ".join(f"{duration} µs" for duration in DURATIONS) + " |")
    print("|---|---|" + "---|" * len(DURATIONS))
    for graph in arguments.graphs:
        ways = {duration: run_of(graph, duration) for duration in DURATIONS} | {"default": run_of(graph, None)}
        for busy in BUSY:
            others = [multiprocessing.Process(target=burn, daemon=True) for _ in range(busy)]
            for other in others:
                other.start()
            _, times = take_turns(ways, arguments.runs)
            for other in others:
                other.kill()
            over = [ratios({way: times[way], "default": times["default"]}, way)["default"] for way in DURATIONS]
            print(f"| {graph.stem} | {busy} | " + " | ".join(f"{ratio:.2f}" for ratio in over) + " |", flush=True)


if __name__ == "__main__":
    main()
