#!/usr/bin/env python3
"""Compares `runtime infer` with a script that runs the whole picture through ONNX Runtime, on the CPU.

    python3 -m venv target/peers-venv
    target/peers-venv/bin/pip install numpy pillow onnxruntime==1.31.1
    make build
    target/peers-venv/bin/python scripts/bench_tiles.py [--rounds 5] [--json OUT.json] [CASE ...]

Both ways are processes of their own, from PNG to PNG, with 2 threads, and are timed from their start to their end. So
the script's imports count, as those of every such script do. It runs the graph of `exporter export`, the runtime the
engines that `engine-builder build --profile cpu` makes of the same checkpoint in FP32 and in INT8, which is what the
model files of these networks ask for. The ways take turns; a ratio is the time of `runtime infer` over that of the
script in one round, so lower is better for the runtime. Peak memory is the largest resident size of a process, as the
system tells it at its end. The PSNR is that of the INT8 engine's gate: to FP32, on samples for calibration.

The cases are pictures through compact-x4 and through RRDBNet of 6 blocks (random weights), and a folder of 100 pictures
of mixed sizes. `shapes` measures the seconds for each megapixel, and the peak memory, of single tiles of several sides.
`batches` measures a folder of equal small pictures with one and with four of them in a run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT, binaries, measured, run, xtask
from profiles import with_shapes
from turns import SETTLING

PHOTO = ROOT / "tests/images/coffee.png"
THREADS = 2
MEBIBYTE = 2**20

# What a user writes instead. All pictures of a folder go through one session.
SCRIPT = """
import sys
from pathlib import Path

import numpy
import onnxruntime
from PIL import Image

graph, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[4])
session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
pictures = [(source, target)]
if source.is_dir():
    target.mkdir()
    pictures = [(path, target / path.name) for path in sorted(source.iterdir())]
for path, output in pictures:
    pixels = numpy.asarray(Image.open(path).convert("RGB"), dtype=numpy.float32) / 255
    (enlarged,) = session.run(None, {"image": numpy.ascontiguousarray(pixels.transpose(2, 0, 1)[None])})
    levels = (enlarged[0].transpose(1, 2, 0) * 255 + 0.5).clip(0, 255).astype(numpy.uint8)
    Image.fromarray(levels).save(output)
"""


@dataclass(frozen=True)
class Case:
    """A model, and the sizes of the pictures, width and height."""

    model: str
    sizes: tuple[tuple[int, int], ...]


def mixed(count: int) -> tuple[tuple[int, int], ...]:
    """The same sizes in each run: thumbnails to small photos."""
    numbers = random.Random(1)
    return tuple((numbers.randrange(48, 321), numbers.randrange(48, 321)) for _ in range(count))


CASES = {
    "compact-512": Case("compact", ((512, 512),)),
    "compact-720p": Case("compact", ((1280, 720),)),
    "compact-1080p": Case("compact", ((1920, 1080),)),
    "rrdbnet-256": Case("rrdbnet", ((256, 256),)),
    "compact-folder": Case("compact", mixed(100)),
}
SHAPES = {"compact": (64, 128, 256, 384, 512, 640), "rrdbnet": (64, 128, 256, 320, 384)}


@dataclass(frozen=True)
class Figures:
    """Seconds from start to end, and the largest resident size in MiB."""

    seconds: float
    memory: float


def process(*command: str | Path) -> Figures:
    time.sleep(SETTLING)
    found = measured(*command)
    return Figures(found.seconds, found.peak_bytes / MEBIBYTE)


class Models:
    """Checkpoints, with their graphs and engines, made when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def checkpoint(self, name: str) -> Path:
        if name == "compact":
            return ROOT / "models/compact-x4.safetensors"
        made = self.folder / f"{name}.safetensors"
        if not made.exists():
            xtask("synth", "RRDBNet", "--preset", "real-esrgan-x4plus-anime-6b", "-o", made)
        return made

    def graph(self, name: str) -> Path:
        made = self.folder / f"{name}.onnx"
        if not made.exists():
            run(binaries() / "exporter", "export", self.checkpoint(name), "-o", made, "--weights", "inline")
        return made

    def engine(self, name: str, profile: str | Path = "cpu", precision: str = "fp32") -> Path:
        made = self.folder / f"{name}-{Path(profile).stem}-{precision}"
        if not made.exists():
            build = (binaries() / "engine-builder", "build", self.checkpoint(name), "--profile", profile)
            run(*build, "--precision", precision, "-o", made)
        return made


