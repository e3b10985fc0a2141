#!/usr/bin/env python3
"""Compares the exporter's graphs with PyTorch on the CPU.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install -r tests/golden/requirements.txt onnx onnxscript onnxruntime==1.31.1
    make build && target/golden-venv/bin/python scripts/bench_graphs.py [--runs 7] [MODEL ...]

Each model has random weights in its published size, and runs in four ways: PyTorch eager, `torch.compile`, ONNX
Runtime with the graph of `torch.onnx.export`, and ONNX Runtime with the graph of `exporter export`. With `--openvino`
(after `pip install openvino`), OpenVINO runs both graphs, in FP32 as well. With `--engine` (after `pip install` of what
`make wheel` makes), an engine of the profile `cpu` is a fifth way, and the one that the others are compared with. The
ways take turns after one warm-up run each. The script reports the medians of the ratios within a round. All must give
the same picture. A network that `torch.onnx.export` refuses runs in the other ways.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy
import onnx
import onnxruntime
import safetensors.torch
import torch
from commands import binaries, run, xtask
from spandrel.architectures.ATD import ATD
from spandrel.architectures.Compact import CompactArch
from spandrel.architectures.DAT import DAT
from spandrel.architectures.DRCT import DRCT
from spandrel.architectures.ESRGAN import ESRGANArch
from spandrel.architectures.HAT import HAT
from spandrel.architectures.OmniSR import OmniSR
from spandrel.architectures.RGT import RGT
from spandrel.architectures.SwinIR import SwinIR
from turns import ratios, take_turns

TOLERANCE = 1e-3  # of the output's range: deep random networks amplify rounding errors more than trained ones


@dataclass(frozen=True)
class Model:
    """A preset of `cargo xtask synth`, the reference's network for it, and the size of the tile."""

    architecture: str
    preset: str
    network: Callable[[dict], torch.nn.Module]
    tile: int
    # Of the random weights: below 1 where activations would explode.
    gain: float = 1.0


def sorted_stably(sort: Callable = torch.sort) -> Callable:
    """ATD sorts pixels by category without saying in which order equal ones come, which decides what attends to what.
    The exporter keeps their order."""
    return lambda *values, stable=False, **named: sort(*values, stable=True, **named)


torch.sort = sorted_stably()


def of(network: Callable[..., torch.nn.Module], **arguments) -> Callable[[dict], torch.nn.Module]:
    """The reference's network with what a checkpoint has learnt. It computes its other buffers itself."""

    def make(state: dict) -> torch.nn.Module:
        made = network(**arguments)
        if unexpected := set(state) - set(made.state_dict()):
            raise AssertionError(f"the reference lacks tensors: {sorted(unexpected)[:5]}")
        averages = [name for name in state if name.endswith((".running_mean", ".running_var"))]
        learnt = [*dict(made.named_parameters()), *averages]
        made.load_state_dict(made.state_dict() | {name: state[name] for name in learnt})
        return made

    return make


SWIN = {
    "img_size": 64,
    "embed_dim": 180,
    "depths": (6,) * 6,
    "num_heads": (6,) * 6,
    "mlp_ratio": 2.0,
    "upscale": 4,
    "upsampler": "pixelshuffle",
}
# DAT and RGT: attention in rectangles, and between channels or to a summary.
DIVIDED = {"embed_dim": 180, "depth": [6] * 6, "num_heads": [6] * 6, "upscale": 4}
CATEGORIES = {
    "embed_dim": 210,
    "depths": (6,) * 6,
    "num_heads": (6,) * 6,
    "window_size": 16,
    "category_size": 256,
    "num_tokens": 128,
    "reducted_dim": 20,
    "convffn_kernel_size": 5,
    "upscale": 4,
    "upsampler": "pixelshuffle",
}
MODELS = {
    "compact": Model("SRVGGNetCompact", "realesr-general-x4v3", lambda state: CompactArch().load(state).model, 256),
    "rrdbnet": Model("RRDBNet", "real-esrgan-x4plus", lambda state: ESRGANArch().load(state).model, 64),
    "swinir-m": Model("SwinIR", "swinir-m-x4", of(SwinIR, **SWIN, window_size=8), 64),
    "drct": Model("DRCT", "drct-x4", of(DRCT, **SWIN, window_size=16), 64),
    "hat-s": Model(
        "HAT",
        "hat-s-x4",
        of(HAT, **SWIN | {"embed_dim": 144}, window_size=16, compress_ratio=24, squeeze_factor=24),
        64,
    ),
    "dat-2": Model("DAT", "dat-2-x4", of(DAT, **DIVIDED, split_size=[8, 32], expansion_factor=2.0), 64),
    "rgt-s": Model("RGT", "rgt-s-x4", of(RGT, **DIVIDED, split_size=[8, 32], mlp_ratio=2.0), 64),
    "omnisr": Model("OmniSR", "omnisr-x4", of(OmniSR, res_num=5), 64, gain=0.3),
    "atd": Model("ATD", "atd-x4", of(ATD, **CATEGORIES), 64, gain=0.3),
}


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def runner(path: Path, openvino: bool) -> Callable[[numpy.ndarray], numpy.ndarray]:
    """Runs a graph on ONNX Runtime's CPU kernels or on OpenVINO."""
    if openvino:
        from openvino import Core

        compiled = Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return lambda image: compiled(image)[0]
    opened = session(path)
    return lambda image: opened.run(None, {opened.get_inputs()[0].name: image})[0]


