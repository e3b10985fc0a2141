#!/usr/bin/env python3
"""Compares `Engine.upscale` with PyTorch, ONNX Runtime and OpenVINO by hand, for pictures of mixed sizes in memory.

    make build && make wheel && cargo build --release --package tileforge --example upscale_time
    python3 -m venv VENV && VENV/bin/pip install torch spandrel pillow onnxruntime==1.31.1 openvino==2026.4.1 \\
        target/wheels/tileforge-*.whl
    VENV/bin/python scripts/bench_python.py [--pictures 100] [--rounds 3]

All ways enlarge the same pictures by `models/compact-x4.safetensors` in FP32, one after the other, from an array of
8-bit samples to one. Sides are 64 to 512 pixels long, so that an engine of the profile `cpu` takes each as one tile.
All have one thread for each processor that they may use.

| way | is |
|---|---|
| tileforge, tileforge-openvino | `Engine.upscale` with engines of the profiles `cpu` and `openvino` |
| host, host-openvino | the same engines without Python (`crates/tileforge/examples/upscale_time.rs`) |
| onnxruntime, openvino | a session by hand, with the graph of `exporter export` for any size |
| torch, torch-compiled | spandrel's model; compiled for any size |

Every run of a way is a new process, which has a warm-up before it is timed. The ways take turns in random order, with
pauses. Results must be within one level of each other. At the end, `import tileforge` is timed in ten new processes.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from commands import ROOT, binaries, run
from PIL import Image

CHECKPOINT = ROOT / "models/compact-x4.safetensors"
WAYS = [
    *("tileforge", "host", "onnxruntime", "torch", "torch-compiled"),
    *("tileforge-openvino", "host-openvino", "openvino"),
]
WARM_UP = 3
PAUSE = 2.0

Enlarge = Callable[["np.ndarray"], "np.ndarray"]


def planes(picture: np.ndarray) -> np.ndarray:
    """`[1, 3, height, width]` of floats."""
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None], np.float32) / np.float32(255)


def samples(planes: np.ndarray) -> np.ndarray:
    """`[height, width, 3]` of 8 bits."""
    return np.rint(planes[0].clip(0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def of_tileforge(folder: Path, library: str) -> Enlarge:
    import tileforge

    return tileforge.open(folder / library).upscale


def of_onnxruntime(folder: Path) -> Enlarge:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(folder / "any.onnx", options, providers=["CPUExecutionProvider"])
    return lambda picture: samples(session.run(None, {"image": planes(picture)})[0])


def of_openvino(folder: Path) -> Enlarge:
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(folder / "any.onnx", "CPU", settings).create_infer_request()
    return lambda picture: samples(request.infer([planes(picture)])[0])


def of_torch(is_compiled: bool) -> Enlarge:
    import spandrel
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = spandrel.ModelLoader("cpu").load_from_file(CHECKPOINT).model.eval()
    if is_compiled:
        model = torch.compile(model, dynamic=True)

    def enlarge(picture: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return samples(model(torch.from_numpy(planes(picture))).numpy())

    return enlarge


def measure(way: str, folder: Path) -> None:
    """One run, in a process of its own: prints its seconds, and keeps its results of the first round."""
    enlarge = {
        "tileforge": lambda: of_tileforge(folder, "cpu"),
        "tileforge-openvino": lambda: of_tileforge(folder, "openvino"),
        "onnxruntime": lambda: of_onnxruntime(folder),
        "openvino": lambda: of_openvino(folder),
        "torch": lambda: of_torch(False),
        "torch-compiled": lambda: of_torch(True),
    }[way]()
    pictures = [np.asarray(Image.open(path)) for path in sorted(folder.glob("*.png"))]
    for picture in pictures[:WARM_UP]:
        enlarge(picture)
    began = time.perf_counter()
    made = [enlarge(picture) for picture in pictures]
    print(time.perf_counter() - began)
    if not (folder / f"{way}.npz").exists():
        np.savez(folder / f"{way}.npz", *made)


def seconds(way: str, folder: Path) -> float:
    """A run of a way."""
    if way.startswith("host"):
        engine = folder / ("openvino" if way.endswith("openvino") else "cpu")
        return float(run(binaries() / "examples/upscale_time", engine, *sorted(folder.glob("*.png"))))
    return float(run(sys.executable, __file__, "--measure", way, "--folder", folder))


def prepare(folder: Path, count: int) -> None:
    """Pictures of mixed sizes, the graph and the engines."""
    with Image.open(ROOT / "tests/images/coffee.png") as photo:
        photo = photo.convert("RGB").resize((1024, 1024))
    generator = random.Random(1)
    for number in range(count):
        width, height = generator.randint(64, 512), generator.randint(64, 512)
        left, top = generator.randint(0, 1024 - width), generator.randint(0, 1024 - height)
        photo.crop((left, top, left + width, top + height)).save(folder / f"{number:03}.png")
    run(binaries() / "exporter", "export", CHECKPOINT, "-o", folder / "any.onnx")
    for profile in ("cpu", "openvino"):
        run(binaries() / "engine-builder", "build", ROOT / "models/compact-x4.yaml", "--profile", profile,
            "--precision", "fp32", "-o", folder / profile)  # fmt: skip


def largest_difference(folder: Path, ways: list[str]) -> int:
    """Levels between the results of the ways in Python."""
    kept = [np.load(folder / f"{way}.npz") for way in ways if not way.startswith("host")]
    first, *others = [[file[name].astype(int) for name in file.files] for file in kept]
    return max((np.abs(one - two).max() for other in others for one, two in zip(first, other, strict=True)), default=0)


def import_seconds() -> float:
    """The median time of `import tileforge` in new processes."""
    text = "import time; t = time.perf_counter(); import tileforge; print(time.perf_counter() - t)"
    return statistics.median(float(run(sys.executable, "-c", text)) for _ in range(10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, arguments.pictures)
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(arguments.rounds):
            for way in random.sample(WAYS, len(WAYS)):
                found[way].append(seconds(way, folder))
                print(f"{number} {way}: {found[way][-1]:.2f} s; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
                time.sleep(PAUSE)
        levels = largest_difference(folder, WAYS)
    print("| way | seconds | over `tileforge` | over `tileforge-openvino` |\n|---|---|---|---|")
    for way, times in found.items():
        over = [statistics.median(one / two for one, two in zip(times, found[ours], strict=True))
                for ours in ("tileforge", "tileforge-openvino")]  # fmt: skip
        print(f"| {way} | {statistics.median(times):.2f} | {over[0]:.2f} | {over[1]:.2f} |")
    print(f"largest difference of results: {levels} levels; import tileforge: {import_seconds() * 1e3:.0f} ms")
    if levels > 1:
        sys.exit("results differ by more than one level")


if __name__ == "__main__":
    main()