def pictures(folder: Path, sizes: tuple[tuple[int, int], ...]) -> Path:
    """A picture, or a folder of them."""
    folder.mkdir()
    for number, (width, height) in enumerate(sizes):
        xtask("repeat", PHOTO, f"{width}x{height}", "-o", folder / f"{number:03}.png")
    return folder if len(sizes) > 1 else folder / "000.png"


def outputs(folder: Path, source: Path) -> Callable[[str], Path]:
    """Where each run writes: a new place each time, of the source's kind."""
    count = iter(range(10**6))
    return lambda way: folder / f"{way}-{next(count)}{source.suffix}"


def infer(engine: Path, source: Path, target: Path, *more: str) -> Figures:
    command = (binaries() / "runtime", "infer", "--engine", engine, "--input", source, "--output", target)
    return process(*command, "--threads", str(THREADS), *more)


def compare(name: str, case: Case, models: Models, folder: Path, rounds: int) -> dict:
    """`runtime infer` and the script in turns."""
    source = pictures(folder / name, case.sizes)
    target = outputs(folder, source)
    engines = {precision: models.engine(case.model, precision=precision) for precision in ("fp32", "int8")}
    graph = models.graph(case.model)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    rounds_of_ways = []
    for _ in range(rounds + 1):
        ways = {precision: infer(engine, source, target(precision)) for precision, engine in engines.items()}
        ways["script"] = process(sys.executable, script, graph, source, target("script"), str(THREADS))
        rounds_of_ways.append(ways)
    # The first round brings the files into memory.
    timed = rounds_of_ways[1:]
    ratios = {
        precision: [round(ways[precision].seconds / ways["script"].seconds, 3) for ways in timed]
        for precision in engines
    }
    gates = json.loads((engines["int8"] / "manifest.json").read_text())["gates"]
    return {
        "case": name,
        "ratio": {precision: statistics.median(each) for precision, each in ratios.items()},
        "ratios": ratios,
        "seconds": {way: statistics.median(ways[way].seconds for ways in timed) for way in timed[0]},
        "memory": {way: max(ways[way].memory for ways in timed) for way in timed[0]},
        "int8_psnr_db": min(gate["value"] for gate in gates if gate["name"] == "psnr_db"),
    }


def profile_of(folder: Path, name: str, shapes: str) -> Path:
    """A profile of CPUs with other shapes for upscaling."""
    made = folder / f"{name}.yaml"
    made.write_text(with_shapes(name, shapes))
    return made


def shapes(models: Models, folder: Path, rounds: int) -> list[dict]:
    """Single tiles of several sides: what `bench` measures inside, and the process's peak memory."""
    rows = []
    for name, sides in SHAPES.items():
        engine = models.engine(name, profile_of(folder, "large", "{ tiles: [64x64], largest_tile: 640x640 }"))
        figures: dict[int, list[Figures]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side in sides:
                command = (binaries() / "runtime", "bench", "--engine", engine, "--size", f"{side}x{side}")
                saved = folder / "bench.json"
                used = process(*command, "--threads", str(THREADS), "--runs=3", "--passes=1", "--save", saved)
                one = json.loads(saved.read_text())["run_ms"] / 1000
                figures[side].append(Figures(one / (side * side / 1e6), used.memory))
        for side in sides:
            rows.append({
                "model": name,
                "side": side,
                "seconds_per_megapixel": statistics.median(figure.seconds for figure in figures[side]),
                "memory": max(figure.memory for figure in figures[side]),
            })
    return rows


def batches(models: Models, folder: Path, rounds: int) -> list[dict]:
    """Folders of equal small pictures, in runs of one and of four."""
    rows = []
    profile = profile_of(folder, "batched", "{ tiles: [64x64], largest_tile: 640x640, batch: [1, 4] }")
    engine = models.engine("compact", profile)
    for side in (32, 64, 128, 256):
        source = pictures(folder / f"equal-{side}", ((side, side),) * 40)
        target = outputs(folder, source)
        times = [
            tuple(infer(engine, source, target("batch"), "--batch", batch).seconds for batch in ("1", "4"))
            for _ in range(rounds)
        ]
        ratio = statistics.median(four / one for one, four in times)
        rows.append({"side": side, "time_of_batches_of_4_over_one_by_one": ratio})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, "shapes", "batches", []], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    chosen = arguments.cases or list(CASES)
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = Models(folder)
        for name in chosen:
            parts = {"shapes": shapes, "batches": batches}
            found = (
                parts[name](models, folder, arguments.rounds)
                if name in parts
                else [compare(name, CASES[name], models, folder, arguments.rounds)]
            )
            for row in found:
                print(json.dumps(row), flush=True)
            rows += found
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