def engine_runner(checkpoint: Path, model: Model, folder: Path) -> Callable[[numpy.ndarray], numpy.ndarray]:
    """Runs an engine of the profile `cpu` in FP32."""
    import tileforge

    engine, size = folder / "engine", f"{model.tile}x{model.tile}"
    shutil.rmtree(engine, ignore_errors=True)
    run(binaries() / "engine-builder", "build", checkpoint, "--profile", "cpu", "--precision", "fp32", "--size", size,
        "-o", engine)  # fmt: skip
    opened = tileforge.open(engine)
    [[given], [made]] = opened.ports()
    return lambda image: opened.run({given.name: image})[made.name]


def operators(session_path: Path) -> tuple[int, Counter]:
    """The number of exported nodes, and the operators after ONNX Runtime has optimised the graph."""
    nodes = len(onnx.load(session_path, load_external_data=False).graph.node)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = f"{folder}/optimised.onnx"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(session_path), options, providers=["CPUExecutionProvider"])
        optimised = onnx.load(options.optimized_model_filepath, load_external_data=False)
    return nodes, Counter(node.op_type for node in optimised.graph.node)


def trace(network: torch.nn.Module, image: torch.Tensor, path: Path) -> None:
    """Writes the graph of `torch.onnx.export`. Raises OnnxExporterError if ONNX has no such operators."""
    with torch.no_grad():
        torch.onnx.export(network, (image,), str(path), opset_version=20, dynamo=True, verbose=False)


def traced_session(network: torch.nn.Module, image: torch.Tensor, path: Path) -> onnxruntime.InferenceSession:
    """A session of the graph of `torch.onnx.export`."""
    trace(network, image, path)
    return session(path)


def measure(name: str, model: Model, runs: int, folder: Path, openvino: bool, engine: bool) -> dict:
    checkpoint, graph, traced = folder / f"{name}.safetensors", folder / f"{name}.onnx", folder / f"{name}-torch.onnx"
    xtask("synth", model.architecture, "--preset", model.preset, "--gain", str(model.gain), "-o", checkpoint)
    shape = f"image:1x3x{model.tile}x{model.tile}"
    run(binaries() / "exporter", "export", checkpoint, "-o", graph, "--shapes", shape)
    network = model.network(safetensors.torch.load_file(checkpoint)).eval()
    image = torch.from_numpy(numpy.random.default_rng(0).random((1, 3, model.tile, model.tile), dtype=numpy.float32))
    ours = runner(graph, openvino)
    try:
        trace(network, image, traced)
        theirs = runner(traced, openvino)
    except torch.onnx.OnnxExporterError as error:
        print(f"{name}: torch.onnx.export refuses it: {str(error).splitlines()[0]}", file=sys.stderr)
        theirs = None
    with torch.no_grad():
        compiled = torch.compile(network)
        ways: dict[str, Callable[[], numpy.ndarray]] = {
            "torch eager": lambda: network(image).numpy(),
            "torch.compile": lambda: compiled(image).numpy(),
            "exporter": lambda: ours(image.numpy()),
        }
        if engine:
            of_engine = engine_runner(checkpoint, model, folder)
            ways["engine"] = lambda: of_engine(image.numpy())
        if theirs:
            ways["torch.onnx.export"] = lambda: theirs(image.numpy())
        expected = network.double()(image.double()).numpy()
        network.float()
        outputs, times = take_turns(ways, runs)
    spread = expected.max() - expected.min()
    errors = {way: float(numpy.abs(found - expected).max() / spread) for way, found in outputs.items()}
    # A network that chooses by comparing values, as ATD does, differs by more where two are nearly equal.
    most = max(TOLERANCE, 3 * errors["torch eager"])
    for way, error in errors.items():
        if not error <= most:
            raise AssertionError(f"{name}: {way} differs by {error:.1e} of the range, torch eager by {most / 3:.1e}")
    over = ratios(times, "engine" if engine else "exporter")
    our_nodes, left = operators(graph)
    nodes = {"torch.onnx.export": operators(traced)[0]} if theirs else {}
    return {
        "seconds": {way: statistics.median(each) for way, each in times.items()},
        "ratios": over,
        "ratio": max(over.values()),
        "nodes": nodes | {"exporter": our_nodes, "after optimisation": sum(left.values())},
        "operators": dict(left.most_common()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the exporter's graphs with PyTorch on the CPU.")
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all of them if none is named"
    )
    parser.add_argument("--runs", type=int, default=7, help="timed runs of each way (default 7)")
    parser.add_argument("--openvino", action="store_true", help="OpenVINO runs both graphs")
    parser.add_argument("--engine", action="store_true", help="compare with an engine of the profile `cpu`")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models or MODELS:
            results[name] = result = measure(
                name, MODELS[name], arguments.runs, Path(folder), arguments.openvino, arguments.engine
            )
            if not arguments.json:
                times = ", ".join(f"{way} {value:.3f} s" for way, value in result["seconds"].items())
                over = ", ".join(f"{value:.2f}× {way}" for way, value in result["ratios"].items())
                print(f"{name}: medians {times}")
                ours = "the engine" if arguments.engine else "the exporter's graph"
                print(f"  {ours} takes {over}: {result['ratio']:.2f}× the best of the others")
                print(f"  nodes: {result['nodes']}; left: {result['operators']}", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))
    print(
        f"torch {version('torch')}, onnxruntime {version('onnxruntime')}, {torch.get_num_threads()} threads",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
