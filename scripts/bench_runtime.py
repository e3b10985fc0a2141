#!/usr/bin/env python3
"""Compares `runtime infer` with loops over tiles in Python, and measures its start and its memory, on the CPU.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install -r tests/golden/requirements.txt onnx onnxscript onnxruntime==1.31.1
    make build
    target/golden-venv/bin/python scripts/bench_runtime.py [--runs 5] [PART ...]

A picture goes from PNG to PNG in several ways, in turns: through `runtime infer`, through PyTorch, and through ONNX
Runtime in Python with the graph of `exporter export` and with that of `torch.onnx.export` ("traced"). `runtime infer`
is timed from the start of its process until the file is in its place; the loops in Python without imports, loading and
session. All compute the same tiles at the same places, of one size that is the engine's only one: see bench_tiles.py
for tiles that suit the picture. All cut them in the middle of their overlap. "torch, clipped tiles" takes other tiles,
with 10 pixels around them and cut off at the picture's edge, as Real-ESRGAN's script does by default. That is less to
compute, with seams if the receptive field is larger.

`start` measures a whole `runtime infer` of a tiny picture, `memory` the resident peak for pictures of several sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy
import onnxruntime
import safetensors.torch
import torch
from bench_graphs import MODELS as NETWORKS
from bench_graphs import session, traced_session
from commands import ROOT, binaries, run, xtask
from PIL import Image
from profiles import with_shapes
from turns import ratios, take_turns

BINARIES = binaries()
PHOTO = ROOT / "tests/images/coffee.png"
OURS = "runtime infer"
LEVELS = 2  # of 255: the largest difference between pictures that are computed from the same tiles
PADDING = 10  # --tile_pad of Real-ESRGAN's inference_realesrgan.py
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Case:
    """A model, the side of its tiles and that of the picture."""

    network: str  # of scripts/bench_graphs.py
    tile: int
    picture: int
    # Clipped tiles need a network that takes any size.
    clipped: bool


CASES = {
    "compact-512": Case("compact", 256, 512, clipped=True),
    "compact-2048": Case("compact", 256, 2048, clipped=True),
    "drct-128": Case("drct", 64, 128, clipped=False),
    "drct-256": Case("drct", 64, 256, clipped=False),
}
# Width and height of the pictures for the measurement of memory. Height should not matter, so wide ones are low.
SIZES = {
    "tiny-x1": [(2048, 2048), (16384, 2048), (8192, 8192), (16384, 16384)],
    "tiny-x2": [(2048, 2048), (16384, 2048), (8192, 8192)],
    "compact-x4": [(2048, 664), (16384, 664)],
}


def repeated_photo(folder: Path, width: int, height: int) -> Path:
    made = folder / f"{width}x{height}.png"
    if not made.exists():
        xtask("repeat", PHOTO, f"{width}x{height}", "-o", made)
    return made


def infer(engine: Path, source: Path, target: Path, *options: str) -> dict:
    return json.loads(
        run(
            BINARIES / "runtime", "infer", "--engine", engine, "--input", source, "--output", target, "--json", *options
        )
    )


def engine_of(folder: Path, checkpoint: Path, tile: int | None = None) -> Path:
    """An engine for the profile `cpu`, or for tiles of this size only."""
    profile, built = "cpu", folder / f"{checkpoint.stem}-engine"
    if tile:
        profile = folder / f"one-tile-{tile}.yaml"
        profile.write_text(with_shapes(profile.stem, f"{{ tiles: [{tile}x{tile}] }}"))
    run(BINARIES / "engine-builder", "build", checkpoint, "--profile", profile, "-o", built)
    return built


@dataclass(frozen=True)
class Piece:
    """A tile along one axis, and the part of it that goes into the picture, in input pixels."""

    start: int
    end: int
    kept: range


def same_tiles(length: int, tile: int, overlap: int) -> list[Piece]:
    """The tiles of `runtime infer`, cut in the middle of their overlap."""
    count = 1 if length <= tile else -(-(length - overlap) // (tile - overlap))
    starts = [index * (length - tile) // max(count - 1, 1) for index in range(count)]
    cuts = [0, *((first + tile + second) // 2 for first, second in zip(starts, starts[1:])), length]
    return [Piece(start, start + tile, range(*kept)) for start, kept in zip(starts, zip(cuts, cuts[1:]))]


def clipped_tiles(length: int, tile: int) -> list[Piece]:
    kept = [range(start, min(start + tile, length)) for start in range(0, length, tile)]
    return [Piece(max(each.start - PADDING, 0), min(each.stop + PADDING, length), each) for each in kept]


def tile_loop(
    source: Path, target: Path, pieces: list[Piece], compute: Callable[[numpy.ndarray], numpy.ndarray], scale: int
) -> dict[str, float]:
    """PNG to PNG by tiles, like typical PyTorch scripts. Returns the seconds of its parts."""
    times = [time.perf_counter()]
    picture = numpy.asarray(Image.open(source)).astype(numpy.float32) / 255
    picture = numpy.ascontiguousarray(picture.transpose(2, 0, 1)[None])
    times.append(time.perf_counter())
    made = numpy.empty((1, 3, picture.shape[2] * scale, picture.shape[3] * scale), numpy.float32)
    in_network = 0.0
    for row in pieces:
        for column in pieces:
            tile = numpy.ascontiguousarray(picture[:, :, row.start : row.end, column.start : column.end])
            begin = time.perf_counter()
            output = compute(tile)
            in_network += time.perf_counter() - begin
            place, inside = [], []
            for piece in (row, column):
                place.append(slice(piece.kept.start * scale, piece.kept.stop * scale))
                inside.append(slice((piece.kept.start - piece.start) * scale, (piece.kept.stop - piece.start) * scale))
            made[:, :, place[0], place[1]] = output[:, :, inside[0], inside[1]]
    times.append(time.perf_counter())
    levels = (made[0].clip(0, 1).transpose(1, 2, 0) * 255).round().astype(numpy.uint8)
    Image.fromarray(levels).save(target)
    times.append(time.perf_counter())
    return {
        "decode": times[1] - times[0],
        "network": in_network,
        "tiles": times[2] - times[1] - in_network,
        "encode": times[3] - times[2],
    }


def compare(case: Case, runs: int, folder: Path) -> dict:
    model = NETWORKS[case.network]
    if case.network == "compact":
        checkpoint = ROOT / "models/compact-x4.safetensors"
    else:
        checkpoint = folder / f"{case.network}.safetensors"
        if not checkpoint.exists():
            xtask("synth", model.architecture, "--preset", model.preset, "-o", checkpoint)
    engine, graph = engine_of(folder, checkpoint, case.tile), folder / f"{case.network}.onnx"
    run(
        BINARIES / "exporter",
        "export",
        checkpoint,
        "-o",
        graph,
        "--shapes",
        f"image:1x3x{case.tile}x{case.tile}",
        "--weights",
        "inline",
    )
    network = model.network(safetensors.torch.load_file(checkpoint)).eval()
    opened = session(graph)
    traced = traced_session(network, torch.zeros(1, 3, case.tile, case.tile), folder / f"{case.network}-torch.onnx")
    source = repeated_photo(folder, case.picture, case.picture)

    def in_torch(tile: numpy.ndarray) -> numpy.ndarray:
        with torch.inference_mode():
            return network(torch.from_numpy(tile)).numpy()

    def in_onnxruntime(tile: numpy.ndarray) -> numpy.ndarray:
        return opened.run(None, {"image": tile})[0]

    def in_traced(tile: numpy.ndarray) -> numpy.ndarray:
        return traced.run(None, {traced.get_inputs()[0].name: tile})[0]

    def ours() -> Path:
        reports.append(infer(engine, source, folder / "ours.png"))
        return folder / "ours.png"

    def loop(way: str, pieces: list[Piece], compute: Callable[[numpy.ndarray], numpy.ndarray]) -> Path:
        target = folder / f"{way}.png"
        parts.setdefault(way, []).append(tile_loop(source, target, pieces, compute, scale=4))
        return target

    reports: list[dict] = []
    parts: dict[str, list[dict[str, float]]] = {}
    # The first run, which is not counted, shows which tiles the runtime chooses.
    plan = infer(engine, source, folder / "ours.png")["files"][0]
    pieces = same_tiles(case.picture, case.tile, plan["overlap"]["pixels"])
    if len(pieces) ** 2 != plan["tiles"]:
        raise AssertionError(f"{len(pieces)}² tiles in Python, {plan['tiles']} in the runtime")
    ways: dict[str, Callable[[], Path]] = {
        OURS: ours,
        "torch eager": lambda: loop("torch eager", pieces, in_torch),
        "ONNX Runtime in Python": lambda: loop("ONNX Runtime in Python", pieces, in_onnxruntime),
        "ONNX Runtime in Python, traced": lambda: loop("ONNX Runtime in Python, traced", pieces, in_traced),
    }
    if case.clipped:
        clipped = clipped_tiles(case.picture, case.tile)
        ways["torch eager, clipped tiles"] = lambda: loop("torch eager, clipped tiles", clipped, in_torch)
    outputs, times = take_turns(ways, runs)
    reports, parts = reports[1:], {way: each[1:] for way, each in parts.items()}

    # The same tiles give the same picture. That of the runtime is the same only if tiles do not depend on their
    # surroundings.
    same = [OURS] * plan["exact"] + ["torch eager", "ONNX Runtime in Python", "ONNX Runtime in Python, traced"]
    pictures = [numpy.asarray(Image.open(outputs[way])).astype(numpy.int16) for way in same]
    for way, picture in zip(same[1:], pictures[1:]):
        if (most := int(numpy.abs(picture - pictures[0]).max())) > LEVELS:
            raise AssertionError(f"{way} and {same[0]} differ by {most} levels")

    seconds = [report["files"][0]["seconds"] for report in reports]
    # The runtime's time for the picture alone, which is what is measured of the loops in Python.
    alone = {OURS: [each["total"] for each in seconds]} | {way: each for way, each in times.items() if way != OURS}
    inverse = lambda over: {way: round(1 / value, 3) for way, value in over.items()}  # noqa: E731
    median = lambda key: statistics.median(key(each) for each in seconds)  # noqa: E731
    return {
        "tiles": plan["tiles"],
        "peer over ours": inverse(ratios(times, OURS)),
        "peer over ours without process start and session": inverse(ratios(alone, OURS)),
        "seconds": {way: round(statistics.median(each), 3) for way, each in times.items()},
        "parts of seconds": {
            OURS: {stage: round(median(lambda each: each[stage]), 3) for stage in seconds[0]},
            **{
                way: {part: round(statistics.median(each[part] for each in all_), 3) for part in all_[0]}
                for way, all_ in parts.items()
            },
        },
        "beyond Session::run": {
            "first to last tile": round(median(lambda each: each["span_first_to_last_tile"] / each["run"]) - 1, 4),
            "whole picture": round(median(lambda each: each["total"] / each["run"]) - 1, 4),
        },
        "output bytes": {way: output.stat().st_size for way, output in outputs.items()},
    }


def start(runs: int, folder: Path) -> dict:
    """The time of a whole `runtime infer` of a 64×64 picture with cached files, in milliseconds."""
    engine, photo = engine_of(folder, ROOT / "models/compact-x4.safetensors"), repeated_photo(folder, 64, 64)
    infer(engine, photo, folder / "out.png")
    rows = []
    for _ in range(runs):
        begin = time.perf_counter()
        report = infer(engine, photo, folder / "out.png")
        whole = time.perf_counter() - begin
        row = {"process": whole, "in main": report["total_seconds"]}
        row |= {
            "engine": report["engine_seconds"],
            "loading ONNX Runtime": report["load_seconds"],
            "session": report["session_seconds"],
        }
        rows.append(row | {"Session::run": report["files"][0]["seconds"]["run"]})
    return {part: round(1000 * statistics.median(row[part] for row in rows), 1) for part in rows[0]} | {"runs": runs}


def memory(folder: Path) -> list[dict]:
    """The resident peak, and the bytes that the runtime keeps for each column of the picture."""
    engines = {"compact-x4": engine_of(folder, ROOT / "models/compact-x4.safetensors")}
    for name, preset in {"tiny-x1": "tiny-x1", "tiny-x2": "tiny-x2-relu"}.items():
        xtask("synth", "SRVGGNetCompact", "--preset", preset, "-o", folder / f"{name}.safetensors")
        engines[name] = engine_of(folder, folder / f"{name}.safetensors")
    rows = []
    for name, sizes in SIZES.items():
        for width, height in sizes:
            photo = repeated_photo(folder, width, height)
            report = infer(engines[name], photo, folder / "out.png")
            picture = report["files"][0]
            scale, overlap = picture["size"]["width"] // width, picture["overlap"]
            rows_of_tile = picture["tile"]["height"]
            count = -(-(height - overlap["pixels"]) // (rows_of_tile - overlap["pixels"]))
            step = (height - rows_of_tile) / max(count - 1, 1)
            # The decoded rows of one tile's height, the float32 rows that the next tiles are added to, and the samples
            # of finished rows twice: while they are blended and while they are encoded.
            kept = 3 * (rows_of_tile + scale**2 * (4 * (rows_of_tile - step - overlap["margin"]) + 2 * step))
            row = {"engine": name, "width": width, "height": height, "tiles": picture["tiles"]}
            row |= {
                "tile": f"{picture['tile']['width']}×{rows_of_tile}",
                "seconds": round(picture["seconds"]["total"], 1),
                "peak MiB": round(report["peak_memory_bytes"] / MEBIBYTE, 1),
            }
            rows.append(row | {"row bands MiB": round(kept * width / MEBIBYTE, 1)})
            print(json.dumps(rows[-1]), flush=True)
            if height > 4096:
                photo.unlink()
    return rows


def main() -> int:
    parts = [*CASES, "start", "memory"]
    parser = argparse.ArgumentParser(
        description="Compare the runtime with PyTorch and with ONNX Runtime in Python on the CPU."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all of them if none is named")
    parser.add_argument("--runs", type=int, default=5, help="timed rounds of each comparison (default 5)")
    parser.add_argument("--starts", type=int, default=15, help="timed starts (default 15)")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(parts):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in arguments.parts or parts:
            before = os.getloadavg()[0]
            if part in CASES:
                measured = compare(CASES[part], arguments.runs, folder)
            else:
                measured = start(arguments.starts, folder) if part == "start" else memory(folder)
            print(
                json.dumps(
                    {part: measured, "load before": round(before, 1), "load after": round(os.getloadavg()[0], 1)},
                    indent=2,
                ),
                flush=True,
            )
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "onnxruntime", "spandrel", "pillow"))
    print(f"{versions}, {torch.get_num_threads()} threads", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
