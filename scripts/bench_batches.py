#!/usr/bin/env python3
"""Measures what a processor gains from batches of text encoders and of a network for depth, and from a UNet for any.

    python3 -m venv target/peers-venv
    target/peers-venv/bin/pip install numpy onnxruntime==1.32.0
    make build
    target/peers-venv/bin/python scripts/bench_batches.py [--runs 5] [NETWORK:PRESET ...]

Each network has random weights, and a graph for each batch, as `exporter export` makes it. The graphs run on ONNX
Runtime's CPU provider with 2 threads, in turns. A figure is the time for each sample of a batch over the time of a
batch of one, the median of the rounds: below 1, the batch is faster.

With `--any-batch`, a UNet of Stable Diffusion 1.5's size for pictures of 256×256 is built with a graph for each of one
and two samples, and with one graph for any number of samples up to two. The figures are the time of the graph for any
number over that of the graph for this number, the memory of the sessions that run both numbers, and the memory of one
session that runs eight samples, alone and after one to seven.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnxruntime
from commands import binaries, failure, run, xtask
from turns import ratios, take_turns

THREADS = 2
BATCHES = (1, 2, 4)
NUMBERS = numpy.random.default_rng(0)
# The input of each architecture, the shape of one sample, and what makes samples.
SAMPLES = {
    "CLIPText": ("input_ids", [77], lambda shape: NUMBERS.integers(0, 49000, shape)),
    "DepthAnything": ("pixel_values", [3, 518, 518], lambda shape: NUMBERS.standard_normal(shape, dtype=numpy.float32)),
}
NETWORKS = ["CLIPText:clip-l", "CLIPText:openclip-bigg", "DepthAnything:vits"]

PROFILE = """\
name: {name}
provider: cpu
precision: fp32
tasks: {{ unet: {{ tiles: [32x32], batch: {batch} }} }}
floors: {{ psnr_db: 100, cosine: 0.999999 }}
"""


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


def unet_graphs(folder: Path) -> dict[str, Path]:
    """The graphs of a UNet: `one` and `two` for these numbers of samples, and `any` for both."""
    checkpoint = folder / "unet.safetensors"
    xtask("synth", "UNet2DConditionModel", "--preset", "sd15", "--gain", "0.3", "-o", checkpoint)
    graphs = {}
    for name, batch in (("one", "1"), ("two", "2"), ("any", "[1, 2]")):
        profile, engine = folder / f"{name}.yaml", folder / f"engine-{name}"
        profile.write_text(PROFILE.format(name=name, batch=batch))
        words = ("--set", "timestep=per-sample", "--profile", profile, "-o", engine)
        run(binaries() / "engine-builder", "build", checkpoint, *words)
        (graph,) = json.loads((engine / "manifest.json").read_text())["graphs"]
        graphs[name] = engine / graph["file"]
    return graphs


def unet_inputs(batch: int) -> dict[str, numpy.ndarray]:
    noise = {"sample": (batch, 4, 32, 32), "encoder_hidden_states": (batch, 77, 768)}
    inputs = {name: NUMBERS.standard_normal(shape, dtype=numpy.float32) for name, shape in noise.items()}
    return inputs | {"timestep": numpy.full(batch, 500, numpy.float32)}


def peak_gigabytes(runs: list[tuple[Path, list[int]]]) -> float:
    """The peak memory of a process that runs graphs, each with these numbers of samples, and keeps them open."""
    script = f"import bench_batches; bench_batches.open_all({[(str(path), list(each)) for path, each in runs]!r})"
    command = [sys.executable, "-B", "-c", script]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    if done.returncode:
        raise failure(command, done.stderr)
    return int(done.stdout) * 1024 / 1e9


def open_all(runs: list[tuple[str, list[int]]]) -> None:
    sessions = []
    for path, batches in runs:
        sessions.append(session(Path(path)))
        for batch in batches:
            sessions[-1].run(None, unet_inputs(batch))
    status = Path("/proc/self/status").read_text()
    print(status.split("VmHWM:")[1].split()[0])


def measure_any_batch(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graphs = unet_graphs(Path(folder))
        for batch, number in ((1, "one"), (2, "two")):
            inputs = unet_inputs(batch)
            opened = {way: session(graphs[name]) for way, name in (("fixed", number), ("any", "any"))}
            ways = {way: lambda each=each: each.run(None, inputs)[0] for way, each in opened.items()}
            outputs, times = take_turns(ways, runs)
            equal = numpy.array_equal(outputs["fixed"], outputs["any"])
            print(f"{batch} samples: {ratios(times, 'any')['fixed']:.2f}, equal: {equal}", flush=True)
            del opened, ways
        fixed = peak_gigabytes([(graphs["one"], [1]), (graphs["two"], [2])])
        print(f"memory: {peak_gigabytes([(graphs['any'], [1, 2])]):.2f} GB, of two sessions {fixed:.2f} GB", flush=True)
        alone, after = (peak_gigabytes([(graphs["any"], batches)]) for batches in ([8], range(1, 9)))
        print(f"memory with 8 samples: {alone:.2f} GB, after 1 to 7: {after:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what batches gain on a processor.")
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("--any-batch", action="store_true", help="measure a UNet for any number of samples alone")
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK:PRESET")
    arguments = parser.parse_args()
    if arguments.any_batch:
        measure_any_batch(arguments.runs)
        return
    for network in arguments.networks:
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(network, arguments.runs, Path(folder))
        print(network, *(f"{batch}: {figure:.2f}" for batch, figure in zip(BATCHES, figures)), sep="  ", flush=True)


if __name__ == "__main__":
    main()
