#!/usr/bin/env python3
"""Compares the exporter's graphs of depth and real-time networks with PyTorch on the CPU.

    make build && python3 scripts/bench_systems.py REPOSITORIES [--runs 7] [small-unet depth-anything]

It needs the packages and repositories of tests/golden-systems/requirements.txt, and onnxruntime. Each network has
random weights in its published size, and runs in PyTorch eager, with `torch.compile`, and in ONNX Runtime with the
graph of `exporter export`, in turns. The script reports the medians of the ratios within a round. All must give the
same output.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import safetensors.torch
import torch
from commands import binaries, run, xtask
from turns import ratios, take_turns

TOLERANCE = 1e-4  # of the output's range


def small_unet() -> torch.nn.Module:
    from day2_fixed import SimpleOptimizedUNet

    with contextlib.redirect_stdout(io.StringIO()):
        return SimpleOptimizedUNet(in_channels=4, out_channels=3, base_channels=96)


class DepthAnything(torch.nn.Module):
    """Depth Anything V2, vits, from the parts that the RGB-D repository shares with it."""

    def __init__(self) -> None:
        from rgbddepth.dinov2 import DINOv2
        from rgbddepth.dpt import DPTHead

        super().__init__()
        self.pretrained = DINOv2("vits")
        self.depth_head = DPTHead(384, 64, out_channels=[48, 96, 192, 384])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features = self.pretrained.get_intermediate_layers(pixels, [2, 5, 8, 11], return_class_token=True)
        return torch.relu(self.depth_head(features, pixels.shape[-2] // 14, pixels.shape[-1] // 14)).squeeze(1)


def timed_frame(inputs: dict) -> torch.Tensor:
    frame = inputs["frame"]
    return torch.cat([frame, torch.full_like(frame[:, :1], float(inputs["timestep"]) / 100)], 1)


# Architecture, preset, network, which of the inputs the network takes, and the inputs.
MODELS = {
    "small-unet": (
        "SimpleOptimizedUNet",
        "base-96",
        small_unet,
        timed_frame,
        {"frame": torch.randn(1, 3, 64, 64), "timestep": torch.tensor([50.0])},
    ),
    "depth-anything": (
        "DepthAnything",
        "vits",
        DepthAnything,
        lambda inputs: inputs["pixel_values"],
        {"pixel_values": torch.randn(1, 3, 518, 686)},
    ),
}


def measure(name: str, runs: int, folder: Path) -> None:
    architecture, preset, build, taken, inputs = MODELS[name]
    checkpoint, graph = folder / f"{name}.safetensors", folder / f"{name}.onnx"
    xtask("synth", architecture, "--preset", preset, "-o", checkpoint)
    shapes = ",".join(f"{key}:{'x'.join(map(str, value.shape))}" for key, value in inputs.items())
    run(binaries() / "exporter", "export", checkpoint, "-o", graph, "--shapes", shapes)
    network = build().eval()
    if unexpected := network.load_state_dict(safetensors.torch.load_file(checkpoint), strict=False).unexpected_keys:
        raise AssertionError(f"{name}: the reference has no tensors {unexpected[:3]}")
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    feed = {key: value.numpy() for key, value in inputs.items()}
    with torch.no_grad():
        x, compiled = taken(inputs), torch.compile(network)
        ways: dict[str, Callable] = {
            "torch eager": lambda: network(x).numpy(),
            "torch.compile": lambda: compiled(x).numpy(),
            "exporter": lambda: session.run(None, feed)[0],
        }
        outputs, times = take_turns(ways, runs)
    expected = outputs["torch eager"]
    for way, found in outputs.items():
        if not (error := abs(found - expected).max() / (expected.max() - expected.min())) <= TOLERANCE:
            raise AssertionError(f"{name}: {way} differs by {error:.1e} of the range")
    medians = ", ".join(f"{way} {statistics.median(each):.3f} s" for way, each in times.items())
    print(
        f"{name}: {medians}; the exporter's graph takes "
        f"{', '.join(f'{ratio:.2f}× {way}' for way, ratio in ratios(times, 'exporter').items())}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare graphs of depth and real-time networks with PyTorch on the CPU."
    )
    parser.add_argument("repositories", type=Path, help="the folder with the references' repositories")
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all of them if none is named"
    )
    parser.add_argument("--runs", type=int, default=7, help="timed runs of each way (default 7)")
    arguments = parser.parse_args()
    for place in ("rgbd-depth", "mirage-hello/examples/advanced"):
        sys.path.insert(0, str(arguments.repositories / place))
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models or MODELS:
            measure(name, arguments.runs, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
