#!/usr/bin/env python3
"""Compares engines on this machine's NVIDIA GPU with PyTorch, both in FP16.

    make setup GPU=1 && make build
    python3 -m venv target/golden-venv && target/golden-venv/bin/pip install -r tests/golden/requirements.txt …
    target/golden-venv/bin/python scripts/bench_gpu.py [--rounds 5] [NETWORK ...]

The networks are those of bench_graphs.py, with random weights in their published sizes. A picture in memory of four by
four tiles without overlap goes through each way, from the host's memory and back to it in FP32:

    runtime         `runtime bench`, with the number of streams and the batch that were fastest before
    torch eager     a loop over batches of tiles: channels last, pinned memory, copies that do not block
    torch.compile   the same, compiled

The ways take turns in random order, each `runtime bench` in a process of its own. The script prints the median time of
a picture, that of the network alone where everything stays on the GPU, and the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from bench_graphs import MODELS
from commands import binaries, run, xtask
from profiles import changed
from turns import ratios

OURS = "runtime"
# Tiles along each side of the picture.
SIDE = 4
# Of what bench_graphs.py has, for a GPU.
TILES = {"compact": 512, "rrdbnet": 512}
OTHER_TILE = 256
BATCHES, STREAMS = (1, 2, 4), (1, 2, 4)
# Seconds between ways.
PAUSE = 0.2


@dataclass
class Case:
    name: str
    tile: int
    checkpoint: Path
    engine: Path


def prepare(name: str, folder: Path, profile: str) -> Case:
    """The checkpoint and the engine, of one tile, with the batches that are tried."""
    model, tile = MODELS[name], TILES.get(name, OTHER_TILE)
    case = Case(name, tile, folder / f"{name}.safetensors", folder / f"{name}-engine")
    if (case.engine / "manifest.json").exists():
        return case
    xtask("synth", model.architecture, "--preset", model.preset, "--gain", str(model.gain), "-o", case.checkpoint)
    own = folder / name
    own.mkdir(exist_ok=True)
    # Random weights say nothing about quality.
    shapes = f"{{ tiles: [{tile}x{tile}], batch: {list(BATCHES)}, largest_run: {2 * tile}x{2 * tile} }}"
    one_tile = changed(profile, f"tasks: {{ upscale: {shapes} }}\nfloors: {{ psnr_db: 20, cosine: 0.9 }}\n", own)
    options = ["--profile", one_tile, "--precision", "fp16"]
    run(binaries() / "engine-builder", "build", case.checkpoint, *options, "-o", case.engine)
    return case


def bench(case: Case, batch: int, streams: int, runs: int) -> dict:
    picture, tile = f"{SIDE * case.tile}x{SIDE * case.tile}", f"{case.tile}x{case.tile}"
    shape = ["--size", picture, "--tile", tile, "--overlap", "0", "--margin", "0"]
    setting = ["--batch", str(batch), "--streams", str(streams), "--runs", str(runs), "--warm-up", "2", "--passes", "1"]
    command = [binaries() / "runtime", "bench", "--engine", case.engine, "--provider", "cuda", *shape, *setting]
    return json.loads(run(*command, "--json"))


def in_torch(network: torch.nn.Module, tile: int, batch: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A picture from and to the host's memory, and the network alone as often, with everything on the GPU."""
    count = SIDE * SIDE // batch
    host = torch.rand(SIDE * SIDE, 3, tile, tile).pin_memory()
    with torch.inference_mode():
        scale = network(host[:batch].cuda().half()).shape[-1] // tile
    result = torch.empty(SIDE * SIDE, 3, tile * scale, tile * scale).pin_memory()
    here = host[:batch].cuda().half().contiguous(memory_format=torch.channels_last)

    def whole() -> None:
        with torch.inference_mode():
            for first in range(0, SIDE * SIDE, batch):
                given = host[first : first + batch].cuda(non_blocking=True).half()
                made = network(given.contiguous(memory_format=torch.channels_last))
                result[first : first + batch].copy_(made.float(), non_blocking=True)
            torch.cuda.synchronize()

    def alone() -> None:
        with torch.inference_mode():
            for _ in range(count):
                network(here)
            torch.cuda.synchronize()

    return whole, alone


def timed(way: Callable[[], None], runs: int) -> float:
    way()
    begin = time.perf_counter()
    for _ in range(runs):
        way()
    return (time.perf_counter() - begin) / runs


def measure(case: Case, rounds: int, runs: int) -> None:
    network = MODELS[case.name].network(safetensors.torch.load_file(case.checkpoint))
    network = network.eval().cuda().half().to(memory_format=torch.channels_last)
    batch = 1 if case.tile >= 512 else 4
    eager = in_torch(network, case.tile, batch)
    begin = time.perf_counter()
    compiled = in_torch(torch.compile(network), case.tile, batch)
    print(f"{case.name}: torch.compile took {time.perf_counter() - begin:.0f} s", flush=True)
    sweep = {
        (each, streams): bench(case, each, streams, 3)["latency"]["p50_ms"] for each in BATCHES for streams in STREAMS
    }
    fastest = min(sweep, key=sweep.__getitem__)
    settings = ", ".join(f"batch {each} streams {streams} {ms:.0f}" for (each, streams), ms in sweep.items())
    print(f"{case.name}: ms by setting: {settings}", flush=True)
    ways: dict[str, Callable[[], float]] = {
        OURS: lambda: bench(case, *fastest, runs)["latency"]["p50_ms"] / 1e3,
        "torch eager": lambda: timed(eager[0], runs),
        "torch.compile": lambda: timed(compiled[0], runs),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in random.sample(list(ways), len(ways)):
            time.sleep(PAUSE)
            times[way].append(ways[way]())
    alone = {"torch eager": timed(eager[1], runs), "torch.compile": timed(compiled[1], runs)}
    megapixels = (SIDE * case.tile) ** 2 / 1e6
    over = ratios(times, OURS)
    for way, seconds in times.items():
        median = statistics.median(seconds)
        on_gpu = f", network alone {alone[way] * 1e3:.1f} ms" if way in alone else f", batch and streams {fastest}"
        speed = megapixels / median
        compared = f"ours takes {over[way]:.2f} of it" if way in over else "ours"
        print(f"{case.name} {case.tile}² {way}: {median * 1e3:.1f} ms, {speed:.1f} MP/s, {compared}{on_gpu}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare engines on the NVIDIA GPU of this machine with PyTorch.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way (default %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="pictures in each turn (default %(default)s)")
    parser.add_argument("--work", type=Path, help="a folder that keeps checkpoints and engines for the next run")
    parser.add_argument("--prepare", action="store_true", help="build the engines only")
    options = parser.parse_args()
    profile = run(binaries() / "engine-builder", "profiles", "--here").strip()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.networks or MODELS:
            case = prepare(name, folder, profile)
            if not options.prepare:
                measure(case, options.rounds, options.runs)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {os.cpu_count()} processors", file=sys.stderr)
    return 0


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    sys.exit(main())
